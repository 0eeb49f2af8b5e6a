from __future__ import annotations

import pytest

import scenarios
from dashboard.explore import downloads
from dashboard.explore import views as run_views
from dashboard.settings import Settings
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


def test_figures_are_shown_with_their_change_against_the_scenario_as_it_is(opened):
    page = opened(workload__requests="50", engine__max_num_seqs="2", workload__arrivals__rate="8")
    changes = {metric.label: metric.delta for metric in page.metric}
    assert changes["TTFT p50"]
    assert any("max_num_seqs: 16 → 2" in caption.value for caption in page.caption)


def test_a_pinned_baseline_is_in_the_link_and_a_link_brings_it_back(opened):
    page = opened(workload__requests="50", engine__max_num_seqs="4")
    page.button(key="baseline:pin").click().run()
    text = page.query_params["baseline"]
    assert "engine.max_num_seqs=4" in text
    assert not any(metric.delta for metric in page.metric)
    again = opened(workload__requests="50", engine__max_num_seqs="8", baseline=text)
    assert not again.exception
    assert any("max_num_seqs: 4 → 8" in caption.value for caption in again.caption)
    again.button(key="baseline:unpin").click().run()
    assert "baseline" not in again.query_params


def test_what_a_baseline_of_a_link_cannot_be_is_said(opened):
    page = opened(workload__requests="50", baseline="scenario=demo&engine.max_num_seqs=-4")
    assert any("Baseline" in warning.value and "max_num_seqs" in warning.value for warning in page.warning)


def test_the_last_valid_result_stays_while_settings_do_not_fit_together(opened):
    page = opened(workload__requests="50")
    page.text_area(key="others").set_value("engine.max_num_batched_tokens=0").run()
    assert "max_num_batched_tokens" in page.error[0].value
    assert page.metric
    assert any("last settings" in caption.value for caption in page.caption)


def test_the_slowest_request_is_explained_and_the_link_names_it(opened):
    page = opened(workload__requests="50", view="Requests")
    assert not page.exception
    page.button(key="slowest:ttft").click().run()
    assert not page.exception
    number = page.number_input(key="request").value
    assert page.query_params["request"] == str(number)
    assert any(f"Request {number} (" in info.value for info in page.info)


def test_what_a_request_was_chosen_for_is_what_is_explained(opened):
    page = opened(workload__requests="50", view="Requests")
    page.button(key="slowest:e2el").click().run()
    assert not page.exception
    assert page.session_state["explained"] == "e2el"


def test_a_link_opens_the_view_and_the_request_that_it_names(opened):
    page = opened(workload__requests="50", view="Requests", request="7")
    assert any("Request 7 (" in info.value for info in page.info)


@pytest.mark.parametrize(("name", "text"), [("view", "Nothing"), ("request", "5000")])
def test_what_a_view_of_a_link_cannot_be_is_said(opened, name, text):
    page = opened(workload__requests="50", **{"view": "Requests", name: text})
    assert not page.exception
    assert any(f"{name}={text}" in warning.value for warning in page.warning)


@pytest.mark.parametrize("view", list(run_views.VIEWS))
@pytest.mark.parametrize("scenario", ["cascade", "agents"])
def test_every_view_of_a_deployment_with_pools_and_of_agents(opened, scenario, view):
    page = opened(scenario=scenario, workload__requests="40", view=view)
    assert not page.exception
    assert page.metric


def test_what_is_set_can_be_taken_along_as_a_line_and_as_a_file(opened):
    page = opened(workload__requests="50", engine__max_num_seqs="4", view="Downloads")
    assert not page.exception
    assert "servetwin run demo --set engine.max_num_seqs=4" in page.code[0].value
    settings = Settings("demo", {"engine.max_num_seqs": "4"})
    text = downloads.with_difference(settings.scenario(), "servetwin run demo")
    assert text.startswith("# As of: servetwin run demo")
    assert scenarios.loads(text).hash() == settings.scenario().hash()


def test_the_beginning_of_a_long_run_and_the_whole_of_it_are_drawn_one_after_the_other(opened):
    page = opened(scenario="azure-conversation", workload__requests="6000")
    assert not page.exception
    assert page.metric
