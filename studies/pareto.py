"""The Pareto set of policies: those that no other one beats in every figure at once.

Figures are known from a few seeds, so a policy is called dominated only where paired intervals say so: another one is better in
every figure, or in some and exactly the same in the others. That all of several tests reject at level alpha is itself a test at
level alpha (an intersection-union test: Berger 1982), so two figures need no wider intervals than one; several policies have
an interval each, and each holds by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from studies.statistics.differences import BySeed, difference
from studies.statistics.directions import better
from studies.statistics.intervals import CONFIDENCE

Mark = Literal["on the front", "dominated", "open", "not placed"]
Policy = Mapping[str, BySeed]
"""Figures of a policy by key, and each of them by seed."""


@dataclass(frozen=True)
class Standing:
    """Where a policy is.

    mark: `on the front`: each other one is worse in some figure. `dominated`: by those of `by`. `open`: neither is known; more
    seeds would tell. `not placed`: a figure is missing.
    """

    mark: Mark
    by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {"mark": self.mark} | ({"dominated_by": list(self.by)} if self.by else {})


def standings(
    policies: Mapping[str, Policy], keys: Sequence[str], confidence: float = CONFIDENCE
) -> dict[str, Standing]:
    """Where each policy is, by its name.

    keys: figures that are compared, each better lower or higher (`directions.better`). Policies must have the same seeds.

    Raises:
        ValueError: a figure of which neither direction is better.
    """
    for key in keys:
        if better(key) is None:
            raise ValueError(f"{key}: neither lower nor higher is better")
    found: dict[str, Standing] = {}
    placed = [name for name, policy in policies.items() if all(_is_there(policy.get(key)) for key in keys)]
    verdicts = {
        (one, other): [_verdict(policies[one], policies[other], key, confidence) for key in keys]
        for one in placed
        for other in placed
        if one != other
    }
    for name in policies:
        if name not in placed:
            found[name] = Standing("not placed")
            continue
        others = {other: verdicts[name, other] for other in placed if other != name}
        by = tuple(other for other, said in others.items() if set(said) in ({"better"}, {"better", "the same"}))
        if by:
            found[name] = Standing("dominated", by)
        else:
            # One that is the same everywhere dominates nothing.
            safe = all("worse" in said or set(said) == {"the same"} for said in others.values())
            found[name] = Standing("on the front" if safe else "open")
    return found


def _is_there(values: BySeed | None) -> bool:
    return bool(values) and all(value is not None for value in values.values())  # type: ignore[union-attr]


def _verdict(one: Policy, other: Policy, key: str, confidence: float) -> str:
    """Whether the other is better or worse than the one, the same, or nobody knows."""
    return difference(one[key], other[key], better=better(key), confidence=confidence).verdict
