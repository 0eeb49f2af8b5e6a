"""A dask.distributed scheduler and its workers, in processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import cli

PATIENCE = 120.0
SETTINGS = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",  # how long a result is asked of a worker that has just died
}
ROOT = Path(cli.__file__).resolve().parent


class Processes:
    """address: of the scheduler. workers: those that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen] = []
        file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
        self._until(lambda: file.is_file() and file.read_text().endswith("}"))
        self.address = json.loads(file.read_text())["address"]

    def work(self, count: int) -> list[subprocess.Popen]:
        """So many workers that are alive and registered; others are started."""
        alive = [worker for worker in self.workers if worker.poll() is None]
        new = [
            self._start("worker", self.address, "--no-nanny", "--nthreads", "1", "--memory-limit", "0")
            for _ in range(count - len(alive))
        ]
        self.workers += new
        from distributed import Client

        with Client(self.address, timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=PATIENCE)
        return alive + new

    def _start(self, what: str, *options: str) -> subprocess.Popen:
        # Their working directory is not the one where sweeps are started.
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", "--host", "127.0.0.1", *options],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), **SETTINGS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _until(self, condition) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "the scheduler does not start"
            time.sleep(0.05)

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
        for process in (*self.workers, self.scheduler):
            process.wait()


@contextmanager
def processes(folder: Path):
    found = Processes(folder)
    try:
        yield found
    finally:
        found.end()


def dies(_: int) -> None:
    """Ends the worker that it is given to."""
    os._exit(1)


def waits(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def home(_: int) -> str:
    return os.getcwd()
