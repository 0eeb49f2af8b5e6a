"""Step costs from a profile composed of operators."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.attribution import Shares
from serving.plan import StepShape
from sim.domain import Outside, in_words, outside
from sim.interpolation import Array, Box, Plane, on_curve
from sim.operator_profile import MixedAttention, OperatorProfile, Skew
from sim.tabled_cost import each_once, room, straight_ns


class _Line(NamedTuple):
    """Attention of n decodes, with all else that a step of them alone costs: stretches between `ends` of the sum of contexts.

    Stretch i costs fixed[i] + slope[i] * sum. Where contexts are uneven, what n times the longest costs on `ends` comes on top.
    """

    ends: list[float]  # ascending, the last infinite
    fixed: list[float]
    slope: list[float]
    longest_fixed: list[float] | None
    longest_slope: list[float]


class OperatorCost:
    """The durations that an operator profile predicts:

        (1 + jitter) * (tokens + launches + head + attention) + host

    Attention of a step's prompts and of its decodes add up, with the measured excess of mixed steps where there is one (its
    chunks taken as one chunk of their summed tokens at their mean context), and never less than the dearer of the two alone.
    Engines run a chunk of one token as a decode, so it costs no more than one.

    Everything is tabulated in whole nanoseconds when first needed. Costs do not fall (law 12) with a context, nor with a decode more
    of at least the mean context; with tokens they do where a token curve dips. A short decode beside long ones lowers the
    mean, and where a decode table falls along a fixed sum of contexts (`falls`) a step may get cheaper by it.
    """

    def __init__(self, profile: OperatorProfile) -> None:
        self.profile = profile
        self.name = profile.name
        self._scale = scale = 1.0 + profile.jitter
        self._host_ns, self._sequence_ns = float(round(profile.host.step_ns)), float(round(profile.host.sequence_ns))
        prefill, decode = profile.prefill_attention, profile.decode_attention
        self._pair_ns, self._shared_ns = scale * prefill.pair_ns, scale * prefill.shared_ns
        self._prefill = Plane(prefill.queries, prefill.contexts, scale * np.array(prefill.ns))
        self._decode = Plane(decode.sequences, decode.contexts, scale * np.array(decode.ns))
        self._mixed = None if profile.mixed_attention is None else self._excess(profile.mixed_attention)
        self._token: list[float] = []
        self._head: list[float] = []
        self._base: list[float] = []  # of a step of decodes alone, but for attention
        self._lines: list[_Line] = []
        self._alpha = 0.0  # of the last line
        self._whole: dict[int, float] = {}  # attention of whole prompts alone, as far as asked for
        self._draw(0)

    # -- steps of decodes alone --------------------------------------------------------------------------------------------

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        """A step of decodes only, all of which sample."""
        try:
            ends, fixed, slope, uneven, _ = self._lines[sequences]
        except IndexError:
            self._draw(sequences)
            ends, fixed, slope, uneven, _ = self._lines[sequences]
        if uneven is None:
            i = bisect_right(ends, context)
            return int(fixed[i] + slope[i] * context + 0.5)
        start, per_context, _ = self.decode_line(sequences, context, longest)
        return int(start + per_context * context + 0.5)

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        """`(fixed, per_context, until)`: the stretch that a step of decodes lies on."""
        try:
            ends, fixed, slope, uneven, also = self._lines[sequences]
        except IndexError:
            self._draw(sequences)
            ends, fixed, slope, uneven, also = self._lines[sequences]
        i = bisect_right(ends, context)
        if uneven is None:
            return fixed[i], slope[i], ends[i]
        ahead = max(longest * sequences - context, 0)  # the same at every later step of these decodes
        j = bisect_right(ends, context + ahead)
        return fixed[i] + uneven[j] + also[j] * ahead, slope[i] + also[j], min(ends[i], ends[j] - ahead)

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        """Durations, shape `(n,)`, of n successive decode steps, equal to `decode_ns` to the last bit."""
        _, sequences, context, longest, _, _ = shape
        parts, done = [np.empty(0, dtype=np.int64)], 0
        while done < n:
            fixed, per_context, until = self.decode_line(sequences, context, longest)
            steps = n - done if until == inf else min(n - done, ceil((until - context) / sequences))
            parts.append(straight_ns(fixed, per_context, context, sequences, steps))
            done, context, longest = done + steps, context + steps * sequences, longest + steps
        return np.concatenate(parts)

    # -- any step ----------------------------------------------------------------------------------------------------------

    def step_ns(self, shape: StepShape) -> int:
        """Any step."""
        prefill, sequences, context, longest, sampled, _ = shape
        if not prefill:
            return self.decode_ns(sequences, context, longest)
        tokens = sequences
        for query, _ in prefill:
            tokens += query
        attention = self._prompts(prefill)
        if sequences:
            attention = self._with_decodes(attention, shape)
        return self._step(tokens, sampled, sequences + len(prefill), attention)

    def prompt_ns(self, query: int, sequences: int, context: int, longest: int) -> int:
        """A step of one whole prompt and `sequences` decodes: what `step_ns` says, without a shape to take apart."""
        attention = self._whole.get(query)
        if attention is None:
            attention = self._whole[query] = self._prompts(((query, 0),))
        if sequences and self._mixed is None:
            attention += self._decodes(sequences, context, longest)
        elif sequences:
            shape = StepShape(((query, 0),), sequences, context, longest, sequences + 1)
            attention = self._with_decodes(attention, shape)
        return self._step(sequences + query, sequences + 1, sequences + 1, attention)

    def _step(self, tokens: int, sampled: int, scheduled: int, attention: float) -> int:
        try:
            rows = self._token[tokens] + self._head[sampled]
        except IndexError:
            self._tabulate(tokens, sampled)
            rows = self._token[tokens] + self._head[sampled]
        return int(rows + self._host_ns + self._sequence_ns * scheduled + attention + 0.5)

    def _prompts(self, prefill: tuple[tuple[int, int], ...]) -> float:
        """Attention of the chunks of a step, each but the first of more than a token less what they share."""
        shared, ns, longer = self._shared_ns, 0.0, False
        for query, before in prefill:
            pairs = query * before + query * (query + 1) // 2
            chunk = self._pair_ns * pairs + self._prefill.at(query, before) - shared
            if query > 1:
                longer = True
            else:
                chunk = min(chunk, self._decode.at(1, before))
            ns += chunk
        return ns + shared if longer else ns

    def _decodes(self, sequences: int, context: int, longest: int) -> float:
        """Attention of a step's decodes."""
        if sequences >= len(self._lines):
            self._draw(sequences)
        fixed, per_context, _ = self.decode_line(sequences, context, longest)
        return fixed - self._base[sequences] + per_context * context

    def _with_decodes(self, prompts: float, shape: StepShape) -> float:
        """Attention of a mixed step, whose prompts alone cost `prompts`."""
        prefill, sequences, context, longest, _, _ = shape
        decodes = self._decodes(sequences, context, longest)
        if self._mixed is None:
            return prompts + decodes
        query = before = 0
        for q, c in prefill:
            query += q
            before += q * c
        excess = self._mixed.at(query, before / query, sequences, context / sequences)
        return max(prompts, decodes, prompts + decodes + excess)

    # -- tables --------------------------------------------------------------------------------------------------------------

    def _tabulate(self, tokens: int, rows: int) -> None:
        """Fills the tables up to so many tokens and rows of the head."""
        profile, scale = self.profile, self._scale
        if tokens >= len(self._token):
            at = np.arange(room(tokens), dtype=np.float64)
            ns = sum((on_curve(curve.at, curve.ns, at) for curve in profile.tokens.values()), np.zeros(len(at)))
            ns += np.where(at > profile.graphs.largest, profile.graphs.eager_ns, 0.0)
            self._token = np.rint(scale * ns).tolist()
        if rows >= len(self._head):
            at = np.arange(room(rows), dtype=np.float64)
            ns = on_curve(profile.head.at, profile.head.ns, at) * (at > 0)
            self._head = np.rint(scale * ns).tolist()

    def _draw(self, sequences: int) -> None:
        """Draws the lines up to so many decodes."""
        self._tabulate(sequences, sequences)
        for n in range(len(self._lines), sequences + 1):
            self._base.append(self._token[n] + self._head[n] + self._host_ns + self._sequence_ns * n)
            self._lines.append(self._line(n))

    def _line(self, n: int) -> _Line:
        base = self._base[n]
        if not n:
            return _Line([inf], [base], [0.0], None, [])
        values, at = self._decode.along(n), n * self._decode.columns
        self._alpha = alpha = self._unevenness(n, values)
        ends = [*at[:-1].tolist(), inf]
        fixed, slope = _stretches(at, np.rint((1.0 - alpha) * values))
        fixed = [base + ns for ns in fixed]
        if not alpha:
            return _Line(ends, fixed, slope, None, [])
        return _Line(ends, fixed, slope, *_stretches(at, np.rint(alpha * values)))

    def _unevenness(self, n: int, values: Array) -> float:
        """The share alpha of the longest context for n decodes: as measured, and as much more as it takes that a decode more of
        the mean context never makes a step cheaper."""
        skew = self.profile.skew
        if skew is None:
            return 0.0
        alpha = _alpha(skew, n)
        if n > 1:
            before, rise = self._decode.along(n - 1), values[None, :] - values[:, None]
            needed = (before - values)[:, None] + self._alpha * (before[None, :] - before[:, None])
            pairs = (rise > 0) & np.triu(np.ones_like(rise, dtype=bool))  # of a mean and a longest context
            alpha = max(alpha, float(np.max(needed[pairs] / rise[pairs], initial=0.0)))
        return min(alpha, 1.0)

    def _excess(self, mixed: MixedAttention) -> Box:
        """What a mixed step costs beyond its parts, at their points too, and raised so that more of anything never makes the
        whole cheaper."""
        prefill, decode = self.profile.prefill_attention, self.profile.decode_attention
        given = (mixed.queries, mixed.contexts, mixed.sequences, mixed.decode_contexts)
        others = (prefill.queries, prefill.contexts, decode.sequences, decode.contexts)
        axes = [sorted({*own, *other}) for own, other in zip(given, others, strict=True)]
        excess = self._scale * np.array(mixed.ns).reshape([len(axis) for axis in given])
        for i, (axis, own) in enumerate(zip(axes, given, strict=True)):
            weights = np.stack([np.interp(axis, own, unit) for unit in np.eye(len(own))], axis=1)
            excess = np.moveaxis(np.tensordot(weights, excess, axes=(1, i)), 0, i)
        prompts = np.array([[self._prefill.at(q, c) for c in axes[1]] for q in axes[0]])[:, :, None, None]
        decodes = np.array([[self._decode.at(n, c) for c in axes[3]] for n in axes[2]])
        whole = np.maximum(prompts + decodes + excess, prompts)
        for i in range(4):
            whole = np.maximum.accumulate(whole, axis=i)
        return Box(axes, whole - prompts - decodes)

    # -- explaining ----------------------------------------------------------------------------------------------------------

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Nanoseconds by term; what the slowest of several ranks takes more is a term of its own."""
        profile, scale, tokens = self.profile, self._scale, shape.tokens
        prefill, sequences, context, longest, sampled, _ = shape
        rows = sampled if prefill else sequences
        at = np.array([float(tokens)])
        found = {name: float(on_curve(curve.at, curve.ns, at)[0]) for name, curve in profile.tokens.items()}
        found["launches"] = profile.graphs.eager_ns if tokens > profile.graphs.largest else 0.0
        found["output head"] = float(on_curve(profile.head.at, profile.head.ns, np.array([float(rows)]))[0]) * (
            rows > 0
        )
        prompts = self._prompts(prefill) if prefill else 0.0
        decodes = self._decodes(sequences, context, longest) if sequences else 0.0
        found["prefill attention"], found["decode attention"] = prompts / scale, decodes / scale
        if self._mixed is not None and prefill and sequences:
            found["mixed attention"] = (self._with_decodes(prompts, shape) - prompts - decodes) / scale
        jitter = profile.jitter * sum(found.values())
        found["host"] = self._host_ns + self._sequence_ns * (sequences + len(prefill))
        return found | {"rank jitter": jitter} if profile.jitter else found

    def shares(
        self, steps: Mapping[str, NDArray[np.int64]], query: NDArray[np.int64], context: NDArray[np.int64]
    ) -> Shares:
        """What the first token costs (weights, launches, the host) is shared by sequence, what more add by token. What mixed
        attention takes beyond its parts is spread over all of them."""
        decodes, sampled = steps["decode_sequences"], steps["sampled"]
        tokens = steps["prefill_tokens"] + decodes
        self._tabulate(int(tokens.max(initial=1)), int(sampled.max(initial=1)))
        token, head = np.array(self._token), np.array(self._head)
        own = self._sequence_ns
        return Shares(
            fixed=np.where(tokens > 0, token[1] + self._host_ns, 0.0),
            tokens=np.maximum(token[tokens] - token[1], 0.0),
            head=head[sampled],
            decodes=(own * decodes).astype(np.float64),
            context=self._decode_attention(steps),
            chunks=own + each_once(lambda q, c: self._prompts(((q, c),)), query, context),
        )

    def _decode_attention(self, steps: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """Attention of the decodes of each step, `(steps,)`."""
        n, context, longest = (steps[f"decode_{name}"] for name in ("sequences", "context", "max_context"))
        found = np.zeros(len(n))
        order = np.argsort(n, kind="stable")
        counts, starts = np.unique(n[order], return_index=True)
        self._draw(int(n.max(initial=0)))
        for count, rows in zip(counts.tolist(), np.split(order, starts[1:]), strict=True):
            if not count:
                continue
            ends, fixed, slope, uneven, also = self._lines[count]
            at = context[rows]
            i = np.searchsorted(ends, at, side="right")
            ns = np.array(fixed)[i] - self._base[count] + np.array(slope)[i] * at
            if uneven is not None:
                ahead = np.maximum(longest[rows] * count, at)
                j = np.searchsorted(ends, ahead, side="right")
                ns = ns + np.array(uneven)[j] + np.array(also)[j] * ahead
            found[rows] = ns
        return found

    def extrapolation(self, shape: StepShape) -> str | None:
        """Every part of the shape that lies outside what was measured, and by how much."""
        return in_words(self.outside(shape))

    def outside(self, shape: StepShape) -> list[Outside]:
        """The same as data."""
        found = outside(shape, self.profile.domain, mean=True)
        reach = self.profile.decode_attention.reach
        if reach is not None and shape.decode_context > reach:
            found.append(Outside("decode_context", shape.decode_context, 0, reach))
        return found

    def falls(self) -> list[tuple[int, int, int, float]]:
        """Where the decode table falls along a fixed sum of contexts: `(sequences, more sequences, sum, share)` between points
        of its sequences, the deepest first."""
        decode, found = self.profile.decode_attention, []
        for n, more in zip(decode.sequences, decode.sequences[1:], strict=False):
            for mean in decode.contexts if n else ():
                before, after = self._decode.at(n, mean), self._decode.at(more, n * mean / more)
                if after < before:
                    found.append((n, more, n * mean, 1.0 - after / before))
        return sorted(found, key=lambda fall: -fall[3])


def _stretches(at: Array, values: Array) -> tuple[list[float], list[float]]:
    """`(fixed, slope)` of the straight lines before, between and beyond points; flat before the first."""
    slope = np.diff(values) / np.diff(at)
    fixed = values[:-1] - slope * at[:-1]
    return [float(values[0]), *fixed.tolist()], [0.0, *slope.tolist()]


def _alpha(skew: Skew, n: int) -> float:
    return float(np.interp(n, skew.sequences, skew.alpha))
