"""Admission: who may join the queue of an engine, who is pushed out of it, and what a customer may ask for in a while.

Decided once for each request, when the router has chosen its replica; no clock and no state of the engine beyond `Load`.

To add a rule: a field of `Limits` (the scenario's is in `scenarios.admission`), its check in `AdmissionControl.decide`, and a `Cause` by
which reports and clients know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.request import Cause, Request

WHEN_FULL = ("reject", "shed_lowest")
"""What a full queue does: it refuses the newcomer, or pushes out waiting requests of a lower class for it."""


@dataclass(frozen=True)
class Load:
    """What one replica has to do, as of the instant at which somebody asks.

    waiting: requests in its queue, in the queue's order, without those whose clients have left. running: requests that hold KV.
    seats: most that may run. kv_use: share of its KV blocks that requests own.
    """

    waiting: Sequence[Request]
    running: int
    seats: int
    kv_use: float

    @property
    def waiting_tokens(self) -> int:
        """Prompt tokens of those that wait."""
        return sum(request.prompt_tokens for request in self.waiting)

    def oldest_wait(self, now: int) -> int:
        """Nanoseconds for which the oldest request that was never scheduled has waited here; 0 if none waits."""
        came = min((_came(request) for request in self.waiting if not request.preemptions), default=now)
        return now - came


def _came(request: Request) -> int:
    return request.arrival_ns if request.tags.ready_ns < 0 else request.tags.ready_ns


@dataclass(frozen=True)
class Allowance:
    """A token bucket: what may come per second, in requests, in tokens (prompt and `max_tokens`), or both.

    burst_s: what was not used is kept for so long: the bucket holds rate x burst.
    """

    requests: float | None = None
    tokens: float | None = None
    burst_s: float = 1.0


class Bucket:
    """An allowance in use: it begins full."""

    def __init__(self, allowance: Allowance) -> None:
        rates = (allowance.requests, allowance.tokens)
        self.rates = [0.0 if rate is None else rate for rate in rates]
        self.limits = [float("inf") if rate is None else rate * allowance.burst_s for rate in rates]
        self.left = list(self.limits)
        self.at = 0

    def holds(self, tokens: int, now: int) -> bool:
        """Whether a request of so many tokens may pass at `now`."""
        passed = (now - self.at) / 1e9
        self.at = now
        self.left = [
            min(limit, left + rate * passed)
            for limit, left, rate in zip(self.limits, self.left, self.rates, strict=True)
        ]
        return self.left[0] >= 1.0 and self.left[1] >= min(tokens, self.limits[1])

    def take(self, tokens: int) -> None:
        """It passes. (One that is larger than the bucket waits for a full one, and leaves it in debt.)"""
        self.left[0] -= 1.0
        self.left[1] -= tokens


@dataclass(frozen=True)
class Limits:
    """What a deployment admits.

    max_queue_requests, max_queue_tokens: a replica's queue holds so many requests, so many prompt tokens; None for any number.
        At 0 requests nobody waits for a seat. A prompt longer than the bound passes only where nobody waits.
    queue_timeout_ns: who was never scheduled for so long is sent away; None for never.
    when_full: one of WHEN_FULL.
    allowance: of all together. tenants: allowances of single tenants, by their index.
    """

    max_queue_requests: int | None = None
    max_queue_tokens: int | None = None
    queue_timeout_ns: int | None = None
    when_full: str = "reject"
    allowance: Allowance | None = None
    tenants: Mapping[int, Allowance] = field(default_factory=dict)


class Verdict(NamedTuple):
    """cause: why the request is refused, NONE where it is admitted. pushed_out: waiting requests that make room for it."""

    cause: Cause = Cause.NONE
    pushed_out: tuple[Request, ...] = ()


_ADMITTED = Verdict()


class AdmissionControl:
    """Limits in force."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bucket = None if limits.allowance is None else Bucket(limits.allowance)
        self.tenants = {tenant: Bucket(allowance) for tenant, allowance in limits.tenants.items()}

    @property
    def reads_state(self) -> bool:
        """Whether the load of a replica matters."""
        return self.limits.max_queue_requests is not None or self.limits.max_queue_tokens is not None

    def decide(self, request: Request, load: Load | None, now: int) -> Verdict:
        """Whether `request` may join the queue of the replica whose load this is; what it uses of allowances is taken if so."""
        buckets = []
        tokens = request.prompt_tokens + request.max_tokens
        for bucket, cause in (
            (self.tenants.get(request.tags.tenant), Cause.TENANT_BUDGET),
            (self.bucket, Cause.RATE_LIMIT),
        ):
            if bucket is not None:
                if not bucket.holds(tokens, now):
                    return Verdict(cause)
                buckets.append(bucket)
        verdict = _ADMITTED if load is None else self._queue(request, load)
        if verdict.cause is Cause.NONE:
            for bucket in buckets:
                bucket.take(tokens)
        return verdict

    def _queue(self, request: Request, load: Load) -> Verdict:
        cause = self._over(request, load, load.waiting)
        if cause is Cause.NONE or self.limits.when_full == "reject":
            return Verdict(cause)
        kept, pushed_out = list(load.waiting), []
        for victim in sorted(lower(load.waiting, request), key=_worst_first):
            kept.remove(victim)
            pushed_out.append(victim)
            if self._over(request, load, kept) is Cause.NONE:
                return Verdict(Cause.NONE, tuple(pushed_out))
        return Verdict(cause)

    def _over(self, request: Request, load: Load, waiting: Sequence[Request]) -> Cause:
        """The bound that `request` would break behind those who wait."""
        limits = self.limits
        most, tokens = limits.max_queue_requests, limits.max_queue_tokens
        if most is not None and (
            len(waiting) >= max(most, 1) or (not most and load.running + len(waiting) >= load.seats)
        ):
            return Cause.QUEUE_REQUESTS
        if tokens is not None and waiting and sum(r.prompt_tokens for r in waiting) + request.prompt_tokens > tokens:
            return Cause.QUEUE_TOKENS
        return Cause.NONE


def lower(waiting: Iterable[Request], request: Request) -> list[Request]:
    """Those who wait, were never scheduled, and have a worse priority than `request`."""
    return [r for r in waiting if r.priority > request.priority and not r.preemptions]


def _worst_first(request: Request) -> tuple[int, float, int]:
    return (-request.priority, -request.arrival_order, -request.index)
