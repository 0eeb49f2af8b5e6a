"""Mixtures: workloads of their own, merged by time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import scenarios
from scenarios import Scenario, Workload, mixture
from tests.scenarios.test_generate import columns

CHAT: dict[str, Any] = {
    "requests": 60,
    "arrivals": {"process": "poisson", "rate": 3},
    "input": {"distribution": "uniform", "min": 10, "max": 90},
    "output": 20,
    "prompts": {"kind": "sessions", "turns": 3, "think_time": "2s"},
}
JOBS: dict[str, Any] = {
    "arrivals": {"process": "staged", "stages": [{"rate": 2, "duration": "10s"}]},
    "input": 300,
    "output": {"distribution": "uniform", "min": 5, "max": 50},
    "tenants": [{"name": "nightly"}],
}


def scenario(**parts: Any) -> Scenario:
    return Scenario.model_validate({"model": "qwen3-tiny", "hardware": "cpu", "workload": {"mix": parts}})


def drawn(**parts: Any) -> Workload:
    return scenarios.generate(scenario(**parts))


def of_part(workload: Workload, name: str) -> np.ndarray:
    assert workload.service_class is not None
    return np.flatnonzero(workload.service_class == workload.classes.index(name))


def test_every_field_of_a_workload_is_merged() -> None:
    known = {
        *mixture.OF_REQUESTS,
        *mixture.WHERE_KNOWN,
        *mixture.OF_SEGMENTS,
        *mixture.RENUMBERED,
        *mixture.OF_THE_WHOLE,
    }
    assert {field.name for field in dataclasses.fields(Workload)} == known


def test_what_comes_back_of_an_answer_is_called_by_its_row_in_the_whole() -> None:
    workload = drawn(jobs=JOBS, talk=CHAT | {"prompts": CHAT["prompts"] | {"history": "retokenised"}})
    quoted = [(i, key) for i in range(len(workload)) for key, _ in workload.prompt(i) if str(key).startswith("ret:")]
    assert len(quoted) >= 40
    assert all(workload.session[int(str(key)[4:])] == workload.session[i] for i, key in quoted)
    assert {str(key) for i, key in quoted if workload.prompt(i)[-2][0] == key} == {
        f"ret:{row}" for row in workload.follows[workload.follows >= 0].tolist()
    }


def test_parts_are_merged_by_time_and_stay_whole() -> None:
    workload = drawn(chat=CHAT, jobs=JOBS)
    assert len(workload) == 60 + 20
    assert workload.classes == ("chat", "jobs")
    assert (np.diff(workload.arrival_ns[workload.arrival_ns >= 0]) >= 0).all()
    alone = drawn(jobs=JOBS)
    jobs = of_part(workload, "jobs")
    for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert (getattr(workload, column)[jobs] == getattr(alone, column)).all()
    assert [workload.tenants[k] for k in workload.tenant[jobs]] == ["nightly"] * 20
    chat = of_part(workload, "chat")
    assert {workload.tenants[k] for k in workload.tenant[chat]} == {"default"}
    assert set(workload.session[jobs]) == {-1}


def test_conversations_follow_their_own_turns() -> None:
    workload = drawn(chat=CHAT, jobs=JOBS)
    for i in of_part(workload, "chat").tolist():
        prompt, before = workload.prompt(i), int(workload.follows[i])
        assert sum(tokens for _, tokens in prompt) == workload.prompt_tokens[i]
        if before >= 0:
            assert workload.session[before] == workload.session[i]
            assert prompt[-2] == (f"out:{before}", 20)
            assert workload.request(before, 0).output_key == f"out:{before}"


def test_the_same_text_in_two_parts_is_two_texts() -> None:
    shared = JOBS | {"prompts": {"kind": "shared_prefix", "prefix_tokens": 100}}
    workload = drawn(a=shared, b=shared)
    assert {workload.prompt(i)[0][0] for i in of_part(workload, "a")} == {"a/sys:0"}
    assert {workload.prompt(i)[0][0] for i in of_part(workload, "b")} == {"b/sys:0"}


def test_parts_draw_from_streams_of_their_own() -> None:
    workload = drawn(a=CHAT, b=CHAT)
    assert workload.arrival_ns[of_part(workload, "a")].tolist() != workload.arrival_ns[of_part(workload, "b")].tolist()


def test_one_part_moves_no_other() -> None:
    base, moved = drawn(chat=CHAT, jobs=JOBS), drawn(chat=CHAT | {"input": 400, "requests": 30}, jobs=JOBS)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert (getattr(base, column)[of_part(base, "jobs")] == getattr(moved, column)[of_part(moved, "jobs")]).all()


def test_in_which_order_parts_are_listed_changes_nothing() -> None:
    one, other = scenario(chat=CHAT, jobs=JOBS), scenario(jobs=JOBS, chat=CHAT)
    assert one.hash() == other.hash()
    assert columns(scenarios.generate(one)) == columns(scenarios.generate(other))


def test_classes_of_equal_names_are_one_class() -> None:
    classes = [{"name": "gold", "slo": {"ttft": "1s"}}, {"name": "basic"}]
    workload = drawn(a=JOBS | {"classes": classes}, b=JOBS | {"classes": classes[:1]})
    assert workload.classes == ("gold", "basic")
    assert workload.class_slo == ({"ttft": 1.0, "tpot": None, "e2e": None}, None)
    assert workload.ttft_ns is not None
    assert set(workload.ttft_ns[of_part(workload, "gold")]) == {10**9}


def test_a_trace_may_be_a_part(tmp_path: Any) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.1,100,10\n2023-11-16 18:17:04.2,200,20\n"
    )
    workload = drawn(recorded={"trace": {"path": str(trace)}}, jobs=JOBS)
    assert workload.prompt_tokens[of_part(workload, "recorded")].tolist() == [100, 200]


@pytest.mark.parametrize(
    ("parts", "more", "why"),
    [
        ({"a": JOBS}, {"input": 5}, "found beside a mix"),
        ({"a": {"mix": {"b": JOBS}}}, {}, "cannot be a mix"),
        ({}, {}, "mix"),
        (
            {"a": CHAT | {"prompts": "unique", "arrivals": {"process": "closed_loop", "concurrency": 2}}},
            {},
            "closed_loop",
        ),
        (
            {"a": JOBS | {"classes": [{"name": "x"}]}, "b": JOBS | {"classes": [{"name": "x", "slo": {"ttft": "1s"}}]}},
            {},
            "another slo in a",
        ),
        ({"a": JOBS, "b": JOBS | {"classes": [{"name": "a"}]}}, {}, "is called as the part a is"),
        ({"a": JOBS | {"input": 3_000_000}}, {}, "no engine with these settings"),
    ],
)
def test_contradictions_are_refused(parts: Any, more: Any, why: str) -> None:
    data = {"model": "qwen3-tiny", "hardware": "cpu", "workload": {"mix": parts} | more}
    with pytest.raises(ValueError, match=why):
        Scenario.model_validate(data)


def test_a_refusal_names_the_part(refusal: Callable[..., str]) -> None:
    text = "model: qwen3-tiny\nhardware: cpu\nworkload: {mix: {jobs: {arrivals: all_at_once, requests: 2, input: 5}}}\n"
    assert refusal(text).startswith("bad.yaml: workload.mix.jobs.output: is required and missing")


def test_a_mixture_survives_its_own_yaml() -> None:
    one = scenario(chat=CHAT, jobs=JOBS)
    again = scenarios.loads(one.to_yaml())
    assert again.hash() == one.hash()
    assert columns(scenarios.generate(again)) == columns(scenarios.generate(one))
