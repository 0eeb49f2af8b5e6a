"""Simulated speculation: what a step yields, what it costs, and when its tokens are out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibration.features import steps_to_shapes
from scenarios.hardware import hardware
from scenarios.models import model
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.deliveries import token_times
from serving.metrics import arrays, summary
from serving.plan import StepPlan, StepResult, StepShape
from serving.records import Records, RequestLog, StepLog, gather
from serving.scheduler import Scheduler
from sim.acceptance import Acceptance
from sim.cluster import simulate
from sim.drafting import DraftModel, DraftShare
from sim.replica import CostExecutor, Replica
from sim.roofline import Roofline
from tests.laws.alone import alone
from tests.laws.worlds import roofline

ENGINE = EngineConfig(
    num_gpu_blocks=2000, max_model_len=4096, enable_prefix_caching=False, speculation="ngram", num_speculative_tokens=3
)


def run(load: Workload, rates: tuple[float, ...] = (0.7,), found: float = 1.0, **settings: Any) -> Records:
    drafting = settings.pop("drafting", None)
    engine = replace(ENGINE, **settings)
    acceptance = Acceptance(0, [rates] * len(load), engine.num_speculative_tokens, found)
    return simulate(engine, load, roofline(), acceptance=acceptance, drafting=drafting)


def several(n: int = 20, output: int = 200) -> Workload:
    return alone(50, output, *range(0, n * 3_000_000, 3_000_000))


# ---------------------------------------------------------------- what a step yields


@pytest.mark.parametrize(("rate", "steps"), [(0.0, 100), (1.0, 26)])
def test_steps_of_one_request(rate: float, steps: int) -> None:
    """A prompt's step, and then one token a step or four: 1 + 99, or 1 + 25 for the 99 others."""
    records = run(alone(50, 100, 0), (rate,))
    assert len(records.steps["step"]) == steps
    assert records.requests["output_tokens"].tolist() == [100]


@pytest.mark.parametrize("rate", [0.3, 0.7, 0.9])
def test_steps_per_token_follow_from_the_acceptance(rate: float) -> None:
    s = summary(run(several(20, 400), (rate,)))
    expected = sum(rate**i for i in range(4))  # what stands of three drafts, and one more
    assert 1 / s["target_steps_per_output_token"] == pytest.approx(expected, rel=0.04)
    assert s["spec_decode_acceptance_length"] == pytest.approx(expected, rel=0.04)


def test_plain_decoding_takes_one_step_a_token() -> None:
    s = summary(run(several(), speculation="none", num_speculative_tokens=0))
    assert s["target_steps_per_output_token"] == 1.0
    assert "spec_decode_draft_tokens" not in s


def test_drafts_in_the_summary_are_those_of_the_steps() -> None:
    records = run(several(), found=0.5)
    s, steps = summary(records), records.steps
    assert s["spec_decode_draft_tokens"] == steps["draft_tokens"].sum()
    assert s["spec_decode_accepted_tokens"] == steps["accepted_tokens"].sum()
    rate = 100 * steps["accepted_tokens"].sum() / steps["draft_tokens"].sum()
    assert s["spec_decode_acceptance_rate"] == pytest.approx(rate)
    tokens = len(records.drafts) + steps["accepted_tokens"].sum()
    given = records.requests["output_tokens"].sum()
    assert given <= tokens <= given + 3 * len(records.requests["status"])  # an answer may end within a row


def test_a_request_draws_the_same_drafts_whatever_runs_beside_it() -> None:
    lone, crowded = run(alone(50, 200, 0)), run(several())
    mine = [records.drafts[records.drafts[:, 2] == 0][:, 3:] for records in (lone, crowded)]
    assert mine[0].tolist() == mine[1].tolist()


# ---------------------------------------------------------------- what it costs


def durations(records: Records) -> list[int]:
    steps = records.steps
    return (steps["end_ns"] - steps["start_ns"]).tolist()


def test_verifying_costs_what_its_shape_costs_and_looking_up_nothing() -> None:
    records = run(alone(50, 100, 0), found=0.5)
    shapes = steps_to_shapes(records.steps)
    assert durations(records) == [roofline().step_ns(shape) for shape in shapes]
    assert records.steps["verify_sequences"].any()
    assert records.steps["decode_sequences"].any()


def test_a_draft_model_costs_a_pass_over_the_step_and_a_step_for_each_further_draft() -> None:
    small = Roofline(model("SmolLM2-135M"), hardware("H100"))
    records = run(alone(50, 40, 0), speculation="draft", drafting=DraftModel(small, 3))
    end = 0
    for shape, took in zip(steps_to_shapes(records.steps), durations(records), strict=True):
        ((query, context),) = shape.prefill
        first = small.step_ns(StepShape(((query, context),), sampled=1))
        end = query + context
        further = [small.decode_ns(1, end + i, end + i) for i in range(2)]
        assert took == roofline().step_ns(shape) + first + sum(further)
    assert end > 80


