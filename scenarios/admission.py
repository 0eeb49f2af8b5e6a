"""Admission in a scenario: bounds of queues, time-outs, allowances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from scenarios.errors import misplaced, unknown
from scenarios.fields import PositiveDuration, Rate, Section, TokenCount
from serving.admission import Allowance as Allowed
from serving.admission import Limits


class Allowance(Section):
    """A token bucket: what may come in the long run, and how much of it at once.

    Args:
        requests: so many a second (or `60/min`). tokens: prompt and `max_tokens` together.
        burst: what was not used is kept for so long: the bucket holds rate x burst, and begins full.
    """

    requests: Rate | None = None
    tokens: Rate | None = None
    burst: PositiveDuration = 1.0

    @model_validator(mode="after")
    def _lets_some_pass(self) -> Allowance:
        if self.requests is None and self.tokens is None:
            raise misplaced("needs requests or tokens a second, or both", "requests")
        if self.requests is not None and self.requests * self.burst < 1:
            raise misplaced(
                f"found {self.requests:g} a second kept for {self.burst:g} s: a bucket that never holds a whole request lets none pass; "
                f"give a burst of {1 / self.requests:g} s or more",
                "burst",
            )
        return self

    def allowed(self) -> Allowed:
        return Allowed(self.requests, self.tokens, self.burst)


class Admission(Section):
    """What each replica's queue holds, and what a deployment takes in. A refused request ends as `rejected`.

    Args:
        max_queue_requests: requests that may wait at a replica; at 0 one is refused where no seat is free.
        max_queue_tokens: prompt tokens that may wait; a longer prompt passes only where nobody waits.
        queue_timeout: who was never scheduled for so long is sent away, as `timed_out`.
        when_full: `reject` the newcomer, or `shed_lowest`: push out who waits with a worse priority, the worst and latest first.
        token_bucket: what all together may send. tenants: what single tenants may send, by name.
    """

    max_queue_requests: Annotated[int, Field(ge=0)] | None = None
    max_queue_tokens: TokenCount | None = None
    queue_timeout: PositiveDuration | None = None
    when_full: Literal["reject", "shed_lowest"] = "reject"
    token_bucket: Allowance | None = None
    tenants: Mapping[str, Allowance] = {}

    @model_validator(mode="after")
    def _agrees(self) -> Admission:
        bounded = self.max_queue_requests is not None or self.max_queue_tokens is not None
        if not bounded and self.queue_timeout is None and self.token_bucket is None and not self.tenants:
            raise misplaced("found nothing that it limits; give a bound, or leave admission out", "max_queue_requests")
        if self.max_queue_requests == 0 and self.queue_timeout is not None:
            raise misplaced(
                "found beside max_queue_requests: 0, where nobody ever waits; leave one of them out", "queue_timeout"
            )
        if self.max_queue_requests == 0 and self.when_full == "shed_lowest":
            raise misplaced(
                "found beside max_queue_requests: 0, where nobody waits who could be pushed out", "when_full"
            )
        if self.when_full == "shed_lowest" and not bounded:
            raise misplaced(
                "found without a bound, but a queue without one is never full; give max_queue_requests", "when_full"
            )
        return self

    def check_tenants(self, names: Sequence[str] | None) -> None:
        """Refuses tenants that the workload does not have. names: None where only the run can tell."""
        for name in self.tenants if names is not None else ():
            if name not in (names or ()):
                raise misplaced(unknown("tenant", name, names or ()), "tenants", name)

    def limits(self, tenants: Sequence[str]) -> Limits:
        """tenants: of the workload, in the order of their numbers."""
        return Limits(
            self.max_queue_requests,
            self.max_queue_tokens,
            None if self.queue_timeout is None else round(self.queue_timeout * 1e9),
            self.when_full,
            None if self.token_bucket is None else self.token_bucket.allowed(),
            {tenants.index(name): allowance.allowed() for name, allowance in self.tenants.items()},
        )
