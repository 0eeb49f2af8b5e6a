"""The terms of a step, each from its table: one rank's GEMMs, head, experts, all-reduces and element-wise kernels."""

from __future__ import annotations

import numpy as np

from calibration.operators import analytic
from calibration.operators.gemm import gemm_curve
from calibration.operators.notes import Notes
from calibration.operators.tables import AttentionShape, Floats, Grid, Ints, OperatorTables, digest
from scenarios.errors import InputError, unknown
from scenarios.hardware import HardwareSpec
from scenarios.models import BYTES, ModelSpec
from sim.operator_profile import Provenance

KERNELS_A_LAYER = 5
HEAD_ROWS = 4096
_TAKEN_OFF = {"dynamic": (), "static": ("scale",), "fused": ("scale", "quantize")}
_OUTPUT_PROJECTION = 1  # of `gemms`

Points = tuple[Ints, Floats]


def gemms(model: ModelSpec, tp: int) -> list[tuple[int, int]]:
    """(n, k) of one rank's dense GEMMs of a layer; the router of experts apart."""
    q, kv, hidden = model.q_size // tp, model.kv_heads_of_rank(tp) * model.head_dim, model.hidden_size
    shapes = [(q + 2 * kv, hidden), (hidden, q)]
    if not model.num_experts:
        width = -(-model.intermediate_size // tp)
        shapes += [(2 * width, hidden), (hidden, width)]
    return shapes


def linears(
    tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, dtype: str, scales: str, notes: Notes
) -> list[Points]:
    """One layer's dense GEMMs."""
    parts = [_gemm(tables, hardware, dtype, n, k, notes) for n, k in gemms(model, tp)]
    taken_off = _TAKEN_OFF.get(scales)
    if taken_off is None:
        raise InputError(unknown("activation_scales", scales, _TAKEN_OFF))
    for name in taken_off:
        table = tables.quantize.get(name)
        if dtype != "fp8" or table is None:
            continue
        for i, (_, k) in enumerate(gemms(model, tp)):
            if name == "quantize" and i == _OUTPUT_PROJECTION:
                continue  # its input comes out of the attention kernel, which scales nothing
            saved = np.array([np.interp(k, table.across, row) for row in table.ns])
            points, ns = parts[i]
            parts[i] = (points, np.maximum(ns - np.interp(points, table.down, saved), 0.2 * ns))
        notes.measured(f"{name} (taken off fp8 GEMMs)", table, table.ns.size, digest(table.ns))
    if model.num_experts:
        parts.append(_gemm(tables, hardware, "bfloat16", model.num_experts, model.hidden_size, notes))
    return parts


def _gemm(tables: OperatorTables, hardware: HardwareSpec, dtype: str, n: int, k: int, notes: Notes) -> Points:
    table = tables.gemm.get(dtype)
    if table is None:
        if dtype not in BYTES:
            raise InputError(unknown(f"precision of GEMMs on {tables.system} with {tables.engine}", dtype, tables.gemm))
        notes.analytic(f"gemm {dtype}", f"not measured on {tables.system} with {tables.engine_name}")
        return analytic.gemm(hardware, dtype, n, k)
    curve = gemm_curve(table, n, k)
    notes.provenance.append(
        Provenance(
            operator=f"gemm {dtype} n={n} k={k}"
            + (f" as {curve.split} of {-(-n // curve.split)}" if curve.split > 1 else ""),
            source=table.origin.file,
            version=table.origin.version,
            rows=curve.used,
            hash=curve.hash,
            licence=table.origin.licence,
        )
    )
    if curve.lost:
        notes.not_modelled.append(
            f"GEMM n={n} k={k}: m {', '.join(map(str, curve.lost))} was not measured, a line goes over it"
        )
    notes.left_out(table.origin.file, f"gemm {dtype}", curve.spikes)
    if curve.raised > 0.01:
        notes.constant(
            f"gemm {dtype} n={n} k={k}: raised", round(curve.raised, 4), "share", "measured",
            "at most so much, to what reading its weights takes: measured again and again they stay in the cache",
        )  # fmt: skip
    if curve.below:
        notes.not_modelled.append(f"GEMM n={n} k={k} is smaller than any measured; the smallest measured time is taken")
    return curve.m, curve.ns


def head(tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, notes: Notes) -> Points:
    points, ns = _gemm(tables, hardware, "bfloat16", -(-model.vocab_size // tp), model.hidden_size, notes)
    points, ns = points[points <= HEAD_ROWS], ns[points <= HEAD_ROWS]
    grown = np.maximum.accumulate(ns)
    if np.any(grown > ns):
        notes.constant(
            "output head: raised", round(float(np.mean(grown / ns - 1.0)), 5), "share", "measured",
            f"mean share by which the curve was raised so that more rows never cost less; at most {np.max(grown / ns - 1.0):.1%}",
        )  # fmt: skip
    return points, np.asarray(grown, dtype=np.float64)


def experts(
    tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, dtype: str, skew: str, notes: Notes
) -> Points:
    """One layer's routed experts, each split over the ranks."""
    width = -(-model.moe_intermediate_size // tp)
    shape = (model.hidden_size, width, model.num_experts, model.num_experts_per_tok, dtype, skew)
    notes.constant(
        "expert_skew", float(skew.rsplit("_", 1)[-1]) if skew.startswith("power_law_") else 0.0, "exponent", "assumed",
        f"tokens are spread over experts as {skew!r}; trained routers are neither even nor known",
    )  # fmt: skip
    line = tables.experts.get(shape)
    if line is None:
        skews = sorted({s[5] for s in tables.experts if s[:5] == shape[:5]})
        if skews:
            raise InputError(unknown("expert_skew", skew, skews))
        notes.analytic(f"experts {dtype} {shape[:4]}", f"not measured on {tables.system} with {tables.engine_name}")
        return analytic.experts(hardware, shape, dtype)
    notes.measured(line.origin.operator, line, len(line.at), digest(line.ns))
    # Whatever the spread, a token's experts have to be read, and not from the cache that they were measured in.
    plain = tables.gemm.get("fp8" if dtype == "fp8_block" else dtype)
    weights = 3.0 * model.hidden_size * width * model.num_experts_per_tok
    read = weights * plain.weight_bytes * plain.read_ns if plain else 0.0
    return line.at, np.maximum(line.ns, read)


def elementwise(model: ModelSpec, hardware: HardwareSpec, tp: int, notes: Notes) -> Points:
    """Norms with their residuals, rotary positions, KV writes, gates: bytes, and launches. Summed over layers."""
    hidden, q, kv = model.hidden_size, model.q_size // tp, model.kv_heads_of_rank(tp) * model.head_dim
    gate = 0 if model.num_experts else 3 * -(-model.intermediate_size // tp)
    per_layer = 2.0 * (8 * hidden + 2 * (q + kv) + 4 * kv + gate + (2 * (q + kv) if model.qk_norm else 0))
    a_byte = 1e9 / (hardware.memory_bandwidth * hardware.memory_efficiency)
    token_ns = a_byte * (per_layer * model.num_layers + 2.0 * 4 * hidden)
    fixed = KERNELS_A_LAYER * analytic.LAUNCH_NS * model.num_layers
    notes.constant(
        "memory_efficiency", hardware.memory_efficiency, "share", "assumed", "bandwidth that element-wise kernels reach"
    )
    notes.constant(
        "kernels_a_layer", KERNELS_A_LAYER, "", "assumed", "element-wise launches: two norms, rotary, KV write, gate"
    )
    notes.constant("launch", analytic.LAUNCH_NS, "ns", "assumed", "least time of an element-wise kernel")
    notes.constant("memory_bandwidth", hardware.memory_bandwidth, "bytes/s", "data sheet", "element-wise kernels")
    tokens = np.array([0, 32768], dtype=np.int64)
    return tokens, np.asarray(fixed + tokens * token_ns, dtype=np.float64)


def all_reduce(
    tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, graph_tokens: int, notes: Notes
) -> Points:
    """One all-reduce of a step's activations: the graph's where a step replays one, the eager one above."""
    graph, eager = tables.all_reduce.get((tp, "graph")), tables.all_reduce.get((tp, "eager"))
    if eager is None and graph is None:
        notes.analytic(f"all-reduce of {tp}", f"not measured on {tables.system} with {tables.engine}")
        elements, ns = analytic.all_reduce(hardware, tp)
        points = np.unique(np.concatenate([[1], elements[elements >= model.hidden_size] // model.hidden_size]))
        at = points.astype(np.float64) * model.hidden_size
        return points, np.asarray(np.interp(at, elements, ns), dtype=np.float64)
    for line in (graph, eager):
        if line is not None:
            notes.measured(line.origin.operator, line, len(line.at), digest(line.ns))
    small, large = graph or eager, eager or graph
    assert small is not None
    assert large is not None
    points = np.unique(
        [1, *(small.at // model.hidden_size), *(large.at // model.hidden_size), graph_tokens, graph_tokens + 1]
    )
    points = points[(points >= 1) & (points <= 32768)].astype(np.int64)
    size = points * float(model.hidden_size)
    ns = np.where(points <= graph_tokens, np.interp(size, small.at, small.ns), np.interp(size, large.at, large.ns))
    return points, ns


def attention_grid(
    tables: OperatorTables, hardware: HardwareSpec, which: str, shape: AttentionShape, notes: Notes
) -> Grid:
    grids = tables.prefill if which == "prefill" else tables.decode
    if shape in grids:
        return grids[shape].whole()
    notes.analytic(f"{which} attention {shape}", f"not measured on {tables.system} with {tables.engine_name}")
    build = analytic.prefill if which == "prefill" else analytic.decode
    return build(hardware, *shape, tables.source)
