"""Which step shapes to measure, and how: warm, repeated, in shuffled order, summed up by medians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np

from serving.config import EngineConfig
from serving.plan import StepShape
from sim.profile import Measurement, Outlier

Grid = Literal["quick", "standard"]
Progress = Callable[[int, int], None]


class Stepper(Protocol):
    """Something that can run one step of a given shape on scratch memory; `gpu_backend.engine.CpuEngine` is one."""

    def measure(self, shape: StepShape) -> int:
        """Duration of one step of that shape, ns."""

    def info(self) -> dict[str, object]:
        """What was measured on: backend, device, clock, threads, versions, dtype, kv_dtype."""


def grid(engine: EngineConfig, size: Grid = "standard") -> list[StepShape]:
    """Step shapes that cover what an engine with these settings can be asked to run.

    Token counts of mixed steps are those of the prefill and decode ones, so that the dense table needs no knots of its own
    for them. Shapes that the engine could never run (over its budget, window, sequences or KV memory) are left out.
    """
    fine = size == "standard"
    budget = min(engine.max_num_batched_tokens, engine.usable_blocks * engine.block_size)
    window = engine.max_model_len
    batches = _ladder(min(engine.max_num_seqs, budget), fine)
    queries = _ladder(min(budget, window - 1), fine)
    contexts = [max(1, int(window * share)) for share in ((0.05, 0.25, 0.6, 0.95) if fine else (0.05, 0.3, 0.9))]
    shapes = [_decodes(n, c) for n in batches for c in contexts]
    if fine:  # one long context among short ones
        shapes += [_decodes(n, contexts[0], contexts[-1]) for n in batches[1::2]]
    for turn, query in enumerate(queries):
        shapes += [
            StepShape(((query, int((window - query) * part)),), sampled=1)
            for part in ((0, 0.3, 0.9) if fine else (0, 0.6))
        ]
        shapes.append(StepShape(((query, 0),), sampled=0))
        parts = (2, 4, 8)[turn % 3]
        if query >= 4 * parts:
            shapes.append(_chunked(query, parts))
        # Mixed steps of so many tokens in all: few, some and most decodes, contexts in turn.
        below = [n for n in batches if n < query]
        for k in (0, len(below) // 2, len(below) - 1) if fine else (turn % max(1, len(below)),):
            if below:
                n, before = below[k], (window // 4) * ((turn + k) % 3)
                decodes = _decodes(n, contexts[(turn + k) % (len(contexts) - 1)])
                prompt = (query - n, min(before, window - query))
                shapes.append(decodes._replace(prefill=(prompt,), sampled=n + (turn + k) % 2))
    return [s for s in dict.fromkeys(shapes) if _possible(s, engine)]


def measure(
    stepper: Stepper,
    shapes: Sequence[StepShape],
    *,
    repeats: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[list[Measurement], list[Outlier]]:
    """Median duration of each shape, and the repeats that stand apart.

    Rounds go through all shapes, each in an order of its own, so that a slow minute of the machine is spread over shapes
    and not mistaken for the cost of one of them. The first round warms up and does not count.

    Args:
        progress: called with (steps done, steps in all) after each step.
    """
    rng = np.random.default_rng(seed)
    total = len(shapes) * (repeats + 1)
    times = np.zeros((repeats + 1, len(shapes)), dtype=np.int64)
    done = 0
    for row in times:
        for i in rng.permutation(len(shapes)).tolist():
            row[i] = stepper.measure(shapes[i])
            done += 1
            if progress is not None:
                progress(done, total)
    measurements, outliers = [], []
    for shape, ns in zip(shapes, times[1:].T, strict=True):
        median = float(np.median(ns))
        measured = Measurement(
            **shape._asdict(),
            ns=round(median),
            repeats=repeats,
            spread=float((ns.max() - ns.min()) / median),
        )
        measurements.append(measured)
        # Six median deviations, and a tenth at least: with five quiet repeats the deviation itself is tiny.
        limit = max(6.0 * float(np.median(np.abs(ns - median))), 0.1 * median)
        outliers += [Outlier(shape=measured, ns=int(value)) for value in ns if abs(value - median) > limit]
    return measurements, outliers


def _ladder(limit: int, fine: bool) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... (1, 2, 4, 8, ... if not fine) and the limit itself."""
    steps = [1 << k for k in range(limit.bit_length())]
    if fine:
        steps += [3 << k for k in range(limit.bit_length())]
    return sorted({step for step in steps if step <= limit} | {limit})


def _decodes(n: int, context: int, longest: int | None = None) -> StepShape:
    """n decodes of equal context, or n - 1 of them beside one long one."""
    if longest is None:
        return StepShape(decode_sequences=n, decode_context=n * context, decode_max_context=context, sampled=n)
    return StepShape((), n, (n - 1) * context + longest, longest, n)


def _chunked(tokens: int, parts: int) -> StepShape:
    """One step of several prompts."""
    query, longer = divmod(tokens, parts)
    return StepShape(prefill=tuple((query + (i < longer), 0) for i in range(parts)), sampled=parts)


def _possible(shape: StepShape, engine: EngineConfig) -> bool:
    block = engine.block_size
    sequences = [q + c for q, c in shape.prefill]
    blocks = sum(-(-n // block) for n in sequences)
    blocks += -(-(shape.decode_context + shape.decode_sequences) // block) + shape.decode_sequences
    return (
        shape.tokens <= engine.max_num_batched_tokens
        and len(shape.prefill) + shape.decode_sequences <= engine.max_num_seqs
        and max(sequences, default=0) < engine.max_model_len
        and shape.decode_max_context + 1 < engine.max_model_len
        and blocks <= engine.usable_blocks
    )
