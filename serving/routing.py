"""Routers: which replica takes a request. They see what a front end could see: the request, and who is still being served.

To add one: write a class here and name it in `ROUTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from serving.request import Request


class ReplicaState(Protocol):
    """What a router may read of a replica, as of the instant of the decision."""

    @property
    def outstanding(self) -> int:
        """Requests sent there that have not ended."""


class Router(Protocol):
    """`reads_state`: whether `choose` looks at the replicas' state, which must then be brought up to date first."""

    reads_state: bool

    def choose(self, request: Request, replicas: Sequence[ReplicaState]) -> int:
        """Index of the replica that takes `request`."""


class RoundRobin:
    reads_state = False

    def __init__(self) -> None:
        self.next = 0

    def choose(self, request: Request, replicas: Sequence[ReplicaState]) -> int:
        chosen = self.next % len(replicas)
        self.next = chosen + 1
        return chosen


class LeastRequests:
    """Fewest outstanding requests; the first of equals."""

    reads_state = True

    def choose(self, request: Request, replicas: Sequence[ReplicaState]) -> int:
        return min(range(len(replicas)), key=lambda i: replicas[i].outstanding)


ROUTERS: dict[str, Callable[[], Router]] = {
    "round_robin": RoundRobin,
    "least_requests": LeastRequests,
}
