from __future__ import annotations

import contextlib

import pytest

import scenarios
from dashboard import knobs, question
from dashboard.knobs import Choice, Number, Scale, Switch
from dashboard.knobs.turning import loads, turned, ways_out
from dashboard.settings import Settings
from scenarios import InputError
from studies import questions


def cases():
    yield from ((name, Settings(name)) for name in scenarios.names())
    for name in sorted(questions.names()):
        points = list(question.of(name).points.items())
        for called, settings in (points[0], points[-1]):
            yield f"{name}: {called}", settings


CASES = list(cases())
SHIPPED = [(name, settings) for name, settings in CASES if not settings.base.startswith("question:")]
named = pytest.mark.parametrize("settings", [s for _, s in CASES], ids=[name for name, _ in CASES])
shipped = pytest.mark.parametrize("settings", [s for _, s in SHIPPED], ids=[name for name, _ in SHIPPED])


@named
def test_the_present_value_of_every_knob_written_back_is_the_same_scenario(settings):
    scenario = settings.scenario()
    for knob in knobs.of(scenario):
        back, said = turned(settings, knob, knob.shown())
        assert not said, knob.path
        assert back.scenario().hash() == scenario.hash(), knob.path


@named
def test_present_values_are_among_those_on_offer_and_no_path_is_there_twice(settings):
    found = knobs.of(settings.scenario())
    paths = [knob.path for knob in found]
    assert len(paths) == len(set(paths))
    assert [knobs.GROUPS.index(knob.group) for knob in found] == sorted(
        knobs.GROUPS.index(knob.group) for knob in found
    )
    for knob in found:
        assert knob.help
        if isinstance(knob.control, Choice):
            assert knob.shown() in knobs.options(knob.control, knob.shown())
        elif isinstance(knob.control, Scale):
            assert knob.shown() in knobs.values(knob.control, knob.shown())
        elif isinstance(knob.control, Number):
            assert knob.control.optional or knob.shown() is not None


def offered(knob):
    control = knob.control
    if isinstance(control, Choice):
        return list(control.options)
    if isinstance(control, Switch):
        return [True, False]
    if isinstance(control, Scale):
        return [control.values[0], control.values[-1]]
    kind = int if control.whole else float
    return [kind(control.least), *([None] if control.optional else [])]


@shipped
def test_whatever_is_chosen_loads_or_is_refused_in_a_sentence(settings):
    for knob in knobs.of(settings.scenario()):
        for value in offered(knob):
            found, _ = turned(settings, knob, value)
            with contextlib.suppress(InputError):
                found.scenario()


@shipped
def test_a_value_that_loads_is_shown_by_its_knob_and_turned_back_leaves_no_change(settings):
    for knob in knobs.of(settings.scenario()):
        for value in offered(knob):
            found, _ = turned(settings, knob, value)
            if not loads(found) or found == settings:
                continue
            now = {other.path: other for other in knobs.of(found.scenario())}.get(knob.path)
            if now is None or knob.path in ("router", "cost"):  # other routers have no such knob
                continue
            assert now.text(now.shown()) == knob.text(value), (knob.path, value)
            if knob.path.endswith("engine.policy"):  # what it brought stays
                continue
            back, _ = turned(found, now, knob.shown())
            assert back.scenario().hash() == settings.scenario().hash(), (knob.path, value)


def knob_of(settings, path):
    return next(knob for knob in knobs.of(settings.scenario()) if knob.path == path)


@pytest.mark.parametrize("order", ["shortest_first", "fair", "longest_prefix", "deadline"])
def test_an_order_brings_what_it_goes_by_and_says_so(order):
    settings = Settings("demo", {"engine.enable_prefix_caching": "false", "slo": "{}"})
    found, said = turned(settings, knob_of(settings, "engine.policy"), order)
    assert found.scenario().engine.policy == order
    assert "so that it has something to go by" in said
    assert loads(found)


def test_an_order_that_lacks_nothing_changes_nothing_else():
    settings = Settings("demo")
    found, said = turned(settings, knob_of(settings, "engine.policy"), "longest_prefix")
    assert found.changes == {"engine.policy": "longest_prefix"}
    assert not said


def test_the_last_limit_taken_away_leaves_no_admission():
    settings = Settings("demo", {"admission.max_queue_requests": "4"})
    found, _ = turned(settings, knob_of(settings, "admission.max_queue_requests"), None)
    assert found == Settings("demo")
    held = Settings("question:bounded_queue_under_bursts", {"admission": "{max_queue_requests: 4}"})
    found, _ = turned(held, knob_of(held, "admission.max_queue_requests"), None)
    assert found.scenario().admission is None


def test_a_model_that_does_not_fit_comes_with_ways_out_each_of_which_loads():
    settings = Settings("closed-loop")
    found, _ = turned(settings, knob_of(settings, "model"), "Llama-3.1-70B")
    assert not loads(found)
    says = {change.says for change in ways_out(found)}
    assert any(text.startswith("On ") for text in says)
    assert any("devices a replica" in text for text in says)
    for change in ways_out(found):
        assert loads(change.on(found)), change


def test_a_pool_that_does_not_fit_has_ways_out_too():
    settings = Settings("cascade", {"pools[1].engine.tensor_parallel_size": "1"})
    assert not loads(settings)
    found = ways_out(settings)
    assert found
    for change in found:
        assert all(path.startswith("pools[1].") for path, _ in change.texts)
        assert loads(change.on(settings))


def test_what_fits_needs_no_way_out():
    assert ways_out(Settings("demo")) == []


def test_what_an_order_lacked_goes_with_it_again():
    start = Settings("demo")
    shortest = {knob.path: knob for knob in knobs.of(start.scenario())}["engine.policy"]
    found, said = turned(start, shortest, "shortest_first")
    assert "oracle" in said
    assert found.changes["workload.predictor"] == "oracle"
    again = {knob.path: knob for knob in knobs.of(found.scenario())}["engine.policy"]
    assert turned(found, again, "fcfs")[0] == start
