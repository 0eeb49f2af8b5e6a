"""Measured runs against their simulation: constants are set on runs that are not validated, and what nothing states is an interval."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import scenarios
from calibration.measured.checked import measured
from calibration.measured.overhead import with_host_time
from calibration.measured.seen import as_seen
from scenarios import InputError
from serving.config import EngineConfig
from sim.cluster import simulate
from sim.profile_cost import ProfileCost
from sim.profiles import load_profile
from studies.measured import report as measured_report
from studies.measured.loads import METRICS
from studies.measured.validation import validate_measured

PROFILE = "cpu-avx2-qwen3-tiny"
ENGINE = {
    "max_num_batched_tokens": 512,
    "max_num_seqs": 16,
    "num_gpu_blocks": 500,
    "block_size": 16,
    "dtype": "bfloat16",
}
HOST_NS, CLIENT_NS = 1_500_000, 4_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three repeats at 2 and at 4 requests/s of an engine that is the simulator itself, with host time and a client around it."""
    path = tmp_path_factory.mktemp("runs")
    cost = ProfileCost(with_host_time(load_profile(PROFILE), HOST_NS))
    config = EngineConfig(**{k: v for k, v in ENGINE.items() if k != "dtype"}, max_model_len=8192)
    for rate in (2, 4):
        for number, name in enumerate("abc"):
            rng = np.random.default_rng(rate)
            arrival = np.cumsum(rng.exponential(1 / rate, 40)) + np.random.default_rng(number).uniform(0, 1e-3, 40)
            run = measured(
                "run", "memory", arrival=np.sort(arrival), input_tokens=rng.integers(10, 40, 40), output_tokens=[20] * 40,
                origin="sent",
            )  # fmt: skip
            seen = as_seen(simulate(config, run.workload(), cost), before_ns=CLIENT_NS)
            document = {
                "request_throughput": 1.0, "start_times": (seen.arrival_ns / 1e9).tolist(), "ttfts": seen.ttft.tolist(),
                "itls": [gaps.tolist() for gaps in seen.itls], "latencies": seen.e2e.tolist(),
                "input_lens": seen.input_tokens.tolist(), "output_lens": seen.output_tokens.tolist(), "errors": [""] * 40,
            }  # fmt: skip
            (path / f"r{rate}_{name}.json").write_text(json.dumps(document))
    lines = ["model: qwen3-tiny", "hardware: cpu", f"engine: {json.dumps(ENGINE)}", "overhead_from: [r2_a, r4_a]"]
    (path / "measured.yaml").write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def found(folder):
    return validate_measured(folder, profile=PROFILE)


def test_constants_are_found_again_on_the_runs_that_set_them(found):
    assert found.overhead.step_ns == pytest.approx(HOST_NS, abs=20_000)
    assert found.overhead.client_ns == pytest.approx(CLIENT_NS, abs=400_000)
    assert found.overhead.runs == ("r2_a", "r4_a")


def test_runs_that_set_constants_are_not_validated(found):
    assert [list(load.simulated) for load in found.loads] == [["r2_b", "r2_c"], ["r4_b", "r4_c"]]
    assert [len(load.runs) for load in found.loads] == [3, 3]


def test_the_engine_that_is_simulated_is_predicted(found):
    for load in found.loads:
        assert [row.metric for row in load.rows] == list(METRICS)
        for row in load.rows:
            assert abs(row.error) < 0.02, (load.name, row)
            assert row.noise is not None
        assert load.matched["E2E"].mape < 0.02
        assert load.matched["E2E"].pearson_r > 0.99
    assert measured_report.verdict(found) == "pass"


def test_without_the_terms_the_error_shows_and_its_sign_is_that_of_the_prediction(folder):
    found = validate_measured(folder, profile=PROFILE, overhead_from=[])
    errors = {row.metric: row.error for row in found.loads[0].rows}
    assert errors["mean_ttft_ms"] < -0.05
    assert errors["mean_itl_ms"] < -0.05
    assert sorted(found.loads[0].simulated) == ["r2_a", "r2_b", "r2_c"]


