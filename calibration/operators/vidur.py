"""Vidur's profiling tables: milliseconds of every operator of one model on one device, at several tensor-parallel degrees.

`compute/<device>/<model>/mlp.csv` holds what runs over tokens, `attention.csv` beside it prompts (one chunk behind a cached context)
and decodes (a batch at one context), `network/<node>/all_reduce.csv` all-reduces over bytes. Times are in columns
`time_stats.<operator>.median`. A row that stands twice is a second measurement: both are averaged.

A step is layers x (norms + projections + rotary + attention + writing KV + feed-forward + residual) + embedding + head. The tables
have no head: it is priced from the device's sheet. They have prompts and decodes apart: in a mixed step the two add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calibration.operators.bundle_attention import bent, nested
from calibration.operators.bundle_checks import check_rate
from calibration.operators.curves import add, jumps, to_curve
from calibration.operators.grids import leave_one_out, monotone, to_grid
from calibration.operators.number_table import NumberTable, read_numbers
from calibration.operators.tables import Floats, Ints, digest
from scenarios.errors import InputError
from scenarios.hardware import HardwareSpec
from scenarios.models import BYTES, ModelSpec
from sim.operator_profile import Constant, Curve, DecodeAttention, OperatorProfile, PrefillAttention, Provenance
from sim.profile_parts import Domain, Errors, Range, Source

LINEARS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
ELEMENTWISE = ("attn_rope", "mlp_act")
OPTIONAL = ("input_layernorm", "post_attention_layernorm", "add")
"""Operators of a layer that some models' tables lack."""

_MS = 1e6
_FINE = 1e-3
LARGE = 2**20
"""Bytes of an all-reduce from which its time is that of the link, not of the launch."""
SLOWEST_LINK, FASTEST_LINK = 2e8, 2e12
"""Bytes/s of one: from below any bus between devices to above any switch."""
_SIZES = ("num_tokens", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "num_tensor_parallel_workers")

NOT_MODELLED = (
    "prompts and decodes of a step as one kernel: the tables hold them apart",
    "decodes of unequal contexts",
    "the sampler, and host time that kernels do not hide",
)


def read_vidur(
    folder: Path | str,
    model: ModelSpec,
    hardware: HardwareSpec,
    *,
    tensor_parallel_size: int = 1,
) -> OperatorProfile:
    """Step costs of `model` on one device, or on several that share its layers.

    Args:
        folder: holds `mlp.csv` and `attention.csv`; all-reduces are those of a folder `network/` above it that names this device
            and measured so many ranks.
        hardware: the device, whose sheet prices the head.

    Raises:
        InputError: a file or column is missing, a value or a unit is wrong, a grid has holes, no row is of this model at this
            tensor-parallel degree.
    """
    folder, size = Path(folder), tensor_parallel_size
    if model.num_experts:
        raise InputError(f"{folder}: {model.name} has experts, which Vidur's tables do not hold")
    dense = _dense(folder / "mlp.csv", model, size)
    attention = _attention(folder / "attention.csv", model, size)
    layers = model.num_layers
    save = _save(attention)
    each = [*ELEMENTWISE, *(name for name in OPTIONAL if _column(name) in dense.numbers)]
    terms = {
        "linears": _sum([_over_tokens(dense, name) for name in LINEARS], layers),
        "elementwise": _sum(
            [*(_over_tokens(dense, name) for name in each), *save], layers, once=_over_tokens(dense, "emb")
        ),
    }
    used = [dense, attention]
    if size > 1:
        table, reduces = _all_reduce(folder, model, size)
        used.append(table)
        terms["all-reduce"] = _sum([reduces], 2 * layers)
    prefill, prefill_errors = _prefill(attention, layers)
    decode, decode_errors = _decode(attention, layers)
    curves = {name: to_curve(*curve, _FINE) for name, curve in terms.items()}
    tokens = terms["linears"][0]
    dense_errors = np.concatenate(
        [leave_one_out(at.astype(float), ms) for at, ms in (_over_tokens(dense, name) for name in LINEARS)]
    )
    return OperatorProfile(
        name=f"vidur-{hardware.name}-{model.name}-tp{size}".lower(),
        created="",
        source=Source(device=hardware.name, clock="device time of single kernels", details={"tables": "Vidur profiling"}),
        hardware=hardware.name,
        model=model.name,
        dtype="float16",
        kv_dtype="float16",
        tensor_parallel_size=size,
        engine="vidur",
        domain=Domain(
            tokens=Range(min=1, max=int(tokens[-1])),
            prefill_query=Range(min=1, max=prefill.queries[-1]),
            prefill_context=Range(min=0, max=prefill.contexts[-1]),
            decode_sequences=Range(min=1, max=decode.sequences[-1]),
            decode_context=Range(min=1, max=decode.contexts[-1]),
            sampled=Range(min=1, max=int(tokens[-1])),
        ),
        tokens=curves,
        head=_head(model, hardware, size),
        prefill_attention=prefill,
        decode_attention=decode,
        jumps=jumps(list(curves.values())),
        cv_error={"mlp": Errors.of(dense_errors), "prefill_attention": prefill_errors, "decode_attention": decode_errors},
        provenance=tuple(_provenance(table) for table in used),
        constants=(
            Constant(
                name="memory_efficiency", value=hardware.memory_efficiency, unit="", basis="assumed",
                why="the head's weights are read at this share of the sheet's bandwidth; no table holds the head",
            ),
        ),
        not_modelled=NOT_MODELLED,
    )  # fmt: skip


