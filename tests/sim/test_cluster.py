"""What happens at one instant, who is routed where, and what the end of a run leaves behind.

Steps last 10 ms whatever they hold, so that every time can be written down.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray

from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.plan import StepShape
from serving.records import Records
from serving.request import Status
from sim.cluster import simulate

MS = 1_000_000
STEP = 10 * MS
ENGINE = EngineConfig(num_gpu_blocks=200, block_size=4, max_model_len=256, max_num_seqs=8, max_num_batched_tokens=64)


class SteadyCost:
    """Every step takes `STEP`."""

    name = "steady"

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        return STEP

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        return float(STEP), 0.0, inf

    def step_ns(self, shape: StepShape) -> int:
        return STEP

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        return np.full(n, STEP, dtype=np.int64)

    def terms(self, shape: StepShape) -> dict[str, float]:
        return {"step": float(STEP)}

    def extrapolation(self, shape: StepShape) -> str | None:
        return None


def workload(
    arrivals_ms: list[int],
    outputs: list[int],
    prompts: list[int] | None = None,
    follows: list[int] | None = None,
    concurrency: int | None = None,
) -> Workload:
    n = len(outputs)
    columns = [[ms * MS for ms in arrivals_ms], prompts or [8] * n, outputs, outputs]
    arrival, prompt, output, declared = (np.array(column, dtype=np.int64) for column in columns)
    zeros = np.zeros(n, dtype=np.int64)
    after = np.array(follows or [-1] * n, dtype=np.int64)
    return Workload(
        arrival, prompt, output, declared, zeros, zeros, zeros - 1, after, zeros, concurrency=concurrency
    )  # fmt: skip


@pytest.fixture(params=["fast", "steps", "readable"])
def run(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """The three ways through a run must agree on every one of these."""
    ways = {"fast": {}, "steps": {"leaps": False}, "readable": {"fast": False}}

    def simulated(load: Workload, **options: object) -> Records:
        return simulate(ENGINE, load, SteadyCost(), **ways[request.param], **options)  # type: ignore[arg-type]

    return simulated


def ms(column: NDArray[np.int64]) -> list[float]:
    """Milliseconds; -1 stays."""
    return [t / MS if t >= 0 else -1 for t in column.tolist()]


# -- ties --------------------------------------------------------------------------------------------------------------


def test_arrival_at_the_end_of_a_step_is_in_the_next_one(run) -> None:  # type: ignore[no-untyped-def]
    r = run(workload([0, 20], [5, 1])).requests
    assert ms(r["scheduled_ns"]) == [0, 20]
    assert ms(r["finish_ns"]) == [50, 30]


def test_arrival_within_a_step_waits_for_its_end(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([0, 11], [5, 1]))
    assert ms(records.requests["scheduled_ns"]) == [0, 20]
    assert records.visible.tolist() == [[0, 0, 0], [0, 2, 1]]


def test_arrivals_of_one_instant_start_together_on_an_idle_replica(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([5, 5, 5], [1, 2, 3]))
    assert records.steps["prefill_sequences"].tolist() == [3, 0, 0]
    assert ms(records.steps["start_ns"]) == [5, 15, 25]


def test_replica_that_got_idle_starts_with_the_next_arrival(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([0, 47], [2, 2]))
    assert ms(records.steps["start_ns"]) == [0, 10, 47, 57]


def test_client_without_a_pause_is_in_the_step_after_its_answer(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([-1] * 4, [2, 3, 2, 1], concurrency=2))
    r = records.requests
    assert ms(r["arrival_ns"]) == [0, 0, 20, 30]
    assert ms(r["scheduled_ns"]) == [0, 0, 20, 30]
    assert ms(records.steps["end_ns"]) == [10, 20, 30, 40]
    assert records.steps["running"].tolist() == [2, 2, 2, 2]


def test_both_clients_whose_answers_end_at_once_are_in_the_next_step(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([-1] * 4, [2, 2, 2, 2], concurrency=2))
    assert records.steps["prefill_sequences"].tolist() == [2, 0, 2, 0]


def test_next_turn_is_sent_when_the_turn_before_has_ended(run) -> None:  # type: ignore[no-untyped-def]
    r = run(workload([0, -1, 0], [3, 2, 9], follows=[-1, 0, -1])).requests
    assert ms(r["arrival_ns"]) == [0, 30, 0]
    assert ms(r["finish_ns"]) == [30, 50, 90]


# -- routers -----------------------------------------------------------------------------------------------------------


def test_round_robin_deals_in_turn(run) -> None:  # type: ignore[no-untyped-def]
    r = run(workload([0, 1, 2, 3, 4], [3] * 5), replicas=3).requests
    assert r["replica"].tolist() == [0, 1, 2, 0, 1]
    assert r["submitted"].tolist() == [0, 0, 0, 1, 1]


def test_least_requests_takes_the_emptiest_and_the_first_of_equals(run) -> None:  # type: ignore[no-untyped-def]
    r = run(workload([0, 0, 15, 16, 17], [1, 9, 9, 9, 9]), replicas=2, router="least_requests").requests
    assert r["replica"].tolist() == [0, 1, 0, 0, 1]


def test_router_at_the_end_of_a_step_still_sees_who_ends_with_it(run) -> None:  # type: ignore[no-untyped-def]
    for at, chosen in ((10, 0), (11, 1)):
        r = run(workload([0, 0, at], [9, 1, 1]), replicas=2, router="least_requests").requests
        assert ms(r["finish_ns"])[1] == 10
        assert r["replica"].tolist() == [0, 1, chosen]


# -- ends --------------------------------------------------------------------------------------------------------------


def test_step_that_ends_at_the_horizon_counts_and_the_one_that_runs_does_not(run) -> None:  # type: ignore[no-untyped-def]
    for horizon, steps in ((30 * MS, 3), (30 * MS - 1, 2), (35 * MS, 3)):
        records = run(workload([0, 0, 25], [3, 9, 9]), horizon_ns=horizon)
        assert len(records.steps["step"]) == steps
        assert int(records.finished.sum()) == (steps == 3)
        assert records.requests["output_tokens"].tolist() == [steps, steps, 0]


def test_nothing_after_the_horizon_has_happened(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([0, 25, 33, 90], [9, 9, 9, 9]), horizon_ns=35 * MS)
    r = records.requests
    assert r["status"].tolist() == [Status.IN_FLIGHT] * 3 + [-1]
    assert ms(r["first_token_ns"]) == [10, -1, -1, -1]
    assert ms(r["scheduled_ns"]) == [0, 30, -1, -1]
    assert ms(r["finish_ns"]) == [-1, -1, -1, -1]
    # The step that runs was decided with request 1; the engine never looked at request 2.
    assert records.visible.tolist() == [[0, 0, 0], [0, 3, 1]]


def test_request_that_can_never_run_is_rejected_with_a_reason(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([0, 7], [2, 2], prompts=[8, 300]))
    r = records.requests
    assert r["status"].tolist() == [Status.FINISHED, Status.REJECTED]
    assert ms(r["finish_ns"]) == [20, 7]
    assert r["submitted"].tolist() == [0, -1]
    (reason,) = records.info["rejected"]
    assert reason["request"] == 1
    assert "max_model_len" in reason["reason"]


def test_closed_loop_goes_on_after_a_rejection(run) -> None:  # type: ignore[no-untyped-def]
    r = run(workload([-1] * 3, [2, 2, 2], prompts=[8, 300, 8], concurrency=1)).requests
    assert r["status"].tolist() == [Status.FINISHED, Status.REJECTED, Status.FINISHED]
    assert ms(r["arrival_ns"]) == [0, 20, 20]


def test_turn_after_a_rejected_one_is_never_sent(run) -> None:  # type: ignore[no-untyped-def]
    records = run(workload([0, -1], [2, 2], prompts=[300, 8], follows=[-1, 0]))
    assert records.requests["status"].tolist() == [Status.REJECTED, -1]
    assert records.submitted.tolist() == [True, False]


def test_a_run_needs_a_replica() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        simulate(ENGINE, workload([0], [1]), SteadyCost(), replicas=0)