def test_an_error_is_also_a_shift_in_load(folder):
    """A client that sends the same requests 10 % faster than the simulation is told."""
    found = validate_measured(folder, profile=PROFILE, only=["r4_a", "r4_b"], overhead_from=["r4_a"])
    assert found.loads[0].shift["mean_e2el_ms"] == pytest.approx(0.0, abs=0.05)


def test_json_has_outcome_rows_with_the_worst_first(found):
    data = json.loads(json.dumps(measured_report.to_dict(found), allow_nan=False))
    assert {"metric", "live", "simulated", "error", "noise", "verdict", "load"} <= set(data["outcome"][0])
    errors = [abs(row["error"]) for row in data["outcome"]]
    assert errors == sorted(errors, reverse=True)
    assert data["overhead"]["host_per_step_ms"] == pytest.approx(1.5, abs=0.02)
    assert [c["name"] for c in data["constants"]] == ["host time per step", "client and server, on TTFT"]
    assert set(data["loads"]) == {load.name for load in found.loads}
    assert data["not_modelled"]


def test_the_report_names_constants_and_what_is_not_modelled(found, tmp_path):
    page = measured_report.write(found, tmp_path / "out").read_text()
    assert "host time per step (constant)" in page
    assert "Not modelled" in page
    again = json.loads((tmp_path / "out" / "measured.json").read_text())
    assert again["verdict"] == "pass"
    measured_report.write(found, tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match=r"holds mine\.txt"):
        measured_report.write(found, tmp_path / "out")


def test_a_capacity_that_nothing_states_is_an_interval_in_the_result(folder, tmp_path):
    serving = tmp_path / "gpu.yaml"
    serving.write_text("model: Llama-3.1-8B\nhardware: RTX-4090\nengine: {max_num_seqs: 16}\n")
    found = validate_measured(folder, serving=serving, only=["r2_a"])
    data = measured_report.to_dict(found)
    low, high = data["kv_blocks"]["between"]
    assert data["kv_blocks"]["stated"] is False
    assert low < data["kv_blocks"]["blocks"] < high
    assert len(next(row for row in data["outcome"] if row["metric"] == "mean_ttft_ms")["simulated_at_kv_ends"]) == 2
    assert any(table.title == "KV capacity" for table in measured_report.report_tables(found))


def test_a_scenario_says_engine_model_and_cost(folder, tmp_path):
    scenario = scenarios.load("demo", overrides=["engine.max_num_seqs=3", f"cost={{profile: {PROFILE}}}"])
    (tmp_path / "r2_a.json").write_text((folder / "r2_a.json").read_text())
    found = validate_measured(tmp_path, scenario)
    assert found.engine.scenario.engine_config().max_num_seqs == 3
    assert found.cost.name == load_profile(PROFILE).name


def test_what_cannot_be_done_is_refused_in_the_users_words(folder, tmp_path):
    with pytest.raises(InputError, match="--overhead-from: unknown run 'r9_a'"):
        validate_measured(folder, overhead_from=["r9_a"])
    with pytest.raises(InputError, match="r2_a, r4_a: named by overhead_from, so --only must name them too"):
        validate_measured(folder, only=["r2_b"])
    with pytest.raises(InputError, match="every run sets overhead"):
        validate_measured(folder, profile=PROFILE, only=["r2_a"], overhead_from=["r2_a"])
    with pytest.raises(InputError, match="needs measured step costs"):
        validate_measured(folder)
    (tmp_path / "r2_a.json").write_text((folder / "r2_a.json").read_text())
    with pytest.raises(InputError, match="which model ran; give --model"):
        validate_measured(tmp_path)
    with pytest.raises(InputError, match="--serving: unknown profile"):
        validate_measured(folder, serving="nobody")


def test_requests_that_the_engine_could_not_hold_are_refused_with_the_reason(folder, tmp_path):
    serving = tmp_path / "small.yaml"
    serving.write_text("model: qwen3-tiny\nhardware: cpu\nengine: {num_gpu_blocks: 3, block_size: 16}\n")
    with pytest.raises(InputError, match=r"cannot run in this engine: .* KV blocks"):
        validate_measured(folder, serving=serving, only=["r2_a"], overhead_from=[])


