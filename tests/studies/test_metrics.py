from __future__ import annotations

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from serving.deliveries import Deliveries
from serving.metrics import arrays, max_concurrent, summary
from serving.records import REQUEST_COLUMNS, STEP_COLUMNS, Records
from serving.request import Status
from serving.samples import effective_samples, percentile, samples_needed

MS = 1_000_000


def empty(n: int = 0) -> Records:
    events = np.empty((0, 3), dtype=np.int64)
    none = np.full(n, -1, dtype=np.int64)
    return Records(
        {name: none.copy() for name in REQUEST_COLUMNS},
        {name: np.empty(0, dtype=np.int64) for name in STEP_COLUMNS},
        events,
        events,
        events,
        none,
        none,
    )


def test_time_stamps_of_one_request(drive):
    run = drive([(0, 16, 3)])
    assert Deliveries(run.records).times(0).tolist() == [100 * MS, 110 * MS, 120 * MS]
    s = summary(run.records)
    assert (s["mean_ttft_ms"], s["mean_tpot_ms"], s["mean_e2el_ms"]) == (100, 10, 120)
    assert (s["mean_itl_ms"], s["std_itl_ms"], s["median_itl_ms"]) == (10, 0, 10)
    assert s["mean_queue_ms"] == 0


def test_a_chunked_prompt_has_one_ttft_after_its_last_chunk(drive):
    run = drive([(0, 300, 3)], max_num_batched_tokens=100)
    s = summary(run.records)
    assert s["mean_ttft_ms"] == 300
    assert s["mean_itl_ms"] == pytest.approx(10)


def test_tpot_divides_by_tokens_that_came_not_by_those_asked_for():
    records = empty(1)
    for name, value in {
        "arrival_ns": 0, "scheduled_ns": 0, "first_token_ns": 500 * MS, "finish_ns": 2880 * MS, "prompt_tokens": 10,
        "output_tokens": 120, "cached_tokens": 0, "preemptions": 0, "status": Status.FINISHED, "replica": 0,
    }.items():  # fmt: skip
        records.requests[name][0] = value
    assert summary(records)["mean_tpot_ms"] == 20.0


def test_a_single_token_counts_for_ttft_and_not_for_tpot_or_itl(drive):
    s = summary(drive([(0, 16, 1)]).records)
    assert s["mean_ttft_ms"] == 100
    for key in ("mean_tpot_ms", "median_tpot_ms", "p50_tpot_ms", "mean_itl_ms", "output_token_throughput_per_user"):
        assert s[key] is None
        assert s["refused"][key]


@pytest.mark.parametrize("n", [0, 2])
def test_a_run_without_success_has_empty_figures_and_no_crash(n):
    records = empty(n)
    records.requests["status"][:] = Status.REJECTED
    records.requests["arrival_ns"][:] = 0
    records.requests["finish_ns"][:] = 0
    s = summary(records, slo=SimpleNamespace(ttft=1.0, tpot=None, e2e=None))
    assert s["completed"] == 0
    assert s["rejected"] == n
    for key in (
        "mean_ttft_ms",
        "p99_e2el_ms",
        "duration",
        "request_throughput",
        "request_goodput",
        "kv_cache_hit_percent",
    ):
        assert s[key] is None
        assert s["refused"][key]
    json.dumps(s, allow_nan=False)


def test_percentiles_are_linear():
    assert percentile(range(1, 101), 99) == pytest.approx(99.01)
    assert percentile([10, 20], 50) == 15
    assert percentile([7], 99) == 7


def test_weighted_percentile_equals_that_of_the_unfolded_sample():
    rng = np.random.default_rng(3)
    for _ in range(50):
        values, counts = rng.integers(0, 20, 15), rng.integers(1, 6, 15)
        for p in (0, 12.5, 50, 90, 99, 100):
            assert percentile(values, p, counts) == pytest.approx(np.percentile(np.repeat(values, counts), p))


def test_tails_need_59_and_299_samples():
    assert [samples_needed(p) for p in (95, 99)] == [59, 299]


def test_tails_of_few_samples_are_refused_with_a_reason(drive):
    few = summary(drive([(200 * i, 16, 3) for i in range(58)]).records)
    assert few["p95_ttft_ms"] is None
    assert few["p99_ttft_ms"] is None
    assert "58 effective samples" in few["refused"]["p95_ttft_ms"]
    more = summary(drive([(200 * i, 16, 3) for i in range(59)]).records)
    assert more["p95_ttft_ms"] == 100
    assert more["p99_ttft_ms"] is None


def test_autocorrelated_samples_count_for_less():
    rng = np.random.default_rng(5)
    noise = rng.normal(size=20_000)
    assert effective_samples(noise) > 15_000
    ar = np.zeros(20_000)
    for i in range(1, len(ar)):
        ar[i] = 0.9 * ar[i - 1] + noise[i]
    # AR(1) with coefficient a is worth n (1 - a) / (1 + a).
    assert effective_samples(ar) == pytest.approx(20_000 / 19, rel=0.25)


def test_goodput_counts_every_stated_limit_and_an_undefined_tpot_passes(drive):
    run = drive([(0, 16, 1), (0, 2000, 20), (0, 16, 20)], max_model_len=1000)  # the second can never fit
    s = summary(run.records, slo=SimpleNamespace(ttft=0.2, tpot=0.005, e2e=None))
    assert s["rejected"] == 1
    assert s["good_request_fraction"] == pytest.approx(1 / 3)
    assert s["request_goodput"] == pytest.approx(1 / s["duration"])
    loose = summary(run.records, slo=SimpleNamespace(ttft=0.2, tpot=None, e2e=None))
    assert loose["good_request_fraction"] == pytest.approx(2 / 3)


