"""Runs of several pools: what is said of each, how good answers are, and where latency went."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import scenarios
from scenarios.errors import InputError
from serving.metrics import by_request, summary
from serving.records import Records
from serving.tries import answered
from sim.replay import replay
from studies import results
from studies.aspects import pools
from studies.explaining.explain import Explanation
from studies.reports import report, run_tables
from studies.results import Run
from studies.run import replayed, simulate
from studies.workload_files import load_workload

DOCUMENT: dict[str, Any] = {
    "name": "cascade",
    "hardware": "H100",
    "pools": [
        {"name": "small", "model": "Qwen3-0.6B", "quality": [[0, 0.95], [1, 0.3]]},
        {"name": "large", "model": "Qwen3-8B", "replicas": 2, "quality": 0.95, "gpu_hour": 6.0},
    ],
    "router": {"name": "cascade", "judge": {"latency": "200ms", "recall": 0.9, "false_positive_rate": 0.05, "usd": 0.001}},
    "workload": {
        "requests": 200,
        "arrivals": {"process": "poisson", "rate": 20},
        "input": 400,
        "output": 80,
        "difficulty": {"distribution": "uniform"},
    },
}  # fmt: skip


@cache
def run(**fields: Any) -> Run:
    return simulate(scenarios.loads(yaml.safe_dump(DOCUMENT | {k: yaml.safe_load(v) for k, v in fields.items()})))


def test_pools_together_have_served_what_was_sent() -> None:
    found = run()
    small, large = found.info["pools"]
    assert small["requests"] == 200  # all start there
    assert large["requests"] == found.summary["escalated"] > 20
    assert small["answers"] + large["answers"] == found.summary["completed"] == 200
    assert small["output_tokens"] + large["output_tokens"] == 80 * (200 + found.summary["escalated"])
    assert (small["model"], large["model"]) == ("Qwen3-0.6B", "Qwen3-8B")
    assert small["kv_capacity_tokens"] > large["kv_capacity_tokens"]


def test_devices_cost_what_their_pool_pays() -> None:
    found = run()
    hours = found.summary["duration"] / 3600
    assert found.summary["usd_total"] == pytest.approx(hours * (3.0 + 2 * 6.0), rel=1e-3)
    assert found.summary["usd_judging"] == pytest.approx(0.001 * found.summary["judged"])


def test_expected_quality_is_the_share_of_right_answers() -> None:
    """Of many draws, what was expected is what comes out: right answers and verdicts are drawn as the judge draws them."""
    seeds = [run(seed=str(seed)) for seed in range(6)]
    right = []
    for one in seeds:
        assert one.workload is not None
        truth = _truth(one)
        right.append(truth[answered(one.records)].mean())
    expected = np.mean([one.summary["expected_quality"] for one in seeds])
    assert np.mean(right) == pytest.approx(expected, abs=0.02)


def _truth(one: Run) -> Any:
    """Whether each row's answer is right."""
    from scenarios.generate import Streams
    from scenarios.quality_curve import quality_at

    assert one.workload is not None
    n, difficulty = len(one.workload), one.workload.difficulty
    home = np.where(one.records.requests["replica"] == 0, 0, 1)
    drawn = {}
    for number, pool in enumerate(one.info["pools"]):
        u = Streams(one.info["seed"])(f"answers:{pool['name']}").random((n, 2))[:, 0]
        drawn[number] = np.tile(u < quality_at(pool["curve"], difficulty), 2)
    return np.where(home == 0, drawn[0], drawn[1])


def test_a_judge_that_finds_more_sends_more_on_and_answers_get_better() -> None:
    blind = run(router="{name: cascade, judge: {recall: 0.1}}")
    sharp = run(router="{name: cascade, judge: {recall: 1.0}}")
    assert sharp.summary["escalated"] > 3 * blind.summary["escalated"]
    assert sharp.summary["expected_quality"] > blind.summary["expected_quality"] + 0.1


def test_quality_is_not_made_up_where_nobody_knows_it() -> None:
    unknown = "[{name: small, model: Qwen3-0.6B}, {name: large, model: Qwen3-8B, quality: 0.9}]"
    found = run(pools=unknown, router="round_robin")
    assert found.summary["expected_quality"] is None
    assert found.summary["refused"]["expected_quality"] == "pool small has no quality"
    load = yaml.safe_dump({k: v for k, v in DOCUMENT["workload"].items() if k != "difficulty"})
    found = run(router="round_robin", workload=load)
    assert found.summary["refused"]["expected_quality"] == "requests have no difficulty"


