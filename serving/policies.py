"""Queue orders: who is served next, and who loses its blocks first.

To add one: write its functions here and put an `Order` into `ORDERS`; scenarios find it by that name.
Keys may look at everything a client declares and at what the engine has done so far, never at true answer lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from serving.request import Request


@dataclass(frozen=True)
class Order:
    """How waiting requests are sorted and how a victim is chosen among the running ones.

    key: smallest is served first; fixed while a request waits. None means order of arrival, where a preempted
        request goes back to the front.
    victim: the running request (in admission order) that is preempted when blocks run out.
    """

    key: Callable[[Request], Any] | None
    victim: Callable[[Sequence[Request]], Request]


def last_admitted(running: Sequence[Request]) -> Request:
    return running[-1]


def by_priority(request: Request) -> tuple[int, float, int]:
    return (request.priority, request.arrival_order, request.index)


def worst_priority(running: Sequence[Request]) -> Request:
    """The worst (priority, arrival); among equals the earliest in running order, as `max` returns it."""
    return max(running, key=lambda request: (request.priority, request.arrival_order))


ORDERS: dict[str, Order] = {
    "fcfs": Order(key=None, victim=last_admitted),
    "priority": Order(key=by_priority, victim=worst_priority),
}