def test_throughput_runs_from_first_arrival_to_last_finish(drive):
    s = summary(drive([(1000, 16, 3), (1000, 16, 3)]).records)
    assert s["duration"] == pytest.approx(0.12)
    assert s["output_throughput"] == pytest.approx(6 / 0.12)
    assert s["total_token_throughput"] == pytest.approx(38 / 0.12)
    assert s["target_steps_per_output_token"] == 1.0


def test_capacity_is_a_number_of_tokens_and_of_mean_conversations(drive):
    run = drive([(0, 30, 2)], num_gpu_blocks=11)
    s = summary(run.records, engine=run.engine)
    assert s["kv_capacity_tokens"] == 160
    assert s["kv_capacity_requests"] == 5


def test_concurrency_counts_an_end_before_an_arrival_of_the_same_instant(drive):
    assert max_concurrent(drive([(0, 16, 1), (100, 16, 1)]).records) == 1
    assert max_concurrent(drive([(0, 16, 1), (99, 16, 1)]).records) == 2


def test_charges_and_idle_time_add_up_to_the_price(drive):
    run = drive([(0, 300, 5), (5000, 200, 40)], max_num_batched_tokens=64)
    s = summary(run.records, usd_per_hour=36.0)
    charged = (s["usd_per_1m_input_tokens"] * 500 + s["usd_per_1m_output_tokens"] * 45) / 1e6
    assert charged + s["usd_idle"] == pytest.approx(s["usd_total"])
    assert s["usd_total"] == pytest.approx(36.0 / 3600 * s["duration"])


@pytest.mark.parametrize("batching", ["chunked", "prefill_first", "static"])
def test_token_times_and_pooled_gaps_equal_those_that_happened(drive, batching):
    rng = np.random.default_rng(11)
    rows = [
        (int(t), int(p), int(o))
        for t, p, o in zip(
            np.cumsum(rng.integers(0, 60, 80)), rng.integers(1, 400, 80), rng.integers(1, 60, 80), strict=True
        )
    ]
    run = drive(rows, batching=batching, max_num_batched_tokens=128, max_num_seqs=16)
    deliveries = Deliveries(run.records)
    assert deliveries.reconstructed == 0
    for i, seen in run.times.items():
        assert deliveries.times(i).tolist() == seen
    value, count = deliveries.gaps()
    truth = np.concatenate([np.diff(t) for t in run.times.values()])
    assert sorted(np.repeat(value, count).tolist()) == sorted(truth.tolist())
    assert summary(run.records)["p90_itl_ms"] == pytest.approx(np.percentile(truth, 90) / 1e6)


def test_tokens_of_requests_preempted_once_are_recovered_exactly(drive):
    rng = np.random.default_rng(2)
    rows = [
        (int(40 * i), int(p), int(o))
        for i, (p, o) in enumerate(zip(rng.integers(16, 80, 60), rng.integers(20, 90, 60), strict=True))
    ]
    run = drive(rows, num_gpu_blocks=24, max_num_batched_tokens=64)
    preemptions = run.records.requests["preemptions"]
    once = np.flatnonzero(preemptions == 1)
    assert len(once) > 3
    deliveries = Deliveries(run.records)
    for i in np.flatnonzero(preemptions <= 1).tolist():
        assert deliveries.times(i).tolist() == run.times[i]
    for i in np.flatnonzero(preemptions > 1).tolist():
        times = deliveries.times(i)
        assert len(times) == len(run.times[i])
        assert (np.diff(times) >= 0).all()
        assert (times[0], times[-1]) == (run.times[i][0], run.times[i][-1])


def test_arrays_are_in_seconds_and_name_what_failed(drive):
    run = drive([(1000, 16, 3), (1000, 2000, 2)], max_model_len=1000)
    a = arrays(run.records)
    assert a["ttfts"] == [0.1, 0.0]
    assert a["itls"] == [pytest.approx([0.01, 0.01]), []]
    assert a["start_times"] == [1.0, 1.0]
    assert a["errors"] == ["", "rejected"]


def test_a_whole_trace_is_summarised_quickly():
    n, tokens = 19_366, 211
    steps = np.arange(100_000, dtype=np.int64)
    records = empty(n)
    end = (steps + 1) * 10 * MS
    first = np.sort(np.random.default_rng(0).integers(0, 99_000, n))
    for name, value in {
        "arrival_ns": end[first] - 10 * MS, "scheduled_ns": end[first] - 10 * MS, "first_token_ns": end[first],
        "finish_ns": end[first + tokens - 1], "prompt_tokens": 1000, "output_tokens": tokens, "cached_tokens": 0,
        "preemptions": 0, "status": Status.FINISHED, "replica": 0,
    }.items():  # fmt: skip
        records.requests[name][:] = value
    records.steps = {name: np.ones(len(steps), dtype=np.int64) for name in STEP_COLUMNS}
    records.steps.update(step=steps, start_ns=end - 10 * MS, end_ns=end, replica=steps * 0)
    begin = time.process_time()
    s = summary(records)
    taken = time.process_time() - begin
    assert s["mean_itl_ms"] == pytest.approx(10)
    assert taken < 1.5, f"{taken:.2f} s"  # 0.15 s on an idle machine
