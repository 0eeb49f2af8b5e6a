"""Several pools on one clock: who answers, who judges, and when clients see what.

Steps of the small model last 10 ms, of the large one 30 ms, whatever they hold; an answer of n tokens takes n steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.workload import Workload
from serving.metrics import by_request
from serving.records import Records
from serving.request import Cause, Status
from serving.routing import Routing
from sim.cluster import simulate_pools
from sim.escalation import Escalation, Judge, draw_verdicts
from sim.pool import Pool
from sim.replay import replay
from tests.laws.worlds import content, law
from tests.sim.test_cluster import ENGINE, MS, STEP, SteadyCost, workload


class SlowCost(SteadyCost):
    """Every step takes three times `STEP`."""

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        return 3 * STEP

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        slope = super().decode_line(sequences, context, longest)
        return 3.0 * STEP, slope[1], slope[2]

    def step_ns(self, shape: object) -> int:
        return 3 * STEP

    def leap_ns(self, shape: object, n: int) -> np.ndarray:  # type: ignore[type-arg]
        return np.full(n, 3 * STEP, dtype=np.int64)


POOLS = [Pool(ENGINE, SteadyCost(), name="small"), Pool(ENGINE, SlowCost(), name="large")]
BY_DIFFICULTY = Routing("cascade", {"order": [0, 1], "thresholds": [0.5]})
JUDGED = Routing("cascade", {"order": [0, 1]})


def judged(requests: Workload, rejected: list[int], latency_ms: int = 5) -> tuple[Workload, Escalation]:
    """A workload with room for second tries, and a judge who rejects the small model's answers to these requests."""
    verdicts = np.zeros((2, len(requests)), dtype=bool)
    verdicts[:, rejected] = True
    return replace(requests, tries=2), Escalation(verdicts, latency_ms * MS)


def run(requests: Workload, escalation: Escalation | None = None, **options: object) -> Records:
    routing = JUDGED if escalation is not None else BY_DIFFICULTY
    options = {"pools": POOLS, "router": routing, **options}
    return simulate_pools(workload=requests, escalation=escalation, **options)  # type: ignore[arg-type]


def test_easy_requests_go_to_the_small_model_and_hard_ones_to_the_large() -> None:
    requests = replace(workload([0, 0, 0], [2, 2, 2]), difficulty=np.array([0.1, 0.9, 0.5]))
    r = run(requests).requests
    assert r["replica"].tolist() == [0, 1, 0]
    assert r["finish_ns"].tolist() == [20 * MS, 60 * MS, 20 * MS]


def test_a_rejected_answer_is_asked_of_the_large_model_after_the_judge_has_read_it() -> None:
    requests, escalation = judged(workload([0, 0], [2, 2]), rejected=[1])
    records = run(requests, escalation)
    r = records.requests
    assert records.first_tries == 2
    assert r["status"].tolist() == [Status.FINISHED, Status.FINISHED, -1, Status.FINISHED]
    assert r["replica"].tolist()[:2] == [0, 0]
    assert (r["replica"][3], r["arrival_ns"][3], r["finish_ns"][3]) == (1, 25 * MS, 85 * MS)
    assert records.judged_ns is not None
    assert records.judged_ns.tolist() == [25 * MS, 25 * MS, -1, -1]


def test_a_client_sees_a_judged_answer_when_it_was_read_and_another_as_it_comes() -> None:
    requests, escalation = judged(workload([0, 0], [2, 2]), rejected=[1])
    records = run(requests, escalation)
    ttft, e2e, tpot = (by_request(records, metric) for metric in ("ttft", "e2el", "tpot"))
    assert ttft[0] == pytest.approx(0.025)  # whole, and after the judge
    assert e2e[0] == pytest.approx(0.025)
    assert np.isnan(ttft[1])  # its second try counts
    assert ttft[3] == pytest.approx(0.055)
    assert e2e[3] == pytest.approx(0.085)
    assert tpot[3] == pytest.approx(0.03)


def test_the_answer_of_the_last_model_is_not_judged() -> None:
    requests, escalation = judged(workload([0], [2]), rejected=[0])
    records = run(requests, escalation)
    assert records.judged_ns is not None
    assert records.judged_ns.tolist() == [25 * MS, -1]
    assert records.requests["status"].tolist() == [Status.FINISHED] * 2


