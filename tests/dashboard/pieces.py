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


class Unreadable:
    """Of the kind that is written and cannot be read again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def unreadable(tell: Any) -> Any:
    return bytes(200_000), Unreadable()


def unwritable(tell: Any) -> Any:
    return [bytes(200_000), lambda: None]


def endless(tell: Any) -> int:
    return 1 + endless(tell)


def flooding(tell: Any, count: int) -> int:
    for number in range(count):
        tell.partial(bytes(1000) + bytes([number % 256]))
    return count


def length(tell: Any, given: bytes) -> int:
    return len(given)
