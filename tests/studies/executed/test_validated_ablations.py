"""Strategies of every axis validated on the CPU engine: executed, replayed alike, and compared with the simulation layer by layer.

Step costs are measured once for all. How far the simulation is off depends on what else the machine does, so that it is told here
and not judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import scenarios
from calibration.validate import HEADLINES
from scenarios.errors import InputError
from scenarios.schema import Scenario
from serving.batching import BATCHINGS
from serving.policies import ORDERS
from serving.routing import ROUTERS
from sim.profile import Profile
from studies import calibrating, validated_ablations
from studies.results import Run
from studies.run import backend, execute, replayed
from studies.validation import validate

pytest.importorskip("torch", reason="executions need the extra gpu")

MODEL: dict[str, Any] = {
    "name": "two-layers", "hidden_size": 64, "intermediate_size": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
    "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 1024,
}  # fmt: skip
ENGINE = {"num_gpu_blocks": 80, "max_model_len": 320, "max_num_seqs": 4, "max_num_batched_tokens": 128}
CLASSES = [
    {"name": "gold", "slo": {"ttft": "20ms"}, "max_tokens": 10},
    {"name": "bronze", "weight": 3, "priority": 1, "slo": {"ttft": "1s"}, "output": 12},
]
WORKLOAD = {
    "requests": 16, "arrivals": {"process": "poisson", "rate": 2000}, "input": 30, "output": 8,
    "classes": CLASSES, "tenants": [{"name": "loud", "weight": 3}, {"name": "quiet"}],
}  # fmt: skip
SESSIONS = {"kind": "sessions", "turns": 3, "think_time": "1ms", "system": {"prefix_tokens": 32}}
AGENTS = {"kind": "agents", "steps": 2, "tool_time": "1ms", "tool_result": 30, "system": {"prefix_tokens": 32},
          "sub_agents": {"count": 2, "task": 10}}  # fmt: skip
PREFIXES = {"kind": "shared_prefix", "prefix_tokens": 64, "num_prefixes": 3}
LADDER = [
    {"cap_output": 3, "on_at": 1, "off_below": 0.5},
    {"drop_stale_turns": 0, "on_at": 2, "off_below": 1},
    {"shed_class": "bronze", "on_at": 3, "off_below": 1.5},
    {"reject": True, "on_at": 5, "off_below": 2},
]
POOLS = [
    {"name": "small", "model": MODEL, "quality": [[0, 0.9], [1, 0.2]]},
    {"name": "large", "model": MODEL, "quality": 0.95},
]


def engine(**changes: Any) -> dict[str, Any]:
    return {"engine": ENGINE | changes}


def load(**changes: Any) -> dict[str, Any]:
    return {"workload": WORKLOAD | changes}


def at_once(**changes: Any) -> dict[str, Any]:
    """A load that meets limits and ladders however fast the machine is."""
    return load(arrivals="all_at_once", **changes)


def arrivals(process: str, **how: Any) -> dict[str, Any]:
    return load(arrivals={"process": process, **how})


STRATEGIES: dict[str, dict[str, Any]] = {
    **{f"batching {name}": engine(batching=name) for name in BATCHINGS},
    **{f"order {name}": engine(policy=name) | load(predictor="oracle") for name in ORDERS},
    **{
        f"predictor {name}": engine(policy="shortest_first") | load(predictor=predictor)
        for name, predictor in {
            "noisy_oracle": {"kind": "noisy_oracle", "cv": 0.5}, "class_mean": "class_mean", "declared": "declared",
        }.items()
    },
    "contiguous": engine(kv_allocation="contiguous"),
    "blocks of 4": engine(block_size=4, num_gpu_blocks=240),
    "no prefix cache": engine(enable_prefix_caching=False) | load(prompts=PREFIXES),
    "pinned prefix": engine(pinned_prefixes={"sys:0": 64}, num_gpu_blocks=24) | load(prompts=PREFIXES),
    "host tier": engine(kv_offloading_size=0.1, num_gpu_blocks=24) | load(prompts=SESSIONS),
    "recompute": engine(num_gpu_blocks=9, max_model_len=100) | at_once(output=40),
    "swap": engine(num_gpu_blocks=9, max_model_len=100, preemption="swap", swap_space=0.1) | at_once(output=40),
    "ngram": engine(speculation={"method": "ngram", "k": 3, "acceptance": 0.5, "found": 1}),
    "ngram off above 2": engine(speculation={"method": "ngram", "k": 3, "acceptance": 0.5, "found": 1, "off_above": 2}),
    "bound by requests": {"admission": {"max_queue_requests": 2}} | at_once(),
    "bound by tokens": {"admission": {"max_queue_tokens": 100}} | at_once(),
    "nobody waits": {"admission": {"max_queue_requests": 0}} | at_once(),
    "queue time-out": {"admission": {"queue_timeout": "100us"}} | at_once(),
    "shed lowest": {"admission": {"max_queue_requests": 2, "when_full": "shed_lowest"}} | at_once(),
    "token bucket": {"admission": {"token_bucket": {"tokens": 2000, "burst": "100ms"}}},
    "tenant budget": {"admission": {"tenants": {"loud": {"requests": 100, "burst": "20ms"}}}},
    "ladder": {"degradation": {"ladder": LADDER}} | at_once(prompts=SESSIONS),
    "ladder by KV": {"degradation": {"ladder": [{"cap_output": 2, "signal": "kv_use", "on_at": 0.1}]}}
    | arrivals("closed_loop", concurrency=4),
    "ladder by wait": {"degradation": {"ladder": [{"cap_output": 2, "signal": "oldest_wait", "on_at": "100us"}]}}
    | arrivals("closed_loop", concurrency=8),
    "ladder by tokens": {"degradation": {"ladder": [{"cap_output": 2, "signal": "queue_tokens", "on_at": 40, "hold": "2ms"}]}}
    | at_once(),
    "clients": {"client_behaviour": {"first_token_timeout": "10ms", "timeout": "1s", "retries": 2, "backoff": "2ms"}}
    | at_once(output=60, classes=[]),  # the last of them would wait for some 180 steps
    "front end": {"front_end": {"workers": 2, "per_prompt_token": "10us"}},
    **{
        f"router {name}": {"replicas": 3, "router": name} | load(prompts=PREFIXES) for name in ROUTERS
    },
    "three of power_of_two": {"replicas": 4, "router": {"name": "power_of_two", "choices": 3}},
    "load guard": {"replicas": 2, "router": {"name": "prefix_affinity", "balance_abs_threshold": 1}} | load(prompts=PREFIXES),
    **{
        f"history {name}": load(prompts=SESSIONS | {"history": history})
        for name, history in {
            "exact": "exact", "retokenised": {"kind": "retokenised", "intact": 0.5}, "stripped": "reasoning_stripped",
        }.items()
    },
    "agents": load(prompts=AGENTS),
    **{
        f"transform {transform['kind']}": load(prompts=AGENTS if "trim" in transform["kind"] else SESSIONS, transforms=[transform])
        for transform in (
            {"kind": "cap_output", "tokens": 3},
            {"kind": "trim_tool_results", "tokens": 10},
            {"kind": "drop_stale_turns", "keep_last": 1},
            {"kind": "break_prefix", "tokens": 4, "at": 0},
        )
    },
    "transform stabilise": load(prompts=SESSIONS, transforms=[{"kind": "break_prefix", "tokens": 4, "at": 0}, "stabilise"]),
    "transform raise_concurrency": load(
        arrivals={"process": "closed_loop", "concurrency": 2}, transforms=[{"kind": "raise_concurrency", "factor": 2}]
    ),
    "arrivals gamma": arrivals("gamma", rate=1000, burstiness=0.2),
    "arrivals constant": arrivals("constant", rate=1000),
    "arrivals all_at_once": load(arrivals="all_at_once"),
    "arrivals closed_loop": arrivals("closed_loop", concurrency=3),
    "arrivals on_off": arrivals("on_off", rate=2000, on="2ms", off="5ms"),
    "arrivals ramp": arrivals("ramp", start_rate=100, end_rate=2000, duration="20ms"),
    "arrivals spike": arrivals("spike", rate=200, peak_rate=4000, start="5ms", length="3ms", duration="20ms"),
    "arrivals diurnal": arrivals("diurnal", rate=1000, peak_to_mean=1.8, period="10ms"),
    "arrivals staged": arrivals("staged", stages=[{"rate": 200, "duration": "10ms"}, {"rate": 2000, "duration": "5ms"}]),
    "mixture": {"workload": {"mix": {
        "callers": {"requests": 8, "arrivals": {"process": "poisson", "rate": 1000}, "input": 20, "output": 6},
        "documents": {"requests": 3, "arrivals": {"process": "constant", "rate": 500}, "input": 150, "output": 3},
    }}},
    "longer answers": load(answer_lengths={"models": {"two-layers": 2.0}}),
    "cascade by difficulty": {
        "pools": POOLS, "router": {"name": "cascade", "thresholds": [0.4], "estimate_error": 0.1},
    } | load(difficulty={"distribution": "uniform"}),
    "cascade with a judge": {
        "pools": POOLS, "router": {"name": "cascade", "judge": {"latency": "1ms", "recall": 0.9}},
    } | load(difficulty={"distribution": "uniform"}),
    "ladder to the small model": {
        "pools": POOLS, "router": {"name": "cascade", "thresholds": [0.1]},
        "degradation": {"watch": "large", "ladder": [{"route_to": "small", "on_at": 1, "off_below": 0.5}]},
    } | at_once(difficulty={"distribution": "uniform"}),
}  # fmt: skip


ENGAGED: dict[str, Callable[[Run], bool]] = {
    "recompute": lambda run: run.summary["preemptions"] > 0,
    "swap": lambda run: run.summary["preemptions"] > 0,
    "pinned prefix": lambda run: run.records.requests["cached_tokens"].sum() > 0,
    "no prefix cache": lambda run: run.records.requests["cached_tokens"].sum() == 0,
    **{
        name: lambda run: run.summary["rejected"] > 0
        for name in (
            "bound by requests", "bound by tokens", "nobody waits", "shed lowest", "token bucket", "tenant budget", "ladder",
        )
    },
    "queue time-out": lambda run: run.summary["timed_out"] > 0,
    "clients": lambda run: run.summary["aborted"] > 0,
    "front end": lambda run: bool((run.records.requests["ready_ns"] > run.records.requests["arrival_ns"]).all()),
    **{
        name: lambda run: bool((run.records.requests["rung"] > 0).any())
        for name in ("ladder", "ladder by KV", "ladder by wait", "ladder by tokens", "ladder to the small model")
    },
    "transform cap_output": lambda run: run.summary["total_output_tokens"] == 3 * 16,
    "cascade with a judge": lambda run: run.summary["escalated"] > 0,
    "longer answers": lambda run: run.summary["total_output_tokens"] > 250,
}  # fmt: skip
"""By what an execution shows that its strategy did something."""


def scenario(strategy: str) -> Scenario:
    document: dict[str, Any] = {"name": strategy, "hardware": "cpu", "engine": ENGINE, "workload": WORKLOAD}
    asked = STRATEGIES[strategy]
    if "pools" not in asked:
        document["model"] = MODEL
    return scenarios.loads(yaml.safe_dump(document | asked, sort_keys=False))


@pytest.fixture(scope="module")
def profile() -> Profile:
    asked = scenario("ngram")
    return calibrating.measured(asked, backend(asked), grid="quick", repeats=2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_validated(strategy: str, profile: Profile) -> None:
    asked = scenario(strategy)
    found = validate(asked, profile=[profile] * len(asked.of_pools()), repeats=1, ranking=False)
    assert found.schedule == {"identical": True, "steps": found.schedule["steps"], "first_difference": None}
    assert found.schedule["steps"] == len(found.executed[0].records.steps["step"])
    wholes = [errors for kind, errors in found.cost.by_kind.items() if kind.endswith("all")]
    assert sum(errors.steps for errors in wholes) == found.schedule["steps"]
    assert {row.metric for row in found.outcome} >= set(HEADLINES)
    if strategy in ENGAGED:
        assert ENGAGED[strategy](found.executed[0])


TRACES = {
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,37,4\n2023-11-16 18:15:46.69,39,6\n",
    "burstgpt.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,40,6,46,Conversation log\n"
    "5,GPT-4,50,4,54,API log\n",
    "mooncake.jsonl": "".join(
        json.dumps({"timestamp": 10 * i, "input_length": 100, "output_length": 4, "hash_ids": [1, 2, 3, 4, 5, 10 + i]}) + "\n"
        for i in range(3)
    ),
    "sessions.jsonl": "\n".join(
        json.dumps(line)
        for line in (
            {"session": "a", "call": "1", "time": 0, "system": "v2", "system_tokens": 60, "user_tokens": 8, "output_tokens": 6},
            {"session": "a", "call": "2", "parent": "1", "pause": 0.01, "tool_tokens": 9, "output_tokens": 4},
            {"session": "a", "call": "2.1", "parent": "2", "fork": "system", "task_tokens": 15, "output_tokens": 5},
            {"session": "a", "call": "2.2", "parent": "2", "fork": "system", "task_tokens": 12, "output_tokens": 7},
            {"session": "a", "call": "3", "parent": "2", "results": ["2.1", "2.2"], "output_tokens": 9},
            {"session": "b", "call": "1", "time": 0.01, "system": "v2", "system_tokens": 60, "user_tokens": 1, "output_tokens": 5},
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_of_every_format_is_validated(name: str, profile: Profile, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TRACES[name])
    workload = {"trace": {"path": str(tmp_path / name)}}
    asked = Scenario.model_validate({"model": MODEL, "hardware": "cpu", "engine": ENGINE, "workload": workload})
    found = validate(asked, profile=profile, repeats=1, ranking=False)
    assert found.schedule["identical"], found.schedule["first_difference"]
    run = found.executed[0]
    assert run.workload is not None
    assert run.summary["completed"] == len(run.workload) >= 2
    cached = int(run.records.requests["cached_tokens"].sum())
    assert (cached > 0) == name.endswith("jsonl")


@pytest.mark.parametrize(
    "engine",
    [
        {"preset": "sglang"},
        {"preset": "vllm@0.19"},
        {"dtype": "int8", "kv_cache_dtype": "int8"},
        {"dtype": "int4", "kv_cache_dtype": "fp8"},
    ],
    ids=["sglang", "vllm", "int8", "int4"],
)
def test_presets_and_precisions_are_validated(engine: dict[str, Any]) -> None:
    """Whatever changes step costs is measured for itself."""
    small = {"num_gpu_blocks": 40, "max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 64}
    if engine.get("preset") == "sglang":
        small["num_gpu_blocks"] = 640  # of one token each
    workload = {"requests": 5, "arrivals": "all_at_once", "input": 20, "output": 6}
    asked = Scenario.model_validate({"model": MODEL, "hardware": "cpu", "engine": small | engine, "workload": workload})
    found = validate(asked, repeats=1, grid="quick", ranking=False)
    assert found.schedule["identical"], found.schedule["first_difference"]
    assert found.cost.by_kind["all"].steps == found.schedule["steps"] > 0
    assert {row.metric for row in found.outcome} >= set(HEADLINES)
    info = found.executed[0].info["backend"]
    if "dtype" in engine:
        assert (info["dtype"], info["kv_dtype"]) == (engine["dtype"], engine["kv_cache_dtype"])


def test_a_draft_model_is_executed_and_replayed() -> None:
    engine = {
        "num_gpu_blocks": 20, "max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 64,
        "speculation": {"method": "draft", "k": 2, "draft_model": "qwen3-tiny", "acceptance": 0.6},
    }  # fmt: skip
    workload = {"requests": 4, "arrivals": "all_at_once", "input": 20, "output": 6}
    run = execute(
        Scenario.model_validate({"model": "qwen3-tiny", "hardware": "cpu", "engine": engine, "workload": workload})
    )
    assert run.workload is not None
    found = replayed(run, run.workload)
    assert found.identical, found.first_difference
    assert run.info["speculation"]["accepted"] > 0


def test_variants_of_an_ablation_share_their_step_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    original = calibrating.measured

    def counted(*given: Any, **how: Any) -> Profile:
        measured.append(given)
        return original(*given, **how)

    monkeypatch.setattr(calibrating, "measured", counted)
    rows = list(validated_ablations.validated(validated_ablations.variants(["bounded_queue"]), repeats=1))
    assert [row.variant for row in rows] == ["unbounded", "bounded", "by_tokens", "loss"]
    assert len(measured) == 1
    for row in rows:
        assert row.identical
        assert row.steps > 0
        assert row.cost_error is not None
        assert row.metric in HEADLINES
        assert row.noise is None
    shown = validated_ablations.table(rows, 1).rows
    assert [line[2] for line in shown] == ["identical"] * 4


def test_hardware_that_the_device_is_not_is_refused_before_any_work() -> None:
    asked = Scenario.model_validate({"model": MODEL, "hardware": "RTX-4090", "engine": ENGINE, "workload": WORKLOAD})
    with pytest.raises(InputError, match=r"hardware: found RTX-4090, but the step costs of cpu are measured"):
        validate(asked, ranking=False)


def test_an_ablation_without_a_small_form_cannot_be_validated() -> None:
    with pytest.raises(InputError, match="execution: is missing"):
        validated_ablations.variants(["cascade_against_frontier"])
