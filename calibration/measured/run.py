"""A measured run: requests that somebody sent to a real engine, and how long each took.

Readers build one with `checked.measured`, which refuses what cannot have happened. A simulation of the same requests becomes
one with `seen.as_seen`, so that both sides are summarised by the same code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.recorded import Blocks, RecordedTrace, to_workload
from scenarios.trace_options import TraceOptions
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.samples import effective_samples, percentile, samples_needed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Origin = Literal["intended", "sent", "engine"]
"""Where arrivals were taken: when the client meant to send, when it sent, when the engine saw the request."""

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class MeasuredRun:
    """`n` requests that finished, in order of arrival.

    name: of the run. source: where it was read from, for messages and reports.
    arrival_ns: `(n,)`, from the first arrival on. origin: what arrivals are.
    input_tokens, output_tokens: `(n,)`.
    ttft, tpot, e2e: seconds `(n,)`, NaN where absent; TPOT is absent of answers of one token.
    itls: seconds between deliveries, an array a request; None where nobody recorded them.
    hash_ids: chained ids of each prompt's blocks of `block_size` tokens, None where prompts share nothing.
    sent_ns: `(n,)`, when clients sent, from the first on, where arrivals are the engine's and both are known. An engine sees
        requests between steps: a simulation starts from when they were sent, finds out itself when its engine sees them, and
        is compared from there.
    engine: settings that the source states, by the field names of a scenario's engine section (`num_gpu_blocks`, ...).
    stated: whatever else the source says of itself: model, versions, hardware.
    """

    name: str
    source: str
    arrival_ns: Ints
    input_tokens: Ints
    output_tokens: Ints
    ttft: Floats
    tpot: Floats
    e2e: Floats
    origin: Origin
    itls: tuple[Floats, ...] | None = None
    hash_ids: tuple[tuple[int, ...], ...] | None = None
    block_size: int | None = None
    sent_ns: Ints | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def rate(self) -> float:
        """Requests that arrived a second: n - 1 gaps from the first arrival to the last; infinite for one burst."""
        span = int(self.arrival_ns[-1]) / 1e9
        return (len(self) - 1) / span if span > 0 else float("inf")

    def take(self, rows: Ints) -> MeasuredRun:
        """The same run with these requests only, `rows` ascending; arrivals count from the first of them."""
        return dataclasses.replace(
            self,
            **{name: getattr(self, name)[rows] for name in _COLUMNS},
            arrival_ns=self.arrival_ns[rows] - self.arrival_ns[rows[0]],
            sent_ns=None if self.sent_ns is None else self.sent_ns[rows] - self.sent_ns[rows[0]],
            itls=None if self.itls is None else tuple(self.itls[i] for i in rows.tolist()),
            hash_ids=None if self.hash_ids is None else tuple(self.hash_ids[i] for i in rows.tolist()),
        )

    def after_ready_check(self) -> MeasuredRun:
        """With one request more, in row 0: the first prompt, sent alone a minute before the run. It has no latencies.

        `vllm bench serve` does so to see whether the server answers; where prefixes are cached the run's first request then
        finds its own prompt.
        """
        again: dict[str, Any] = {
            name: np.concatenate([getattr(self, name)[:1], getattr(self, name)]) for name in _COLUMNS
        }
        for name in ("ttft", "tpot", "e2e"):
            again[name][0] = np.nan
        hash_ids, block_size = self.hash_ids, self.block_size
        if hash_ids is None or block_size is None:
            hash_ids, block_size = ((0,), *(() for _ in range(len(self) - 1))), int(self.input_tokens[0])
        return dataclasses.replace(
            self,
            **again,
            arrival_ns=np.concatenate([[0], self.arrival_ns + _AHEAD_NS]),
            sent_ns=None if self.sent_ns is None else np.concatenate([[0], self.sent_ns + _AHEAD_NS]),
            itls=None if self.itls is None else (np.empty(0), *self.itls),
            hash_ids=(hash_ids[0], *hash_ids),
            block_size=block_size,
        )

    def workload(self, *, spread: float = 1.0) -> Workload:
        """The same requests for a simulation: arrivals, lengths and equal beginnings as they were; answers end where they did.

        Row i of the workload is row i of this run.

        Args:
            spread: factor of the gaps between arrivals; 1.02 offers 2 % less load.
        """
        if not spread > 0:
            raise ValueError(f"spread {spread} must be above 0")
        since = self.arrival_ns if self.sent_ns is None else self.sent_ns
        blocks = None
        if self.hash_ids is not None and self.block_size is not None:
            counts = [len(ids) for ids in self.hash_ids]
            offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            ids = np.fromiter((i for ids in self.hash_ids for i in ids), dtype=np.int64, count=int(offset[-1]))
            blocks = Blocks(offset, ids, self.block_size)
        trace = RecordedTrace(
            Path(self.source),
            since if spread == 1.0 else np.rint(since * spread).astype(np.int64),
            self.input_tokens,
            self.output_tokens,
            np.arange(1, len(self) + 1),
            blocks=blocks,
        )
        # Only a trace that is scaled to fit looks at the engine.
        return to_workload(trace, TraceOptions(), "as_output", EngineConfig(num_gpu_blocks=2))

    def summary(self, percentiles: Sequence[float] = PERCENTILES) -> dict[str, Any]:
        """Metrics under the keys of METRICS: mean, median and percentiles in ms, throughputs per second.

        Percentiles are those of *these requests*, which a simulation replays one by one: unlike a run's own summary, which
        speaks of a population, none is refused. `few` names each that a sample of this size could not carry, and why.
        """
        found: dict[str, Any] = {"completed": len(self)}
        few: dict[str, str] = {}
        for name, values in self._latencies().items():
            if not len(values):
                continue
            found[f"mean_{name}_ms"] = float(values.mean()) * 1e3
            found[f"median_{name}_ms"] = percentile(values, 50) * 1e3
            found[f"std_{name}_ms"] = float(values.std()) * 1e3
            for p in percentiles:
                key, value = f"p{p:g}_{name}_ms", percentile(values, p)
                found[key] = value * 1e3
                needed = samples_needed(p) if p >= 95 else 1
                effective = effective_samples(values > value) if needed > 1 else len(values)
                if effective < needed:
                    few[key] = f"{effective:.0f} effective samples of {len(values):,}; p{p:g} needs {needed}"
        ended = np.isfinite(self.e2e)
        if ended.any():
            duration = float((self.arrival_ns[ended] / 1e9 + self.e2e[ended]).max())
            found["duration"] = duration
            if duration > 0:
                inputs, outputs = int(self.input_tokens[ended].sum()), int(self.output_tokens[ended].sum())
                found["request_throughput"] = int(ended.sum()) / duration
                found["output_throughput"] = outputs / duration
                found["total_token_throughput"] = (inputs + outputs) / duration
        found["few"] = few
        return found

    def _latencies(self) -> dict[str, Floats]:
        found = {"ttft": self.ttft, "tpot": self.tpot, "e2el": self.e2e}
        found = {name: values[np.isfinite(values)] for name, values in found.items()}
        if self.itls is not None:
            found["itl"] = np.concatenate(self.itls) if self.itls else np.empty(0)
        return found


_AHEAD_NS = 60_000_000_000
"""Of a readiness check before the run: long enough for the engine to be idle again."""

_COLUMNS = ("input_tokens", "output_tokens", "ttft", "tpot", "e2e")