def test_a_later_turn_follows_the_answer_that_counts() -> None:
    turns = workload([0, -1], [2, 2], follows=[-1, 0])
    requests, escalation = judged(turns, rejected=[0])
    r = run(requests, escalation).requests
    assert r["arrival_ns"].tolist()[1] == 85 * MS  # of the large model
    accepted, escalation = judged(turns, rejected=[])
    assert run(accepted, escalation).requests["arrival_ns"].tolist()[1] == 25 * MS  # of the judge


def test_a_client_of_a_closed_loop_goes_on_when_it_has_seen_its_answer() -> None:
    requests, escalation = judged(workload([-1, -1], [2, 2], concurrency=1), rejected=[0])
    assert run(requests, escalation).requests["arrival_ns"].tolist()[1] == 85 * MS


def test_a_judge_without_latency_belongs_to_the_instant_of_the_answer() -> None:
    requests, escalation = judged(workload([0], [2]), rejected=[0], latency_ms=0)
    assert run(requests, escalation).requests["arrival_ns"].tolist() == [0, 20 * MS]


def test_what_no_larger_model_could_hold_is_answered_by_the_small_one_unjudged() -> None:
    tight = Pool(replace(ENGINE, max_model_len=16), SlowCost(), name="large")
    requests, escalation = judged(workload([0], [2], [40]), rejected=[0])
    records = run(requests, escalation, pools=[POOLS[0], tight])
    assert records.requests["status"].tolist() == [Status.FINISHED, -1]
    assert records.judged_ns is not None
    assert records.judged_ns.tolist() == [-1, -1]


def test_a_request_goes_to_a_replica_that_can_hold_it_whatever_the_router_says() -> None:
    tight = Pool(replace(ENGINE, max_model_len=16), SteadyCost(), name="tight")
    for router in ("round_robin", "random", "least_requests"):
        r = run(workload([0] * 6, [2] * 6, [40] * 6), pools=[tight, POOLS[1]], router=router).requests
        assert r["replica"].tolist() == [1] * 6
    r = run(workload([0], [2], [250]), pools=[tight, POOLS[1]], router="round_robin").requests
    assert (r["status"][0], r["cause"][0]) == (Status.FINISHED, 0)
    r = run(workload([0], [2], [300]), pools=[tight, POOLS[1]], router="round_robin").requests
    assert (r["status"][0], r["cause"][0]) == (Status.REJECTED, Cause.NEVER_FITS)


def test_verdicts_belong_to_pool_and_request() -> None:
    hard = np.linspace(0, 1, 2000)
    curves = {"small": [[0, 0.9], [1, 0.1]], "mid": [[0, 0.95], [1, 0.5]]}
    judge = Judge(0, recall=0.8, false_positive_rate=0.1)
    both = draw_verdicts(judge, list(curves.values()), list(curves), hard, seed=3).rejected
    turned = draw_verdicts(judge, [curves["mid"], None, curves["small"]], ["mid", "x", "small"], hard, seed=3).rejected
    assert np.array_equal(both[0], turned[2])
    assert np.array_equal(both[1], turned[0])
    assert not turned[1].any()
    right = (0.9 + 0.1) / 2
    assert both[0].mean() == pytest.approx(right * 0.1 + (1 - right) * 0.8, abs=0.03)
    assert both[0][:500].mean() < both[0][-500:].mean()


def test_trust_in_an_answer_that_passed() -> None:
    quality = np.array([0.5, 1.0, 0.0])
    assert Judge(0).trusted(quality).tolist() == [1.0, 1.0, 0.0]
    assert Judge(0, recall=0.0).trusted(quality).tolist() == [0.5, 1.0, 0.0]
    assert Judge(0, recall=0.5).trusted(quality)[0] == pytest.approx(2 / 3)


