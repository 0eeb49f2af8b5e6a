"""Reading what `vllm bench serve --save-result --save-detailed` writes: one JSON file a run, raw values in seconds.

`servetwin run --save-detailed` writes the same arrays, and so do other clients that follow vLLM's names.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from calibration.measured.checked import HUGE, measured
from calibration.measured.run import MeasuredRun
from scenarios.documents import read_text
from scenarios.errors import InputError

NEEDED = ("start_times", "ttfts", "itls", "input_lens", "output_lens")
REMEDY = (
    "run the benchmark again with --save-result --save-detailed, which keeps every request's values (start_times too in "
    "newer versions of vLLM; without them a run cannot be replayed)"
)
_STATED = ("model_id", "backend", "endpoint_type", "date", "tokenizer_id", "burstiness")


def read_vllm_bench(path: Path | str) -> MeasuredRun:
    """One run, plain or gzip. Requests that failed are left out; `stated["failed"]` counts them.

    Raises:
        InputError: not such a file, one without every request's values, or values that cannot have happened.
    """
    path = Path(path)
    data = _document(path)
    if missing := [name for name in NEEDED if not isinstance(data.get(name), list)]:
        raise InputError(f"{path}: {', '.join(missing)}: missing; {REMEDY}")
    n = len(data["start_times"])
    latencies = data.get("latencies")
    if latencies and not isinstance(latencies, list):
        raise InputError(f"{path}: latencies: found {str(latencies)[:40]!r}, but a list of seconds is needed")
    for name in (*NEEDED, "errors", "latencies"):
        if isinstance(data.get(name), list) and len(data[name]) != n:
            raise InputError(
                f"{path}: {name}: found {len(data[name])} values, but start_times has {n}; a truncated file?"
            )
    errors = data.get("errors") or [""] * n
    if not isinstance(errors, list):
        raise InputError(f"{path}: errors: found {str(errors)[:40]!r}, but a list of texts is needed")
    kept = [i for i in range(n) if not errors[i] and data["output_lens"][i]]
    if not kept:
        raise InputError(f"{path}: not one of its {n} requests was answered; {_first_error(errors)}")
    starts, ttfts, lens_in, lens_out = (
        [_number(path, name, i, data[name][i]) for i in kept]
        for name in ("start_times", "ttfts", "input_lens", "output_lens")
    )
    itls = [_gaps(path, i, data["itls"][i]) for i in kept]
    if latencies:
        e2e = [_number(path, "latencies", i, latencies[i]) for i in kept]
    else:
        e2e = [first + sum(gaps) for first, gaps in zip(ttfts, itls, strict=True)]
    _check_duration(path, data.get("duration"), starts, e2e)
    stated = {name: str(data[name]) for name in _STATED if data.get(name) is not None}
    if len(kept) < n:
        stated["failed"] = f"{n - len(kept)} of {n} requests failed and are left out, with the load they were"
    for name in ("request_rate", "max_concurrency"):
        if data.get(name) is not None:
            stated[name] = f"{data[name]:g}" if isinstance(data[name], int | float) else str(data[name])
    return measured(
        path.name.removesuffix(".gz").removesuffix(".json"),
        path,
        arrival=starts,
        input_tokens=lens_in,
        output_tokens=lens_out,
        ttft=ttfts,
        e2e=e2e,
        itls=itls,
        origin="sent",
        rows=[f"request {i}" for i in kept],
        columns={
            "arrival": "start_times", "input_tokens": "input_lens", "output_tokens": "output_lens", "ttft": "ttfts",
            "e2e": "latencies", "itls": "itls",
        },
        stated=stated,
    )  # fmt: skip


def _check_duration(path: Path, duration: object, starts: list[float], e2e: list[float]) -> None:
    """Values in another unit than seconds may agree among themselves, but not with how long the run says it took."""
    if isinstance(duration, bool) or not isinstance(duration, int | float) or not duration > 0:
        return
    took = max(map(sum, zip(starts, e2e, strict=True))) - min(starts)
    if math.isfinite(took) and took > 1.5 * duration + 1.0:
        raise InputError(
            f"{path}: latencies: the last answer ends {took:g} s after the first request, but the run's duration is {duration:g} s; "
            f"values are seconds"
        )


def is_vllm_bench(path: Path) -> bool:
    """Whether the file is one of these by its keys, complete or not.

    Raises:
        InputError: the file is not JSON, so that nobody can tell.
    """
    data = _document(path)
    return "request_throughput" in data or set(NEEDED) <= set(data)


def _document(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = (
            f"line {error.lineno}, column {error.colno}: {error.msg}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise InputError(f"{path}: not JSON: {where}; a truncated file?") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: found {type(data).__name__}, but one JSON object is needed; {REMEDY}")
    return data


def _number(path: Path, name: str, row: int, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path}: request {row}: {name}: found {str(value)[:40]!r}, but a number is needed")
    return float(value) if not abs(value) > HUGE else math.inf if value > 0 else -math.inf


def _gaps(path: Path, row: int, values: object) -> list[float]:
    if not isinstance(values, list):
        raise InputError(f"{path}: request {row}: itls: found {str(values)[:40]!r}, but a list of seconds is needed")
    return [_number(path, "itls", row, value) for value in values]


def _first_error(errors: list[Any]) -> str:
    text = next((str(e).strip().splitlines()[-1] for e in errors if str(e).strip()), "")
    return f"the first error is: {text[:200]}" if text else "look at the server's log"
