"""From operators to a profile: what each step of a model costs, composed of measured operators.

step = layers x (GEMMs + attention + two all-reduces + element-wise kernels) + output head on sampled rows + host.
"""

from __future__ import annotations

from calibration.operators import attention, cross_validation, terms
from calibration.operators.curves import add, jumps, to_curve
from calibration.operators.notes import Notes
from calibration.operators.tables import OperatorTables
from calibration.operators.terms import HEAD_ROWS, Points
from scenarios.errors import InputError, unknown
from scenarios.hardware import HardwareSpec
from scenarios.models import BYTES, ModelSpec
from sim.operator_profile import Graphs, Host, OperatorProfile
from sim.profile_parts import Domain, Range, Source

GRAPH_TOKENS = 512
EXPERT_SKEW = "power_law_1.01"
TOLERANCE = 0.003
NO_HOST = Host()


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
    gemm_dtype: str | None = None,
    expert_dtype: str | None = None,
    activation_scales: str = "dynamic",
    expert_skew: str = EXPERT_SKEW,
    graph_tokens: int = GRAPH_TOKENS,
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
        gemm_dtype, expert_dtype: name of the table's precision where it is not `dtype` (`fp8_block`, ...).
        activation_scales: of fp8 activations, `dynamic` (found for each GEMM, as measured), `static` (that part is taken off), or
            `fused` (static, and the norm or gate before the GEMM writes fp8 in passing: scaling is taken off too, but for the
            output projection).
        expert_skew: distribution of tokens over experts, a name of the table.
        graph_tokens: steps of at most so many tokens replay a graph, in which the all-reduce is the graph's.

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
    notes = Notes()
    heads, kv_heads = model.num_heads // tp, model.kv_heads_of_rank(tp)
    parts = terms.linears(tables, model, hardware, tp, gemm_dtype or dtype, activation_scales, notes)
    layers = model.num_layers
    curves: dict[str, Points] = {"linears": _times(add(parts), layers)}
    if model.num_experts:
        expert = expert_dtype or gemm_dtype or dtype
        curves["experts"] = _times(terms.experts(tables, model, hardware, tp, expert, expert_skew, notes), layers)
    curves["element-wise"] = terms.elementwise(model, hardware, tp, notes)
    if tp > 1:
        curves["all-reduce"] = _times(terms.all_reduce(tables, model, hardware, tp, graph_tokens, notes), 2 * layers)
    shape = (heads, kv_heads, model.head_dim, kv_dtype)
    grids = []
    for which in ("prefill", "decode"):
        grid, rows = attention.without_spikes(terms.attention_grid(tables, hardware, which, shape, notes))
        notes.left_out(grid.origin.file, grid.origin.operator, rows)
        grids.append(grid)
    prefill, decode = grids
    prefill_part, about_prefill = attention.prefill_attention(prefill, decode, layers)
    decode_part, about_decode = attention.decode_attention(
        decode, layers, 2.0 * kv_heads * model.head_dim * BYTES[kv_dtype]
    )
    for grid, about in ((prefill, about_prefill), (decode, about_decode)):
        if grid.origin.version != "roofline":
            notes.measured(grid.origin.operator, grid, about.rows, about.hash)
        if about.moved_most > 0.001:
            notes.constant(
                f"{grid.origin.operator}: raised", round(about.moved_mean, 5), "share", "measured",
                "mean share by which the grid was raised so that more work never costs less; at most "
                f"{about.moved_most:.1%} at a point",
            )  # fmt: skip
    head = terms.head(tables, model, hardware, tp, notes)
    thinned = {term: to_curve(*points, TOLERANCE) for term, points in curves.items()}
    _describe(notes, tables, host, host_why, tp, about_decode.reach)
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
        head=to_curve(*head, TOLERANCE),
        prefill_attention=prefill_part,
        decode_attention=decode_part,
        graphs=Graphs(largest=graph_tokens),
        host=host,
        jumps=jumps(list(thinned.values())),
        cv_error=cross_validation.errors(tables, terms.gemms(model, tp), gemm_dtype or dtype, prefill, decode, curves)
        if cross_validate
        else {},
        provenance=tuple(notes.provenance),
        constants=tuple(notes.constants),
        not_modelled=tuple(notes.not_modelled),
    )


def _times(points: Points, n: int) -> Points:
    return points[0], points[1] * float(n)


def _describe(notes: Notes, tables: OperatorTables, host: Host, host_why: str, tp: int, reach: int) -> None:
    if host != NO_HOST:
        basis, why = ("fitted", host_why) if host_why else ("assumed", "given to the composition")
        notes.constant("host.step_ns", host.step_ns, "ns", basis, why)
        notes.constant("host.sequence_ns", host.sequence_ns, "ns", basis, why)
    notes.not_modelled += [
        *(
            f"{operator}: left out, for they take far longer than larger sizes: rows {', '.join(map(str, sorted(rows)))} of {file}"
            for (file, operator), rows in notes.spikes.items()
        ),
        f"decodes with more than {reach:,} tokens of KV together were not measured: the last slope goes on",
        "uneven contexts of decodes: a step counts their mean",
        "prompts with cached context were not measured: differences of whole prompts",
        "prompts and decodes in one attention call: taken as the sum of the two",
        "padding of graphs to their captured sizes (at most 0.3 % of a step)",
        "sampling and the gathering of logits over ranks, but for what the host terms hold",
        *(() if tp == 1 else ("waiting for the slowest tensor-parallel rank",)),
        *tables.notes,
    ]