@st.composite
def cascades(draw: st.DrawFn) -> tuple[Workload, dict[str, object]]:
    """Two or three pools of one or two replicas, some of them small, and a judge."""
    n, rng = draw(st.integers(2, 14)), np.random.default_rng(draw(st.integers(0, 1 << 32)))
    loop = draw(st.sampled_from(("open", "closed", "turns")))
    follows = [-1 if i % 2 == 0 or loop != "turns" else i - 1 for i in range(n)]
    gaps = np.cumsum(rng.integers(0, 3, n) * 4).tolist()
    arrivals = [-1 if loop == "closed" or follows[i] >= 0 else int(gaps[i]) for i in range(n)]
    outputs, prompts = rng.integers(1, 9, n).tolist(), rng.integers(1, 60, n).tolist()
    requests = workload(arrivals, outputs, prompts, follows, 2 if loop == "closed" else None)
    pools = []
    for k, cost in enumerate((SteadyCost(), SlowCost(), SteadyCost())[: draw(st.integers(2, 3))]):
        window = draw(st.sampled_from((256, 256, 40)))
        asynchronous = draw(st.booleans())
        engine = replace(
            ENGINE, max_model_len=window, async_scheduling=asynchronous, num_gpu_blocks=draw(st.sampled_from((200, 40)))
        )
        pools.append(Pool(engine, cost, draw(st.integers(1, 2)), name=f"pool {k}"))
    within = draw(st.sampled_from(("least_requests", "random", "prefix_affinity", "least_kv")))
    options = {"order": list(range(len(pools))), "within": {"name": within}}
    if draw(st.booleans()):
        options |= {"thresholds": [0.5] * (len(pools) - 1), "estimate_error": 0.2}
    verdicts = rng.random((len(pools), n)) < 0.6
    requests = replace(requests, tries=len(pools), difficulty=rng.random(n))
    escalation = Escalation(verdicts, draw(st.sampled_from((0, 5, 17))) * MS)
    return requests, {"pools": pools, "router": Routing("cascade", options), "escalation": escalation, "seed": 5}


@law(60)
@given(cascades())
def test_every_request_of_a_cascade_ends_once_and_no_clock_goes_back(drawn: tuple[Workload, dict[str, object]]) -> None:
    requests, options = drawn
    records = simulate_pools(workload=requests, **options)  # type: ignore[arg-type]
    r, n = records.requests, len(requests)
    tries = (r["status"] >= 0).reshape(requests.tries, n)
    assert (tries[1:] <= tries[:-1]).all()  # try k + 1 follows try k
    waits = r["status"][:n] < 0
    rejected = r["status"] == Status.REJECTED
    for i in np.flatnonzero(waits).tolist():  # never sent: the turn before it was rejected, or never sent
        before = int(requests.follows[i])
        assert waits[before] or rejected[before]
    assert set(r["status"].tolist()) <= {-1, Status.FINISHED, Status.REJECTED}
    done = r["status"] == Status.FINISHED
    assert (r["arrival_ns"][done] <= r["scheduled_ns"][done]).all()
    assert (r["first_token_ns"][done] <= r["finish_ns"][done]).all()
    judged_ns = records.judged_ns
    assert judged_ns is not None
    read = judged_ns >= 0
    assert (judged_ns[read] >= r["finish_ns"][read]).all()
    later = np.flatnonzero(r["status"][n:] >= 0) + n
    assert (r["arrival_ns"][later] == judged_ns[later - n]).all()


@law(40)
@given(cascades())
def test_a_cascade_is_the_same_without_leaps_and_without_the_fast_scheduler(
    drawn: tuple[Workload, dict[str, object]],
) -> None:
    requests, options = drawn
    whole = content(simulate_pools(workload=requests, **options))  # type: ignore[arg-type]
    assert content(simulate_pools(workload=requests, leaps=False, **options)) == whole  # type: ignore[arg-type]
    assert content(simulate_pools(workload=requests, fast=False, **options)) == whole  # type: ignore[arg-type]


@law(40)
@given(cascades())
def test_a_cascade_replays_identically(drawn: tuple[Workload, dict[str, object]]) -> None:
    requests, options = drawn
    records = simulate_pools(workload=requests, **options)  # type: ignore[arg-type]
    found = replay(
        records,
        requests,
        options["pools"],  # type: ignore[arg-type]
        router=options["router"],  # type: ignore[arg-type]
        seed=5,
        escalation=options["escalation"],  # type: ignore[arg-type]
    )
    assert (found.identical, found.first_difference) == (True, None)
