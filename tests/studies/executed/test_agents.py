"""Agents, histories and transforms on the CPU engine: what a prompt quotes is really there, and the schedule replays."""

from typing import Any

import pytest

import scenarios
import studies
from scenarios import Scenario
from studies.results import Run
from studies.run import replayed

pytest.importorskip("torch", reason="executions need the extra gpu")

AGENT = {
    "kind": "agents",
    "turns": 2,
    "steps": 3,
    "tool_time": "50ms",
    "think_time": "80ms",
    "tool_result": 40,
    "system": {"prefix_tokens": 48},
    "sub_agents": {"share": 0.5, "count": 2, "steps": 2, "task": 24, "fork": "context"},
}
TALK = {"kind": "sessions", "turns": 4, "system": {"prefix_tokens": 48}}
CALLS = {"kind": "agents", "steps": 4, "tool_result": 64, "system": {"prefix_tokens": 48}}


def scenario(prompts: dict[str, Any], *transforms: Any, **fields: Any) -> Scenario:
    workload = {"requests": 8, "arrivals": "all_at_once", "input": 40, "output": 12, "prompts": prompts}
    workload |= {"transforms": list(transforms)} | fields
    engine = {"num_gpu_blocks": 160, "block_size": 16, "max_model_len": 640}
    return Scenario.model_validate(
        {"model": "qwen3-tiny", "hardware": "cpu", "engine": engine, "workload": workload, "seed": 3}
    )


def executed(prompts: dict[str, Any], *transforms: Any, **fields: Any) -> Run:
    return studies.execute(scenario(prompts, *transforms, **fields), device="cpu")


def sound(run: Run) -> Run:
    """The run, all of whose requests finished, and whose replay decides the same."""
    assert run.workload is not None
    assert run.summary["completed"] == len(run.workload)
    assert replayed(run, run.workload).identical
    return run


@pytest.mark.parametrize("history", ["exact", {"kind": "retokenised", "intact": 0.5}, "reasoning_stripped"])
def test_agents_with_sub_agents_are_executed_and_replayed(history: Any) -> None:
    run = sound(executed(AGENT | {"history": history}, requests=16))
    assert run.workload is not None
    assert run.workload.joins is not None
    finish, arrival = run.records.requests["finish_ns"], run.records.requests["arrival_ns"]
    for row, other in run.workload.joins.tolist():
        assert arrival[row] >= max(finish[other], finish[run.workload.follows[row]])
    # With room for everything, what a conversation had said and got is found, whole blocks of it.
    assert run.summary["kv_survival_percent"] == 100


@pytest.mark.parametrize(
    ("history", "cached"),
    [("exact", [0, 96, 144, 192]), ("retokenised", [0, 80, 128, 192]), ("reasoning_stripped", [0, 80, 128, 176])],
)
def test_how_an_answer_comes_back_decides_what_the_engine_finds(history: str, cached: list[int]) -> None:
    run = sound(executed(TALK | {"history": history}, requests=4))
    assert run.records.requests["cached_tokens"].tolist() == cached


@pytest.mark.parametrize(
    ("prompts", "transforms"),
    [
        (TALK, [{"kind": "cap_output", "tokens": 5}]),
        (TALK, [{"kind": "drop_stale_turns", "keep_last": 1}]),
        (TALK, [{"kind": "break_prefix", "tokens": 8, "at": 16}]),
        (TALK, [{"kind": "break_prefix", "tokens": 8}, "stabilise"]),
        (CALLS, [{"kind": "trim_tool_results", "tokens": 16}]),
        (CALLS, [{"kind": "trim_tool_results", "keep_last": 1, "stub_tokens": 4}]),
        (TALK, [{"kind": "raise_concurrency", "factor": 3}]),
    ],
    ids=lambda value: (
        None if isinstance(value, dict) else value[-1] if isinstance(value[-1], str) else value[-1]["kind"]
    ),
)
def test_every_transform_is_executed_and_changes_what_is_sent(prompts: dict[str, Any], transforms: list[Any]) -> None:
    arrivals = {"process": "constant", "rate": 20}
    run = sound(executed(prompts, *transforms, arrivals=arrivals))
    plain = scenarios.generate(scenario(prompts, arrivals=arrivals))
    assert run.workload is not None
    if transforms[-1] == "stabilise":
        assert run.records.requests["cached_tokens"].sum() > 0
    elif transforms[0]["kind"] == "raise_concurrency":
        assert run.workload.arrival_ns.max() < plain.arrival_ns.max()
    else:
        assert run.records.requests["prompt_tokens"].tolist() != plain.prompt_tokens.tolist()
    assert [change["transform"].split()[0] for change in run.info["transforms"]][-1] in str(transforms[-1])
