"""Work side by side on many machines: the workers of a dask.distributed scheduler that somebody else started.

One machine runs `dask scheduler`, every machine `dask worker tcp://host:8786 --nthreads 1 --nworkers auto`, in an environment with
the same servetwin. A worker that dies loses what it was doing only: the scheduler gives that to another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from scenarios.errors import InputError
from studies.provenance import environment
from studies.workers import Lost

if TYPE_CHECKING:
    from distributed import Client, Future

    from studies.sweeps.cells import Cell

Item = TypeVar("Item")
Result = TypeVar("Result")

ANSWER = 10.0
"""Seconds that a scheduler has to answer."""
PATIENCE = 60.0
"""Seconds that it may be without a worker."""
LOOK = 2.0
"""Seconds without a result after which it is looked whether there are workers at all."""
LEAST_AHEAD = 64
"""Items that are handed out before any is done, at least: what a scheduler holds costs it memory, a worker that waits costs time."""

_one_at_a_time = threading.Lock()


def each(
    function: Callable[[Item], Result], items: Sequence[Item], scheduler: str
) -> Iterator[tuple[int, Result | Lost]]:
    """Place and result of every item, as each is done, like `studies.workers.outcomes`. scheduler: its address, `tcp://host:8786`.

    function: of a module that workers have; it runs once at a time in a process, in the working directory of this one where the
    worker has it too.

    Raises:
        InputError: nobody answers, no worker is there or left, or a worker is not like this process.
    """
    if not items:
        return
    with _connected(scheduler) as client:
        _check_workers(client, scheduler)
        yield from _as_done(client, functools.partial(_there, function, os.getcwd(), environment()), items, scheduler)


def check_same(cell: Cell, key: str) -> None:
    """Raises InputError if a cell is another one on this machine than where its key comes from: a file differs, or is missing."""
    try:
        if cell.key() == key:
            return
        why = f"the cell of {cell.point}, seed {cell.seed}, names a file that has other content on a worker"
    except InputError as error:
        why = f"{error} (on a worker)"
    raise InputError(f"{why}. Files that a study names must lie at the same place on every worker")


def _there(function: Callable[[Item], Result], home: str, wanted: dict[str, str], item: Item) -> Result:
    """What a worker does. Threads of one process would take turns anyway, and share a working directory."""
    if (differs := _difference(wanted, environment())) is not None:
        raise InputError(differs)
    with _one_at_a_time, contextlib.chdir(home) if Path(home).is_dir() else contextlib.nullcontext():
        return function(item)


def _as_done(
    client: Client, function: Callable[[Item], Result], items: Sequence[Item], scheduler: str
) -> Iterator[tuple[int, Result | Lost]]:
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    running: dict[int, Future[Any]] = {}
    waiting = iter(enumerate(items))

    def hand_out(count: int) -> None:
        for place, item in (pair for _, pair in zip(range(count), waiting, strict=False)):
            running[place] = client.submit(function, item, pure=False, priority=-place)
            running[place].add_done_callback(lambda _, place=place: done.put(place))

    hand_out(max(LEAST_AHEAD, 4 * sum(client.nthreads().values())))
    seen = time.monotonic()
    try:
        while running:
            try:
                place = done.get(timeout=LOOK)
                result = _result(running[place], scheduler)
            except queue.Empty:
                seen = _watched(client, scheduler, seen)
                continue
            except TimeoutError:  # it was kept by a worker that has died since: it is computed again
                running[place].add_done_callback(lambda _, place=place: done.put(place))
                seen = _watched(client, scheduler, seen)
                continue
            del running[place]
            yield place, result
            seen = time.monotonic()
            hand_out(1)
    finally:
        with contextlib.suppress(Exception):  # whatever broke the work is told, not that nobody is left to cancel it
            client.cancel(list(running.values()), force=True)


def _result(future: Future[Any], scheduler: str) -> Any:
    """What a worker found.

    Raises:
        TimeoutError: it is not there any more. InputError: the scheduler is gone, or the worker is not like this process.
    """
    from distributed import CancelledError, KilledWorker
    from distributed.comm.core import CommClosedError

    try:
        return future.result(timeout=LOOK)
    except CancelledError:
        raise _gone(scheduler) from None
    except CommClosedError as error:
        raise TimeoutError from error
    except KilledWorker as error:
        return Lost(f"its worker died, {error.allowed_failures + 1} times; was there too little memory?")
    except InputError as error:
        raise InputError(f"--scheduler {scheduler}: {error}") from None


def _watched(client: Client, scheduler: str, seen: float) -> float:
    """When there was last a worker, in seconds of the monotonic clock.

    Raises:
        InputError: there is no scheduler, or has been no worker for long.
    """
    from distributed.comm.core import CommClosedError

    patient = time.monotonic() - seen <= PATIENCE
    try:
        if client.status == "running" and client.nthreads():
            return time.monotonic()
        there = client.status == "running"
    except CommClosedError:
        there = False
    if not there:
        if client.status == "closed" or not patient:
            raise _gone(scheduler)
        return seen
    if not patient:
        raise InputError(
            f"--scheduler {scheduler}: no worker is left; what is finished stays. Start some, and give the same command again"
        )
    return seen


def _gone(scheduler: str) -> InputError:
    return InputError(
        f"--scheduler {scheduler}: it has gone away; what is finished stays. Start it again, and give the same command"
    )


@contextlib.contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "--scheduler: needs dask.distributed, which is not installed: pip install 'servetwin[cluster]'"
        ) from None
    with _quiet():
        _check_answers(scheduler)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # versions are compared below
                client = Client(scheduler, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--scheduler {scheduler}: no dask scheduler answers there ({error})") from None
        try:
            yield client
        finally:
            client.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What distributed logs of a scheduler that is gone is said here, in one sentence."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _check_answers(scheduler: str) -> None:
    """Raises InputError unless a scheduler answers at the address: a client that finds none tries for ever, and is hard to get rid of."""
    from distributed.comm.addressing import get_address_host_port, normalize_address

    try:
        get_address_host_port(normalize_address(scheduler), strict=True)
    except (ValueError, TypeError):
        raise InputError(
            f"--scheduler: found {scheduler!r}, but an address is needed, such as tcp://host:8786"
        ) from None
    try:
        with ThreadPoolExecutor(1) as pool:  # a notebook's own event loop may run in this thread
            found = pool.submit(lambda: asyncio.run(_identity(scheduler))).result()
    except Exception as error:
        why = f"tried for {ANSWER:g} s" if isinstance(error, TimeoutError) else error.__cause__ or error
        raise InputError(
            f"--scheduler {scheduler}: no dask scheduler answers there ({why}); start one with: dask scheduler"
        ) from None
    if (kind := found.get("type")) != "Scheduler":
        raise InputError(f"--scheduler {scheduler}: a {str(kind).lower()} answers there, not a scheduler")


async def _identity(address: str) -> dict[str, Any]:
    from distributed.core import rpc

    async with rpc(address, timeout=ANSWER) as there:
        found: dict[str, Any] = await asyncio.wait_for(there.identity(), ANSWER)
    return found


def _check_workers(client: Client, scheduler: str) -> None:
    """Raises InputError unless there are workers, all like this process."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise InputError(
            f"--scheduler {scheduler}: it has no workers; start some with: dask worker {scheduler} --nthreads 1"
        ) from None
    for address, found in sorted(client.run(environment, on_error="return").items()):
        if isinstance(found, ImportError):
            raise InputError(f"--scheduler {scheduler}: worker {address} has no servetwin ({found}); install it there")
        if isinstance(found, BaseException):
            continue  # it has just died
        if (differs := _difference(environment(), found)) is not None:
            raise InputError(f"--scheduler {scheduler}: worker {address}: {differs}")


def _difference(here: dict[str, str], there: dict[str, str]) -> str | None:
    """In which package two environments differ so that figures could, in words. Of Python its patch level cannot: but
    3.12 sums floats otherwise than 3.11."""
    for name in ("servetwin", "source", "python", "numpy"):
        wanted, found = here[name], there[name]
        if name == "python":
            wanted, found = (text.rpartition(".")[0] for text in (wanted, found))
        if wanted != found and name == "source":
            return "its code of servetwin is not that of where the sweep was started; install the same on every machine"
        if wanted != found:
            return f"it has {name} {found}, but the sweep was started with {wanted}; install the same on every machine"
    return None