def _column(operator: str) -> str:
    return f"time_stats.{operator}.median"


def _dense(path: Path, model: ModelSpec, size: int) -> NumberTable:
    needed = [_column(name) for name in ("emb", *LINEARS, *ELEMENTWISE)]
    table = read_numbers(path, counts=_SIZES, times=needed, words=["use_gated_mlp"], optional=["use_gated_mlp"])
    more = read_numbers(
        path, counts=[], signed=[_column(name) for name in OPTIONAL], optional=[_column(n) for n in OPTIONAL]
    )
    table.numbers.update({name: np.nan_to_num(column, nan=0.0) for name, column in more.numbers.items()})
    whole = {
        "n_head": model.num_heads, "n_kv_head": model.num_kv_heads, "n_embd": model.hidden_size,
        "n_expanded_embd": model.intermediate_size, "vocab_size": model.vocab_size, "num_tensor_parallel_workers": size,
    }  # fmt: skip
    table = _of_model(table, whole, model)
    weights = {
        "attn_pre_proj": model.hidden_size * (model.q_size + 2 * model.kv_size),
        "mlp_up_proj": model.hidden_size * model.intermediate_size * 2,
        "mlp_down_proj": model.hidden_size * model.intermediate_size,
    }
    first = int(np.argmin(table.numbers["num_tokens"]))
    for name, values in weights.items():
        check_rate(table, first, _column(name), "ms", values / size, f"{name} reads weights")
    return table


