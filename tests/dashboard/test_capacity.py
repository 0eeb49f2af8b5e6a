"""The capacity page: what it asks, what it reports, the curve at once, and answers by a button."""

from __future__ import annotations

import pytest

import scenarios
from dashboard.capacity import query as capacity_query
from dashboard.capacity.query import read
from dashboard.settings import Settings
from scenarios import InputError
from studies.capacity import objectives

LONG = 300
DEMO = scenarios.load("demo")


def labelled(page) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def said(page) -> str:
    return " ".join(
        element.value for kind in ("info", "warning", "error", "success", "markdown") for element in getattr(page, kind)
    )


@pytest.fixture
def capacity(opened):
    """The page, of runs so short that it is there at once."""

    def call(**query):
        page = opened("capacity", **({"length": "60"} | query))
        assert not page.exception
        return page

    return call


def test_without_a_word_the_scenarios_own_objectives_and_load_are_asked():
    asked = read({}, DEMO)
    assert asked.objectives == objectives.of_scenario(DEMO)
    assert (asked.load.path, asked.target, asked.confidence) == ("workload.rate", 2.0, 0.95)
    assert not asked.told


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_can_be_asked(name):
    asked = read({}, scenarios.load(name))
    assert asked.objectives
    assert asked.at_target().workload == asked.scenario.workload


def test_a_scenario_that_states_none_is_held_to_its_promises():
    asked = read({}, scenarios.load("cascade"))
    assert asked.slo() == "ttft_p99 <= 4s, tpot_p95 <= 50ms"
    assert "promises" in asked.stated


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"limits": "ttft_p99<500ms"}, "reads like"),
        ({"limits": "ttf_p99<=500ms"}, "ttft_p99"),
        ({"limits": "ttft_p99>=2s, ttft_p99<=1s"}, "contradict"),
        ({"over": "workload.requests"}, "how long a run is"),
        ({"over": "replicas"}, "no load but a setting"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(query, problem):
    with pytest.raises(InputError, match=problem):
        read(query, DEMO)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("confidence", "101%"),
        ("confidence", "very"),
        ("target", "-1"),
        ("target", "much"),
        ("length", "3"),
        ("size", "pools[0].replicas"),
        ("devices", "H100,H900"),
        ("precisions", "fp3"),
        ("parallel", "3"),
    ],
)
def test_a_parameter_that_cannot_be_had_is_reported_and_left_as_usual(name, text):
    asked = read({name: text}, DEMO)
    assert asked == read({}, DEMO)
    assert len(asked.told) == 1
    assert asked.told[0].startswith(f"{name}={text}: ")


def test_a_limit_is_written_into_the_objectives_and_out_of_them():
    found = objectives.parse("ttft_p95<=2s, good_request_fraction>=0.9")
    assert capacity_query.with_limit(found, "ttft", 300.0) == "ttft_p95 <= 300ms, good_request_fraction >= 0.9"
    assert capacity_query.with_limit(found, "ttft", None) == "good_request_fraction >= 0.9"
    assert capacity_query.with_limit(found, "e2e", 10.0).endswith("e2e_p95 <= 10s")


def test_the_command_line_asks_the_same():
    settings = Settings("demo").changed("replicas", "2")
    asked = read({"limits": "ttft_p95<=1s", "confidence": "90%", "length": "100"}, settings.scenario())
    assert capacity_query.command(settings, asked, "--out", "capacity") == (
        "servetwin capacity demo --set replicas=2 --slo 'ttft_p95 <= 1s' --confidence 0.9 --requests 100 --out capacity"
    )


def test_the_curve_is_there_at_once_with_limit_and_knee(capacity):
    page = capacity()
    assert "Estimate: ttft_p95" in page.info[0].value
    assert {"limit (estimate)", "breaks first", "knee"} <= set(labelled(page))
    assert len(page.get("plotly_chart")) == 3


def test_a_number_writes_the_objectives_and_the_link(capacity):
    page = capacity()
    page.number_input(key="capacity:ttft").set_value(700.0).run(timeout=LONG)
    assert not page.exception
    assert page.query_params["limits"] == "ttft_p95 <= 700ms, good_request_fraction >= 0.9"
    assert page.text_input(key="capacity:limits").value == "ttft_p95 <= 700ms, good_request_fraction >= 0.9"


def test_wrong_objectives_of_a_link_are_reported_and_kept_to_be_mended(capacity):
    page = capacity(limits="ttft_p99<500ms")
    assert "reads like" in page.error[0].value
    assert page.text_input(key="capacity:limits").value == "ttft_p99<500ms"
    assert page.number_input(key="capacity:ttft").disabled
    assert not page.get("plotly_chart")


def test_a_wrong_confidence_of_a_link_is_reported(capacity):
    page = capacity(confidence="200%")
    assert page.warning[0].value.startswith("confidence=200%: a confidence lies between")


def test_clients_of_a_closed_loop_have_a_curve_and_the_least_load_that_is_wanted(capacity):
    page = capacity(scenario="closed-loop")
    assert not page.error
    assert "knee" in labelled(page)
    assert "does not reach output_throughput" in page.info[0].value.replace("\\", "")


def test_a_limit_that_nothing_meets_is_answered_as_the_command_line_answers_it(capacity):
    from studies.capacity import report, search

    page = capacity(limits="ttft_p50<=1ms")
    page.button(key="begin:capacity:highest").click().run(timeout=LONG)
    assert not page.exception
    found = search.highest_load(DEMO, "ttft_p50<=1ms", requests=60, processes=1)
    assert found.load is None
    assert page.warning[0].value == report.sentences(found)[0].replace("<", "\\<")
    assert "is the limit one that an empty engine can keep?" in page.info[0].value


def test_the_answer_of_other_settings_is_not_shown(capacity):
    page = capacity(limits="ttft_p50<=1ms", confidence="80%")
    page.button(key="begin:capacity:highest").click().run(timeout=LONG)
    page.selectbox(key="capacity:confidence").set_value("90%").run(timeout=LONG)
    assert not page.exception
    assert page.button(key="begin:capacity:highest")
    assert not page.warning


def test_replicas_for_a_target_have_a_price(capacity):
    page = capacity(target="12", limits="ttft_p50<=1s", confidence="80%")
    page.button(key="begin:capacity:fewest").click().run(timeout=LONG)
    assert not page.exception
    assert "Fewest replicas: 2." in page.success[0].value
    assert {"USD an hour", "USD per 1M output tokens"} <= set(labelled(page))


def test_the_cheapest_device_has_a_runner_up_and_says_what_was_refused(capacity):
    page = capacity(
        scenario="azure-conversation",
        target="2",
        devices="H100,A100-80G,RTX-4090",
        precisions="auto",
        parallel="1",
        limits="ttft_p50<=2s",
        confidence="80%",
        model="Qwen3-14B",
    )
    page.button(key="begin:capacity:cheapest").click().run(timeout=LONG)
    assert not page.exception
    assert page.success[0].value.startswith("Cheapest: 1 x A100-80G")
    assert "Runner-up" in said(page)
    assert "does not fit" in said(page)
