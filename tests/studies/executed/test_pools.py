"""Pools and routers on the CPU engine: every strategy is executed, and what was decided there is decided again in replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import scenarios
from scenarios.errors import InputError
from scenarios.schema import Scenario
from serving.routing import ROUTERS
from studies import results
from studies.run import execute, replayed, simulate
from studies.validation import validate, write
from studies.workload_files import load_workload

pytest.importorskip("torch", reason="executions need the extra gpu")

SMALL = {
    "name": "two-layers", "hidden_size": 64, "intermediate_size": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
    "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 1024,
}  # fmt: skip
LARGE = SMALL | {"name": "three-layers", "hidden_size": 96, "num_layers": 3, "head_dim": 32, "vocab_size": 700}
DOCUMENT: dict[str, Any] = {
    "name": "two small models",
    "hardware": "cpu",
    "pools": [
        {"name": "small", "model": SMALL, "quality": [[0, 0.9], [1, 0.2]]},
        {"name": "large", "model": LARGE, "quality": 0.95},
    ],
    "engine": {"num_gpu_blocks": 129, "max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 128},
    "workload": {
        "requests": 12,
        "arrivals": {"process": "poisson", "rate": 100},
        "input": {"distribution": "uniform", "min": 8, "max": 80},
        "output": {"distribution": "uniform", "min": 2, "max": 12},
        "difficulty": {"distribution": "uniform"},
    },
}
JUDGE = {"latency": "2ms", "recall": 0.9, "false_positive_rate": 0.1}


def scenario(**fields: Any) -> Scenario:
    return scenarios.loads(yaml.safe_dump(DOCUMENT | fields, sort_keys=False))


@pytest.mark.parametrize(
    "router",
    [
        {"name": "cascade", "thresholds": [0.4], "estimate_error": 0.1},
        {"name": "cascade", "judge": JUDGE},
        {"name": "cascade", "thresholds": [0.7], "judge": JUDGE, "within": "random"},
    ],
    ids=["up_front", "escalating", "both"],
)
def test_a_cascade_of_two_models_is_executed_and_replayed(router: dict[str, Any], tmp_path: Path) -> None:
    run = execute(scenario(router=router))
    assert run.workload is not None
    found = replayed(run, run.workload)
    assert (found.identical, found.first_difference) == (True, None)
    assert run.summary["completed"] == 12
    assert {"two-layers", "three-layers"} == {pool["backend"]["model"] for pool in run.info["pools"]}
    answers = [pool["answers"] for pool in run.info["pools"]]
    assert min(answers) > 0
    assert sum(answers) == 12
    assert run.summary["expected_quality"] == pytest.approx(
        np.average([pool["expected_quality"] for pool in run.info["pools"]], weights=answers)
    )
    if "judge" in router:
        assert run.summary["escalated"] == int(run.records.submitted.sum()) - 12 > 0
    results.save(run, tmp_path / "run")
    again = results.load(tmp_path / "run")
    assert replayed(again, load_workload(tmp_path / "run")).identical
    for column, was in ((again.records.judged_ns, run.records.judged_ns),):
        assert (column is None) == (was is None)
        assert column is None or np.array_equal(column, was)


def test_quality_and_escalations_are_those_of_the_simulation() -> None:
    """Whether an answer is good enough does not depend on the clock."""
    asked = scenario(router={"name": "cascade", "judge": JUDGE})
    live, simulated = execute(asked), simulate(asked)
    for key in ("judged", "escalated", "expected_quality"):
        assert live.summary[key] == simulated.summary[key]


@pytest.mark.parametrize("router", [name for name in ROUTERS if name not in ("round_robin", "least_requests")])
def test_a_router_of_three_replicas_is_executed_and_replayed(router: str) -> None:
    one = {name: value for name, value in DOCUMENT.items() if name != "pools"}
    prompts = {"kind": "shared_prefix", "prefix_tokens": 64, "num_prefixes": 3}
    load = DOCUMENT["workload"] | {"prompts": prompts, "requests": 24}
    asked = scenarios.loads(yaml.safe_dump(one | {"model": SMALL, "replicas": 3, "router": router, "workload": load}))
    run = execute(asked)
    assert run.workload is not None
    found = replayed(run, run.workload)
    assert (found.identical, found.first_difference) == (True, None)
    assert run.info["router"] == router
    order = np.argsort(run.records.requests["arrival_ns"], kind="stable")
    assert run.records.requests["replica"][order].tolist() != [i % 3 for i in range(24)]


def test_a_cascade_is_validated_pool_by_pool(tmp_path: Path) -> None:
    asked = scenario(router={"name": "cascade", "judge": JUDGE})
    found = validate(asked, repeats=1, grid="quick", ranking=False)
    assert found.schedule["identical"]
    assert {"small: all", "large: all"} <= set(found.cost.by_kind)
    assert [profile.model for profile in found.profiles] == ["two-layers", "three-layers"]
    assert found.predicted.summary["escalated"] == found.executed[0].summary["escalated"]
    write(found, tmp_path / "out")
    write(found, tmp_path / "out")  # over itself
    assert (tmp_path / "out" / "profile-2.json").is_file()


def test_one_profile_for_two_pools_is_refused() -> None:
    asked = scenario(router={"name": "cascade", "judge": JUDGE})
    profile = validate(scenario(pools=DOCUMENT["pools"][:1]), repeats=1, grid="quick", ranking=False).profile
    with pytest.raises(InputError, match="--profile: found one, but 2 pools have step costs of their own"):
        validate(asked, profile=profile)


def test_a_cascade_has_no_wall_clock() -> None:
    with pytest.raises(InputError, match="--clock wall runs one replica"):
        execute(scenario(router={"name": "cascade", "thresholds": [0.4]}), clock="wall")


def test_a_cascade_by_difficulty_needs_difficulties() -> None:
    load = {name: value for name, value in DOCUMENT["workload"].items() if name != "difficulty"}
    with pytest.raises(
        InputError, match=r"goes by the difficulty of requests, and they have none; give workload.difficulty"
    ):
        simulate(scenario(router={"name": "cascade", "thresholds": [0.4]}, workload=load))
