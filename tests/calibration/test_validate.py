"""The numbers of a validation."""

import math

import numpy as np
import pytest

from calibration.validate import matched, noise, outcome, overall, ranking, step_errors, verdict
from serving.plan import StepPlan, StepShape
from serving.records import StepLog
from tests.sim.test_profile import COST


def test_noise_is_the_largest_pairwise_relative_difference():
    assert noise([100.0, 103.0, 98.0]) == pytest.approx(5 / 100.5)
    assert noise([7.0, 7.0]) == 0.0
    assert noise([7.0]) is None


@pytest.mark.parametrize(
    ("error", "floor", "expected"),
    [
        (0.05, 0.0, "pass"),
        (-0.051, 0.01, "fail"),
        (-0.08, 0.08, "pass"),
        (0.09, 0.08, "fail"),
        (0.0, 0.11, "void"),
        (0.5, 0.11, "void"),
        (0.04, None, "pass"),
        (0.06, None, "fail"),
    ],
)
def test_verdict_of_an_error_beside_its_noise(error, floor, expected):
    assert verdict(error, floor) == expected


def test_outcome_is_signed_against_the_mean_of_the_repeats():
    live = [{"mean_ttft_ms": 100.0, "p99_ttft_ms": None}, {"mean_ttft_ms": 104.0, "p99_ttft_ms": 5.0}]
    simulated = {"mean_ttft_ms": 96.9, "p99_ttft_ms": 5.0, "mean_tpot_ms": 3.0}
    (row,) = outcome(live, simulated)  # a metric that any run lacks is not compared
    assert row.metric == "mean_ttft_ms"
    assert row.live == 102.0
    assert row.error == pytest.approx(-0.05)
    assert row.noise == pytest.approx(4 / 102)
    assert row.verdict == "pass"


def test_an_outcome_is_as_good_as_its_worst_headline():
    good = {"mean_ttft_ms": 1.0, "mean_tpot_ms": 1.0, "p99_ttft_ms": 9.0}
    assert overall(outcome([good, good], good)) == "pass"
    assert overall(outcome([good, good], good | {"p99_ttft_ms": 1.0})) == "pass"  # tails are reported, not decisive
    assert overall(outcome([good, good], good | {"mean_tpot_ms": 2.0})) == "fail"
    assert overall(outcome([good, good | {"mean_tpot_ms": 1.2}], good)) == "void"
    assert overall([]) == "void"


def test_ranking_counts_only_pairs_that_differ_by_more_than_noise():
    live = {"a": [10.0, 10.1], "b": [10.1, 10.2], "c": [20.0, 20.1]}
    assert ranking(live, {"a": 2.0, "b": 1.0, "c": 3.0}) == (1.0, 2, ())
    assert ranking(live, {"a": 3.0, "b": 1.0, "c": 2.0}) == (0.0, 2, (("a", "c"),))
    assert ranking(live, {"a": 3.0, "b": 4.0, "c": 2.0}).kendall_tau == -1.0


def test_ranking_is_null_when_no_pair_differs_by_more_than_noise():
    assert ranking({"a": [10.0, 11.0], "b": [10.2, 11.1]}, {"a": 1.0, "b": 2.0}) == (None, 0, ())


def test_matched_requests_skip_those_without_a_latency():
    live, simulated = np.array([1.0, 2.0, np.nan, 4.0]), np.array([1.1, 1.8, 3.0, 4.4])
    found = matched(live, simulated)
    assert found is not None
    assert found.requests == 3
    assert found.mape == pytest.approx(0.1)
    assert found.pearson_r is not None
    assert 0.99 < found.pearson_r < 1.0
    assert matched(np.array([np.nan]), np.array([1.0])) is None
    assert matched(np.array([1.0]), np.array([1.0])) == (1, 0.0, None)


def step_log(rows: list[tuple[StepShape, float]]) -> dict[str, np.ndarray]:
    """A log whose steps take so many times their predicted duration."""
    log, now = StepLog(), 0
    for i, (shape, factor) in enumerate(rows):
        end = now + round(COST.step_ns(shape) * factor)
        log.add(StepPlan(i, [], shape), now, now, end, 0)
        now = end
    return log.arrays()


def test_step_errors_by_kind_and_worst_first():
    steps = step_log(
        [
            (StepShape(((100, 40),), sampled=1), 1.0),
            (StepShape(((60, 0), (60, 0)), 4, 400, 100, 6), 1.0 / 1.1),
            (StepShape((), 8, 2400, 300, 8), 1.25),
            (StepShape((), 8, 2408, 301, 8), 1.0),
        ]
    )
    found = step_errors(steps, COST)
    assert {kind: e.steps for kind, e in found.by_kind.items()} == {"all": 4, "decode": 2, "prefill": 1, "mixed": 1}
    assert found.by_kind["prefill"].mape < 1e-6
    assert found.by_kind["mixed"].signed_mean == pytest.approx(0.1, abs=1e-6)
    assert found.by_kind["decode"].signed_mean == pytest.approx(-0.1, abs=1e-6)
    assert [w.step for w in found.worst[:2]] == [2, 1]
    assert (found.worst[0].decode_sequences, found.worst[0].decode_context) == (8, 2400)
    assert math.isclose(sum(e.share_of_time for kind, e in found.by_kind.items() if kind != "all"), 1.0)
    assert found.extrapolated == 0


def test_step_errors_say_which_steps_were_extrapolated():
    found = step_errors(step_log([(StepShape((), 40, 4000, 100, 40), 1.0)]), COST)
    assert found.extrapolated == 1
    assert found.worst[0].extrapolates is not None
    assert "decode_sequences 40" in found.worst[0].extrapolates
