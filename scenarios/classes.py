"""Who sends requests: tenants (customers) and service classes (kinds of work), each with its share and what is its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from scenarios.difficulty import Difficulty
from scenarios.errors import misplaced, unknown
from scenarios.fields import Section
from scenarios.lengths import Lengths, MaxTokens
from scenarios.objectives import Slo
from scenarios.prompts import Prompts

Ints = NDArray[np.int64]
Streams = Callable[[str], Generator]

Weight = Annotated[float, Field(gt=0, le=1e9)]
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Name = Annotated[str, Field(min_length=1)]
OWN_LENGTHS = ("input", "output", "max_tokens")


class ServiceClass(Section):
    """A kind of work: `weight` is its share of requests. What it does not state is as the workload says.

    Args:
        priority: added to its tenant's; lower is served earlier where the policy looks at it.
        input, output, max_tokens, prompts, difficulty: its own, instead of the workload's.
        slo: what its requests are promised, instead of the scenario's; `{}` promises nothing.
    """

    name: Name
    weight: Weight = 1.0
    priority: Priority = 0
    input: Lengths | None = None
    output: Lengths | None = None
    max_tokens: MaxTokens | None = None
    prompts: Prompts | None = None
    slo: Slo | None = None
    difficulty: Difficulty | None = None

    @property
    def limits(self) -> Mapping[str, float | None] | None:
        """Seconds by `ttft, tpot, e2e`; None where the scenario's hold."""
        return None if self.slo is None else {name: getattr(self.slo, name) for name in ("ttft", "tpot", "e2e")}


class Tenant(Section):
    """A customer: `weight` is its share of requests, a lower `priority` is served earlier where the policy looks at it.

    Args:
        classes: its shares of the workload's classes, `{interactive: 4, batch: 1}`; the classes' own weights if not given.
        input, output, max_tokens: its own, instead of the workload's.
    """

    later: ClassVar[tuple[str, ...]] = ("classes", "input", "output", "max_tokens")

    name: Name
    weight: Weight = 1.0
    priority: Priority = 0
    classes: Annotated[dict[str, Weight] | None, Field(min_length=1)] = None
    input: Lengths | None = None
    output: Lengths | None = None
    max_tokens: MaxTokens | None = None


def check_senders(tenants: Sequence[Tenant], classes: Sequence[ServiceClass]) -> None:
    """Refuses names that are given twice or meant nothing, and lengths that are said twice.

    Raises:
        PydanticCustomError: names the field of the workload.
    """
    for field, senders in (("tenants", tenants), ("classes", classes)):
        names = [sender.name for sender in senders]
        if len(set(names)) < len(names):
            raise misplaced(f"names must differ, found {', '.join(names)}", field)
    known = {c.name: c for c in classes}
    for i, tenant in enumerate(tenants):
        for name in tenant.classes or ():
            if name not in known:
                why = unknown("class", name, known) if known else f"found {name!r}, but workload.classes names none"
                raise misplaced(why, "tenants", i, "classes")
        sends = [known[name] for name in tenant.classes] if tenant.classes else list(classes)
        for field in OWN_LENGTHS:
            both = [c.name for c in sends if getattr(c, field) is not None and getattr(tenant, field) is not None]
            if both:
                why = f"class {both[0]}, which {tenant.name} sends, states it as well; leave one of them out"
                raise misplaced(why, "tenants", i, field)
    if tenants and all(tenant.classes for tenant in tenants):
        for i, c in enumerate(classes):
            if not any(c.name in (tenant.classes or ()) for tenant in tenants):
                raise misplaced(
                    f"no tenant sends {c.name}; name it in a tenant's classes, or leave it out", "classes", i
                )


@dataclass(frozen=True)
class Senders:
    """Who sends what, by conversation or by request: tenant and class codes, int64 `(n,)` each."""

    tenant: Ints
    service_class: Ints

    def __getitem__(self, rows: Any) -> Senders:
        return Senders(self.tenant[rows], self.service_class[rows])


def draw_senders(tenants: Sequence[Tenant], classes: Sequence[ServiceClass], n: int, streams: Streams) -> Senders:
    """Tenant and class of n conversations. The choice of one never moves that of the other."""
    tenant = np.zeros(n, dtype=np.int64)
    chosen = np.zeros(n, dtype=np.int64)
    if tenants:
        tenant = _pick([t.weight for t in tenants], streams("tenants").random(n))
    if classes:
        u = streams("classes").random(n)
        chosen = _pick([c.weight for c in classes], u)
        for code, one in enumerate(tenants):
            if one.classes is not None:
                # In the order of the workload's classes, however the tenant lists them.
                own = _pick([one.classes.get(c.name, 0.0) for c in classes], u)
                chosen = np.where(tenant == code, own, chosen)
    return Senders(tenant, chosen)


def _pick(weights: Sequence[float], u: NDArray[np.float64]) -> Ints:
    """Index of the weight that each u in [0, 1) falls on, `(n,)`."""
    shares = np.cumsum(weights)
    last = int(np.flatnonzero(weights)[-1])  # rounding may reach the very end
    fallen: Ints = np.minimum(np.searchsorted(shares, u * shares[-1], side="right"), last)
    return fallen
