"""Answers get longer or shorter with the model, its precision and what the product does to prompts: by stated multipliers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import scenarios
from scenarios import Scenario
from scenarios.answer_lengths import TRANSFORMS, described

Build = Callable[..., Scenario]
WIDE = {"distribution": "uniform", "min": 10, "max": 90}


def output(scenario: Scenario) -> list[int]:
    return scenarios.generate(scenario).output_tokens.tolist()


def test_what_applies_is_multiplied(build: Build) -> None:
    stated = {"models": {"qwen3-tiny": 2, "Qwen3-8B": 9}, "precisions": {"int4": 1.5, "fp8": 9}}
    base = build(workload={"output": WIDE})
    both = build(workload={"output": WIDE, "answer_lengths": stated}, engine={"dtype": "int4"})
    assert output(both) == [3 * tokens for tokens in output(base)]
    assert scenarios.generate(both).max_tokens.tolist() == output(both)


def test_a_transform_may_have_one(build: Build) -> None:
    talk = {
        "prompts": {"kind": "sessions", "turns": 5},
        "output": 20,
        "transforms": [{"kind": "drop_stale_turns", "keep_last": 1}],
    }
    stated = {"transforms": {"drop_stale_turns": 0.5, "trim_tool_results": 9}}
    assert set(output(build(workload={**talk, "answer_lengths": stated}))) == {10}
    assert set(output(build(workload=talk))) == {20}


def test_answers_that_return_in_prompts_are_as_long_as_they_came(build: Build) -> None:
    talk = {"prompts": {"kind": "sessions", "turns": 2}, "requests": 2, "output": 50}
    longer = scenarios.generate(build(workload={**talk, "answer_lengths": {"models": {"qwen3-tiny": 1.2}}}))
    assert longer.prompt(1) == (("p0", 100), ("out:0", 60), ("p1", 100))


def test_a_recorded_trace_is_stretched_too(build: Build, tmp_path: Any) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.1,100,10\n2023-11-16 18:17:04.2,200,1\n"
    )
    spec = {"trace": {"path": str(trace)}, "answer_lengths": {"models": {"qwen3-tiny": 0.3}}}
    workload = scenarios.generate(build(workload=spec))
    assert workload.output_tokens.tolist() == [3, 1]  # never none at all
    assert workload.max_tokens.tolist() == [3, 1]


def test_what_nobody_stated_is_one_and_unknown(build: Build) -> None:
    stated = {"models": {"qwen3-tiny": 1.0}}
    scenario = build(workload={"answer_lengths": stated, "transforms": [{"kind": "cap_output", "tokens": 5}]})
    assert described(scenario) == [
        {"what": "model", "name": "qwen3-tiny", "factor": 1.0, "known": True},
        {"what": "precision", "name": "bfloat16", "factor": 1.0, "known": False},
        {"what": "transform", "name": "cap_output", "factor": 1.0, "known": False},
    ]


def test_they_move_no_other_draw(build: Build) -> None:
    base = scenarios.generate(build(workload={"output": WIDE, "requests": 50}))
    longer = scenarios.generate(
        build(workload={"output": WIDE, "requests": 50, "answer_lengths": {"models": {"qwen3-tiny": 3}}})
    )
    for column in ("arrival_ns", "prompt_tokens", "tenant", "priority"):
        assert (getattr(base, column) == getattr(longer, column)).all()


def test_one_for_a_whole_mixture() -> None:
    part = {"arrivals": "all_at_once", "requests": 3, "input": 5, "output": 10}
    data: dict[str, Any] = {"model": "qwen3-tiny", "hardware": "cpu", "workload": {"mix": {"a": part, "b": part}}}
    data["workload"]["answer_lengths"] = {"models": {"qwen3-tiny": 2}}
    assert set(output(Scenario.model_validate(data))) == {20}
    data["workload"] = {"mix": {"a": {**part, "answer_lengths": {"models": {"x": 1}}}}}
    with pytest.raises(ValueError, match="for the whole mix"):
        Scenario.model_validate(data)


def test_pools_whose_models_answer_at_different_lengths_are_refused(build: Build) -> None:
    pools = [{"name": "small", "model": "qwen3-tiny"}, {"name": "large", "model": "Qwen3-0.6B"}]
    spec: dict[str, Any] = {"answer_lengths": {"models": {"qwen3-tiny": 1.5}}}
    with pytest.raises(ValueError, match="an answer is as long whichever pool gives it"):
        build(pools=pools, workload=spec)
    spec["answer_lengths"]["models"]["Qwen3-0.6B"] = 1.5
    assert set(output(build(pools=pools, workload=spec))) == {30}
    unknown = [m["name"] for m in described(build(pools=pools)) if not m["known"]]
    assert unknown == ["qwen3-tiny", "bfloat16", "Qwen3-0.6B"]


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({}, "states no multiplier"),
        ({"models": {"m": 0}}, "models"),
        ({"models": {"m": -1}}, "models"),
        ({"precisions": {"int5": 2}}, "did you mean 'int"),
        ({"transforms": {"drop_turns": 2}}, "did you mean 'drop_stale_turns'"),
    ],
)
def test_nonsense_is_refused(build: Build, stated: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        build(workload={"answer_lengths": stated})


def test_every_transform_may_be_named() -> None:
    assert {"cap_output", "trim_tool_results", "drop_stale_turns"} <= set(TRANSFORMS)


def test_hashes(build: Build) -> None:
    assert build(workload={"answer_lengths": None}).hash() == build().hash()
    one = build(workload={"answer_lengths": {"models": {"qwen3-tiny": 2}}})
    assert one.hash() != build().hash()
    assert scenarios.loads(one.to_yaml()).hash() == one.hash()


def test_shorter_answers_make_a_conversation_fit(build: Build) -> None:
    long = {"requests": 4, "output": 500, "prompts": {"kind": "sessions", "turns": 4}}
    engine = {"max_model_len": 1024}
    with pytest.raises(ValueError, match="no engine with these settings"):
        build(workload=long, engine=engine)
    shorter = build(workload={**long, "answer_lengths": {"models": {"qwen3-tiny": 0.1}}}, engine=engine)
    assert scenarios.generate(shorter).prompt_tokens.max() == 4 * 100 + 3 * 50
