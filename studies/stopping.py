"""How a command ends that is told to stop, by Ctrl-C or SIGTERM: at once, without a traceback, and with all of its processes."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143
"""Exit codes, as shells know them."""


@contextmanager
def quietly() -> Iterator[None]:
    """Ctrl-C within ends this process without a word: for imports, of which there is nothing to clean up and no use in a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def clean_on_termination() -> None:
    """SIGTERM becomes `SystemExit`, so that what is cleaned up after Ctrl-C is cleaned up then too."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the second one would end the cleaning up
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, stop)


@contextmanager
def spared() -> Iterator[None]:
    """Processes started within never see Ctrl-C, not even while they import: it is for their parent, which ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # begun within, by the first process, it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
