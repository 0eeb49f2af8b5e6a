"""Reading a run that LLMServingSim's benchmark recorded of a real vLLM: one folder a run.

- `requests.jsonl`: a line a request. `arrival_time` is the wall clock of the client, the others are the engine's monotonic clock, so
  latencies count from `queued_ts`, where the engine saw the request: between two steps, up to a whole step after it was sent. A
  simulation fed with those times would wait for a step's end twice, so it starts from `arrival_time`, the fastest request's way
  to the engine taken as no time. Answers end at a pinned length.
- `meta.json`: versions, device, and the engine's settings as it resolved them.
- `workload.jsonl`, where it is there: what was sent, in the order of the numbers in `request_id`. Prompts as `hash_ids` (one for each
  full block) or as `input_tok_ids`; without it prompts share nothing.
- `kernels/`, where it is there: a bundle of kernel times (`calibration.operators.llmservingsim`).
- `timeseries.csv`, where it is there: what was running and waiting, once a tick.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.measured.checked import HUGE, measured
from calibration.measured.run import MeasuredRun
from calibration.operators.llmservingsim import read_bundle
from calibration.operators.number_table import read_numbers
from scenarios.documents import read_text
from scenarios.errors import InputError
from scenarios.hardware import HardwareSpec
from scenarios.models import ModelSpec
from scenarios.schema import Scenario
from serving.records import Records
from sim.operator_profile import Curve, OperatorProfile

TIMESERIES = "timeseries.csv"
_TIMES = ("queued_ts", "first_token_ts", "last_token_ts")
_LENGTHS = ("input_toks", "output_toks")
_SCHEDULER = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "policy",
    "scheduler_reserve_full_isl",
    "async_scheduling",
    "watermark",
)
_DTYPES = {"bfloat16", "float16", "float32", "fp8"}


def read_llmservingsim(folder: Path | str) -> MeasuredRun:
    """The run of a folder; arrivals are where the engine saw them.

    Raises:
        InputError: a file is missing or broken, a request lacks a time, or the workload is not that of the requests.
    """
    folder = Path(folder)
    path = folder / "requests.jsonl"
    rows, lines = _rows(path)
    columns = {
        name: [_number(path, lines[i], name, row) for i, row in enumerate(rows)] for name in (*_TIMES, *_LENGTHS)
    }
    meta = _meta(folder)
    engine = _engine(folder / "meta.json", meta)
    hash_ids = _prompts(folder / "workload.jsonl", path, rows, lines, int(engine.get("block_size", 16)))
    queued = np.array(columns["queued_ts"])
    return measured(
        folder.resolve().name,
        path,
        arrival=queued,
        input_tokens=columns["input_toks"],
        output_tokens=columns["output_toks"],
        ttft=np.array(columns["first_token_ts"]) - queued,
        e2e=np.array(columns["last_token_ts"]) - queued,
        origin="engine",
        sent=_sent(path, lines, rows),
        hash_ids=hash_ids,
        block_size=None if hash_ids is None else int(engine.get("block_size", 16)),
        rows=[f"line {line}" for line in lines],
        columns={
            "arrival": "queued_ts", "sent": "arrival_time", "input_tokens": "input_toks", "output_tokens": "output_toks",
            "ttft": "first_token_ts - queued_ts", "e2e": "last_token_ts - queued_ts",
        },
        engine=engine,
        stated=_stated(meta),
    )  # fmt: skip


def kernels_of(folder: Path | str, scenario: Scenario) -> OperatorProfile:
    """Step costs of the run's engine from the folder's `kernels/`, for the scenario's model: nothing of the run itself is used
    but what its engine was told (graph sizes, tensor parallel).

    Raises:
        InputError: the bundle is wrong or of another model; there are no times of all-reduces where they are needed.
    """
    folder = Path(folder)
    size = scenario.engine.tensor_parallel_size
    kernels = folder / "kernels"
    link = None
    if size > 1 and not _has_all_reduces(kernels):
        link = _link(scenario.model, scenario.hardware, size)
    return read_bundle(
        kernels,
        scenario.model,
        tensor_parallel_size=size,
        capture_sizes=capture_sizes(_meta(folder)),
        all_reduce=link,
    )


def capture_sizes(meta: Mapping[str, Any]) -> tuple[int, ...]:
    """Token counts at which the engine captured graphs; none where it ran eager."""
    resolved = meta.get("resolved_config") or {}
    if (resolved.get("model_config") or {}).get("enforce_eager") or (meta.get("engine_kwargs") or {}).get(
        "enforce_eager"
    ):
        return ()
    compiled = resolved.get("compilation_config") or {}
    mode = compiled.get("cudagraph_mode")
    if mode in ("NONE", 0, [0, 0]):
        return ()
    sizes = compiled.get("cudagraph_capture_sizes") or []
    return tuple(sorted(int(size) for size in sizes))


class ScheduleGap(NamedTuple):
    """How far apart two engines' queues were, tick by tick while either had work: means of |simulated - measured|, and of what was
    measured. drained: when each had ended all requests, seconds."""

    ticks: int
    running: float
    waiting: float
    mean_running: float
    mean_waiting: float
    drained: float
    simulated_drained: float


def schedule_gap(folder: Path | str, run: MeasuredRun, records: Records) -> ScheduleGap | None:
    """Compares what ran and waited with `timeseries.csv`; None where there is none.

    A tick states the engine's last step before it. Ticks count from the client's start, about the first arrival.
    """
    path = Path(folder) / TIMESERIES
    if not path.is_file():
        return None
    table = read_numbers(path, counts=["t", "running", "waiting"])
    at = table.numbers["t"]
    step = np.searchsorted(records.steps["start_ns"], np.rint(at * 1e9).astype(np.int64), side="right") - 1
    busy = step >= 0
    seen: dict[str, NDArray[np.float64]] = {}
    for name in ("running", "waiting"):
        ours = np.where(busy, records.steps[name][np.maximum(step, 0)], 0).astype(np.float64)
        seen[name] = np.where(at * 1e9 < records.steps["end_ns"].max(), ours, 0.0)
    either = (table.numbers["running"] > 0) | (seen["running"] > 0)
    if not either.any():
        return None
    gap = {name: np.abs(seen[name] - table.numbers[name])[either] for name in seen}
    return ScheduleGap(
        ticks=int(either.sum()),
        running=float(gap["running"].mean()),
        waiting=float(gap["waiting"].mean()),
        mean_running=float(table.numbers["running"][either].mean()),
        mean_waiting=float(table.numbers["waiting"][either].mean()),
        drained=float((run.arrival_ns / 1e9 + run.e2e).max()),
        simulated_drained=float(records.steps["end_ns"].max()) / 1e9,
    )


def _rows(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    rows, lines = [], []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise InputError(f"{path}: line {number}: not valid JSON; a truncated file?") from None
        if not isinstance(row, dict):
            raise InputError(
                f"{path}: line {number}: found {str(row)[:40]!r}, but a JSON object is needed on every line"
            )
        rows.append(row)
        lines.append(number)
    if not rows:
        raise InputError(f"{path}: the file is empty, but a line for every request is needed")
    return rows, lines


def _number(path: Path, line: int, name: str, row: Mapping[str, Any]) -> float:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = "nothing" if value is None else repr(value)[:40]
        raise InputError(
            f"{path}: line {line}: {name}: found {found}, but a number is needed; leave requests out that failed"
        )
    return float(value) if not abs(value) > HUGE else math.inf if value > 0 else -math.inf


def _sent(path: Path, lines: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
    if all("arrival_time" not in row for row in rows):
        return None
    return [_number(path, line, "arrival_time", row) for line, row in zip(lines, rows, strict=True)]


def _meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    try:
        meta = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise InputError(f"{path}: found {type(meta).__name__}, but a JSON object is needed")
    for name in ("engine_kwargs", "kv_cache", "hardware", "resolved_config"):
        _section(path, meta, name)
    resolved = _section(path, meta, "resolved_config")
    for name in ("scheduler_config", "model_config", "parallel_config", "cache_config"):
        _section(path, resolved, name)
    sizes = _section(path, resolved, "compilation_config").get("cudagraph_capture_sizes") or []
    if not isinstance(sizes, list) or not all(isinstance(size, int) and 0 < size < HUGE for size in sizes):
        raise InputError(
            f"{path}: cudagraph_capture_sizes: found {str(sizes)[:60]}, but a list of whole numbers is needed"
        )
    return meta


def _section(path: Path, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name) or {}
    if not isinstance(found, dict):
        raise InputError(f"{path}: {name}: found {str(found)[:40]!r}, but a JSON object is needed")
    return found


def _engine(path: Path, meta: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine resolved, by the field names of a scenario's engine section."""
    resolved = meta.get("resolved_config") or {}
    scheduler, model = resolved.get("scheduler_config") or {}, resolved.get("model_config") or {}
    parallel, cache = resolved.get("parallel_config") or {}, meta.get("kv_cache") or {}
    told = meta.get("engine_kwargs") or {}
    for name in ("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"):
        if (parallel.get(name) or told.get(name) or 1) != 1:
            raise InputError(f"{path}: {name} is {parallel.get(name) or told.get(name)}: only 1 is modelled")
    if resolved.get("speculative_config"):
        raise InputError(
            f"{path}: speculative_config is set: what it accepted is not in these files, so the run cannot be replayed"
        )
    found = {name: scheduler[name] for name in _SCHEDULER if scheduler.get(name) is not None}
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        found.setdefault(name, told.get(name))
    found["max_model_len"] = model.get("max_model_len") or told.get("max_model_len")
    found["tensor_parallel_size"] = parallel.get("tensor_parallel_size") or told.get("tensor_parallel_size") or 1
    for name in ("num_gpu_blocks", "block_size", "gpu_memory_utilization", "enable_prefix_caching"):
        found[name] = cache.get(name)
    block_size = found["block_size"]
    if block_size is not None and (not isinstance(block_size, int) or block_size < 1):
        raise InputError(f"{path}: block_size: found {str(block_size)[:40]!r}, but a whole number above 0 is needed")
    found["dtype"] = _dtype(
        model.get("quantization") or told.get("quantization") or model.get("dtype") or told.get("dtype")
    )
    kv = (resolved.get("cache_config") or {}).get("cache_dtype") or told.get("kv_cache_dtype")
    found["kv_cache_dtype"] = "fp8" if str(kv).startswith("fp8") else _dtype(kv)
    return {name: value for name, value in found.items() if value is not None}


