from __future__ import annotations

import pytest

import scenarios
from serving.batching import BATCHINGS
from serving.policies import ORDERS
from serving.routing import ROUTERS


def shown(page) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def test_the_page_shows_the_scenario_and_names_what_binds(opened):
    page = opened(workload__requests="50")
    assert not page.exception
    assert "busy" in page.info[0].value


def test_more_load_makes_first_tokens_later_and_the_queue_is_named(opened):
    page = opened(workload__requests="50")
    before = page.info[0].value
    page.select_slider(key="knob:workload.arrivals.rate").set_value(30.0)
    page.select_slider(key="knob:engine.max_num_seqs").set_value(2).run()
    assert not page.exception
    assert page.info[0].value != before
    assert "max_num_seqs (2)" in page.info[0].value


def test_a_knob_changes_the_link_and_turned_back_leaves_it(opened):
    page = opened()
    page.number_input(key="knob:replicas").set_value(2).run()
    assert page.query_params["replicas"] == "2"
    page.number_input(key="knob:replicas").set_value(scenarios.load("demo").replicas).run()
    assert "replicas" not in page.query_params


@pytest.mark.parametrize(
    ("box", "registry"), [("engine.batching", BATCHINGS), ("engine.policy", ORDERS), ("router", ROUTERS)]
)
def test_every_registered_strategy_can_be_chosen(opened, box, registry):
    page = opened(workload__requests="50")
    assert len(page.selectbox(key=f"knob:{box}").options) == len(list(registry))