def test_parts_of_a_judged_request_sum_to_what_its_client_saw() -> None:
    found = run()
    parts = Explanation(found).parts
    counts = answered(found.records)
    assert np.allclose(parts.ttft()[counts] / 1e9, by_request(found.records, "ttft")[counts], atol=1e-9)
    assert np.allclose(parts.e2e()[counts] / 1e9, by_request(found.records, "e2el")[counts], atol=1e-9)
    accepted = int(np.flatnonzero(counts[:200])[0])
    assert parts.of(accepted)["judge"] == 200_000_000
    escalated = int(np.flatnonzero(counts[200:])[0]) + 200
    assert parts.of(escalated)["retry"] > 200_000_000


def test_a_saved_run_is_replayed_and_reported(tmp_path: Path) -> None:
    report.save(run(), tmp_path / "run")
    again, sent = results.load(tmp_path / "run"), load_workload(tmp_path / "run")
    assert replayed(again, sent).identical
    assert again.summary["expected_quality"] == run().summary["expected_quality"]
    assert again.records.judged_ns is not None
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for said in ("Qwen3-0.6B", "Quality of answers", "sent on to a larger model", "small: engine busy"):
        assert said in text


def test_replay_finds_a_verdict_that_was_another() -> None:
    found = run()
    assert found.workload is not None
    changed = {**found.info, "judge": found.info["judge"] | {"latency_ns": 1}}
    from serving.routing import Routing
    from studies.aspects import answers

    routing = Routing("cascade", found.info["router_options"])
    options = {"router": routing, "seed": 0, "escalation": answers.recorded(changed, found.workload)}
    again = replay(found.records, found.workload, pools.recorded(found.info), **options)  # type: ignore[arg-type]
    assert not again.identical


def test_what_pools_did_apart_adds_up() -> None:
    found = run()
    parts = pools.apart(found.records, [1, 2])
    assert sum(len(part.steps["step"]) for part in parts) == len(found.records.steps["step"])
    figures = [summary(part) for part in parts]
    assert [f["completed"] for f in figures] == [200, found.summary["escalated"]]
    assert isinstance(parts[0], Records)
    assert parts[0].steps["replica"].max() == 0


def test_holes_in_the_memory_of_one_pool_are_not_those_of_another() -> None:
    engine = {"kv_allocation": "contiguous", "num_gpu_blocks": 300, "max_model_len": 2000}
    workload = {"input": {"distribution": "uniform", "min": 10, "max": 900}, "difficulty": 0.9}
    first = DOCUMENT["pools"][0]
    found = simulate(
        scenarios.loads(
            yaml.safe_dump(
                DOCUMENT
                | {"pools": [first, DOCUMENT["pools"][1] | {"engine": engine}]}
                | {"workload": DOCUMENT["workload"] | workload}
            )
        )
    )
    assert len(found.records.stranded)
    paged, contiguous = pools.apart(found.records, [1, 2])
    assert not len(paged.stranded)
    assert len(contiguous.stranded) == len(found.records.stranded)


def test_a_run_of_one_pool_says_nothing_of_pools() -> None:
    demo = simulate(scenarios.load("demo", overrides=["workload.requests=20"]))
    assert not {"pools", "judge", "router_options"} & set(demo.info)
    assert not {"expected_quality", "judged", "escalated", "usd_judging"} & set(demo.summary)
    assert demo.info["router"] == "round_robin"
    assert not {"Pools", "Quality of answers"} & {table.title for table in run_tables.every(demo)}


def test_costs_are_one_a_pool() -> None:
    asked = scenarios.loads(yaml.safe_dump(DOCUMENT))
    costs = pools.costs_of(asked)
    assert [cost.name for cost in costs] == ["roofline Qwen3-0.6B on H100", "roofline Qwen3-8B on H100"]
    with pytest.raises(InputError, match="cost: found 1, but one is needed for each of 2 pools"):
        simulate(asked, cost=costs[0])


def test_options_of_a_router_are_recorded_and_change_the_run() -> None:
    one = DOCUMENT | {"pools": [], "model": "Qwen3-0.6B", "replicas": 4}
    wide = simulate(scenarios.loads(yaml.safe_dump(one | {"router": {"name": "power_of_two", "choices": 4}})))
    two = simulate(scenarios.loads(yaml.safe_dump(one | {"router": "power_of_two"})))
    assert (wide.info["router"], wide.info["router_options"]) == ("power_of_two", {"choices": 4})
    assert "router_options" not in two.info
    assert wide.records.requests["replica"].tolist() != two.records.requests["replica"].tolist()
    for found in (wide, two):
        assert found.workload is not None
        assert replayed(found, found.workload).identical
