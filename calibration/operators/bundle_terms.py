"""Kernels over the tokens of a step, summed over layers: projections, experts, small kernels, all-reduces; and captured graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml

from calibration.operators.curves import add
from calibration.operators.number_table import NumberTable
from calibration.operators.tables import Floats, Ints
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from sim.operator_profile import Curve

Terms = dict[str, tuple[Ints, Floats]]
"""Nanoseconds over tokens, by term."""

LINEARS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
ELEMENTWISE = ("layernorm", "layernorm", "rotary_emb", "act_fn")
"""Kernels of one layer; its norm runs twice."""

ONCE = ("embedding", "final_layernorm")


def token_terms(
    dense: Mapping[str, tuple[Ints, Floats]],
    moe: NumberTable | None,
    folder: Path,
    model: ModelSpec,
    size: int,
    all_reduce: Curve | None,
) -> Terms:
    """Of all layers. dense: microseconds over tokens by kernel; folder: where to look for the times of all-reduces."""
    layers = model.num_layers
    small = [*ELEMENTWISE, *(["qk_norm"] if model.qk_norm else [])]
    terms = {"linears": in_ns(add([dense[name] for name in LINEARS if name in dense]), layers)}
    if moe is not None:
        tokens = next(iter(dense.values()))[0]
        terms["experts"] = in_ns((tokens, _expert_us(moe, model, tokens)), layers)
    each, once = add([dense[name] for name in small if name in dense]), add([dense[name] for name in ONCE])
    terms["elementwise"] = (each[0], (each[1] * layers + once[1]) * 1e3)
    if size > 1:
        curve = all_reduce or _measured_all_reduce(folder, model, size)
        terms["all-reduce"] = (np.array(curve.at, dtype=np.int64), np.array(curve.ns) * 2 * layers)
    return terms


def _expert_us(table: NumberTable, model: ModelSpec, tokens: Ints) -> Floats:
    """Rule 6: straight between measured numbers of experts, then between measured numbers of tokens."""
    experts, k = model.num_experts, model.num_experts_per_tok
    lines = []
    for count in sorted(set(table.numbers["tokens"].tolist())):
        rows = np.flatnonzero(table.numbers["tokens"] == count)
        order = rows[np.argsort(table.numbers["activated_experts"][rows])]
        lines.append((count, table.numbers["activated_experts"][order], table.numbers["time_us"][order]))
    most = max(at[-1] for _, at, _ in lines)
    if most > experts:
        raise InputError(
            f"{table.path}: activated_experts reaches {most:g}, but {model.name} has {experts}; another model?"
        )
    found = []
    for t in tokens.tolist():
        read = experts * (1.0 - (1.0 - k / experts) ** t)
        found.append(np.interp(t, [c for c, _, _ in lines], [np.interp(read, at, us) for _, at, us in lines]))
    return np.array(found)


def _measured_all_reduce(folder: Path, model: ModelSpec, size: int) -> Curve:
    """One all-reduce over tokens, from the nearest `hardware.yaml` that measured so many devices."""
    for parent in [folder, *list(folder.resolve().parents)[:5]]:
        path = parent / "hardware.yaml"
        if not path.is_file():
            continue
        sheet = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        link = (sheet.get("measured") or {}).get("interconnect") or {}
        points = {
            int(sample["bytes"]): float(sample.get("us_graphed", sample.get("us", np.nan)))
            for sample in link.get("samples") or []
            if sample.get("collective", "all_reduce") == "all_reduce" and "bytes" in sample
        }
        if link.get("npus") == size and len(points) > 1 and np.isfinite(list(points.values())).all():
            sizes = sorted(points)
            tokens = [max(1, round(b / (2 * model.hidden_size))) for b in sizes]
            kept = [i for i in range(len(sizes)) if i == 0 or tokens[i] > tokens[i - 1]]
            return Curve(at=tuple(tokens[i] for i in kept), ns=tuple(points[sizes[i]] * 1e3 for i in kept))
    raise InputError(
        f"{folder}: tensor_parallel_size {size} needs the times of all-reduces, and the bundle has none; put a hardware.yaml "
        f"with measured.interconnect (npus: {size}, samples of all_reduce with bytes and us) beside meta.yaml, or name a device "
        "whose sheet has a link"
    )


def in_ns(curve: tuple[Ints, Floats], times: int) -> tuple[Ints, Floats]:
    return curve[0], curve[1] * (1e3 * times)


def padded(curve: tuple[Ints, Floats], sizes: Sequence[int]) -> tuple[Ints, Floats]:
    """Rule 3: up to the largest captured size a step costs what the next captured one does."""
    if not len(sizes):
        return curve
    at, ns = curve
    points: dict[int, float] = {}
    for before, captured in pairwise([0, *sorted(set(sizes))]):
        points[before + 1] = points[captured] = float(np.interp(captured, at, ns))
    largest = max(sizes)
    points[largest + 1] = float(np.interp(largest + 1, at, ns))
    points |= {int(t): float(v) for t, v in zip(at, ns, strict=True) if t > largest + 1}
    ordered = sorted(points)
    return np.array(ordered, dtype=np.int64), np.array([points[t] for t in ordered])


def take_saved(terms: Terms, saved: NumberTable, largest: int) -> None:
    """Rule 5: takes what capturing saves off the element-wise kernels, which are mostly launch, and what they lack off the rest.

    Decodes alone (`full`) where they were measured, else mixed steps; up to the largest size that table and engine capture.
    """
    by_size: dict[int, dict[str, list[float]]] = {}
    for branch, tokens, us in zip(
        saved.words["branch"], saved.numbers["num_tokens"].tolist(), saved.numbers["saved_us"].tolist(), strict=True
    ):
        by_size.setdefault(int(tokens), {}).setdefault(branch, []).append(max(0.0, us))
    sizes = sorted(by_size)
    means = [float(np.mean(by_size[size].get("full") or by_size[size]["piecewise"])) * 1e3 for size in sizes]
    top = min(largest, sizes[-1])
    at = np.unique(np.concatenate([*(points for points, _ in terms.values()), [top, top + 1]]))
    left = np.where(at <= top, np.interp(at, sizes, means), 0.0)
    for name in ("elementwise", "linears"):
        ns = np.interp(at, *terms[name])
        taken = np.minimum(left, ns / 2.0)
        terms[name], left = (at, ns - taken), left - taken
