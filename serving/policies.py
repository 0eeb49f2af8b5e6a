"""Queue orders: who is served next, and who loses its blocks first.

To add one: write its class here and name it in `ORDERS`; scenarios find it by that name. An order may look at everything a
client declares, at the time, at the prefix cache and at what the engine has done so far, never at true answer lengths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from serving.request import Request


class PrefixCache(Protocol):
    """What an order may ask of the KV memory."""

    block_size: int

    def find_prefix(self, request: Request) -> Sequence[int]:
        """Cached blocks of its longest known prefix."""

    def lead(self, request: Request, tokens: int) -> bytes | None:
        """A name of its first so many tokens, equal for equal texts; None if it has fewer, or texts are not looked at."""


class Order:
    """First come, first served, where a preempted request returns to the front; the base of all orders. A scheduler has one of
    its own, since an order may keep accounts.

    key: sorts the queue, smallest first, and is fixed while a request waits; None leaves it in order of arrival.
    keeps_accounts: whether it is to be told of tokens that come out.
    """

    key: Callable[[Request], Any] | None = None
    keeps_accounts = False

    def added(self, request: Request) -> None:
        """`request` has come to wait for the first time."""

    def prepare(self, waiting: list[Request], cache: PrefixCache, now_ns: int) -> None:
        """Before the first admission of a step: may sort `waiting`."""

    def first(self, waiting: Sequence[Request]) -> int:
        """Position of the one that is served next. Nobody overtakes it."""
        return 0

    def admitted(self, request: Request, resumed: bool) -> None:
        """`request` runs; `resumed`: once more, after a preemption."""

    def delivered(self, request: Request, tokens: int) -> None:
        """So many tokens of its answer are out."""

    def victim(self, running: Sequence[Request]) -> Request:
        """The running request (in admission order) that is preempted when blocks run out."""
        return running[-1]


class Priority(Order):
    """The lowest `priority` first, then the earliest. The victim is the worst of both; among equals the earliest in running
    order, as `max` returns it."""

    def __init__(self) -> None:
        self.key = lambda request: (request.priority, request.arrival_order, request.index)

    def victim(self, running: Sequence[Request]) -> Request:
        return max(running, key=lambda request: (request.priority, request.arrival_order))


class ShortestFirst(Order):
    """The shortest predicted answer first (by what is declared where nobody predicts); the longest is the victim. Mean latency
    falls, and long answers wait as long as short ones keep coming."""

    def __init__(self) -> None:
        self.key = self._rank

    def victim(self, running: Sequence[Request]) -> Request:
        return max(running, key=self._rank)

    def _rank(self, request: Request) -> tuple[int, float, int]:
        return (request.tags.predicted_tokens or request.max_tokens, request.arrival_order, request.index)


class Deadline(Order):
    """The least slack to the limit of its time to first token first (earliest deadline). One that has missed it stands behind
    all that can still be on time, and one without a limit behind those with one. The latest deadline is the victim."""

    NEVER = 1 << 62

    def __init__(self) -> None:
        self.missed: set[Request] = set()
        self.key = self._place

    def prepare(self, waiting: list[Request], cache: PrefixCache, now_ns: int) -> None:
        i = 0
        late = []
        while i < len(waiting) and waiting[i] not in self.missed and self._deadline(waiting[i]) < now_ns:
            if waiting[i].num_outputs:  # preempted after its first token was out
                i += 1
            else:
                late.append(waiting.pop(i))
        if late:
            self.missed.update(late)
            waiting.extend(late)
            waiting.sort(key=self._place)

    def admitted(self, request: Request, resumed: bool) -> None:
        self.missed.discard(request)

    def victim(self, running: Sequence[Request]) -> Request:
        return max(running, key=self._rank)

    def _place(self, request: Request) -> tuple[bool, int, float, int]:
        return (request in self.missed, *self._rank(request))

    def _deadline(self, request: Request) -> int:
        limit = request.tags.ttft_ns
        return self.NEVER if limit < 0 else request.arrival_ns + limit

    def _rank(self, request: Request) -> tuple[int, float, int]:
        return (self._deadline(request), request.arrival_order, request.index)


class LongestPrefix(Order):
    """The longest prefix in the cache first, so that it is used before it is evicted (SGLang's `lpm`). With more than 128 waiting
    the queue stays as it is. One with hardly a hit whose text begins as another's that waits before it goes to the end: it will
    find that one's blocks.

    The figures are SGLang's (0.5): 128 requests; 32 tokens are hardly a hit, and a beginning that is worth waiting for.
    """

    MOST, LEAD = 128, 32

    def prepare(self, waiting: list[Request], cache: PrefixCache, now_ns: int) -> None:
        if len(waiting) < 2 or len(waiting) > self.MOST:
            return
        found: set[bytes] = set()
        rank: dict[Request, int] = {}
        for request in waiting:
            hit = len(cache.find_prefix(request)) * cache.block_size
            rank[request] = -hit
            if hit <= self.LEAD and (lead := cache.lead(request, self.LEAD)) is not None:
                if lead in found:
                    rank[request] = 1
                found.add(lead)
        waiting.sort(key=rank.__getitem__)


class Fair(Order):
    """Tenants in turn by the tokens they were served (virtual token counter, Sheng et al., OSDI 2024): the next request is the
    first of the tenant with the least, and the victim the last admitted of the one with the most. A prompt token counts 1, an
    answer's 2. A tenant that comes back after it had nothing waiting is lifted to the least of those that wait: being idle
    earns nothing.
    """

    PROMPT, ANSWER = 1, 2
    keeps_accounts = True

    def __init__(self) -> None:
        self.served: defaultdict[int, int] = defaultdict(int)  # by tenant
        self.last = -1  # the tenant admitted last
        self.new: list[Request] = []

    def added(self, request: Request) -> None:
        self.new.append(request)

    def prepare(self, waiting: list[Request], cache: PrefixCache, now_ns: int) -> None:
        if not self.new:
            return
        new = set(self.new)
        active = {request.tags.tenant for request in waiting if request not in new}
        for request in waiting:
            tenant = request.tags.tenant
            if request in new and tenant not in active:
                least = min(self.served[t] for t in active) if active else self.served[self.last]
                self.served[tenant] = max(self.served[tenant], least)
                active.add(tenant)
        self.new.clear()

    def first(self, waiting: Sequence[Request]) -> int:
        served = self.served
        return min(range(len(waiting)), key=lambda i: served[waiting[i].tags.tenant])

    def admitted(self, request: Request, resumed: bool) -> None:
        self.last = request.tags.tenant
        if not resumed:
            self.served[self.last] += self.PROMPT * request.prompt_tokens

    def delivered(self, request: Request, tokens: int) -> None:
        self.served[request.tags.tenant] += self.ANSWER * tokens

    def victim(self, running: Sequence[Request]) -> Request:
        return max(reversed(running), key=lambda request: self.served[request.tags.tenant])


ORDERS: dict[str, Callable[[], Order]] = {
    "fcfs": Order,
    "priority": Priority,
    "shortest_first": ShortestFirst,
    "deadline": Deadline,
    "longest_prefix": LongestPrefix,
    "fair": Fair,
}
