"""Operators that somebody measured one by one, in nanoseconds, whoever measured them: the engine-neutral form that readers fill.

A table is a grid of floats with NaN where nothing was measured. Each remembers its file and the row of every value, so that a
complaint can name both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AttentionShape = tuple[int, int, int, str]
"""Query heads, KV heads, head dimension, precision of the KV cache: of one rank."""

ExpertShape = tuple[int, int, int, int, str, str]
"""Hidden size, width of an expert on one rank, experts, experts a token, precision, distribution of tokens over experts."""


BEYOND_CACHES = 256e6
"""Bytes that no cache of today's devices holds (the largest has 126 MB). Smaller operands that are measured again and again stay
in it, but in a model the other layers' weights pass through between."""


@dataclass(frozen=True)
class Origin:
    """The file that an operator's rows come from. version: of the engine or library that was measured."""

    operator: str
    file: str
    version: str
    licence: str


@dataclass(frozen=True)
class Gemm:
    """`(m, k) x (k, n)` by one precision. m: `(M,)`, n: `(N,)`, k: `(K,)`; ns and rows: `(M, N, K)`. weight_bytes: of one."""

    origin: Origin
    m: Ints
    n: Ints
    k: Ints
    ns: Floats
    rows: Ints
    weight_bytes: float

    @cached_property
    def read_ns(self) -> float:
        """Nanoseconds of a weight's byte where weights are far larger than any cache; 0 where none are."""
        size = np.outer(self.n, self.k) * self.weight_bytes
        large = (size >= BEYOND_CACHES) & np.isfinite(self.ns[0])
        return float((self.ns[0] / size)[large].min()) if large.any() else 0.0

    @cached_property
    def usual_ratio(self) -> Floats:
        """Of each m to the next, the median over shapes of how much longer it takes. `(M - 1,)`"""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nanmedian(self.ns[:-1] / self.ns[1:], axis=(1, 2)), dtype=np.float64)


@dataclass(frozen=True)
class Grid:
    """One operator at one shape over two sizes. ns and rows: `(len(down), len(across))`, NaN and -1 where not measured.

    Attention: `down` is the batch, `across` the tokens of a prompt, or the cached context of a decode.
    """

    origin: Origin
    down: Ints
    across: Ints
    ns: Floats
    rows: Ints

    def whole(self) -> Grid:
        """Itself, if nothing is missing inside it: corners of large batches and long contexts may be.

        Raises:
            InputError: a hole: a missing value with measured ones on both sides, down or across.
        """
        known = np.isfinite(self.ns)
        for axis, sizes in enumerate((self.down, self.across)):
            before = np.logical_or.accumulate(known, axis=axis)
            after = np.flip(np.logical_or.accumulate(np.flip(known, axis), axis=axis), axis)
            holes = np.argwhere(~known & before & after)
            if len(holes):
                i, j = (int(x) for x in holes[0])
                near = self.rows[i] if axis else self.rows[:, j]
                raise InputError(
                    f"{self.origin.file}: hole in the grid of {self.origin.operator}: nothing was measured at "
                    f"({int(self.down[i])}, {int(self.across[j])}), but smaller and larger ones were (rows "
                    f"{', '.join(str(r) for r in near[near >= 0][:4].tolist())}); measure it, or leave out all of size "
                    f"{int(sizes[(i, j)[axis]])}"
                )
        return self


@dataclass(frozen=True)
class Line:
    """One operator over one size. at: `(N,)`, ns and rows: `(N,)`."""

    origin: Origin
    at: Ints
    ns: Floats
    rows: Ints


@dataclass(frozen=True)
class OperatorTables:
    """What was measured on one device with one engine.

    gemm: by precision. prefill, decode: by shape of one rank. experts: whole blocks of routed experts over tokens.
    all_reduce: by (ranks, mode), over bfloat16 elements; mode is `graph` or `eager`. quantize: by operator
    (`quantize`, `scale`), `down` is m and `across` is k: static scaling of activations to fp8, and finding the scale first.
    notes: what has to be said of every profile composed of these.
    """

    system: str
    device: str
    engine: str
    version: str
    source: str
    licence: str
    gemm: Mapping[str, Gemm]
    prefill: Mapping[AttentionShape, Grid]
    decode: Mapping[AttentionShape, Grid]
    experts: Mapping[ExpertShape, Line] = field(default_factory=dict)
    all_reduce: Mapping[tuple[int, str], Line] = field(default_factory=dict)
    quantize: Mapping[str, Grid] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def engine_name(self) -> str:
        return f"{self.engine}@{self.version}"


def digest(*columns: NDArray[np.float64] | NDArray[np.int64]) -> str:
    """Short hash of the numbers that were used."""
    hashed = hashlib.sha256()
    for column in columns:
        hashed.update(np.ascontiguousarray(column).tobytes())
    return hashed.hexdigest()[:16]
