"""Routers: which replica takes a request. They see what a front end could see: the request, and what each replica that could hold
it tells of itself.

To add one: write a class here and name it in `ROUTERS`. Its options are the arguments of its constructor, by name; randomness is
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.random import Generator

from serving.request import Request

if TYPE_CHECKING:
    from serving.admission import Load


class ReplicaState(Protocol):
    """What a router may read of a replica, as of the instant of the decision."""

    @property
    def pool(self) -> int:
        """Number of its pool."""

    @property
    def outstanding(self) -> int:
        """Requests sent there that have not ended."""

    def load(self, now: int) -> Load:
        """What it has to do at `now`, the instant of the decision."""


class CacheState(Protocol):
    """What a router that reads caches may ask beside that: a run with one has only replicas that know it."""

    def cached_tokens(self, request: Request) -> int:
        """Tokens of the request's prompt that its prefix cache holds."""


class Router(Protocol):
    """`reads_state`: whether `choose` looks at the replicas' state, which must then be brought up to date first. `reads_cache`: whether
    it asks for cached tokens."""

    reads_state: bool
    reads_cache: bool

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        """Position in `replicas`, those that could hold the request, of the one that takes it."""


@dataclass(frozen=True)
class Routing:
    """Which router, by its name, and its options."""

    name: str = "round_robin"
    options: Mapping[str, Any] = field(default_factory=dict)


_LEAST_REQUESTS: Mapping[str, Any] = {"name": "least_requests"}


class RoundRobin:
    reads_state = reads_cache = False

    def __init__(self, stream: Generator) -> None:
        self.next = 0

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        chosen = self.next % len(replicas)
        self.next = chosen + 1
        return chosen


class Random:
    """Any of them, each as likely as the others."""

    reads_state = reads_cache = False

    def __init__(self, stream: Generator) -> None:
        self.stream = stream

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        return int(self.stream.integers(len(replicas)))


class LeastRequests:
    """Fewest outstanding requests; the first of equals."""

    reads_state, reads_cache = True, False

    def __init__(self, stream: Generator | None = None) -> None:
        pass

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        return min(range(len(replicas)), key=lambda i: replicas[i].outstanding)


class LeastKv:
    """Least KV memory in use; of equals the one with fewest outstanding requests, then the first."""

    reads_state, reads_cache = True, False

    def __init__(self, stream: Generator) -> None:
        pass

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        return min(range(len(replicas)), key=lambda i: (replicas[i].load(now).kv_use, replicas[i].outstanding))


class PowerOfTwo:
    """Fewest outstanding requests among `choices` drawn ones; the first drawn of equals. With two, the longest queue grows like
    log log n instead of log n (Mitzenmacher, IEEE TPDS 2001), and only two replicas are asked."""

    reads_state, reads_cache = True, False

    def __init__(self, stream: Generator, choices: int = 2) -> None:
        self.stream = stream
        self.choices = choices

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        n = len(replicas)
        # The first steps of a shuffle: distinct, and each pair as likely as any other.
        order = list(range(n))
        for i in range(min(self.choices, n)):
            j = i + int(self.stream.integers(n - i))
            order[i], order[j] = order[j], order[i]
        return min(order[: self.choices], key=lambda i: replicas[i].outstanding)


class PrefixAffinity:
    """Where most of the prompt lies in the prefix cache, unless load is out of balance (the rule and the names are those of
    SGLang's cache-aware router; this one asks the caches themselves).

    Args:
        cache_threshold: share of the prompt that must be cached; below it the replica with fewest outstanding requests is taken.
        balance_abs_threshold, balance_rel_threshold: load is out of balance when the most outstanding requests of a replica exceed the
            fewest by more than so many, and by more than that factor; then the one with the fewest is taken.
    """

    reads_state = reads_cache = True

    def __init__(
        self,
        stream: Generator,
        cache_threshold: float = 0.3,
        balance_abs_threshold: int = 64,
        balance_rel_threshold: float = 1.5,
    ) -> None:
        self.cache_threshold = cache_threshold
        self.balance_abs_threshold = balance_abs_threshold
        self.balance_rel_threshold = balance_rel_threshold
        self.least = LeastRequests()

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        load = [replica.outstanding for replica in replicas]
        fewest, most = min(load), max(load)
        if most - fewest > self.balance_abs_threshold and most > self.balance_rel_threshold * fewest:
            return load.index(fewest)
        cached = [replica.cached_tokens(request) for replica in cast(Sequence[CacheState], replicas)]
        best = min(range(len(replicas)), key=lambda i: (-cached[i], load[i]))
        if cached[best] <= self.cache_threshold * request.prompt_tokens:
            return load.index(fewest)
        return best


