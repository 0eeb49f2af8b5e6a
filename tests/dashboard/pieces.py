"""Work for tests of `dashboard.jobs`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from scenarios import InputError


def double(tell: Any, number: int) -> int:
    tell("doubling", 0.5)
    tell.partial(number)
    return 2 * number


def noted(tell: Any, file: str) -> int:
    """Writes down that it was done; its process."""
    with Path(file).open("a") as out:
        out.write("done\n")
    return os.getpid()


def lasting(tell: Any, file: str) -> None:
    """Tells its process, then goes on for a minute."""
    Path(file).write_text(str(os.getpid()))
    tell("lasting", 0.1)
    time.sleep(60)


def refused(tell: Any) -> None:
    raise InputError("replicas: found 0, at least 1 is needed")


def broken(tell: Any) -> None:
    raise RuntimeError("a defect")


def dying(tell: Any) -> None:
    os._exit(9)


def talking(tell: Any) -> str:
    print("what a library prints")
    os.write(1, b"and what is written past Python")
    return "said"


def large(tell: Any, megabytes: int) -> bytes:
    return bytes(megabytes << 20)
