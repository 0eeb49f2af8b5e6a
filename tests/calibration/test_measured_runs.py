"""Measured runs: what readers take, what they refuse, and that a simulation of the same requests is summarised alike."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from calibration.measured.checked import measured
from calibration.measured.csv_run import read_csv_run
from calibration.measured.folder import read_folder, same_load
from calibration.measured.seen import as_seen
from calibration.measured.vllm_bench import read_vllm_bench
from scenarios import InputError
from serving.config import EngineConfig
from serving.metrics import summary
from sim.cluster import simulate
from sim.profile_cost import ProfileCost
from sim.profiles import load_profile

BENCH = {
    "request_throughput": 1.0,
    "start_times": [3149.5, 3149.0, 3151.0],
    "input_lens": [20, 10, 30],
    "output_lens": [3, 2, 1],
    "ttfts": [0.2, 0.1, 0.3],
    "itls": [[0.05, 0.06], [0.04], []],
    "latencies": [0.31, 0.14, 0.3],
    "errors": ["", "", ""],
}
COST = ProfileCost(load_profile("cpu-avx2-qwen3-tiny"))
HEADER = "arrival_s,input_tokens,output_tokens,ttft_ms,e2e_ms\n"


def bench(tmp_path, **changed):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({k: v for k, v in (BENCH | changed).items() if v is not None}))
    return path


def table(tmp_path, text, name="run.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_requests_come_in_order_of_arrival_counted_from_the_first(tmp_path):
    run = read_vllm_bench(bench(tmp_path))
    assert run.arrival_ns.tolist() == [0, 500_000_000, 2_000_000_000]
    assert run.input_tokens.tolist() == [10, 20, 30]
    assert run.origin == "sent"
    assert run.tpot[:2] == pytest.approx([0.04, 0.055])
    assert np.isnan(run.tpot[2])


def test_summary_has_the_keys_and_figures_of_the_metrics(tmp_path):
    found = read_vllm_bench(bench(tmp_path)).summary()
    assert found["mean_ttft_ms"] == pytest.approx(200)
    assert found["median_ttft_ms"] == found["p50_ttft_ms"] == pytest.approx(200)
    assert found["mean_itl_ms"] == pytest.approx(50)
    assert found["duration"] == pytest.approx(2.3)
    assert found["request_throughput"] == pytest.approx(3 / 2.3)
    assert found["output_throughput"] == pytest.approx(6 / 2.3)
    assert "p99_ttft_ms" in found["few"]


def test_a_gzip_file_is_read_as_the_plain_one(tmp_path):
    plain = read_vllm_bench(bench(tmp_path))
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(BENCH).encode()))
    run = read_vllm_bench(packed)
    assert run.name == "packed"
    assert run.summary() == plain.summary()


@pytest.mark.parametrize("name", ["start_times", "ttfts", "itls", "input_lens", "output_lens"])
def test_a_file_without_every_requests_values_is_refused_with_the_flag_that_keeps_them(tmp_path, name):
    with pytest.raises(InputError, match=rf"{name}: missing; .*--save-detailed"):
        read_vllm_bench(bench(tmp_path, **{name: None}))


def test_failed_requests_are_left_out_and_counted(tmp_path):
    run = read_vllm_bench(bench(tmp_path, errors=["", "refused", ""], output_lens=[3, 0, 1]))
    assert len(run) == 2
    assert run.stated["failed"].startswith("1 of 3 requests failed")


def test_a_run_of_which_nothing_was_answered_is_refused_with_the_first_error(tmp_path):
    with pytest.raises(InputError, match="not one of its 3 requests was answered; the first error is: no route"):
        read_vllm_bench(bench(tmp_path, errors=["no route"] * 3))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ttfts": [0.2, float("nan"), 0.3]}, r"request 1: ttfts: found nan"),
        ({"ttfts": [0.2, -0.1, 0.3]}, r"request 1: ttfts: found -0.1 s"),
        ({"ttfts": [0.2, 0.2, 0.3]}, r"request 1: ttfts: found 0.2 s, but at most latencies, 0.14 s"),
        ({"ttfts": [0.2, 0.1]}, r"ttfts: found 2 values, but start_times has 3"),
        ({"ttfts": ["fast", 0.1, 0.3]}, r"request 0: ttfts: found 'fast'"),
        ({"itls": [[50, 60], [0.04], []]}, r"request 0: itls: found 110 s in all .* one unit"),
        ({"itls": [[0.05, -0.06], [0.04], []]}, r"request 0: itls: found -0.06 s"),
        ({"itls": [[0.02] * 5, [0.04], []]}, r"request 0: itls: found 5 gaps, but 3 tokens have at most 2"),
        ({"input_lens": [20, 1.5, 30]}, r"request 1: input_lens: found 1.5"),
        ({"errors": 5}, r"errors: found '5', but a list"),
        ({"latencies": {"0": 1}}, r"latencies: found .*, but a list"),
        ({"start_times": [10**400, 1, 2]}, r"request 0: start_times: found inf"),
        (
            {"itls": [[], [], []], "latencies": None},
            r"request 0: latencies: found 0.2 s, as TTFT in every .* measure with streaming",
        ),
        (
            {"latencies": [310, 140, 300], "duration": 2.4},
            r"the last answer ends 310.5 s after .* duration is 2.4 s; values are seconds",
        ),
    ],
)
def test_what_cannot_have_happened_is_refused_with_request_and_column(tmp_path, changed, message):
    with pytest.raises(InputError, match=message):
        read_vllm_bench(bench(tmp_path, **changed))


def test_times_in_a_table_have_the_unit_of_their_column(tmp_path):
    run = read_csv_run(table(tmp_path, HEADER + "5,10,3,100,300\n4,20,2,50,80\n"))
    assert run.arrival_ns.tolist() == [0, 1_000_000_000]
    assert run.ttft.tolist() == [0.05, 0.1]
    assert run.e2e.tolist() == [0.08, 0.3]
    other = "Arrival (ms),Prompt tokens,Completion tokens,TTFT (s),E2E latency (s)\n5000,10,3,0.1,0.3\n4000,20,2,0.05,0.08\n"
    assert read_csv_run(table(tmp_path, other)).summary() == run.summary()


def test_whole_nanoseconds_since_1970_keep_their_digits(tmp_path):
    text = "arrival_ns,input_tokens,output_tokens,ttft_ms,e2e_ms\n1700000000000000001,1,1,1,1\n1700000000000000008,1,1,1,1\n"
    assert read_csv_run(table(tmp_path, text)).arrival_ns.tolist() == [0, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival,input,output,ttft,e2e\n0,1,1,1,1\n", r"line 1: arrival: in which unit\? .*--time-unit"),
        ("arrival_s,input,output,ttft_s,e2e_ms\n0,1,1,1,1\n", r"line 1: found latencies in different units"),
        ("arrival_s,input,output,ttft_ms\n0,1,1,1\n", r"line 1: no column for e2e"),
        (HEADER + "0,1,1,nan,2\n", r"line 2: ttft_ms: found 'nan', but a finite number"),
        (HEADER + "0,1,1,1,2\n1,1,1,soon,2\n", r"line 3: ttft_ms: found 'soon', but a number"),
        (HEADER + "0,1,1,-1,2\n", r"line 2: ttft_ms: found -0.001 s, but no time is negative"),
        (HEADER + "0,1,2,9,2\n", r"line 2: ttft_ms: found 0.009 s, but at most e2e_ms, 0.002 s .*same unit"),
        (HEADER + "0,1,0,1,2\n", r"line 2: output_tokens: found 0"),
        (
            HEADER.replace("e2e_ms", "e2e_ms,tpot_ms") + "0,1,11,1,2,5\n",
            r"line 2: tpot_ms: found 0.005 s, but 10 of them",
        ),
        (
            HEADER.replace("arrival_s", "arrival_ns") + f"{-(2**63)},1,1,1,1\n{2**63 - 1},1,1,1,1\n",
            r"line 3: arrival_ns: .* a century",
        ),
        (HEADER + "0,1.5,1,1,2\n", r"line 2: input_tokens: found '1.5'"),
        (HEADER + "0,1,1,1,2\n1,1\n", r"line 3: found 2 values, but the header has 5"),
        ("", r"the file is empty; a header such as arrival_s"),
    ],
)
def test_a_malformed_table_is_refused_with_line_column_and_what_is_allowed(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_csv_run(table(tmp_path, text))


def test_a_unit_is_not_given_twice_differently(tmp_path):
    with pytest.raises(InputError, match="its name says s, but --time-unit says ms"):
        read_csv_run(table(tmp_path, HEADER + "0,1,1,1,2\n"), unit="ms")


def test_a_simulation_replays_the_requests_row_by_row():
    run = measured(
        "run", "memory", arrival=[7.0, 5.0], input_tokens=[40, 30], output_tokens=[5, 6], ttft=[0.1, 0.1], e2e=[0.5, 0.5],
        origin="sent",
    )  # fmt: skip
    workload = run.workload()
    assert workload.arrival_ns.tolist() == [0, 2_000_000_000]
    assert workload.prompt_tokens.tolist() == [30, 40]
    assert workload.output_tokens.tolist() == workload.max_tokens.tolist() == [6, 5]
    assert run.workload(spread=1.5).arrival_ns.tolist() == [0, 3_000_000_000]


def test_equal_blocks_are_found_in_the_prefix_cache_again():
    run = measured(
        "run", "memory", arrival=[0, 50], input_tokens=[40, 40], output_tokens=[2, 2], origin="engine",
        hash_ids=[[1, 2], [1, 2]], block_size=16,
    )  # fmt: skip
    records = simulate(EngineConfig(num_gpu_blocks=100, block_size=16), run.workload(), COST)
    assert records.requests["cached_tokens"].tolist() == [0, 32]


def test_a_readiness_check_leaves_the_first_prompt_in_the_cache():
    run = measured(
        "run", "memory", arrival=[0, 50], input_tokens=[40, 40], output_tokens=[2, 2], origin="sent", ttft=[1, 1], e2e=[2, 2]
    )  # fmt: skip
    checked = run.after_ready_check()
    assert len(checked) == 3
    records = simulate(EngineConfig(num_gpu_blocks=100, block_size=16), checked.workload(), COST)
    assert records.requests["cached_tokens"].tolist() == [0, 32, 0]


def test_what_a_client_sees_of_a_simulation_is_its_summary_and_the_way_there_and_back():
    arrival = np.arange(30) * 0.01
    run = measured("run", "memory", arrival=arrival, input_tokens=[50] * 30, output_tokens=[8] * 30, origin="engine")
    records = simulate(EngineConfig(num_gpu_blocks=1000), run.workload(), COST)
    own, seen = summary(records), as_seen(records).summary()
    for key in ("mean_ttft_ms", "p90_tpot_ms", "mean_itl_ms", "p90_e2el_ms", "output_throughput"):
        assert seen[key] == pytest.approx(own[key], rel=1e-9)
    later = as_seen(records, before_ns=2_000_000).summary()
    assert later["mean_ttft_ms"] == pytest.approx(own["mean_ttft_ms"] + 2)
    assert later["mean_e2el_ms"] == pytest.approx(own["mean_e2el_ms"] + 2)
    assert later["mean_itl_ms"] == pytest.approx(own["mean_itl_ms"])


def test_a_folder_of_neither_layout_is_refused_with_all_three(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match=r"(?s)found notes.txt.*LLMServingSim.*vllm bench.*CSV"):
        read_folder(tmp_path)


def test_a_broken_file_among_good_ones_is_not_passed_over(tmp_path):
    bench(tmp_path)
    (tmp_path / "other.json").write_text('{"request_throughput": 1, "ttfts": [')
    with pytest.raises(InputError, match=r"other\.json: not JSON: line 1"):
        read_folder(tmp_path)


def test_two_files_that_name_one_run_are_not_one(tmp_path):
    bench(tmp_path)
    (tmp_path / "run.json.gz").write_bytes(gzip.compress(json.dumps(BENCH | {"ttfts": [0.1, 0.1, 0.1]}).encode()))
    with pytest.raises(InputError, match=r"run.json and .*run.json.gz: two runs of one name"):
        read_folder(tmp_path)


def test_runs_of_one_load_are_told_by_their_requests(tmp_path):
    a = read_vllm_bench(bench(tmp_path))
    b = read_vllm_bench(bench(tmp_path, start_times=[9.501, 9.0, 11.002]))
    other = read_vllm_bench(bench(tmp_path, input_lens=[20, 11, 30]))
    assert [len(group) for group in same_load([a, other, b])] == [2, 1]
