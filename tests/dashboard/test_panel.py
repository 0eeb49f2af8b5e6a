from __future__ import annotations

import pytest

import scenarios
from dashboard.panel import fold


def test_an_order_that_needs_more_sets_it_and_says_so(opened):
    page = opened(workload__requests="50")
    page.selectbox(key="knob:engine.policy").set_value("shortest_first").run()
    assert not page.exception
    assert not page.error
    assert page.query_params["workload.predictor"] == "oracle"
    assert any("something to go by" in info.value for info in page.info)
    page.select_slider(key="knob:engine.max_num_seqs").set_value(8).run()
    assert not any("something to go by" in info.value for info in page.info)


def test_what_does_not_fit_comes_with_buttons_that_make_it_fit(opened):
    page = opened(scenario="closed-loop", workload__requests="50")
    page.selectbox(key="knob:model").set_value("Llama-3.1-70B").run()
    assert not page.exception
    assert page.error
    assert page.metric  # of the last settings that fit
    page.button(key="way:0").click().run()
    assert not page.error
    assert page.query_params["model"] == "Llama-3.1-70B"


def test_a_change_that_does_not_fit_can_be_taken_back(opened):
    page = opened(scenario="closed-loop", workload__requests="50")
    page.selectbox(key="knob:model").set_value("Llama-3.1-70B").run()
    page.button(key="way:back").click().run()
    assert not page.error
    assert "model" not in page.query_params


def test_a_folded_group_draws_no_knobs_until_it_is_opened(opened):
    page = opened(unfolded=False, workload__requests="50")
    rate, seats = "knob:workload.arrivals.rate", "knob:engine.max_num_seqs"
    assert {slider.key for slider in page.select_slider} >= {rate}
    assert seats not in {slider.key for slider in page.select_slider}
    page.session_state[fold.OPEN] = {"Engine": True}
    page.run()
    page.select_slider(key=seats).set_value(8).run()
    assert page.select_slider(key=seats).value == 8
    page.select_slider(key=rate).set_value(3.0).run()
    assert {rate, seats} <= {slider.key for slider in page.select_slider}
    page.session_state[fold.OPEN] = {"Engine": False}
    page.run()
    assert page.query_params["engine.max_num_seqs"] == "8"
    assert seats not in {slider.key for slider in page.select_slider}


@pytest.mark.parametrize("name", scenarios.names())
def test_every_shipped_scenario_has_its_knobs(opened, name):
    page = opened(scenario=name, workload__requests="40", view="Batches")
    assert not page.exception
    labels = [box.label for box in page.selectbox] + [slider.label for slider in page.select_slider]
    assert any(label.startswith("Model") for label in labels)
    assert any("max_num_seqs" in label for label in labels)
