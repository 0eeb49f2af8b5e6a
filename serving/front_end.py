"""The front end: HTTP, chat template and tokenisation, done by a few workers before an engine sees a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from serving.request import Request


@dataclass(frozen=True)
class FrontEndCost:
    """workers: requests that are handled at a time, in order of arrival. What one takes, in ns: each request, each prompt token."""

    workers: int = 1
    request_ns: float = 0.0
    token_ns: float = 0.0

    def ns(self, prompt_tokens: int) -> int:
        return int(self.request_ns + self.token_ns * prompt_tokens + 0.5)


class FrontEnd:
    """Workers that take requests as they come. They cannot know that a client has left: its prompt is tokenised all the same."""

    def __init__(self, cost: FrontEndCost) -> None:
        self.cost = cost
        self.free_at = [0] * cost.workers  # heap

    def take(self, request: Request, now: int) -> int:
        """A request arrives at `now`, not before the one before it; returns when it is handed on, and notes it."""
        start = max(now, heappop(self.free_at))
        ready = start + self.cost.ns(request.prompt_tokens)
        heappush(self.free_at, ready)
        request.tags = request.tags._replace(ready_ns=ready)
        return ready

    def passed(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Requests that come at their `arrival_ns`, in the order in which they are handed on."""
        inside: list[tuple[int, int, Request]] = []
        for number, request in enumerate(requests):
            while inside and inside[0][0] <= request.arrival_ns:
                yield heappop(inside)[2]
            heappush(inside, (self.take(request, request.arrival_ns), number, request))
        while inside:
            yield heappop(inside)[2]