class Cascade:
    """Small models first: the pool by difficulty, the replica in it by the router `within`.

    Args:
        order: numbers of the pools, the smallest model first.
        thresholds: a request is sent to the first pool whose threshold its difficulty does not exceed, else to the last; one
            fewer than pools, or none: all start with the first.
        estimate_error: standard deviation of what the estimate of difficulty misses the true one by.
        within: `name` and `options` of the router of each pool, which sees its replicas alone.
        requests: rows of first tries: try k of request i has the index `i + k * requests`.
    """

    reads_state = True

    def __init__(
        self,
        stream: Generator,
        order: Sequence[int] = (0,),
        thresholds: Sequence[float] = (),
        estimate_error: float = 0.0,
        within: Mapping[str, Any] = _LEAST_REQUESTS,
        requests: int = 1,
    ) -> None:
        self.order = tuple(order)
        self.thresholds = tuple(thresholds)
        self.estimate_error = estimate_error
        self.requests = requests
        errors, *streams = stream.spawn(1 + len(self.order))
        self.errors = _Drawn(errors)
        inner, options = ROUTERS[within["name"]], within.get("options", {})
        self.within = {pool: inner(own, **options) for pool, own in zip(self.order, streams, strict=True)}
        self.reads_cache = any(router.reads_cache for router in self.within.values())
        self.escalated: dict[int, int] = {}  # request -> position in the order that it has come to

    def choose(self, request: Request, replicas: Sequence[ReplicaState], now: int) -> int:
        row = request.index % self.requests
        start = self.escalated.get(row)
        if start is None:
            start = self.first_of(row, request.tags.difficulty)
        # Where the pool that is meant has nobody who could hold it, a larger one takes it, or at last a smaller one.
        for pool in (*self.order[start:], *reversed(self.order[:start])):
            own = [i for i, replica in enumerate(replicas) if replica.pool == pool]
            if own:
                return own[self.within[pool].choose(request, [replicas[i] for i in own], now)]
        raise ValueError(f"cascade: none of its pools {self.order} is among those that could hold request {row}")

    def first_of(self, row: int, difficulty: float) -> int:
        """Position in the order of the pool that request `row` is sent to first."""
        if not self.thresholds:
            return 0
        estimate = difficulty + (self.estimate_error * self.errors[row] if self.estimate_error else 0.0)
        return next((i for i, most in enumerate(self.thresholds) if estimate <= most), len(self.thresholds))

    def after(self, request: Request, pool: int) -> Sequence[int]:
        """Pools that an answer of this pool may be sent on to, the next one first. None where the request has come beyond this pool
        already and was put back: it is not tried a third time."""
        position = self.order.index(pool) + 1
        return () if self.escalated.get(request.index % self.requests, 0) >= position else self.order[position:]

    def escalate(self, request: Request, pool: int) -> None:
        """The answer of `request`, from this pool, is not good enough: from now on it is meant for the next one."""
        self.escalated[request.index % self.requests] = self.order.index(pool) + 1


class _Drawn:
    """Standard normal numbers by index, the same in whichever order they are asked for."""

    def __init__(self, stream: Generator) -> None:
        self.stream = stream
        self.values = np.empty(0)

    def __getitem__(self, i: int) -> float:
        while i >= len(self.values):
            self.values = np.concatenate([self.values, self.stream.standard_normal(1024)])
        return float(self.values[i])


ROUTERS: dict[str, Callable[..., Router]] = {
    "round_robin": RoundRobin,
    "random": Random,
    "least_requests": LeastRequests,
    "least_kv": LeastKv,
    "power_of_two": PowerOfTwo,
    "prefix_affinity": PrefixAffinity,
}
POOL_ROUTERS: dict[str, Callable[..., Router]] = {"cascade": Cascade}
"""Routers that choose between pools, and need several."""


def make_router(routing: Routing | str, stream: Generator, requests: int) -> Router:
    """The router of that name with its options. requests: how many there are, each of which may have several tries."""
    routing = Routing(routing) if isinstance(routing, str) else routing
    if routing.name in POOL_ROUTERS:
        return POOL_ROUTERS[routing.name](stream, requests=requests, **routing.options)
    return ROUTERS[routing.name](stream, **routing.options)
