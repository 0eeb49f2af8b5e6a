"""What stands before the replicas, on a clock whose steps all last ten milliseconds: every rule by its times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scenarios.client_behaviour import Patience
from scenarios.errors import InputError
from scenarios.workload import Workload
from serving.admission import Allowance, Limits
from serving.config import EngineConfig
from serving.degradation import Rung
from serving.front_end import FrontEndCost
from serving.plan import StepPlan, StepResult
from serving.records import Records
from serving.request import Cause, Status
from sim.cluster import run_on_executors
from sim.front import Front
from sim.replay import replay

MS = 1_000_000


def workload(arrivals_ms: list[float], output: int = 5, **columns: Any) -> Workload:
    n = len(arrivals_ms)
    zero, none = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    tokens = np.full(n, output, dtype=np.int64)
    at = np.array([round(ms * MS) for ms in arrivals_ms], dtype=np.int64)
    plain = Workload(at, np.full(n, 10, dtype=np.int64), tokens, tokens, zero, zero, none, none, zero)
    return replace(plain, **columns)


class Even:
    """An executor whose steps all last as long."""

    def submit(self, plan: StepPlan) -> None:
        pass

    def collect(self) -> StepResult:
        return StepResult(10 * MS)


def served(load: Workload, front: Front, seats: int = 1) -> Records:
    engine = EngineConfig(num_gpu_blocks=101, max_model_len=400, max_num_seqs=seats, max_num_batched_tokens=256)
    records = run_on_executors(engine, load, [Even()], front=front)
    again = replay(records, load, engine, router="round_robin", front=front)
    assert again.identical, again.first_difference
    return records


def test_a_client_without_a_first_token_leaves_and_its_place_is_free() -> None:
    records = served(workload([0, 0, 0]), Front(Patience(first_token_ns=35 * MS)))
    r = records.requests
    # The first has the only seat for 50 ms; the others leave at 35 ms, before they were ever scheduled.
    assert r["status"].tolist() == [Status.FINISHED, Status.ABORTED, Status.ABORTED]
    assert r["finish_ns"].tolist() == [50 * MS, 35 * MS, 35 * MS]
    assert r["scheduled_ns"].tolist() == [0, -1, -1]
    assert set(r["cause"].tolist()) == {Cause.NONE, Cause.CLIENT_TIMEOUT}
    assert records.aborted.tolist() == [[0, 4, 1], [0, 4, 2]]  # seen when the next step is decided, at 40 ms


def test_an_answer_that_ends_at_its_time_out_is_in_time() -> None:
    r = served(workload([0]), Front(Patience(answer_ns=50 * MS))).requests
    assert r["status"].tolist() == [Status.FINISHED]
    r = served(workload([0]), Front(Patience(answer_ns=50 * MS - 1))).requests
    assert r["status"].tolist() == [Status.ABORTED]
    assert r["output_tokens"].tolist() == [4]


def test_a_retry_is_another_row_and_comes_after_its_pause() -> None:
    load = workload([0, 0], tries=2)
    r = served(load, Front(Patience(first_token_ns=20 * MS, waits_ns=np.full((2, 1), 30 * MS)))).requests
    assert r["status"].tolist() == [Status.FINISHED, Status.ABORTED, -1, Status.FINISHED]
    assert r["arrival_ns"][3] == 50 * MS
    assert r["finish_ns"][3] == 100 * MS


@pytest.mark.parametrize(("bound", "finished"), [(0, 1), (1, 2), (2, 3), (None, 4)])
def test_a_queue_holds_as_many_as_it_says(bound: int | None, finished: int) -> None:
    r = served(workload([0, 1, 2, 3]), Front(limits=Limits(max_queue_requests=bound))).requests
    assert (r["status"] == Status.FINISHED).sum() == finished
    assert (r["cause"] == Cause.QUEUE_REQUESTS).sum() == 4 - finished


def test_a_queue_of_tokens_lets_a_long_prompt_pass_where_nobody_waits() -> None:
    prompts = np.array([10, 90, 10], dtype=np.int64)
    r = served(workload([0, 1, 2], prompt_tokens=prompts), Front(limits=Limits(max_queue_tokens=50))).requests
    assert r["cause"].tolist() == [Cause.NONE, Cause.NONE, Cause.QUEUE_TOKENS]


def test_who_waits_with_a_lower_class_is_pushed_out() -> None:
    load = workload([0, 1, 2, 3], priority=np.array([0, 1, 2, 0]))
    r = served(load, Front(limits=Limits(max_queue_requests=2, when_full="shed_lowest"))).requests
    assert r["status"].tolist() == [Status.FINISHED, Status.FINISHED, Status.REJECTED, Status.FINISHED]
    assert r["cause"][2] == Cause.SHED
    assert r["finish_ns"][2] == 3 * MS


def test_a_queue_times_out_who_was_never_scheduled() -> None:
    r = served(workload([0, 1]), Front(limits=Limits(queue_timeout_ns=20 * MS))).requests
    assert r["status"].tolist() == [Status.FINISHED, Status.TIMED_OUT]
    assert r["finish_ns"][1] == 21 * MS


def test_a_bucket_lets_pass_what_it_holds_and_then_its_rate() -> None:
    every_10_ms = workload([10 * k for k in range(100)], output=1)
    allowance = Allowance(requests=20.0, burst_s=0.25)  # 5 at once, then one in 50 ms
    r = served(every_10_ms, Front(limits=Limits(allowance=allowance))).requests
    passed = np.flatnonzero(r["cause"] == 0)
    assert passed[:6].tolist() == [0, 1, 2, 3, 4, 5]  # (a sixth: one more came in while five passed)
    assert set(np.diff(passed[6:]).tolist()) == {5}
    by_tenant = replace(every_10_ms, tenant=np.arange(100) % 2, tenants=("a", "b"))
    r = served(by_tenant, Front(limits=Limits(tenants={1: allowance}))).requests
    assert (r["cause"][0::2] == 0).all()
    assert Cause.TENANT_BUDGET in r["cause"][1::2]


def test_a_front_end_works_in_order_and_its_wait_counts() -> None:
    r = served(workload([0, 0, 0]), Front(front_end=FrontEndCost(2, 5 * MS, 0.1 * MS)), seats=4).requests
    assert r["ready_ns"].tolist() == [6 * MS, 6 * MS, 12 * MS]
    assert r["scheduled_ns"].tolist() == [6 * MS, 6 * MS, 16 * MS]
    assert r["arrival_ns"].tolist() == [0, 0, 0]


def test_a_client_who_leaves_in_the_front_end_never_reaches_the_engine() -> None:
    front = Front(Patience(first_token_ns=4 * MS), FrontEndCost(1, 5 * MS))
    records = served(workload([0]), front)
    assert records.requests["status"].tolist() == [Status.ABORTED]
    assert len(records.steps["step"]) == 0


def rung(does: str, on: float, off: float, **more: Any) -> Rung:
    return Rung(does, "queue_requests", on, off, **more)


def test_rungs_go_on_and_off_at_their_levels_and_hold() -> None:
    load = workload([0, 1, 2, 3, 200, 400], output=5)
    caps = rung("cap_output", 2, 1, cap=2)
    r = served(load, Front(rungs=(caps,))).requests
    # Two wait when the fourth comes; nobody when the fifth does.
    assert r["rung"].tolist() == [0, 0, 0, 1, 0, 0]
    assert r["output_tokens"].tolist() == [5, 5, 5, 2, 5, 5]
    r = served(load, Front(rungs=(replace(caps, hold_ns=300 * MS),))).requests
    assert r["rung"].tolist() == [0, 0, 0, 1, 1, 0]


def test_all_rungs_below_the_highest_are_in_force() -> None:
    front = Front(rungs=(rung("cap_output", 50, 25, cap=2), rung("shed_class", 2, 1, service_class=1)))
    load = workload([0, 1, 2, 3, 4], service_class=np.array([0, 0, 0, 1, 0]), classes=("gold", "bronze"))
    records = served(load, front)
    assert records.requests["rung"].tolist() == [0, 0, 0, 2, 2]
    assert records.requests["cause"].tolist() == [0, 0, 0, Cause.SHED, 0]
    assert records.requests["output_tokens"][4] == 2
    assert records.info["ladder"] == [(3 * MS, 2)]


def test_the_last_rung_refuses_everybody() -> None:
    r = served(workload([0, 1, 2]), Front(rungs=(rung("reject", 1, 0.5),))).requests
    assert r["cause"].tolist() == [0, 0, Cause.LADDER]


@pytest.mark.parametrize(
    ("quoted", "left"),
    [
        ([("out:2", 5)], 2),
        ([("ret:2", 5)], 2),
        ([("out:2", 3), ("ret:2", 2)], 2),
        ([("fin:2", 3)], 2),
        ([("fin:2", 1)], 1),
        ([("out:1", 5)], 5),
    ],
)
def test_later_turns_quote_what_is_left_of_a_capped_answer(quoted: list[tuple[str, int]], left: int) -> None:
    """However it comes back: as it was, in other tokens, in part, or without its reasoning."""
    prompts = [[("p0", 10)], [("p1", 10)], [("p2", 10)], [("p2", 10), *quoted, ("p3", 4)]]
    load = workload(
        [0, 1, 2, -1],
        follows=np.array([-1, -1, -1, 2]),
        prompt_tokens=np.array([sum(n for _, n in prompt) for prompt in prompts]),
        segment_offset=np.cumsum([0, *map(len, prompts)]),
        segment_keys=[key for prompt in prompts for key, _ in prompt],
        segment_tokens=np.array([n for prompt in prompts for _, n in prompt]),
    )
    load.arrival_ns[3] = -1
    r = served(load, Front(rungs=(rung("cap_output", 1, 0.5, cap=2),))).requests
    assert r["output_tokens"].tolist() == [5, 5, 2, 5]
    assert r["prompt_tokens"][3] == 10 + left + 4


@pytest.mark.parametrize(
    "front",
    [
        Front(Patience(answer_ns=MS, waits_ns=np.full((2, 2), 1 << 62))),
        Front(front_end=FrontEndCost(1, float(1 << 62))),
        Front(Patience(answer_ns=1 << 62), FrontEndCost(1, float(1 << 62))),
    ],
)
def test_what_would_happen_beyond_the_end_of_time_is_refused(front: Front) -> None:
    load = workload([0, 1], output=50, tries=3)
    with pytest.raises(InputError, match="longer than the clock can count"):
        served(load, front)
