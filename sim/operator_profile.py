"""A profile composed of operators that were measured one by one: its JSON schema. `sim.operator_cost` turns one into step costs.

It holds what one model costs on one device at one precision and tensor-parallel degree in one engine: curves over tokens and
rows, and grids of attention. `calibration.operators` composes them.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from sim.profile_parts import Domain, Errors, Jump, Nanoseconds, Noise, Part, Source, save_json, without

Points = Annotated[tuple[Annotated[int, Field(le=2**53)], ...], Field(min_length=1)]
Values = Annotated[tuple[Nanoseconds, ...], Field(min_length=1)]


def _ascending(name: str, at: tuple[int, ...]) -> None:
    if at[0] < 0:
        raise ValueError(f"{name}: found {at[0]}, but points are not negative")
    for a, b in pairwise(at):
        if b <= a:
            raise ValueError(f"{name}: points must grow, found {a} before {b}")


class Curve(Part):
    """Nanoseconds at `at` tokens or rows, linear between the points, the last slope beyond them, flat below the first.

    A curve may dip where a measured table does (another tile or kernel takes over); the profile's `jumps` name the places.
    """

    at: Points
    ns: Values

    @model_validator(mode="after")
    def _whole(self) -> Curve:
        _ascending("at", self.at)
        if len(self.at) != len(self.ns):
            raise ValueError(f"at has {len(self.at)} points, but ns has {len(self.ns)}")
        return self


class DecodeAttention(Part):
    """All layers' attention of a step's decodes: bilinear in their number and the mean of their contexts before the step.

    sequences: `(S,)`. contexts: `(C,)`. ns: `(S, C)`, non-decreasing in both. reach: sum of the contexts of a step beyond which
    nothing was measured (a corner of the grid that did not fit the device); None where the whole grid was.
    """

    sequences: Points
    contexts: Points
    ns: tuple[Values, ...]
    reach: Annotated[int, Field(ge=1)] | None = None

    @model_serializer(mode="wrap")
    def _without_a_reach_of_all(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without(handler(self), "reach")

    @model_validator(mode="after")
    def _whole(self) -> DecodeAttention:
        _ascending("sequences", self.sequences)
        _ascending("contexts", self.contexts)
        _grid("decode_attention", self.ns, self.sequences, self.contexts)
        return self


class PrefillAttention(Part):
    """All layers' attention of one prefill chunk: `pair_ns` x (query, key) pairs + a grid, bilinear in query and context.

    The pairs carry the curvature, so that the grid is nearly straight. Of several chunks in a step, each but the first costs
    `shared_ns` less: that part of a chunk is paid once a step.

    queries: `(Q,)`. contexts: `(C,)`, cached tokens before the chunk. ns: `(Q, C)`, non-decreasing in both.
    """

    pair_ns: Nanoseconds
    queries: Points
    contexts: Points
    ns: tuple[Values, ...]
    shared_ns: Nanoseconds = 0.0

    @model_validator(mode="after")
    def _whole(self) -> PrefillAttention:
        _ascending("queries", self.queries)
        _ascending("contexts", self.contexts)
        _grid("prefill_attention", self.ns, self.queries, self.contexts)
        if self.shared_ns > min(min(row) for row in self.ns):
            raise ValueError("shared_ns is above what the cheapest chunk costs")
        return self


class MixedAttention(Part):
    """What attention of prompts and decodes together costs beyond the two alone, multilinear; negative where they overlap.

    ns: `(Q, P, S, C)` over chunk tokens, their cached context, decodes and the mean of their contexts, flattened in this
    order (the last runs fastest).
    """

    queries: Points
    contexts: Points
    sequences: Points
    decode_contexts: Points
    ns: tuple[Annotated[float, Field(allow_inf_nan=False)], ...]

    @model_validator(mode="after")
    def _whole(self) -> MixedAttention:
        size = 1
        for name in ("queries", "contexts", "sequences", "decode_contexts"):
            _ascending(name, getattr(self, name))
            size *= len(getattr(self, name))
        if len(self.ns) != size:
            raise ValueError(f"mixed_attention: {size} values are needed, found {len(self.ns)}")
        return self


class Skew(Part):
    """Uneven contexts: decodes cost t(n, mean) + alpha(n) x (t(n, longest) - t(n, mean)); alpha is linear between `sequences`."""

    sequences: Points
    alpha: tuple[Annotated[float, Field(ge=0, le=1)], ...]

    @model_validator(mode="after")
    def _whole(self) -> Skew:
        _ascending("sequences", self.sequences)
        if len(self.sequences) != len(self.alpha):
            raise ValueError(f"skew: {len(self.sequences)} sequences, but {len(self.alpha)} values of alpha")
        return self


class Graphs(Part):
    """Launches: steps of at most `largest` tokens replay a captured graph, others pay `eager_ns` more. 0: none is captured."""

    largest: Annotated[int, Field(ge=0)] = 0
    eager_ns: Nanoseconds = 0.0


class Host(Part):
    """Host time that the device does not hide: of a step, and of each sequence scheduled in it."""

    step_ns: Nanoseconds = 0.0
    sequence_ns: Nanoseconds = 0.0


class Provenance(Part):
    """Where one operator's numbers come from. hash: of the rows that were used."""

    operator: str
    source: str
    version: str
    rows: int
    hash: str
    licence: str = ""


