"""Kernel bundles of LLMServingSim's profiler: microseconds of every kernel of one model, layer by layer, on one device.

A folder holds `meta.yaml` and, in itself or in `tp1/`, `tp2/`, ..., the tables `dense.csv` (layer, tokens), `per_sequence.csv`
(layer, sequences), `attention.csv` (a prefill chunk and its cached context, decodes and their context), `skew.csv` (decodes of
unequal contexts) and, for experts, `moe.csv` (tokens, experts that at least one token goes to).

From kernels to a step; no rule has a constant that a run could tune. All were fixed before a run was predicted with them, but
for rule 5: at first it always took the skew table, which made the one run tried 4 % slow throughout:

1. A step is the sum of its kernels: layers x (2 norms + projections + rotary + attention + feed-forward) + embedding + final norm
   + head and sampler over the rows that sample. Device time only: asynchronous scheduling hides the host behind it, and a
   constant for what it does not hide does not carry over from one device to another.
2. Times lie on straight lines between measured sizes. Between two chunk lengths, the causal half of a chunk (a parabola) is bent
   as the table's own cost of a (query, key) pair says.
3. Where the engine replays captured graphs, kernels over tokens run at the next captured size (only the sizes are needed).
4. Prompts and decodes of one step are one attention kernel, and cost what the table has for both together at the mean context
   of the decodes. Several chunks of a step add up, the cost of the smallest one paid once.
5. Kernels were timed one by one, uncaptured. What unequal contexts cost is in `skew.csv`, what capturing saves in `step.csv`:
   opposite signs, similar sizes. An engine that captures graphs gets both corrections, or neither where the bundle lacks one; an
   eager engine gets the first. Skew: alpha of the way from all decodes at the mean to all at the longest, by number of decodes;
   least squares of relative error over rows without a prompt. (Rows there may hold sums over measuring iterations: alpha is a
   ratio and does not see it.)
6. Experts: tokens choose alike, k of E each, so E (1 - (1 - k / E) ** tokens) experts are read.
7. Tensor parallel: two all-reduces a layer, from the all-reduce times of a `hardware.yaml` beside or above the bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calibration.operators.bundle_attention import attention_parts, over_contexts
from calibration.operators.bundle_checks import check_bandwidth, check_shape, states_rank
from calibration.operators.bundle_terms import ELEMENTWISE, LINEARS, ONCE, in_ns, padded, take_saved, token_terms
from calibration.operators.curves import add, jumps, to_curve
from calibration.operators.grids import leave_one_out
from calibration.operators.number_table import NumberTable, read_numbers
from calibration.operators.tables import Floats, Ints, digest
from scenarios.errors import InputError
from scenarios.hardware import hardware
from scenarios.models import ModelSpec
from sim.operator_profile import Constant, Curve, OperatorProfile, Provenance, Skew
from sim.profile_parts import Domain, Errors, Range, Source

HEAD = ("lm_head", "sampler")
_FEED_FORWARD = ("gate_up_proj", "act_fn", "down_proj")
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "fp8"}
_FINE = 1e-4
"""Points that lines tell to this share are left out."""

NOT_MODELLED = (
    "host time that kernels do not hide, and gaps between kernels",
    "what compilation fuses: kernels were timed one by one without it",
    "several prompts in one step: chunks add up, though small ones share the device",
)


@dataclass(frozen=True)
class Bundle:
    """A bundle as read. folder: of the tables; meta: `meta.yaml`; dense, head: microseconds over tokens, over rows."""

    folder: Path
    meta: Mapping[str, Any]
    dense: Mapping[str, tuple[Ints, Floats]]
    head: Mapping[str, tuple[Ints, Floats]]
    attention: NumberTable
    skew: NumberTable | None
    moe: NumberTable | None
    saved: NumberTable | None
    origins: tuple[Provenance, ...] = field(default=())


def read_bundle(
    folder: Path | str,
    model: ModelSpec,
    *,
    tensor_parallel_size: int = 1,
    capture_sizes: Sequence[int] = (),
    all_reduce: Curve | None = None,
) -> OperatorProfile:
    """Step costs of `model` from a bundle.

    Args:
        folder: with `meta.yaml`.
        capture_sizes: token counts at which the engine to be predicted has captured graphs; none where it runs eager.
        all_reduce: nanoseconds of one all-reduce over the tokens of a step, where neither the bundle nor a `hardware.yaml` has them.

    Raises:
        InputError: a file or column is missing, a value or a unit is wrong, a grid has holes, the bundle is of another model, or was
            not measured at this tensor-parallel degree.
    """
    bundle = _read(Path(folder), model, tensor_parallel_size)
    meta, layers = bundle.meta, model.num_layers
    terms = token_terms(bundle.dense, bundle.moe, bundle.folder, model, tensor_parallel_size, all_reduce)
    terms = {name: padded(curve, capture_sizes) for name, curve in terms.items()}
    if bundle.saved is not None and len(capture_sizes):
        take_saved(terms, bundle.saved, max(capture_sizes))
    curves = {name: to_curve(*curve, _FINE) for name, curve in terms.items()}
    head = to_curve(*in_ns(add([bundle.head[name] for name in HEAD]), 1), _FINE)
    decode, prefill, mixed, errors = attention_parts(bundle.attention, layers)
    tokens = next(iter(bundle.dense.values()))[0]
    dtype, kv_dtype = _precision(bundle.folder, meta)
    for name, columns in (("dense", bundle.dense), ("per_sequence", bundle.head)):
        errors[name] = Errors.of(np.concatenate([leave_one_out(at.astype(float), us) for at, us in columns.values()]))
    return OperatorProfile(
        name=f"{meta.get('hardware', 'device')}-{model.name}-{meta.get('variant', dtype)}-tp{tensor_parallel_size}".lower(),
        created=str(meta.get("profiled_at", "")),
        source=Source(
            device=str(meta.get("gpu", meta.get("hardware", "unknown"))),
            clock="device time of single kernels, eager",
            details={
                k: str(meta[k]) for k in ("vllm_version", "cuda_version", "profiler_version", "variant") if k in meta
            },
        ),
        hardware=_device(meta),
        model=model.name,
        dtype=dtype,
        kv_dtype=kv_dtype,
        tensor_parallel_size=tensor_parallel_size,
        engine=f"vllm@{meta.get('vllm_version', 'unknown')}",
        domain=Domain(
            tokens=Range(min=1, max=int(tokens[-1])),
            prefill_query=Range(min=1, max=prefill.queries[-1]),
            prefill_context=Range(min=0, max=prefill.contexts[-1]),
            decode_sequences=Range(min=1, max=decode.sequences[-1]),
            decode_context=Range(min=1, max=decode.contexts[-1]),
            sampled=Range(min=1, max=int(bundle.head["lm_head"][0][-1])),
        ),
        tokens=curves,
        head=head,
        prefill_attention=prefill,
        decode_attention=decode,
        mixed_attention=mixed,
        skew=_skew(bundle.skew)
        if bundle.skew is not None and (bundle.saved is not None or not capture_sizes)
        else None,
        jumps=jumps(list(curves.values())),
        cv_error=errors,
        provenance=bundle.origins,
        constants=_constants(model),
        not_modelled=NOT_MODELLED,
    )


def _device(meta: Mapping[str, Any]) -> str:
    """The device by the catalog's name, so that scenarios find it; by the bundle's own where the catalog has none."""
    stated = str(meta.get("hardware", "unknown"))
    try:
        return hardware(stated).name
    except InputError:
        return stated


def _read(root: Path, model: ModelSpec, size: int) -> Bundle:
    meta = _meta(root)
    degrees = [int(degree) for degree in meta.get("tp_degrees") or [1]]
    folder = root / f"tp{size}"
    if not folder.is_dir():
        flat = not any((root / f"tp{degree}").is_dir() for degree in degrees)
        if size not in degrees or not (flat and (size == 1 or states_rank(meta, model, size))):
            raise InputError(
                f"{root}: measured at tensor_parallel_size {', '.join(map(str, degrees))}, but {size} is asked for and there is "
                f"no folder tp{size}; profile it, or ask for one of these"
            )
        folder = root
    check_shape(root / "meta.yaml", meta, model, [*degrees, size])
    dense = read_numbers(
        folder / "dense.csv", words=["layer"], counts=["tokens"], times=["time_us"], key=["layer", "tokens"]
    )
    head = read_numbers(
        folder / "per_sequence.csv",
        words=["layer"],
        counts=["sequences"],
        times=["time_us"],
        key=["layer", "sequences"],
    )
    wanted = {*LINEARS, *ELEMENTWISE, *ONCE} | ({"qk_norm"} if model.qk_norm else set())
    moe = None
    if model.num_experts:
        wanted -= set(_FEED_FORWARD)
        moe = _experts(folder / "moe.csv")
    attention = _attention_rows(folder / "attention.csv")
    found = Bundle(
        folder,
        meta,
        _by_layer(dense, "tokens", wanted),
        _by_layer(head, "sequences", set(HEAD)),
        attention,
        _skew_rows(folder),
        moe,
        _saved_rows(folder),
    )
    check_bandwidth(model, size, dense, head, attention)
    tables = [t for t in (dense, head, attention, found.skew, moe, found.saved) if t is not None]
    return replace(found, origins=tuple(_provenance(table, meta) for table in tables))


def _meta(root: Path) -> Mapping[str, Any]:
    path = root / "meta.yaml"
    if not path.is_file():
        raise InputError(f"{path}: no such file, but it says which model, device and engine the tables are of")
    try:
        meta = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(meta, Mapping):
        raise InputError(f"{path}: found {type(meta).__name__}, but a mapping with model, gpu, tp_degrees is needed")
    return meta


def _by_layer(table: NumberTable, size: str, wanted: set[str]) -> dict[str, tuple[Ints, Floats]]:
    """Microseconds over sizes, by kernel."""
    names = table.words["layer"]
    unknown = sorted(set(names) - wanted)
    if unknown:
        row = names.index(unknown[0])
        raise table.refused(
            row,
            f"layer: found {unknown[0]}, but this model has {', '.join(sorted(wanted))}; is the bundle of another model?",
        )
    found = {}
    for name in sorted(wanted):
        rows = [i for i, layer in enumerate(names) if layer == name]
        if not rows:
            raise InputError(
                f"{table.path}: layer {name} is missing, but the model has one; is the bundle of another model, or cut off?"
            )
        chosen = table.take(rows)
        sizes = chosen.numbers[size]
        if (sizes < 1).any() or (sizes != np.floor(sizes)).any():
            row = int(np.argmax((sizes < 1) | (sizes != np.floor(sizes))))
            raise chosen.refused(row, f"{size}: found {sizes[row]:g}, but a whole number above 0 is needed")
        order = np.argsort(sizes)
        found[name] = (sizes[order].astype(np.int64), chosen.numbers["time_us"][order])
    _same_sizes(table, size, found)
    return found


def _same_sizes(table: NumberTable, size: str, found: Mapping[str, tuple[Ints, Floats]]) -> None:
    """All kernels of a file were measured at the same sizes: where one lacks some, rows are missing."""
    every = sorted({int(at) for points, _ in found.values() for at in points})
    for name, (points, _) in found.items():
        lacking = sorted(set(every) - set(points.tolist()))
        if lacking:
            raise InputError(
                f"{table.path}: layer {name} has no row at {size} {lacking[0]}, which others have ({len(lacking)} missing); "
                "measure it, or leave this size out everywhere"
            )


def _attention_rows(path: Path) -> NumberTable:
    counts = ["prefill_chunk", "kv_prefill", "prefill_key", "n_decode", "kv_decode", "decode_q_len"]
    table = read_numbers(
        path,
        counts=counts,
        times=["time_us"],
        words=["layer"],
        optional=["layer", "decode_q_len", "kv_prefill", "prefill_key"],
        key=["layer", *counts],
    )
    if "kv_prefill" not in table.numbers and "prefill_key" not in table.numbers:
        raise InputError(f"{path}: line 1: column kv_prefill is missing: the cached context of a prefill chunk")
    kernels = sorted(set(table.words.get("layer", [])) - {"attention"})
    if kernels:
        raise table.refused(
            table.words["layer"].index(kernels[0]), f"layer: found {kernels[0]}, but only plain attention is modelled"
        )
    if "decode_q_len" in table.numbers:  # more queries a decode: verification of drafts, which is priced elsewhere
        table = table.take(np.flatnonzero(table.numbers["decode_q_len"] == 1))
    return table if "kv_prefill" in table.numbers else over_contexts(table)


def _skew_rows(folder: Path) -> NumberTable | None:
    """Decodes alone. The table is optional: without it contexts are taken as equal."""
    path = next((folder / name for name in ("skew.csv", "skew.csv.gz") if (folder / name).is_file()), None)
    if path is None:
        return None
    times = ["t_mean_us", "t_max_us", "t_skew_us"]
    table = read_numbers(path, counts=["n", "pc"], times=times)
    alone = np.flatnonzero(table.numbers["pc"] == 0)
    return table.take(alone) if len(alone) else None


def _skew(table: NumberTable) -> Skew:
    """Rule 5."""
    mean, longest, skewed = (table.numbers[name] for name in ("t_mean_us", "t_max_us", "t_skew_us"))
    span, more = (longest - mean) / skewed, (skewed - mean) / skewed
    sequences, alpha = [], []
    for n in sorted(set(table.numbers["n"].tolist())):
        at = (table.numbers["n"] == n) & (span > 0)
        if at.any():
            sequences.append(int(n))
            alpha.append(float(np.clip((span[at] * more[at]).sum() / (span[at] ** 2).sum(), 0.0, 1.0)))
    return Skew(sequences=tuple(sequences), alpha=tuple(alpha))


def _saved_rows(folder: Path) -> NumberTable | None:
    """What captured graphs save of whole steps; rows `none` are steps too large to be captured, which save nothing."""
    path = folder / "step.csv"
    if not path.is_file():
        return None
    table = read_numbers(path, words=["branch"], counts=["num_tokens"], signed=["saved_us"])
    row = next((i for i, saved in enumerate(table.numbers["saved_us"].tolist()) if not np.isfinite(saved)), None)
    if row is not None:
        raise table.refused(
            row, "saved_us: found nan, but a finite number is needed; measure the row again or leave it out"
        )
    captured = [i for i, branch in enumerate(table.words["branch"]) if branch in ("full", "piecewise")]
    return table.take(captured) if captured else None


def _experts(path: Path) -> NumberTable:
    table = read_numbers(
        path,
        counts=["ep", "tokens", "activated_experts"],
        times=["time_us"],
        optional=["ep"],
        key=["ep", "tokens", "activated_experts"],
    )
    if "ep" in table.numbers:
        alone = np.flatnonzero(table.numbers["ep"] == 1)
        if not len(alone):
            raise InputError(f"{path}: no row with ep 1: experts spread over devices are not modelled")
        table = table.take(alone)
    return table


def _precision(folder: Path, meta: Mapping[str, Any]) -> tuple[str, str]:
    """Of weights and of the KV cache, from the variant's name: `bf16`, `fp8-kvfp8`."""
    variant = str(meta.get("variant", "bf16"))
    weights, _, kv = variant.partition("-kv")
    if weights not in _DTYPES or (kv and kv not in _DTYPES):
        raise InputError(
            f"{folder}: meta.yaml: variant: found {variant!r}; allowed: {', '.join(_DTYPES)}, and -kvfp8 behind one of them"
        )
    dtype = _DTYPES[weights]
    return dtype, _DTYPES[kv] if kv else ("bfloat16" if dtype == "fp8" else dtype)


def _provenance(table: NumberTable, meta: Mapping[str, Any]) -> Provenance:
    return Provenance(
        operator=table.path.name.split(".")[0],
        source=f"LLMServingSim kernel bundle, {meta.get('gpu', meta.get('hardware', 'unknown device'))}",
        version=f"vllm {meta.get('vllm_version', 'unknown')}",
        rows=len(table),
        hash=digest(*[np.nan_to_num(column, nan=-1.0) for column in table.numbers.values()]),
        licence="MIT",
    )


def _constants(model: ModelSpec) -> tuple[Constant, ...]:
    if not model.num_experts:
        return ()
    why = "nobody recorded where tokens go: k experts of E are drawn alike for every token"
    return (Constant(name="experts_alike", value=1.0, unit="", basis="assumed", why=why),)