@pytest.fixture(scope="module")
def vllm_cpu():
    data = Path(os.environ.get("SERVETWIN_DATA") or Path(__file__).parents[3] / "shared" / "data")
    path = data / "measured" / "vllm-cpu-qwen3-tiny"
    if not path.is_dir():
        pytest.skip(f"no public runs in {data.name}/: set SERVETWIN_DATA to the folder that holds measured/")
    return validate_measured(path)


def test_vllm_on_a_cpu_is_predicted_within_the_larger_of_five_percent_and_its_spread(vllm_cpu):
    """Steps from other iterations, two constants from the first repeat of each load; the others never fitted."""
    assert vllm_cpu.source == "vllm-cpu-qwen3-tiny"
    assert vllm_cpu.profile.source.details["rows"].endswith("iterations 6219 to 9254")
    assert vllm_cpu.overhead.runs == ("r2_a", "r6_a")
    judged = 0
    for load in vllm_cpu.loads:
        for rows in (load.rows, *load.by_run.values()):
            for row in rows:
                if row.metric.startswith(("mean_", "p50_")):
                    assert abs(row.error) <= max(0.05, row.noise), (load.name, row)
                    judged += 1
    assert judged == 2 * 3 * 8


def test_one_command_prints_worst_cells_first_and_the_verdict_last(servetwin, folder):
    code, out, _ = servetwin("validate", "--measured", str(folder), "--profile", PROFILE)
    assert code == 0
    assert out.index("Worst cells") < out.index("r2 (") < out.index("What it rests on") < out.index("Verdict: pass")


def test_json_is_one_document(servetwin, folder):
    code, out, _ = servetwin(
        "validate",
        "--measured",
        str(folder),
        "--profile",
        PROFILE,
        "--only",
        "r2_a,r2_b",
        "--overhead-from",
        "r2_a",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["loads"].popitem()[1]["validated"] == ["r2_b"]


def test_one_request_is_a_run_too(servetwin, tmp_path):
    (tmp_path / "one.csv").write_text("arrival_s,input_tokens,output_tokens,ttft_ms,e2e_ms\n0,100,10,50,150\n")
    options = ("--model", "qwen3-tiny", "--hardware", "cpu", "--json")
    code, out, _ = servetwin("validate", "--measured", str(tmp_path), *options)
    assert code == 0
    assert json.loads(out)["loads"]["one (1 at once)"]["rate"] is None


def test_the_basis_says_how_good_a_shipped_profile_is_and_that_there_is_one(servetwin, tmp_path):
    (tmp_path / "one.csv").write_text("arrival_s,input_tokens,output_tokens,ttft_ms,e2e_ms\n0,100,10,50,150\n")
    options = ("--model", "Llama-3.1-8B", "--hardware", "H100")
    _, out, _ = servetwin("validate", "--measured", str(tmp_path), *options)
    assert "h100/llama-3.1-8b-bf16-tp1: --profile auto" in out
    _, out, _ = servetwin("validate", "--measured", str(tmp_path), *options, "--profile", "auto")
    assert "operators, predicted without themselves" in out


def test_a_unit_that_the_file_cannot_tell_is_asked_for(servetwin, tmp_path):
    header = "arrival_s,input_tokens,output_tokens,ttft_s,e2e_s"
    (tmp_path / "run.csv").write_text(f"{header}\n0,30,20,50,400\n5000,30,20,60,400\n")
    code, out, _ = servetwin(
        "validate", "--measured", str(tmp_path), "--model", "qwen3-tiny", "--hardware", "cpu", "--profile", PROFILE
    )
    assert code == 0
    assert "a thousand times shorter than measured: are the measured ones in another unit?" in " ".join(out.split())


def test_options_about_measured_runs_need_measured_runs(servetwin):
    code, _, err = servetwin("validate", "demo", "--fit-rows", "6219:")
    assert code == 2
    assert "--fit-rows: is about measured runs; give --measured DIR" in err
    code, _, err = servetwin("validate")
    assert code == 2
    assert "give a scenario to execute and simulate, or --measured DIR" in err


def test_a_folder_without_a_run_ends_with_the_three_layouts(servetwin, tmp_path):
    code, _, err = servetwin("validate", "--measured", str(tmp_path))
    assert code == 2
    assert "LLMServingSim" in err
    assert "--save-detailed" in err
    assert "arrival_s,input_tokens" in err