def _attention(path: Path, model: ModelSpec, size: int) -> NumberTable:
    sizes = (
        "n_embd", "n_q_head", "n_kv_head", "num_tensor_parallel_workers", "batch_size", "prefill_chunk_size", "kv_cache_size",
    )  # fmt: skip
    blanks = [_column(name) for name in ("attn_prefill", "attn_decode", "attn_kv_cache_save")]
    table = read_numbers(path, counts=sizes, blank=blanks, optional=blanks[2:])
    whole = {
        "n_embd": model.hidden_size, "n_q_head": model.num_heads, "n_kv_head": model.num_kv_heads,
        "num_tensor_parallel_workers": size,
    }  # fmt: skip
    table = _of_model(table, whole, model)
    for name, rows in (("attn_prefill", _prompts(table)), ("attn_decode", _decodes(table))):
        wrong = [i for i in rows if not table.numbers[_column(name)][i] > 0]
        if not len(rows) or wrong:
            if not len(rows):
                raise InputError(f"{path}: not one row with {name}; was the measurement cut off?")
            raise table.refused(
                wrong[0], f"{_column(name)}: found nothing, but this row is of {name}; measure it again"
            )
    alone = _decodes(table)
    read = table.numbers["batch_size"][alone] * table.numbers["kv_cache_size"][alone]
    if read.any():
        row = int(alone[int(np.argmax(read))])
        values = float(read.max()) * 2.0 * max(1, model.num_kv_heads // size) * model.head_dim
        check_rate(table, row, _column("attn_decode"), "ms", values, "decodes read keys and values")
    return table


def _of_model(table: NumberTable, whole: Mapping[str, int], model: ModelSpec) -> NumberTable:
    """The rows of this model at this tensor-parallel degree."""
    fits = np.ones(len(table), dtype=bool)
    for name, value in whole.items():
        fits &= table.numbers[name] == value
    if not fits.any():
        wrong = [
            f"{name} {', '.join(f'{v:g}' for v in np.unique(table.numbers[name])[:4])} instead of {value}"
            for name, value in whole.items()
            if not (table.numbers[name] == value).any()
        ]
        said = "; ".join(wrong) or "no row has all of its sizes at once"
        raise InputError(
            f"{table.path}: no row is of {model.name}: {said}; name the tables' model and tensor_parallel_size"
        )
    table = table.take(np.flatnonzero(fits))
    for name in ("num_tokens", "batch_size", "prefill_chunk_size", "kv_cache_size"):
        column = table.numbers.get(name, np.empty(0))
        if (column != np.floor(column)).any():
            row = int(np.argmax(column != np.floor(column)))
            raise table.refused(row, f"{name}: found {column[row]:g}, but a whole number is needed")
    return table


def _prompts(table: NumberTable) -> Ints:
    return np.flatnonzero(table.numbers["prefill_chunk_size"] > 0)


def _decodes(table: NumberTable) -> Ints:
    return np.flatnonzero(table.numbers["prefill_chunk_size"] == 0)


def _over_tokens(table: NumberTable, operator: str) -> tuple[Ints, Floats]:
    """Milliseconds over tokens; a size that stands twice is averaged."""
    return _averaged(table.numbers["num_tokens"], table.numbers[_column(operator)])


def _averaged(at: Floats, ms: Floats) -> tuple[Ints, Floats]:
    sizes, where = np.unique(at, return_inverse=True)
    return sizes.astype(np.int64), np.bincount(where, ms) / np.bincount(where)


def _sum(
    curves: Sequence[tuple[Ints, Floats]], times: int, once: tuple[Ints, Floats] | None = None
) -> tuple[Ints, Floats]:
    """Nanoseconds of so many layers, with what runs once beside them."""
    parts = [(at, ms * (times * _MS)) for at, ms in curves]
    return add([*parts, (once[0], once[1] * _MS)] if once is not None else parts)


def _save(table: NumberTable) -> list[tuple[Ints, Floats]]:
    """Writing keys and values over the tokens of a step, where it was timed apart."""
    column = table.numbers.get(_column("attn_kv_cache_save"))
    if column is None or not (column > 0).any():
        return []
    known = np.flatnonzero(column > 0)
    tokens = np.maximum(table.numbers["prefill_chunk_size"], table.numbers["batch_size"])[known]
    return [_averaged(tokens, column[known])]


def _decode(table: NumberTable, layers: int) -> tuple[DecodeAttention, Errors]:
    (n, c), ms = to_grid(_merged(table.take(_decodes(table)), ("batch_size", "kv_cache_size"), "attn_decode"),
                         ("batch_size", "kv_cache_size"), _column("attn_decode"))  # fmt: skip
    errors = Errors.of(leave_one_out(np.array(c, dtype=float), ms))
    return DecodeAttention(sequences=n, contexts=c, ns=nested(monotone(ms) * (layers * _MS))), errors


def _prefill(table: NumberTable, layers: int) -> tuple[PrefillAttention, Errors]:
    """Chunks of one length were measured behind multiples of it: in between, straight; beyond, the last slope."""
    rows = _merged(table.take(_prompts(table)), ("prefill_chunk_size", "kv_cache_size"), "attn_prefill")
    chunk, context, ms = (
        rows.numbers[name] for name in ("prefill_chunk_size", "kv_cache_size", _column("attn_prefill"))
    )
    queries = np.unique(chunk)
    contexts = np.unique(context)
    if len(contexts) > 64:
        contexts = contexts[np.unique(np.linspace(0, len(contexts) - 1, 64).round().astype(int))]
    lines, errors, slope = [], [], 0.0
    for i, query in enumerate(queries.tolist()):
        at = chunk == query
        order = np.argsort(context[at])
        behind, took = context[at][order], ms[at][order]
        if behind[0] != 0:
            raise rows.refused(
                int(np.flatnonzero(at)[0]),
                f"kv_cache_size: prefill_chunk_size {query:g} has no row at 0; measure it, or leave it out",
            )
        if len(behind) > 1:
            slope = max(0.0, float(took[-1] - took[-2]) / float(behind[-1] - behind[-2]))
            errors.append(leave_one_out(behind, took))
        elif i:
            slope *= query / queries[i - 1]  # only measured alone: keys cost the same for each query
        lines.append(np.interp(contexts, behind, took) + slope * np.maximum(0.0, contexts - behind[-1]))
    fine_q, fine = (
        bent(queries, contexts, monotone(np.array(lines))) if len(contexts) > 1 else (queries, np.array(lines))
    )
    scale = layers * _MS
    part = PrefillAttention(
        pair_ns=0.0,
        queries=tuple(round(x) for x in fine_q.tolist()),
        contexts=tuple(round(x) for x in contexts.tolist()),
        ns=nested(fine * scale),
        shared_ns=0.0,
    )
    return part, Errors.of(np.concatenate(errors) if errors else np.empty(0))


def _merged(table: NumberTable, axes: Sequence[str], operator: str) -> NumberTable:
    """Rows that stand twice as one."""
    column = _column(operator)
    points = np.stack([table.numbers[name] for name in axes], axis=1)
    _, first, where = np.unique(points, axis=0, return_index=True, return_inverse=True)
    where = where.reshape(-1)
    mean = np.bincount(where, table.numbers[column]) / np.bincount(where)
    merged = table.take(first)
    merged.numbers[column] = mean
    return merged


def _head(model: ModelSpec, hardware: HardwareSpec, size: int) -> Curve:
    """The output head of one rank by the device's sheet: its weights are read once, and multiplied for every row."""
    weights = model.vocab_size * model.hidden_size / size
    read = weights * BYTES["float16"] / (hardware.memory_bandwidth * hardware.memory_efficiency) * 1e9
    row = 2.0 * weights / (hardware.flops["bfloat16"] * hardware.compute_efficiency) * 1e9
    turn = max(2, round(read / row))
    return Curve(
        at=(1, turn, 2 * turn),
        ns=(float(round(read)), float(round(max(read, turn * row))), float(round(2 * turn * row))),
    )


def _all_reduce(folder: Path, model: ModelSpec, size: int) -> tuple[NumberTable, tuple[Ints, Floats]]:
    """One all-reduce over tokens (bytes are two a value), of so many ranks in one node."""
    paths = _networks(folder)
    for path in paths:
        column = _column("all_reduce")
        table = read_numbers(
            path, counts=["num_workers", "devices_per_node", "size"], times=[column], words=["collective"]
        )
        fits = (table.numbers["num_workers"] == size) & (table.numbers["devices_per_node"] == size)
        fits &= np.array([word == "all_reduce" for word in table.words["collective"]])
        if fits.sum() > 1:
            table = table.take(np.flatnonzero(fits))
            _check_link(table, column)
            tokens = np.maximum(1.0, np.rint(table.numbers["size"] / (2.0 * model.hidden_size)))
            return table, _averaged(tokens, table.numbers[column])
    looked = ", ".join(str(path) for path in paths) or "no network/ folder of this device"
    raise InputError(
        f"{folder}: tensor_parallel_size {size} needs all-reduces of {size} ranks in one node, and there are none in {looked}; put "
        "the all_reduce.csv of such a node into network/NODE/ beside compute/, NODE beginning with the device's folder"
    )


def _check_link(table: NumberTable, column: str) -> None:
    """Times in another unit are a thousand times off: then the largest all-reduce is faster or slower than any link."""
    row = int(np.argmax(table.numbers["size"]))
    rate = float(table.numbers["size"][row] / table.numbers[column][row]) * 1e3
    if table.numbers["size"][row] >= LARGE and not SLOWEST_LINK <= rate <= FASTEST_LINK:
        raise table.refused(
            row,
            f"{column}: found {table.numbers[column][row]:g}: {rate / 1e9:,.3g} GB/s, which no link does; times are milliseconds: "
            f"{'multiply' if rate > FASTEST_LINK else 'divide'} by 1000 if they are {'seconds' if rate > FASTEST_LINK else 'microseconds'}",
        )


def _networks(folder: Path) -> list[Path]:
    """`network/<node>/all_reduce.csv` above the tables, of nodes whose names begin with the device's folder."""
    parts = folder.resolve().parts
    device = parts[parts.index("compute") + 1] if "compute" in parts[:-1] else None
    for parent in folder.resolve().parents:
        found = sorted((parent / "network").glob("*/all_reduce.csv"))
        if found:
            return [path for path in found if device is None or path.parent.name.startswith(device)]
    return []


def _provenance(table: NumberTable) -> Provenance:
    return Provenance(
        operator=table.path.stem,
        source="Vidur profiling tables (microsoft/vidur)",
        version="",
        rows=len(table),
        hash=digest(*[np.nan_to_num(column, nan=-1.0) for column in table.numbers.values()]),
        licence="MIT",
    )
