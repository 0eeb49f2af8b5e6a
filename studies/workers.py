"""Work side by side in processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Place and result of every item, as each is done. workers: processes, or all processors; 1: in this process.

    function: of a module, so that other processes find it.
    """
    count = min(workers or processors(), len(items))
    if count <= 1:
        for i, item in enumerate(items):
            yield i, function(item)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=count, return_as="generator_unordered", batch_size=1, pre_dispatch="2 * n_jobs")
    yield from parallel(delayed(_numbered)(function, i, item) for i, item in enumerate(items))


def _numbered(function: Callable[[Item], Result], i: int, item: Item) -> tuple[int, Result]:
    return i, function(item)
