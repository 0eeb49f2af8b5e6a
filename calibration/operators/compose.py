"""From operators to a profile: what each step of a model costs, composed of measured operators.

step = layers x (GEMMs + attention + two all-reduces + element-wise kernels) + output head on sampled rows + host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibration.operators import analytic, attention, cross_validation
from calibration.operators.curves import add, jumps, to_curve
from calibration.operators.gemm import gemm_curve
from calibration.operators.tables import Floats, Grid, Ints, Line, OperatorTables, digest
from scenarios.errors import InputError, unknown
from scenarios.hardware import HardwareSpec
from scenarios.models import BYTES, ModelSpec
from sim.operator_profile import Constant, Graphs, Host, OperatorProfile, Provenance
from sim.profile_parts import Domain, Range, Source

KERNELS_A_LAYER = 5
LAUNCH_NS = 3000.0
GRAPH_TOKENS = 512
EXPERT_SKEW = "power_law_1.01"
TOLERANCE = 0.003
HEAD_ROWS = 4096
NO_HOST = Host()
_TAKEN_OFF = {"dynamic": (), "static": ("scale",), "fused": ("scale", "quantize")}

Points = tuple[Ints, Floats]


@dataclass
class _Notes:
    """What went into a profile and has to be said of it."""

    provenance: list[Provenance] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
    spikes: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def constant(self, name: str, value: float, unit: str, basis: str, why: str) -> None:
        self.constants.append(
            Constant.model_validate({"name": name, "value": value, "unit": unit, "basis": basis, "why": why})
        )

    def left_out(self, file: str, operator: str, rows: Sequence[int]) -> None:
        """Measured rows that larger sizes contradict."""
        if rows:
            self.spikes.setdefault((file, operator), set()).update(rows)

    def analytic(self, operator: str, why: str) -> None:
        """An operator that nobody measured."""
        line = Provenance(operator=operator, source="roofline of this operator", version=why, rows=0, hash="")
        if line not in self.provenance:
            self.provenance.append(line)


def compose(
    tables: OperatorTables,
    model: ModelSpec,
    *,
    hardware: HardwareSpec,
    tensor_parallel_size: int = 1,
    dtype: str = "bfloat16",
    kv_dtype: str | None = None,
    host: Host = NO_HOST,
    host_why: str = "",
    constants: Sequence[Constant] = (),
    gemm_dtype: str | None = None,
    expert_dtype: str | None = None,
    activation_scales: str = "dynamic",
    fp8_gemm_factor: float = 1.0,
    fp8_gemm_above: int = 512,
    expert_skew: str = EXPERT_SKEW,
    jitter: float = 0.0,
    graph_tokens: int = GRAPH_TOKENS,
    tolerance: float = TOLERANCE,
    name: str | None = None,
    created: str = "",
    cross_validate: bool = True,
) -> OperatorProfile:
    """The profile of one model, precision and tensor-parallel degree.

    Args:
        dtype: of weights and GEMMs; embeddings, router and output head stay in bfloat16.
        kv_dtype: of the KV cache; bfloat16 if not given.
        host: time that the device does not hide; none by default, so that only data sheets and tables speak.
        host_why: on what data it was fitted.
        constants: further numbers that the caller stands for, to be listed.
        gemm_dtype, expert_dtype: name of the table's precision where it is not `dtype` (`fp8_block`, ...).
        activation_scales: of fp8 activations, `dynamic` (found for each GEMM, as measured), `static` (that part is taken off), or
            `fused` (static, and the norm or gate before the GEMM writes fp8 in passing: scaling is taken off too).
        fp8_gemm_factor: fp8 GEMMs of more than `fp8_gemm_above` tokens take so many times what the table says.
        expert_skew: distribution of tokens over experts, a name of the table.
        jitter: by what share the slowest tensor-parallel rank is later than the mean one.
        graph_tokens: steps of at most so many tokens replay a graph, in which the all-reduce is the graph's.
        tolerance: share of a curve by which its points may be thinned.

    Raises:
        InputError: heads that do not divide, a precision or distribution that the table lacks, a hole at these shapes.
    """
    tp = tensor_parallel_size
    if tp not in model.tensor_parallel_sizes():
        sizes = ", ".join(str(s) for s in model.tensor_parallel_sizes())
        raise InputError(f"tensor_parallel_size {tp} does not divide the heads of {model.name}. Allowed: {sizes}")
    kv_dtype = "bfloat16" if kv_dtype in (None, "auto") else kv_dtype
    dtype = "bfloat16" if dtype == "auto" else dtype
    if kv_dtype not in BYTES:
        raise InputError(unknown("precision of the KV cache", kv_dtype, BYTES))
    notes = _Notes()
    heads, kv_heads = model.num_heads // tp, model.kv_heads_of_rank(tp)
    parts = _linears(tables, model, hardware, tp, gemm_dtype or dtype, activation_scales, notes)
    if fp8_gemm_factor != 1.0 and dtype == "fp8":
        parts = [_slower(p, fp8_gemm_factor, fp8_gemm_above) for p in parts]
        notes.constant(
            "fp8_gemm_factor", fp8_gemm_factor, "", "fitted",
            f"fp8 GEMMs of more than {fp8_gemm_above} tokens in a served model against the table",
        )  # fmt: skip
    layers = model.num_layers
    curves: dict[str, Points] = {"linears": _times(add(parts), layers)}
    if model.num_experts:
        expert = expert_dtype or gemm_dtype or dtype
        curves["experts"] = _times(_experts(tables, model, hardware, tp, expert, expert_skew, notes), layers)
    curves["element-wise"] = _elementwise(model, hardware, tp, notes)
    if tp > 1:
        curves["all-reduce"] = _times(_all_reduce(tables, model, hardware, tp, graph_tokens, notes), 2 * layers)
    shape = (heads, kv_heads, model.head_dim, kv_dtype)
    grids = []
    for which in ("prefill", "decode"):
        grid, rows = attention.without_spikes(_attention(tables, hardware, which, shape, notes))
        notes.left_out(grid.origin.file, grid.origin.operator, rows)
        grids.append(grid)
    prefill, decode = grids
    prefill_part, about_prefill = attention.prefill_attention(prefill, decode, layers)
    decode_part, about_decode = attention.decode_attention(
        decode, layers, 2.0 * kv_heads * model.head_dim * BYTES[kv_dtype]
    )
    for grid, about in ((prefill, about_prefill), (decode, about_decode)):
        if grid.origin.version != "roofline":
            notes.provenance.append(_provenance(tables, grid.origin.operator, grid, about.rows, about.hash))
        if about.moved_most > 0.001:
            notes.constant(
                f"{grid.origin.operator}: raised", round(about.moved_mean, 5), "share", "measured",
                "mean share by which the grid was raised so that more work never costs less; at most "
                f"{about.moved_most:.1%} at a point",
            )  # fmt: skip
    head = _head(tables, model, hardware, tp, notes)
    thinned = {term: to_curve(*points, tolerance) for term, points in curves.items()}
    _describe(notes, tables, host, host_why, jitter, tp, about_decode.reach)
    most_tokens = int(min(c[0][-1] for term, c in curves.items() if term in ("linears", "experts")))
    return OperatorProfile(
        name=name or f"{model.name} {dtype} tp{tp} {hardware.name} {tables.engine_name}",
        created=created,
        source=Source(device=tables.device, clock="kernel", details={"tables": tables.source}),
        hardware=hardware.name,
        model=model.name,
        dtype=dtype,
        kv_dtype=kv_dtype,
        tensor_parallel_size=tp,
        engine=tables.engine_name,
        domain=Domain(
            tokens=Range(min=1, max=most_tokens),
            prefill_query=Range(min=1, max=about_prefill.limit[1]),
            prefill_context=Range(min=0, max=about_prefill.limit[1]),
            decode_sequences=Range(min=1, max=about_decode.limit[0]),
            decode_context=Range(min=1, max=about_decode.limit[1]),
            sampled=Range(min=1, max=HEAD_ROWS),
        ),
        tokens=thinned,
        head=to_curve(*head, tolerance),
        prefill_attention=prefill_part,
        decode_attention=decode_part,
        graphs=Graphs(largest=graph_tokens),
        host=host,
        jitter=jitter,
        jumps=jumps(list(thinned.values())),
        cv_error=cross_validation.errors(tables, _gemms(model, tp), gemm_dtype or dtype, prefill, decode, curves)
        if cross_validate
        else {},
        provenance=tuple(notes.provenance),
        constants=(*notes.constants, *constants),
        not_modelled=tuple(notes.not_modelled),
    )


def _gemms(model: ModelSpec, tp: int) -> list[tuple[int, int]]:
    """(n, k) of one rank's dense GEMMs of a layer; the router of experts apart."""
    q, kv, hidden = model.q_size // tp, model.kv_heads_of_rank(tp) * model.head_dim, model.hidden_size
    shapes = [(q + 2 * kv, hidden), (hidden, q)]
    if not model.num_experts:
        width = -(-model.intermediate_size // tp)
        shapes += [(2 * width, hidden), (hidden, width)]
    return shapes


def _linears(
    tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, dtype: str, scales: str, notes: _Notes
) -> list[Points]:
    """One layer's dense GEMMs."""
    parts = [_gemm(tables, hardware, dtype, n, k, notes) for n, k in _gemms(model, tp)]
    taken_off = _TAKEN_OFF.get(scales)
    if taken_off is None:
        raise InputError(unknown("activation_scales", scales, _TAKEN_OFF))
    for name in taken_off:
        table = tables.quantize.get(name)
        if dtype != "fp8" or table is None:
            continue
        for i, (_, k) in enumerate(_gemms(model, tp)):
            saved = np.array([np.interp(k, table.across, row) for row in table.ns])
            points, ns = parts[i]
            parts[i] = (points, np.maximum(ns - np.interp(points, table.down, saved), 0.2 * ns))
        notes.provenance.append(
            _provenance(tables, f"{name} (taken off fp8 GEMMs)", table, table.ns.size, digest(table.ns))
        )
    if model.num_experts:
        parts.append(_gemm(tables, hardware, "bfloat16", model.num_experts, model.hidden_size, notes))
    return parts


def _gemm(tables: OperatorTables, hardware: HardwareSpec, dtype: str, n: int, k: int, notes: _Notes) -> Points:
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


def _head(tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, notes: _Notes) -> Points:
    points, ns = _gemm(tables, hardware, "bfloat16", -(-model.vocab_size // tp), model.hidden_size, notes)
    points, ns = points[points <= HEAD_ROWS], ns[points <= HEAD_ROWS]
    grown = np.maximum.accumulate(ns)
    if np.any(grown > ns):
        notes.constant(
            "output head: raised", round(float(np.mean(grown / ns - 1.0)), 5), "share", "measured",
            f"mean share by which the curve was raised so that more rows never cost less; at most {np.max(grown / ns - 1.0):.1%}",
        )  # fmt: skip
    return points, np.asarray(grown, dtype=np.float64)


def _experts(
    tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, dtype: str, skew: str, notes: _Notes
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
    notes.provenance.append(_provenance(tables, line.origin.operator, line, len(line.at), digest(line.ns)))
    return line.at, line.ns


def _elementwise(model: ModelSpec, hardware: HardwareSpec, tp: int, notes: _Notes) -> Points:
    """Norms with their residuals, rotary positions, KV writes, gates: bytes, and launches. Summed over layers."""
    hidden, q, kv = model.hidden_size, model.q_size // tp, model.kv_heads_of_rank(tp) * model.head_dim
    gate = 0 if model.num_experts else 3 * -(-model.intermediate_size // tp)
    per_layer = 2.0 * (8 * hidden + 2 * (q + kv) + 4 * kv + gate + (2 * (q + kv) if model.qk_norm else 0))
    a_byte = 1e9 / (hardware.memory_bandwidth * hardware.memory_efficiency)
    token_ns = a_byte * (per_layer * model.num_layers + 2.0 * 4 * hidden)
    fixed = KERNELS_A_LAYER * LAUNCH_NS * model.num_layers
    notes.constant(
        "memory_efficiency", hardware.memory_efficiency, "share", "assumed", "bandwidth that element-wise kernels reach"
    )
    notes.constant(
        "kernels_a_layer", KERNELS_A_LAYER, "", "assumed", "element-wise launches: two norms, rotary, KV write, gate"
    )
    notes.constant("launch", LAUNCH_NS, "ns", "assumed", "least time of an element-wise kernel")
    notes.constant("memory_bandwidth", hardware.memory_bandwidth, "bytes/s", "data sheet", "element-wise kernels")
    tokens = np.array([0, 32768], dtype=np.int64)
    return tokens, np.asarray(fixed + tokens * token_ns, dtype=np.float64)


def _all_reduce(
    tables: OperatorTables, model: ModelSpec, hardware: HardwareSpec, tp: int, graph_tokens: int, notes: _Notes
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
            notes.provenance.append(_provenance(tables, line.origin.operator, line, len(line.at), digest(line.ns)))
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


def _attention(
    tables: OperatorTables, hardware: HardwareSpec, which: str, shape: tuple[int, int, int, str], notes: _Notes
) -> Grid:
    grids = tables.prefill if which == "prefill" else tables.decode
    if shape in grids:
        return grids[shape].whole()
    notes.analytic(f"{which} attention {shape}", f"not measured on {tables.system} with {tables.engine_name}")
    build = analytic.prefill if which == "prefill" else analytic.decode
    return build(hardware, *shape, tables.source)


def _slower(points: Points, factor: float, above: int) -> Points:
    """A curve times a factor beyond some tokens."""
    at, ns = points
    x = np.unique([*at, above, above + 1])
    y = np.interp(x, at, ns)
    return x, np.where(x > above, y * factor, y)


def _times(points: Points, n: int) -> Points:
    return points[0], points[1] * float(n)


def _provenance(tables: OperatorTables, operator: str, part: Grid | Line, rows: int, hashed: str) -> Provenance:
    return Provenance(
        operator=operator,
        source=part.origin.file,
        version=part.origin.version,
        rows=rows,
        hash=hashed,
        licence=part.origin.licence,
    )


def _describe(
    notes: _Notes, tables: OperatorTables, host: Host, host_why: str, jitter: float, tp: int, reach: int
) -> None:
    basis = "fitted" if host_why else "assumed"
    why = host_why or "no host time: data sheets and tables only"
    notes.constant("host.step_ns", host.step_ns, "ns", basis, why)
    notes.constant("host.sequence_ns", host.sequence_ns, "ns", basis, why)
    if jitter:
        notes.constant("jitter", jitter, "share", "fitted", "the slowest tensor-parallel rank against the mean one")
    notes.not_modelled += [
        *(
            f"{operator}: left out, for they take far longer than larger sizes: rows {', '.join(map(str, sorted(rows)))} of {file}"
            for (file, operator), rows in notes.spikes.items()
        ),
        f"decodes with more than {reach:,} tokens of KV together were not measured: the last slope goes on",
        "prompts with cached context were not measured: differences of whole prompts",
        "prompts and decodes in one attention call: taken as the sum of the two",
        "padding of graphs to their captured sizes (at most 0.3 % of a step)",
        "sampling and the gathering of logits over ranks, but for what the host terms hold",
        *(() if jitter or tp == 1 else ("waiting for the slowest tensor-parallel rank",)),
        *tables.notes,
    ]
