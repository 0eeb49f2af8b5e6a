"""Options named as in `vllm bench serve`, as scenario overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios import documents
from scenarios.errors import InputError

SLO_FIELDS = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}


def overrides(
    *,
    request_rate: str | None = None,
    burstiness: float | None = None,
    max_concurrency: int | None = None,
    num_prompts: int | None = None,
    random_input_len: int | None = None,
    random_output_len: int | None = None,
    goodput: Sequence[str] = (),
    limit: int | None = None,
    speedup: float | None = None,
    replays: bool = False,
) -> list[str]:
    """`path=value` texts for `scenarios.load`.

    request_rate: requests per second, `inf` for everything at once. max_concurrency: a closed loop of so many clients.
    replays: the scenario replays a trace, so `num_prompts` limits that. limit, speedup: of that trace.

    Raises:
        InputError: options that contradict each other or are malformed.
    """
    found = []
    if max_concurrency is not None:
        if request_rate is not None or burstiness is not None:
            raise InputError("--max-concurrency is a closed loop and takes neither --request-rate nor --burstiness")
        found.append(f"workload.arrivals={{process: closed_loop, concurrency: {max_concurrency}}}")
    elif request_rate is not None:
        found.append(f"workload.arrivals={_arrivals(request_rate, burstiness)}")
    elif burstiness is not None:
        raise InputError("--burstiness needs --request-rate")
    if replays and any(v is not None for v in (max_concurrency, request_rate, random_input_len, random_output_len)):
        raise InputError(
            "a trace has its own arrivals and lengths; --request-rate, --max-concurrency and --random-* do not apply"
        )
    if not replays and (limit is not None or speedup is not None):
        raise InputError("--limit and --speedup are about a trace; name one with --trace")
    if limit is not None and num_prompts is not None:
        raise InputError("--limit and --num-prompts say the same of a trace; give one")
    found += [
        f"workload.trace.{name}={value}"
        for name, value in (("limit", limit), ("speedup", speedup))
        if value is not None
    ]
    if num_prompts is not None:
        found.append(f"workload.{'trace.limit' if replays else 'requests'}={num_prompts}")
    for name, tokens in (("input", random_input_len), ("output", random_output_len)):
        if tokens is not None:
            found.append(f"workload.{name}={tokens}")
    return found + [f"slo.{name}={limit}" for name, limit in limits(goodput).items()]


def joined(scenario: str, trace: Path | None, given: Sequence[str] | None, **options: Any) -> list[str]:
    """Overrides of options for a scenario by file or name; what was given with --set comes last and wins."""
    if not any(value not in (None, ()) for value in options.values()):
        return list(given or [])
    path = Path(scenario)
    of_trace = trace is not None or (path.is_file() and replays(documents.read_mapping(path)))
    return [*overrides(**options, replays=of_trace), *(given or [])]


def _arrivals(rate: str, burstiness: float | None) -> str:
    if rate.strip().lower() == "inf":
        return "all_at_once"
    process = "poisson" if burstiness is None or burstiness == 1 else "gamma"
    shape = "" if process == "poisson" else f", burstiness: {burstiness}"
    return f"{{process: {process}, rate: {rate}{shape}}}"


def limits(goodput: Sequence[str]) -> dict[str, str]:
    """`ttft:200 tpot:30 e2el:5000` (milliseconds) as durations by SLO field."""
    found = {}
    for text in goodput:
        for part in re.split(r"[\s,]+", text.strip()):
            name, colon, value = part.partition(":")
            if name not in SLO_FIELDS or not colon:
                raise InputError(f"--goodput: found {part!r}, allowed: ttft:MS, tpot:MS, e2el:MS (milliseconds)")
            found[SLO_FIELDS[name]] = f"{value}ms"
    return found


def percentiles(text: str | None) -> tuple[float, ...]:
    """`50,90,99` as numbers.

    Raises:
        InputError: not numbers between 0 and 100.
    """
    if text is None:
        return (50, 90, 95, 99)
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= p <= 100 for p in found):
        raise InputError(f"--metric-percentiles: found {text!r}, allowed: numbers from 0 to 100, such as 50,90,99")
    return found


def replays(document: Mapping[str, Any]) -> bool:
    """Whether a scenario document names a trace."""
    workload = document.get("workload")
    trace = workload.get("trace") if isinstance(workload, Mapping) else None
    return isinstance(trace, Mapping) and trace.get("path") is not None