def _dtype(said: object) -> str | None:
    name = str(said).removeprefix("torch.")
    return name if name in _DTYPES else None


def _stated(meta: Mapping[str, Any]) -> dict[str, str]:
    device = meta.get("hardware") or {}
    said = {
        "model": meta.get("model"),
        "engine": f"vllm {meta['vllm_version']}" if meta.get("vllm_version") else None,
        "hardware": device.get("device_name"),
        "devices": device.get("device_count"),
        "started_at": meta.get("started_at"),
        "dataset": meta.get("dataset_path"),
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def _prompts(
    path: Path, requests: Path, rows: Sequence[Mapping[str, Any]], lines: Sequence[int], block_size: int
) -> list[list[int]] | None:
    """Ids of each request's full blocks, in the order of the requests; None where nobody says what was sent."""
    if not path.is_file():
        return None
    sent, sent_lines = _rows(path)
    flat = [i for i, row in enumerate(sent) if "sub_requests" not in row]
    order = _numbers(rows)
    if max(order) >= len(flat):
        raise InputError(
            f"{path}: found {len(flat)} requests, but {requests.name} has number {max(order)}; the workload of another run?"
        )
    blocks: dict[tuple[int, tuple[int, ...]], int] = {}
    found = []
    for i, number in enumerate(order):
        row, at = sent[flat[number]], sent_lines[flat[number]]
        for ours, theirs in (("input_toks", "input_length"), ("output_toks", "output_length")):
            length = row.get(theirs, row.get(ours))
            if length is not None and length != rows[i][ours]:
                raise InputError(
                    f"{path}: line {at}: {theirs}: found {length}, but line {lines[i]} of {requests.name} says {rows[i][ours]}; "
                    "the workload of another run?"
                )
        ids = row.get("hash_ids")
        if ids is None:
            ids = _chained(_ids(path, at, "input_tok_ids", row.get("input_tok_ids") or []), block_size, blocks)
        full = int(rows[i]["input_toks"]) // block_size
        if not isinstance(ids, list) or len(ids) not in (full, -(-int(rows[i]["input_toks"]) // block_size)):
            raise InputError(
                f"{path}: line {at}: hash_ids: found {len(ids) if isinstance(ids, list) else ids}, but {rows[i]['input_toks']} tokens "
                f"have {full} full blocks of {block_size}"
            )
        found.append(_ids(path, at, "hash_ids", ids)[:full])
    return found


def _numbers(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Which line of the workload each request is: the number at the end of its id, else its place."""
    ends = [str(row.get("request_id", "")).rpartition("-")[2] for row in rows]
    if all(end.isdecimal() and len(end) < 16 for end in ends) and len(set(ends)) == len(ends):
        return [int(end) for end in ends]
    return list(range(len(rows)))


def _ids(path: Path, line: int, name: str, ids: Any) -> list[int]:
    if not isinstance(ids, list):
        raise InputError(f"{path}: line {line}: {name}: found {str(ids)[:40]!r}, but a list of whole numbers is needed")
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, int) or not abs(i) < 2**63:
            raise InputError(
                f"{path}: line {line}: {name}: found {str(i)[:40]!r} among them, but they are whole numbers"
            )
    return ids


def _chained(tokens: Sequence[int], size: int, known: dict[tuple[int, tuple[int, ...]], int]) -> list[int]:
    """Ids of full blocks; equal ids mean equal text from the beginning."""
    parent, ids = -1, []
    for start in range(0, len(tokens) - size + 1, size):
        parent = known.setdefault((parent, tuple(tokens[start : start + size])), len(known))
        ids.append(parent)
    return ids


def _has_all_reduces(kernels: Path) -> bool:
    return any((parent / "hardware.yaml").is_file() for parent in (kernels, *list(kernels.resolve().parents)[:5]))


def _link(model: ModelSpec, hardware: HardwareSpec, size: int) -> Curve | None:
    """One all-reduce over tokens from the device's sheet: latency, and 2 (n - 1) / n of the bytes over the link."""
    if hardware.link_bandwidth is None:
        return None
    token = (
        2.0 * model.hidden_size * 2 * (size - 1) / size / (hardware.link_bandwidth * hardware.memory_efficiency) * 1e9
    )
    base = hardware.link_latency * 1e9
    return Curve(at=(1, 8192), ns=(base + token, base + 8192 * token))
