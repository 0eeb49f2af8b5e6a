"""Who waits for an engine, in which order."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any

from serving.request import Request


class WaitingQueue:
    """Waiting requests in order of arrival (preempted ones first), or sorted by a key."""

    def __init__(self, key: Callable[[Request], Any] | None) -> None:
        self.key = key
        self.requests: list[Request] = []

    def add(self, request: Request) -> None:
        if self.key is None:
            self.requests.append(request)
        else:
            insort(self.requests, request, key=self.key)

    def put_back(self, request: Request) -> None:
        """A preempted request returns: to the front, unless a key sorts it."""
        if self.key is None:
            self.requests.insert(0, request)
        else:
            insort(self.requests, request, key=self.key)

    def pop(self, position: int) -> Request:
        return self.requests.pop(position)
