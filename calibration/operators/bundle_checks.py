"""Is a bundle of kernel times what it says: the right model, and a unit in which no memory is faster than any there is?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.operators.number_table import NumberTable
from scenarios.errors import InputError
from scenarios.models import ModelSpec

SLOWEST, FASTEST = 5e9, 60e12
"""Bytes/s of reading weights or KV: from below a CPU's memory to above what any cache of today gives."""

PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_CALLED = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def check_shape(path: Path, meta: Mapping[str, Any], model: ModelSpec, degrees: Sequence[int]) -> None:
    """The shape that `meta.yaml` states is this model's, whole or as one rank of a measured degree holds it.

    Raises:
        InputError: it is another model's.
    """
    effective = meta.get("engine_effective")
    stated = effective.get("hf_overrides") if isinstance(effective, Mapping) else None
    if not isinstance(stated, Mapping):
        named = str(meta.get("model", "")).rstrip("/").rsplit("/", 1)[-1].lower()
        if not named.startswith(model.name.lower()):
            raise InputError(f"{path}: model: found {meta.get('model', 'none')!r}, but {model.name} is asked for")
        return
    closest: list[str] = []
    for degree in sorted({1, *degrees}):
        wrong = _differences(stated, model, degree)
        if not wrong:
            return
        if not closest or len(wrong) < len(closest):
            closest = wrong
    raise InputError(
        f"{path}: engine_effective.hf_overrides: {'; '.join(closest)}: the bundle is of {meta.get('model', 'another model')}, "
        f"not of {model.name}; name its model"
    )


def states_rank(meta: Mapping[str, Any], model: ModelSpec, degree: int) -> bool:
    """Whether the stated shape is what one rank of this degree holds of the model."""
    effective = meta.get("engine_effective")
    stated = effective.get("hf_overrides") if isinstance(effective, Mapping) else None
    return isinstance(stated, Mapping) and not _differences(stated, model, degree)


def _differences(stated: Mapping[str, Any], model: ModelSpec, degree: int) -> list[str]:
    whole = {
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "vocab_size": model.vocab_size,
    }
    if not model.num_experts:
        whole["intermediate_size"] = model.intermediate_size
    wrong = []
    for name, size in whole.items():
        share = -(-size // degree)
        if name in stated and stated[name] != share:
            wrong.append(f"{name} is {stated[name]}, but {model.name} has {size}")
    if bool(stated.get("num_experts", 0)) != bool(model.num_experts) and "num_experts" in stated:
        wrong.append(f"num_experts is {stated['num_experts']}, but {model.name} has {model.num_experts}")
    return wrong


def check_bandwidth(model: ModelSpec, size: int, dense: NumberTable, head: NumberTable, attention: NumberTable) -> None:
    """Times in another unit are a thousand times off: then weights or KV were read faster or slower than anything can.

    Raises:
        InputError: a time that no memory allows, with the unit that it may be in.
    """
    feed = 3 * model.intermediate_size if not model.num_experts else 0
    layer = {
        "qkv_proj": model.hidden_size * (model.q_size + 2 * model.kv_size),
        "o_proj": model.hidden_size * model.q_size,
        "gate_up_proj": model.hidden_size * feed * 2 // 3,
        "down_proj": model.hidden_size * feed // 3,
        "lm_head": model.hidden_size * model.vocab_size,
    }
    for table, at in ((dense, "tokens"), (head, "sequences")):
        for name, values in layer.items():
            rows = [i for i, layer_name in enumerate(table.words["layer"]) if layer_name == name]
            if rows and values:
                first = min(rows, key=lambda i: table.numbers[at][i])
                check_rate(table, first, "time_us", "us", float(values) / size, f"{name} reads weights")
    alone = attention.numbers["prefill_chunk"] == 0
    tokens = np.where(alone, attention.numbers["n_decode"] * attention.numbers["kv_decode"], 0.0)
    if tokens.any():
        row = int(np.argmax(tokens))
        per_token = 2.0 * max(1, model.num_kv_heads // size) * model.head_dim
        check_rate(attention, row, "time_us", "us", float(tokens[row]) * per_token, "decodes read keys and values")


def check_rate(table: NumberTable, row: int, column: str, unit: str, values: float, what: str) -> None:
    """Whether `values` numbers can be read in the time that stands in a column. One byte a number is the least, four are the most.

    Raises:
        InputError: no memory does, with the unit that the times may be in.
    """
    found = float(table.numbers[column][row])
    seconds = found / PER_SECOND[unit]
    low, high = values / seconds, 4 * values / seconds
    if high >= SLOWEST and low <= FASTEST:
        return
    factor = 1e3 if low > FASTEST else 1e-3
    if low > FASTEST * 1e3:
        factor = 1e6
    meant = next((name for name, per in PER_SECOND.items() if np.isclose(per * factor, PER_SECOND[unit])), None)
    remedy = f"are the times in {_CALLED[meant]}? Then multiply by {factor:g}" if meant else "is it another model's?"
    raise table.refused(
        row, f"{column}: found {found:g}: {what} at {low / 1e9:,.3g} GB/s or more, which no device does; {remedy}"
    )
