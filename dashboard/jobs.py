"""Work away from the pages: in processes that are kept warm, with progress, partial results and an end at any time."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

MOST = 3
"""Processes: one more than a small machine has processors, so that a change need not wait for what it makes superfluous."""
GRACE = 1.0
"""Seconds that superfluous work may go on: most is done by then, and is kept for whoever comes back to it."""
KEPT = 1 << 30
"""Bytes of results that are kept."""


@dataclass
class Job:
    """One piece of work. state: `waiting`, `running`, then `done`, `refused` (a sentence in `error`), `failed` (a defect: its
    traceback in `error`) or `cancelled`."""

    key: Hashable
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    state: str = "waiting"
    what: str = ""
    share: float = 0.0
    partial: Any = None
    partials: int = 0
    result: Any = None
    error: str = ""
    size: int = 0
    wanted_by: set[Hashable] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    @property
    def ended(self) -> bool:
        return self.state not in ("waiting", "running")

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after so many seconds at the latest."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended, seconds)
        return self.ended


class Jobs:
    """Pieces of work by key: who asks for one that is there, done or not, gets that one.

    alive: whether somebody who asked is still there; what nobody waits for any more is ended.
    """

    def __init__(self, most: int = MOST, alive: Callable[[Hashable], bool] = lambda _: True) -> None:
        self._most, self._alive = most, alive
        self._lock = threading.RLock()
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._queue: deque[Job] = deque()
        self._idle: list[_Worker] = []
        self._busy: dict[int, tuple[_Worker, Job]] = {}
        self._closed = False
        atexit.register(self.close)
        threading.Thread(target=self._watch, daemon=True).start()

    def warm(self, count: int = 2) -> None:
        """Starts processes before they are needed."""
        with self._lock:
            while len(self._idle) + len(self._busy) < min(count, self._most):
                self._idle.append(_Worker(self._heard, self._died))

    def ask(self, who: Hashable, key: Hashable, function: Callable[..., Any], *arguments: Any) -> Job:
        """The job of this key, begun if need be. who: asks for it, and no longer for what it asked before.

        function: of a module that needs no Streamlit; called with a `dashboard.worker.Tell` first.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.state == "cancelled":
                job = self._jobs[key] = Job(key, function, arguments)
                self._queue.append(job)
            self._jobs.move_to_end(key)
            job.wanted_by.add(who)
            for other in list(self._jobs.values()):
                if other is not job and who in other.wanted_by:
                    self._leave(other, who)
            self._next()
            return job

    def cancel(self, job: Job) -> None:
        """Ends it for everybody."""
        with self._lock:
            if job.ended:
                return
            if job in self._queue:
                self._queue.remove(job)
            for number, (worker, running) in list(self._busy.items()):
                if running is job:
                    del self._busy[number]
                    worker.kill()
            self._end(job, "cancelled")
            self._next()

    def close(self) -> None:
        """Ends all processes."""
        with self._lock:
            self._closed = True
            for worker in [*self._idle, *(worker for worker, _ in self._busy.values())]:
                worker.kill()
            self._idle.clear()
            self._busy.clear()

    def _leave(self, job: Job, who: Hashable) -> None:
        job.wanted_by.discard(who)
        if not job.wanted_by and job.state == "refused":  # for want of a file, say, that may come
            if self._jobs.get(job.key) is job:
                del self._jobs[job.key]
        elif not job.wanted_by and not job.ended:
            timer = threading.Timer(GRACE, self._give_up, (job,))
            timer.daemon = True
            timer.start()

    def _give_up(self, job: Job) -> None:
        with self._lock:
            if not job.wanted_by:
                self.cancel(job)

    def _next(self) -> None:
        """Gives work to processes while there is some of both; what nobody wants any more makes room."""
        while self._queue and not self._closed:
            if self._idle:
                worker = self._idle.pop()
            elif len(self._busy) < self._most:
                worker = _Worker(self._heard, self._died)
            else:
                unwanted = [job for _, job in self._busy.values() if not job.wanted_by]
                if not unwanted:
                    return
                self.cancel(unwanted[0])
                return  # which came here again
            job = self._queue.popleft()
            job.state = "running"
            self._busy[worker.number] = (worker, job)
            worker.give(job.function, job.arguments)
            job.arguments = ()  # a result may be among them, which would be kept as long as this one
        if not self._closed and not self._idle and len(self._busy) < self._most:
            self._idle.append(_Worker(self._heard, self._died))  # for the next change

    def _heard(self, worker: _Worker, kind: str, content: Any, size: int) -> None:
        with self._lock:
            if kind == "ready" or worker.number not in self._busy:
                return
            job = self._busy[worker.number][1]
            if kind == "progress":
                job.what, job.share = content
            elif kind == "partial":
                job.partial, job.partials = content, job.partials + 1
            else:
                del self._busy[worker.number]
                self._idle.append(worker)
                job.size = size
                if kind == "result":
                    job.result = content
                    self._end(job, "done")
                else:
                    job.error = content
                    self._end(job, kind)
                self._next()
            with job.changed:
                job.changed.notify_all()

    def _died(self, worker: _Worker, defect: str) -> None:
        """defect: why no answer came of it, of a process that was not killed."""
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
            if worker.number in self._busy:
                _, job = self._busy.pop(worker.number)
                job.error = defect or "its process was killed; was there too little memory? Ask for fewer requests"
                self._end(job, "failed" if defect else "refused")
                self._jobs.pop(job.key, None)  # memory may be there when it is asked again
                self._next()

    def _end(self, job: Job, state: str) -> None:
        job.state = state
        job.partial = None
        with job.changed:
            job.changed.notify_all()
        if state in ("cancelled", "failed"):
            self._jobs.pop(job.key, None)
        self._forget()

    def _forget(self) -> None:
        """Lets the results go that were asked for longest ago, until the rest is not too large."""
        total = sum(job.size for job in self._jobs.values())
        for key, job in list(self._jobs.items()):
            if total <= KEPT:
                return
            if job.ended and not job.wanted_by:
                total -= job.size
                del self._jobs[key]

    def _watch(self) -> None:
        while not self._closed:
            time.sleep(2.0)
            with self._lock:
                for job in list(self._jobs.values()):
                    for who in [who for who in job.wanted_by if not self._alive(who)]:
                        self._leave(job, who)


