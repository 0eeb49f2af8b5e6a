"""A run that LLMServingSim's benchmark recorded: read as it was, priced by its kernels alone."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.measured.llmservingsim import capture_sizes, kernels_of, read_llmservingsim, schedule_gap
from calibration.measured.run import MeasuredRun
from calibration.measured.seen import as_seen
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.cluster import simulate
from sim.operator_cost import OperatorCost
from tests.calibration.bundles import MODEL, change, write_bundle

SIZES = ((40, 3), (32, 1), (50, 4))


def meta(**more: Any) -> dict[str, Any]:
    return {
        "model": "org/small",
        "vllm_version": "0.19.0",
        "engine_kwargs": {"max_num_seqs": 8, "tensor_parallel_size": 1},
        "kv_cache": {"num_gpu_blocks": 33, "block_size": 16, "gpu_memory_utilization": 0.9, "enable_prefix_caching": True},
        "hardware": {"device_name": "NVIDIA A100-80G", "device_count": 1},
        "resolved_config": {
            "cache_config": {"cache_dtype": "auto"},
            "model_config": {"max_model_len": 512, "dtype": "torch.bfloat16", "enforce_eager": False},
            "scheduler_config": {
                "max_num_seqs": 16, "max_num_batched_tokens": 128, "async_scheduling": True,
                "scheduler_reserve_full_isl": True, "policy": "fcfs",
            },
            "parallel_config": {"tensor_parallel_size": 1, "pipeline_parallel_size": 1},
            "compilation_config": {"cudagraph_mode": [2, 1], "cudagraph_capture_sizes": [1, 2, 4, 8]},
            "speculative_config": None,
        },
    } | more  # fmt: skip


def write_run(folder: Path, *, stated: dict[str, Any] | None = None, workload: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(stated or meta()))
    rows = [
        {
            "request_id": f"bench-{i}", "input_toks": prompt, "output_toks": answer, "arrival_time": 1.7e9 + i,
            "queued_ts": 500.0 + 0.1 * i, "scheduled_ts": 500.01 + 0.1 * i, "first_token_ts": 500.05 + 0.1 * i,
            "last_token_ts": 500.05 + 0.1 * i + 0.01 * (answer - 1),
        }
        for i, (prompt, answer) in enumerate(SIZES)
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(rows)))
    if workload:
        sent = [
            {"timestamp": 0.0, "input_length": p, "output_length": o, "hash_ids": [1, 2, 3][: p // 16]}
            for p, o in SIZES
        ]
        (folder / "workload.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sent))
    return folder


def scenario(run: MeasuredRun, **more: Any) -> Scenario:
    data = {
        "name": "as measured", "model": dataclasses.asdict(MODEL) | {"rope_scaling": None}, "hardware": "A100-80G",
        "engine": dict(run.engine) | more,
        "workload": {"requests": 1, "arrivals": "all_at_once", "input": 1, "output": 1},
    }  # fmt: skip
    return Scenario.model_validate(data, context={"base": None})


def test_latencies_count_from_where_the_engine_saw_the_request(tmp_path: Path) -> None:
    run = read_llmservingsim(write_run(tmp_path / "a run"))
    assert (run.name, run.origin) == ("a run", "engine")
    assert run.arrival_ns.tolist() == [0, 100_000_000, 200_000_000]
    assert run.ttft == pytest.approx([0.05, 0.05, 0.05])
    assert run.e2e == pytest.approx([0.07, 0.05, 0.08])
    assert run.tpot[[0, 2]] == pytest.approx([0.01, 0.01])
    assert np.isnan(run.tpot[1])


def test_a_simulation_starts_from_when_requests_were_sent(tmp_path: Path) -> None:
    run = read_llmservingsim(write_run(tmp_path))
    assert run.sent_ns is not None
    assert run.sent_ns.tolist() == [0, 1_000_000_000, 2_000_000_000]
    assert run.workload().arrival_ns.tolist() == run.sent_ns.tolist()
    change(tmp_path / "requests.jsonl", lambda lines: [line.replace("arrival_time", "came") for line in lines])
    assert read_llmservingsim(tmp_path).workload().arrival_ns.tolist() == run.arrival_ns.tolist()


def test_a_request_that_comes_during_a_step_is_seen_at_its_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    write_bundle(folder / "kernels")
    run = read_llmservingsim(folder)
    asked = scenario(run)
    together = dataclasses.replace(run, sent_ns=np.array([0, 1_000, 2_000]))
    records = simulate(asked.engine_config(), together.workload(), OperatorCost(kernels_of(folder, asked)))
    first_step = float(records.steps["end_ns"][0]) / 1e9
    sent, seen = as_seen(records), as_seen(records, by_engine=True)
    assert (sent.ttft - seen.ttft) == pytest.approx([0.0, first_step - 1e-6, first_step - 2e-6])
    assert (sent.e2e - seen.e2e) == pytest.approx(sent.ttft - seen.ttft)
    assert seen.tpot[[0, 2]] == pytest.approx(sent.tpot[[0, 2]])


def test_the_engine_is_as_it_resolved_itself(tmp_path: Path) -> None:
    run = read_llmservingsim(write_run(tmp_path))
    config = scenario(run).engine_config()
    assert (config.num_gpu_blocks, config.block_size, config.max_model_len) == (33, 16, 512)
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.async_scheduling) == (16, 128, True)
    assert run.stated["model"] == "org/small"


def test_prompts_are_the_workloads_lines_by_the_number_of_the_request(tmp_path: Path) -> None:
    run = read_llmservingsim(write_run(tmp_path))
    assert run.hash_ids == ((1, 2), (1, 2), (1, 2, 3))
    assert run.workload().prompt(0) == (("h:1", 16), ("h:2", 16), ("p0", 8))


def test_token_ids_share_their_equal_beginnings(tmp_path: Path) -> None:
    folder = write_run(tmp_path, workload=False)
    assert read_llmservingsim(folder).hash_ids is None
    tokens = [list(range(p)) for p, _ in SIZES]
    tokens[2][20] = 999
    rows = [{"input_toks": p, "output_toks": o, "input_tok_ids": t} for (p, o), t in zip(SIZES, tokens, strict=True)]
    (folder / "workload.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hash_ids = read_llmservingsim(folder).hash_ids
    assert hash_ids is not None
    assert hash_ids[0] == hash_ids[1]
    assert hash_ids[2][0] == hash_ids[0][0]
    assert hash_ids[2][1] != hash_ids[0][1]


def test_step_costs_know_nothing_of_the_run_but_its_graph_sizes(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    write_bundle(folder / "kernels")
    run = read_llmservingsim(folder)
    profile = kernels_of(folder, scenario(run))
    slower = [line.replace("500.", "600.") for line in (folder / "requests.jsonl").read_text().splitlines()]
    (folder / "requests.jsonl").write_text("\n".join(slower))
    assert kernels_of(folder, scenario(run)) == profile
    (folder / "meta.json").write_text(json.dumps(meta(engine_kwargs={"enforce_eager": True})))
    assert kernels_of(folder, scenario(run)) != profile


def test_an_eager_engine_captures_no_sizes() -> None:
    assert capture_sizes(meta()) == (1, 2, 4, 8)
    assert capture_sizes(meta(engine_kwargs={"enforce_eager": True})) == ()
    without = meta()
    without["resolved_config"]["compilation_config"]["cudagraph_mode"] = [0, 0]
    assert capture_sizes(without) == ()


def test_tensor_parallel_without_measured_all_reduces_takes_the_devices_link(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    write_bundle(folder / "kernels", tables=folder / "kernels" / "tp2", tp_degrees=[1, 2])
    run = read_llmservingsim(folder)
    profile = kernels_of(folder, scenario(run, tensor_parallel_size=2))
    assert profile.tokens["all-reduce"].ns[0] > 0


def test_queues_are_compared_tick_by_tick(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    write_bundle(folder / "kernels")
    run = read_llmservingsim(folder)
    asked = scenario(run)
    records = simulate(asked.engine_config(), run.workload(), OperatorCost(kernels_of(folder, asked)))
    assert schedule_gap(folder, run, records) is None
    (folder / "timeseries.csv").write_text("t,running,waiting\n0.101,3,1\n9,0,0\n")
    gap = schedule_gap(folder, run, records)
    assert gap is not None
    assert (gap.ticks, gap.running, gap.waiting) == (1, 2.0, 1.0)
    assert gap.drained == pytest.approx(0.28)


Edit = Callable[[Path], None]


def requests(old: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / "requests.jsonl").read_text()
        assert old in text
        (folder / "requests.jsonl").write_text(text.replace(old, new, 1))

    return edit


def stated(path: str, value: Any) -> Edit:
    def edit(folder: Path) -> None:
        changed = meta()
        at = changed
        *parents, last = path.split(".")
        for name in parents:
            at = at[name]
        at[last] = value
        (folder / "meta.json").write_text(json.dumps(changed))

    return edit


BROKEN: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "no meta": (lambda folder: (folder / "meta.json").unlink(), ("meta.json", "no such file")),
    "meta not json": (lambda folder: (folder / "meta.json").write_text("{") and None, ("meta.json", "not JSON")),
    "empty": (lambda folder: (folder / "requests.jsonl").write_text("\n") and None, ("requests.jsonl", "empty")),
    "cut off": (lambda folder: change(folder / "requests.jsonl", lambda lines: [*lines, '{"request_id": "b']), ("line 4", "not valid JSON")),
    "unfinished": (requests('"first_token_ts": 500.25', '"first_token_ts": null'), ("line 1: first_token_ts: found nothing", "leave requests out")),
    "no number": (requests('"input_toks": 50', '"input_toks": "many"'), ("line 1: input_toks", "'many'")),
    "before it came": (requests('"first_token_ts": 500.25', '"first_token_ts": 400.25'), ("line 1: first_token_ts - queued_ts", "negative")),
    "not in time": (requests('"last_token_ts": 500.28', '"last_token_ts": 500.21'), ("line 1: first_token_ts - queued_ts", "is possible")),
    "nan": (requests('"first_token_ts": 500.25', '"first_token_ts": NaN'), ("line 1", "finite")),
    "another workload": (requests('"input_toks": 50', '"input_toks": 51'), ("workload.jsonl: line 3: input_length: found 50", "says 51", "another run")),
    "a shorter workload": (lambda folder: change(folder / "workload.jsonl", lambda lines: lines[:2]), ("workload.jsonl", "found 2 requests")),
    "blocks of another size": (stated("kv_cache.block_size", 32), ("workload.jsonl: line 3: hash_ids: found 3", "full blocks of 32")),
    "a number beyond any": (requests('"last_token_ts": 500.28', f'"last_token_ts": {10**400}'), ("line 1", "found inf")),
    "ids of words": (lambda folder: change(folder / "workload.jsonl", lambda lines: [line.replace("[1, 2, 3]", '["a", "b", "c"]') for line in lines]), ("workload.jsonl: line 3: hash_ids: found 'a'", "whole numbers")),
    "no section": (stated("resolved_config.scheduler_config", [1]), ("meta.json: scheduler_config: found '[1]'", "JSON object")),
    "graphs of words": (stated("resolved_config.compilation_config.cudagraph_capture_sizes", ["a"]), ("meta.json: cudagraph_capture_sizes",)),
    "no block": (stated("kv_cache.block_size", 0), ("meta.json: block_size: found '0'",)),
    "pipeline": (stated("resolved_config.parallel_config.pipeline_parallel_size", 2), ("meta.json: pipeline_parallel_size is 2", "only 1 is modelled")),
    "speculation": (stated("resolved_config.speculative_config", {"method": "eagle"}), ("meta.json: speculative_config", "cannot be replayed")),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_run_is_refused(what: str, tmp_path: Path) -> None:
    edit, said = BROKEN[what]
    edit(write_run(tmp_path))
    with pytest.raises(InputError) as refused:
        read_llmservingsim(tmp_path)
    for words in said:
        assert words in str(refused.value)


@pytest.fixture(scope="module")
def rtx4090() -> Path:
    data = Path(os.environ.get("SERVETWIN_DATA") or Path(__file__).parents[3] / "shared" / "data")
    folder = data / "measured" / "rtx4090-llama-3.1-8b"
    if not folder.is_dir():
        pytest.skip("no measured run of an RTX 4090: set SERVETWIN_DATA to the folder that holds measured/")
    return folder


def test_a_saturated_rtx_4090_is_predicted_from_its_kernels_within_two_percent(rtx4090: Path) -> None:
    run = read_llmservingsim(rtx4090)
    asked = Scenario.model_validate(
        {
            "name": "as measured", "model": "Llama-3.1-8B", "hardware": "RTX-4090", "engine": dict(run.engine),
            "workload": {"requests": 1, "arrivals": "all_at_once", "input": 1, "output": 1},
        },
        context={"base": None},
    )  # fmt: skip
    cost = OperatorCost(kernels_of(rtx4090, asked))
    records = simulate(asked.engine_config(), run.workload(), cost)
    live, simulated = run.summary(), as_seen(records, by_engine=True).summary()
    errors = {
        f"{stat} {name}": simulated[f"{stat}_{name}_ms"] / live[f"{stat}_{name}_ms"] - 1
        for name in ("ttft", "tpot", "e2el")
        for stat in ("mean", "p50", "p90", "p95", "p99")
    }
    assert len(errors) == 15
    assert max(map(abs, errors.values())) < 0.02, errors
    gap = schedule_gap(rtx4090, run, records)
    assert gap is not None
    assert gap.running < 0.05 * gap.mean_running
    assert abs(gap.simulated_drained / gap.drained - 1) < 0.01
