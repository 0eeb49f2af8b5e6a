"""Work side by side in processes of this machine. A process that is killed loses what it was doing only, which is done again."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from scenarios.errors import InputError
from studies import stopping

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_DEATHS = 3
"""Processes that may die over one item."""
IDLE = 300.0
"""Seconds that an idle process is kept: starting one takes longer than many a simulation."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_is_worker = False


@dataclass(frozen=True)
class Lost:
    """What comes instead of a result: every process that worked on the item died. why: a sentence."""

    why: str


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Place and result of every item, as each is done. workers: processes, or all processors; 1: in this process.

    function: of a module, so that other processes find it. Within a worker there are no others: one after another, in order.

    Raises:
        InputError: an item is lost, see `outcomes`.
    """
    for i, result in outcomes(function, items, workers):
        if isinstance(result, Lost):
            raise InputError(result.why)
        yield i, result


def outcomes(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None
) -> Iterator[tuple[int, Result | Lost]]:
    """Like `each`, but an item over which processes die again and again gives `Lost` and the others go on."""
    count = min(workers or processors(), len(items))
    if count <= 1 or _is_worker:
        for i, item in enumerate(items):
            yield i, function(item)
        return
    waiting = deque(range(len(items)))
    try:
        while waiting:
            # Which of those that were under way has killed its process cannot be told: each is tried again alone.
            for i in (yield from _together(function, items, waiting, count)):
                yield i, _alone(function, items[i])
    except BaseException:  # an error, Ctrl-C, or a reader that has seen enough: nobody waits for the rest
        _executor(count).shutdown(wait=True, kill_workers=True)
        raise


def _together(
    function: Callable[[Item], Result], items: Sequence[Item], waiting: deque[int], count: int
) -> Generator[tuple[int, Result], None, list[int]]:
    """Takes from `waiting` until nothing is left or a process dies. Returns the places that were under way then."""
    executor = _executor(count)
    running: dict[Future[Result], int] = {}
    lost: list[int] = []
    try:
        while running or (waiting and not lost):
            try:
                # One ahead for every process, so that none waits for this one.
                while waiting and not lost and len(running) < 2 * count:
                    with stopping.spared():
                        future = executor.submit(_there, os.getcwd(), function, items[waiting[0]])
                    running[future] = waiting[0]
                    waiting.popleft()
            except BrokenProcessPool:
                if not running:  # it broke before it was asked
                    executor = _executor(count)
                    continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                place = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(place)
                else:
                    yield place, future.result()
    except BaseException:
        _handed_on(running)
        raise
    return sorted(lost)


def _handed_on(futures: Iterable[Future[Any]]) -> None:
    """Waits until all of these are with the processes: a pool that is shut down before forgets them, and its thread then fails for want of
    them (a KeyError in `add_call_item_to_queue`, joblib 1.6)."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until and not all(future.running() or future.done() for future in futures):
        time.sleep(0.001)


def _alone(function: Callable[[Item], Result], item: Item) -> Result | Lost:
    """One item in a process of its own; the first of its deaths has been seen."""
    for _ in range(MOST_DEATHS - 1):
        try:
            executor = _executor(1)
            with stopping.spared():
                future: Future[Result] = executor.submit(_there, os.getcwd(), function, item)
            return future.result()
        except BrokenProcessPool as error:
            how = _ending(error)
    return Lost(f"its process was killed {MOST_DEATHS} times{how}; was there too little memory?")


def _there(folder: str, function: Callable[[Item], Result], item: Item) -> Result:
    """What a process does with an item: in the working directory of who asks, which may not be that of who began it."""
    if os.getcwd() != folder:
        os.chdir(folder)
    return function(item)


def _ending(error: BaseException) -> str:
    """How a process ended, where it is told: ` (SIGKILL)`."""
    _, found, rest = str(error).partition("exit codes of the workers are {")
    return f" ({rest.partition('(')[0]})" if found else ""


def _executor(count: int) -> Any:
    """The pool of so many processes: the one that is there, or a new one where that is broken."""
    from joblib.externals.loky import get_reusable_executor

    # A process that has grown is replaced by a new one between two items. Nothing is lost by it, and nobody need know.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor", UserWarning)
    with stopping.spared():
        return get_reusable_executor(
            max_workers=count, timeout=IDLE, initializer=_begin, initargs=(os.getpid(),), env=_ONE_THREAD
        )


def _begin(parent: int) -> None:
    """What a new process does first."""
    global _is_worker
    _is_worker = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()


def end_with(parent: int) -> None:
    """Ends this process when its parent is gone, however that was killed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
