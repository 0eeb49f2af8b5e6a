"""Operator profiles drawn by hypothesis: anything that the schema lets through."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from sim.operator_profile import (
    Curve,
    DecodeAttention,
    Graphs,
    Host,
    MixedAttention,
    OperatorProfile,
    PrefillAttention,
    Skew,
)
from sim.profile_parts import Domain, Range, Source

Axis = tuple[int, ...]
Rows = tuple[tuple[float, ...], ...]


def domain(most: int = 4096) -> Domain:
    some = Range(min=0, max=most)
    return Domain(**dict.fromkeys(Domain.model_fields, some))


@st.composite
def axes(draw: st.DrawFn, least: int, most: int) -> Axis:
    return tuple(sorted(draw(st.sets(st.integers(least, most), min_size=1, max_size=5))))


@st.composite
def grids(draw: st.DrawFn, rows: Axis, columns: Axis, floor: float = 0.0) -> Rows:
    """Values that fall along neither axis: steep, flat and even ones."""
    steps = st.sampled_from((0.0, 0.0, 1.0, 1000.0, 33_333.25, 1e6))
    found = np.array([[draw(steps) for _ in columns] for _ in rows]) + floor
    for axis in (0, 1):
        found = np.maximum.accumulate(found, axis=axis)
    return tuple(map(tuple, found.tolist()))


@st.composite
def curves(draw: st.DrawFn, dips: bool = False) -> Curve:
    at = draw(axes(0, 4096))
    ns = [draw(st.floats(0, 1e6)) for _ in at]
    return Curve(at=at, ns=tuple(ns if dips else sorted(ns)))


@st.composite
def operator_profiles(draw: st.DrawFn, dips: bool = False, mixes: bool = True) -> OperatorProfile:
    """dips: whether token curves may fall. mixes: whether some have an excess of mixed steps."""
    shared = draw(st.sampled_from((0.0, 500.0)))
    queries, contexts = draw(axes(0, 4096)), draw(axes(0, 20_000))
    sequences, decode_contexts = draw(axes(0, 512)), draw(axes(0, 20_000))
    mixed = None
    if mixes and draw(st.booleans()):
        box = [draw(axes(low, most)) for low, most in ((0, 4096), (0, 20_000), (1, 512), (0, 20_000))]
        ns = np.random.default_rng(draw(st.integers(0, 1 << 20))).uniform(-1e6, 1e6, [len(axis) for axis in box])
        mixed = MixedAttention(
            queries=box[0], contexts=box[1], sequences=box[2], decode_contexts=box[3], ns=tuple(ns.ravel().tolist())
        )
    skew = None
    if draw(st.booleans()):
        at = draw(axes(1, 512))
        skew = Skew(sequences=at, alpha=tuple(draw(st.floats(0, 1)) for _ in at))
    return OperatorProfile(
        name="drawn",
        created="2026-01-01T00:00:00+00:00",
        source=Source(device="none", clock="device"),
        hardware="H100",
        model="none",
        dtype="bfloat16",
        kv_dtype="bfloat16",
        engine="none",
        domain=domain(),
        tokens={name: draw(curves(dips)) for name in ("linears", "elementwise")},
        head=draw(curves()),
        prefill_attention=PrefillAttention(
            pair_ns=draw(st.sampled_from((0.0, 0.37, 12.0))),
            queries=queries,
            contexts=contexts,
            ns=draw(grids(queries, contexts, shared)),
            shared_ns=shared,
        ),
        decode_attention=DecodeAttention(
            sequences=sequences, contexts=decode_contexts, ns=draw(grids(sequences, decode_contexts))
        ),
        mixed_attention=mixed,
        skew=skew,
        graphs=draw(st.sampled_from((Graphs(), Graphs(largest=64, eager_ns=3e5)))),
        host=draw(st.sampled_from((Host(), Host(step_ns=950_000.4, sequence_ns=41_000.7)))),
        jitter=draw(st.sampled_from((0.0, 0.07))),
    )
