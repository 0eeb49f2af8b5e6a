"""Several workloads as one: requests of all parts in the order in which they are sent, texts of different parts apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError
from scenarios.history import row_of
from scenarios.workload import Workload

Ints = NDArray[np.int64]

# Every field of a workload is one of these.
OF_REQUESTS = ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "think_ns")
WHERE_KNOWN = {"service_class": 0, "predicted_tokens": 0, "ttft_ns": -1, "difficulty": 0.0}
"""Columns that a part may lack, and what they then would hold."""
OF_SEGMENTS = ("segment_offset", "segment_keys", "segment_tokens", "segment_role")
RENUMBERED = ("tenant", "session", "follows", "joins")
OF_THE_WHOLE = ("tenants", "classes", "class_slo", "concurrency", "source", "tries", "changes")


def in_order(parts: Sequence[Workload]) -> list[Ints]:
    """For every part, the rows that its requests have in the whole: by the time at which their conversation starts, then by
    part. What is sent only in the run (arrival -1) stays behind the request before it."""
    starts = []
    for part in parts:
        known = part.arrival_ns >= 0
        opening = np.maximum.accumulate(np.where(known, np.arange(len(part)), 0))
        starts.append(part.arrival_ns[opening])
    order = np.argsort(np.concatenate(starts), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return np.split(place, np.cumsum([len(part) for part in parts])[:-1])


def merged(parts: Sequence[Workload], rows: Sequence[Ints], labels: Sequence[str]) -> Workload:
    """The parts as one workload.

    rows: for every part, the row of each of its requests in the whole, rising. labels: for every part, what the names of its
    texts begin with, so that equal names in two parts are different texts; "" leaves them as they are.

    Raises:
        InputError: a class has other limits in another part.
    """
    n = sum(map(len, parts))

    def joined(columns: Iterable[NDArray[Any]]) -> NDArray[Any]:
        columns = list(columns)
        whole = np.empty(n, dtype=np.result_type(*columns))
        for place, column in zip(rows, columns, strict=True):
            whole[place] = column
        return whole

    found: dict[str, Any] = {name: joined(getattr(part, name) for part in parts) for name in OF_REQUESTS}
    for name, absent in WHERE_KNOWN.items():
        columns = [getattr(part, name) for part in parts]
        if any(column is not None for column in columns):
            found[name] = joined(
                np.full(len(part), absent) if column is None else column
                for part, column in zip(parts, columns, strict=True)
            )
    tenants = tuple(dict.fromkeys(name for part in parts for name in part.tenants))
    classes = tuple(dict.fromkeys(name for part in parts for name in part.classes))
    found["tenant"] = joined(_codes(part.tenants, tenants)[part.tenant] for part in parts)
    if "service_class" in found:
        coded = (np.zeros(len(p), dtype=np.int64) if p.service_class is None else p.service_class for p in parts)
        found["service_class"] = joined(
            _codes(part.classes, classes)[code] for part, code in zip(parts, coded, strict=True)
        )
    before = np.cumsum([0, *(int(part.session.max(initial=-1)) + 1 for part in parts)])
    found["session"] = joined(
        np.where(p.session < 0, -1, p.session + k) for p, k in zip(parts, before[:-1], strict=True)
    )
    found["follows"] = joined(np.where(p.follows < 0, -1, to[p.follows]) for p, to in zip(parts, rows, strict=True))
    joins = [place[part.joins] for part, place in zip(parts, rows, strict=True) if part.joins is not None]
    if joins:
        found["joins"] = np.concatenate(joins)
    if any(part.segment_offset is not None for part in parts):
        found |= _segments(parts, rows, labels, n)
    loops = {part.concurrency for part in parts}
    if len(loops) > 1:
        raise InputError("workload.mix: parts with and without closed_loop arrivals cannot be merged")
    return Workload(
        **found,
        tenants=tenants,
        classes=classes,
        class_slo=_limits(parts, classes),
        concurrency=loops.pop(),
        source="; ".join(dict.fromkeys(part.source for part in parts if part.source)),
        tries=max(part.tries for part in parts),
        changes=tuple(change for part in parts for change in part.changes),
    )


def _codes(names: Sequence[str], among: Sequence[str]) -> Ints:
    return np.array([among.index(name) for name in names], dtype=np.int64)


def _limits(parts: Sequence[Workload], classes: Sequence[str]) -> tuple[Mapping[str, float | None] | None, ...]:
    found: dict[str, Mapping[str, float | None] | None] = {}
    for part in parts:
        for name, limits in zip(part.classes, part.class_slo or [None] * len(part.classes), strict=True):
            if found.setdefault(name, limits) != limits:
                raise InputError(f"workload.mix: class {name} has different limits in two parts")
    return tuple(found[name] for name in classes) if any(limits is not None for limits in found.values()) else ()


def _segments(parts: Sequence[Workload], rows: Sequence[Ints], labels: Sequence[str], n: int) -> dict[str, Any]:
    """Segments of all parts, in the order of the whole's rows."""
    counts = np.ones(n, dtype=np.int64)
    for part, place in zip(parts, rows, strict=True):
        if part.segment_offset is not None:
            counts[place] = np.diff(part.segment_offset)
    offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    keys = np.empty(offset[-1], dtype=object)
    tokens = np.empty(offset[-1], dtype=np.int64)
    role = np.zeros(offset[-1], dtype=np.int8)
    for part, place, label in zip(parts, rows, labels, strict=True):
        width = counts[place]
        inside = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
        at = np.repeat(offset[place], width) + inside
        names: Sequence[Hashable] = range(len(part)) if part.segment_offset is None else part.segment_keys
        keys[at] = _renamed(names, place, label)
        tokens[at] = part.prompt_tokens if part.segment_tokens is None else part.segment_tokens
        if part.segment_role is not None:
            role[at] = part.segment_role
    known = any(part.segment_role is not None for part in parts)
    return {
        "segment_offset": offset,
        "segment_keys": keys.tolist(),
        "segment_tokens": tokens,
        "segment_role": role if known else None,
    }


def _renamed(keys: Sequence[Hashable], place: Ints, label: str) -> NDArray[np.object_]:
    """Keys of one part in the whole. `out:3` is the answer of the part's request 3 (`ret:3` and `fin:3` what comes back of it), which
    has another row there."""
    known: dict[Hashable, Hashable] = {}
    renamed = np.empty(len(keys), dtype=object)
    for i, key in enumerate(keys):
        name = known.get(key)
        if name is None:
            if (row := row_of(key)) is not None:
                name = f"{str(key).partition(':')[0]}:{place[row]}"
            else:
                own = key if isinstance(key, str) else f"p{key}"
                name = f"{label}/{own}" if label else own
            known[key] = name
        renamed[i] = name
    return renamed