def test_a_draft_share_costs_a_part_of_decode_steps() -> None:
    share = DraftShare(roofline(), 0.1, 3)
    shape = StepShape(((4, 100), (4, 200)), 1, 50, 50, sampled=9, draft_tokens=6)
    assert share.ns(shape) == round(3 * 0.1 * roofline().decode_ns(3, 104 + 204 + 51, 0))
    assert share.ns(StepShape(((64, 0),))) == 0  # a chunk that samples nothing has nobody propose


def test_nobody_proposes_and_nothing_is_paid_above_the_batch() -> None:
    load = alone(50, 100, 0, 20_000_000, 20_000_000, 20_000_000)
    records = run(load, speculation="draft", speculation_off_above=2, drafting=DraftShare(roofline(), 0.5, 3))
    steps = records.steps
    crowded = steps["running"] > 2
    assert crowded.any()
    behind = np.flatnonzero(crowded)[:-1] + 1
    shapes = steps_to_shapes(steps)
    took = durations(records)
    assert (steps["draft_tokens"][behind] == 0).all()
    assert (steps["draft_tokens"][~crowded] > 0).any()
    plain = np.flatnonzero(crowded & (steps["prefill_sequences"] == 0))
    assert len(plain) > 10
    assert all(took[i] == roofline().step_ns(shapes[i]) for i in plain)


def test_acceptance_is_needed() -> None:
    with pytest.raises(ValueError, match="speculation ngram: which drafts stand is not said"):
        simulate(ENGINE, several(), roofline())


# ---------------------------------------------------------------- when tokens are out


class Watching(CostExecutor):
    """Notes how many tokens come of each row."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[tuple[StepPlan, StepResult]] = []

    def collect(self) -> StepResult:
        plan = self.plans[0]
        result = super().collect()
        self.seen.append((plan, result))
        return result


@pytest.mark.parametrize("asynchronous", [False, True])
def test_token_times_are_what_was_seen(asynchronous: bool) -> None:
    load = several(8, 60)
    engine = replace(
        ENGINE, async_scheduling=asynchronous, num_gpu_blocks=30, max_num_batched_tokens=64, speculation="draft"
    )
    executor = Watching(roofline(), Acceptance(0, [(0.7,)] * 8, 3, 0.6))
    requests, log = RequestLog(len(load)), StepLog(speculates=True)
    replica = Replica(0, Scheduler(engine), executor, requests, log)
    times: dict[int, list[int]] = {i: [] for i in range(len(load))}
    for request in load.requests(np.arange(len(load))):
        replica.advance(request.arrival_ns)
        replica.submit(request, request.arrival_ns)
    replica.advance(1 << 60)
    records = gather(requests, [log], load.tenant, load.session, load.tenants, {})
    ends = dict(zip(records.steps["step"].tolist(), records.steps["end_ns"].tolist(), strict=True))
    for plan, result in executor.seen:
        for row in plan.scheduled:
            if row.samples:
                times[row.request.index] += [ends[plan.step]] * (1 + (result.accepted or {})[row.request.index])
    assert records.finished.all()
    assert (records.requests["preemptions"] > 0).any()
    deliveries = token_times(records)
    assert deliveries.reconstructed == 0
    for i in range(len(load)):
        assert deliveries.times(i).tolist() == times[i][:60]
        assert deliveries.times(i)[0] == records.requests["first_token_ns"][i]
        assert deliveries.times(i)[-1] == records.requests["finish_ns"][i]
        assert deliveries.gaps_of(i).tolist() == np.diff(sorted(set(times[i][:60]))).tolist()
    pooled = np.sort(np.concatenate([deliveries.gaps_of(i) for i in range(len(load))]))
    values, counts = deliveries.gaps()
    assert np.sort(np.repeat(values, counts)).tolist() == pooled.tolist()


def test_gaps_are_those_between_deliveries_and_tpot_is_by_token() -> None:
    """Four tokens a step: gaps are whole steps, while a token takes a quarter of one."""
    records = run(alone(50, 101, 0), (1.0,))
    s = summary(records)
    assert len(arrays(records)["itls"][0]) == 25
    assert s["mean_itl_ms"] == pytest.approx(4 * s["mean_tpot_ms"])


def test_what_an_answer_costs_holds_its_drafts() -> None:
    """Rows that verify are charged to output, not to input."""
    plain = summary(run(several(), speculation="none", num_speculative_tokens=0), usd_per_hour=3.6)
    drafted = summary(run(several(), (0.0,)), usd_per_hour=3.6)
    assert drafted["usd_per_1m_output_tokens"] > plain["usd_per_1m_output_tokens"]
    assert drafted["usd_per_1m_input_tokens"] == pytest.approx(plain["usd_per_1m_input_tokens"], rel=0.5)