class Constant(Part):
    """A number that no table of this profile holds. basis: what it rests on; a fitted one says on which data."""

    name: str
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: str
    basis: Literal["data sheet", "measured", "fitted", "assumed"]
    why: str


class OperatorProfile(Part):
    """Step costs of one model, precision, tensor-parallel degree, device and engine, composed of operators.

    tokens: curves by term over the tokens of a step (`linears`, `experts`, `elementwise`, `all-reduce`, ...), summed over layers.
    head: over sampled rows. jitter: the slowest of the tensor-parallel ranks takes so much longer than the mean rank, a share of
    all device time; 0 where nobody measured it.
    jumps: places where the sum of the token curves dips or leaps.
    cv_error: by operator, each measured row predicted without itself.
    domain: of step shapes; its `decode_context` is the mean of a step's decodes, as in `decode_attention`.
    noise: what steps do beside their shape, where somebody measured it.
    """

    schema_version: Literal[1] = 1
    kind: Literal["operators"] = "operators"
    name: str
    created: str
    source: Source
    hardware: str
    model: str
    dtype: str
    kv_dtype: str
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = 1
    engine: str
    domain: Domain
    tokens: Annotated[dict[str, Curve], Field(min_length=1)]
    head: Curve
    prefill_attention: PrefillAttention
    decode_attention: DecodeAttention
    mixed_attention: MixedAttention | None = None
    skew: Skew | None = None
    graphs: Graphs = Graphs()
    host: Host = Host()
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    jumps: tuple[Jump, ...] = ()
    cv_error: dict[str, Errors] = Field(default_factory=dict)
    provenance: tuple[Provenance, ...] = ()
    constants: tuple[Constant, ...] = ()
    not_modelled: tuple[str, ...] = ()
    noise: Noise | None = None

    @model_serializer(mode="wrap")
    def _without_what_nobody_measured(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Such a profile is written, and hashed, as before there was any."""
        return without(handler(self), "noise")

    def save(self, path: Path | str) -> Path:
        """Writes the JSON file; complete or not at all."""
        return save_json(self, path)

    def hash(self) -> str:
        """Short hash of the whole profile, for results that were computed with it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def _grid(name: str, ns: tuple[tuple[float, ...], ...], rows: tuple[int, ...], columns: tuple[int, ...]) -> None:
    if len(ns) != len(rows) or any(len(row) != len(columns) for row in ns):
        raise ValueError(f"{name}: ns must have {len(rows)} rows of {len(columns)} values")
    for i, row in enumerate(ns):
        for j, value in enumerate(row):
            if (i and value < ns[i - 1][j]) or (j and value < row[j - 1]):
                raise ValueError(f"{name}: ns falls at row {i}, column {j}: {value}; more work must not cost less")
