"""Which step shapes to measure, and how: warm, repeated, in shuffled order, summed up by medians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.config import EngineConfig
from serving.plan import StepShape
from sim.profile import Measurement, Outlier

Grid = Literal["quick", "standard"]
Progress = Callable[[int, int], None]


class Stepper(Protocol):
    """Something that can run one step of a given shape on scratch memory; `gpu_backend.engine.Engine` is one."""

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
    # Kernels and tiles change past powers of two: a knot just behind shows a step there instead of smearing it out.
    behind = [q + 1 for q in (16, 32, 64, 128, 256, 512) if q < queries[-1] and (fine or q >= 64)]
    shapes += [StepShape(((query, 0),), sampled=1) for query in behind]
    # Rows of the head without decodes: many short prompts that all end here, or none of them.
    parts = min(16, engine.max_num_seqs, budget // 4)
    many_prompts = _chunked(4 * parts, parts)
    shapes += [many_prompts, many_prompts._replace(sampled=0)]
    for turn, query in enumerate(queries):
        shapes.append(StepShape(((query, 0),), sampled=1))
        # Long chunks take longest, and what only they can show is the dense table: other terms come from shorter ones.
        short = 2 * query <= budget
        if turn % 2 == 0 and short:
            before = [int((window - query) * share) for share in ((0.3, 0.9) if fine else (0.6,))]
            shapes += [StepShape(((query, context),), sampled=1) for context in before]
        if turn % 3 == 0 and 4 * query < budget:
            shapes.append(StepShape(((query, 0),), sampled=0))
        parts = (2, 8)[turn // 2 % 2]
        if turn % 2 == 0 and short and query >= 2 * parts:
            shapes.append(_chunked(query, parts))
        # Mixed steps of so many tokens in all: few, some and most decodes, contexts in turn.
        below = [n for n in batches if n < query]
        many = fine and short
        for k in (0, len(below) // 2, len(below) - 1) if many else (turn % max(1, len(below)),):
            if below and (many or query < budget):
                n, context = below[k], (window // 4) * ((turn + k) % 3)
                decodes = _decodes(n, contexts[(turn + k) % (len(contexts) - 1)])
                prompt = (query - n, min(context, window - query))
                shapes.append(decodes._replace(prefill=(prompt,), sampled=n + (turn + k) % 2))
    if (
        engine.num_speculative_tokens
    ):  # rows that verify drafts: their attention and head are not those of a prompt's chunk
        k = engine.num_speculative_tokens
        shapes += [_verifications(n, k, context) for n in batches for context in (contexts[0], contexts[-1])]
    return [s for s in dict.fromkeys(shapes) if _possible(s, engine)]


class Rounds:
    """Measures shapes round by round, a step at a time, so that other work may run in between.

    Each round goes through all shapes in an order of its own, so that a slow minute of the machine is spread over shapes and
    not mistaken for the cost of one of them. The first round warms up and does not count.
    """

    def __init__(self, stepper: Stepper, shapes: Sequence[StepShape], seed: int = 0) -> None:
        self.stepper, self.shapes = stepper, list(shapes)
        self._rng = np.random.default_rng(seed)
        self._visited: list[int] = []
        self._ahead: list[int] = []  # what is left of the round, last first
        self._times: list[int] = []

    @property
    def counted(self) -> int:
        """Whole rounds behind the first."""
        return max(0, len(self._times) // len(self.shapes) - 1)

    def step(self) -> None:
        """Measures the next shape of the round."""
        if not self._ahead:
            self._ahead = self._rng.permutation(len(self.shapes)).tolist()
        shape = self._ahead.pop()
        self._times.append(self.stepper.measure(self.shapes[shape]))
        self._visited.append(shape)

    def result(self) -> tuple[list[Measurement], list[Outlier]]:
        """Median duration of each shape over the whole rounds, and the repeats that stand apart.

        What steps in a row have in common, whatever their shapes, is the machine's and is taken out (`steady`).

        Raises:
            ValueError: not even one round behind the first.
        """
        n, rounds = len(self.shapes), self.counted
        if rounds < 1:
            raise ValueError(f"{len(self._times)} steps are too few: {n} warm up, as many are counted at least")
        whole = slice(n, n * (rounds + 1))
        order = np.array(self._visited[whole]).reshape(rounds, n)
        times = np.zeros_like(order)
        times[_visits(order)] = self._times[whole]
        measurements, outliers = [], []
        for shape, ns, calm in zip(self.shapes, times.T, steady(times, order).T, strict=True):
            median = float(np.median(calm))
            measured = Measurement(
                **shape._asdict(),
                ns=round(median),
                repeats=rounds,
                spread=float((ns.max() - ns.min()) / median),
            )
            measurements.append(measured)
            # Six median deviations, and a tenth at least: with five quiet repeats the deviation itself is tiny.
            limit = max(6.0 * float(np.median(np.abs(calm - median))), 0.1 * median)
            outliers += [Outlier(shape=measured, ns=int(value)) for value in ns[np.abs(calm - median) > limit]]
        return measurements, outliers


def steady(times: NDArray[np.int64], order: NDArray[np.int64], neighbours: int = 5) -> NDArray[np.float64]:
    """Durations with the machine's slow and fast moments taken out; both arguments and the result are `(rounds, shapes)`.

    On a shared machine the steps of a second or so are slow or fast together (correlation 0.5 from one step to the next was
    seen), though their order is random. Each duration is divided by the median of how much its neighbours in time, five
    on either side, differ from their own shapes' medians; twice, as those medians improve. A step's own deviation
    is not part of it, so noise of single steps stays what it is.
    """
    turns, visited = _visits(order)
    log = np.log(times[turns, visited].astype(np.float64))
    common = np.zeros_like(log)
    result = times.astype(np.float64)
    for _ in range(2):
        off = log - np.log(np.median(result, axis=0))[visited]
        for k in range(len(off)):
            around = np.concatenate([off[max(0, k - neighbours) : k], off[k + 1 : k + 1 + neighbours]])
            common[k] = np.median(around) if len(around) else 0.0
        # The level that is left is the mean one: live steps meet slow moments too, as often as these did.
        result[turns, visited] = np.exp(log - common + np.log(np.exp(common).mean()))
    return result


def _visits(order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Round and shape of each measurement, in the order in which they were made."""
    rounds, shapes = order.shape
    return np.repeat(np.arange(rounds), shapes), order.ravel()


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


def _verifications(n: int, k: int, context: int) -> StepShape:
    """n sequences of that context verify k drafts each."""
    return StepShape(((1 + k, context),) * n, sampled=n * (1 + k), draft_tokens=n * k)


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