class _Worker:
    """A process, and a thread that listens to it."""

    _numbers = iter(range(1 << 62))

    def __init__(self, heard: Callable[[_Worker, str, Any, int], None], died: Callable[[_Worker, str], None]) -> None:
        self.number = next(self._numbers)
        self._heard, self._died = heard, died
        self._defect = ""
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        # A process that is ended leaves semaphores, which are cleaned up; nobody need be told.
        environment["PYTHONWARNINGS"] = ",".join(
            filter(None, (os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker:UserWarning"))
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dashboard.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0,  # Ctrl-C on the terminal is for the server, which ends its workers
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def give(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Hands work over without waiting: a process that starts takes nothing yet, and a run is larger than a pipe."""
        threading.Thread(target=self._hand_over, args=(function, arguments), daemon=True).start()

    def _hand_over(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL))
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has died, which its listener tells
        except Exception:
            self._defect = traceback.format_exc()
            self.kill()

    def kill(self) -> None:
        self._process.kill()

    def _listen(self) -> None:
        counted = _Counted(self._process.stdout)
        while True:
            try:
                kind, content = pickle.load(counted)
            except (EOFError, pickle.UnpicklingError, OSError):
                break
            except Exception:  # an answer that cannot be read, nor what comes behind it
                self._defect = traceback.format_exc()
                break
            self._heard(self, kind, content, counted.taken())
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._died(self, self._defect)


class _Counted:
    """A stream that knows how many bytes were read of it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._bytes = stream, 0

    def read(self, n: int = -1) -> bytes:
        found: bytes = self._stream.read(n)
        self._bytes += len(found)
        return found

    def readline(self) -> bytes:
        found: bytes = self._stream.readline()
        self._bytes += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        n: int = self._stream.readinto(buffer)
        self._bytes += n
        return n

    def taken(self) -> int:
        """Bytes since it was asked last."""
        n, self._bytes = self._bytes, 0
        return n
