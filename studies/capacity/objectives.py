"""What a capacity is asked for: a list of objectives that can all hold at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from scenarios.errors import InputError
from scenarios.objectives import Objective, parse_objective
from scenarios.schema import Scenario

EXAMPLE = "ttft_p99<=500ms, tpot_p95<=50ms"
_NEEDS_SLO = ("request_goodput", "good_request_fraction")


def parse(text: str, source: str = "--slo") -> tuple[Objective, ...]:
    """Reads `ttft_p99<=500ms, tpot_p95<=50ms`.

    Raises:
        InputError: names the part that is wrong, or two that contradict one another.
    """
    parts = [part.strip() for part in re.split(r"[,;]", text) if part.strip()]
    if not parts:
        raise InputError(f"{source}: found nothing, but objectives are needed, such as {EXAMPLE!r}")
    found = []
    for part in parts:
        try:
            found.append(parse_objective(part))
        except ValueError as error:
            raise InputError(f"{source}: {part}: {error}") from None
    return checked(tuple(dict.fromkeys(found)), source)


def of_scenario(scenario: Scenario) -> tuple[Objective, ...]:
    """The scenario's own.

    Raises:
        InputError: it has none, or two contradict one another.
    """
    if not scenario.objectives:
        raise InputError(f"{scenario.name}: states no objectives; say them with --slo, such as --slo {EXAMPLE!r}")
    return checked(tuple(dict.fromkeys(scenario.objectives)), f"{scenario.name}: objectives")


def checked(objectives: tuple[Objective, ...], source: str) -> tuple[Objective, ...]:
    """The same objectives.

    Raises:
        InputError: one can never hold, or two never together.
    """
    for objective in objectives:
        if objective.metric == "good_request_fraction" and objective.comparison == ">=" and objective.limit > 1:
            raise InputError(f"{source}: {objective} never holds; a fraction is at most 1")
    for least, most in product(objectives, objectives):
        if least.comparison == ">=" and most.comparison == "<=" and _contradict(least, most):
            raise InputError(f"{source}: {least} and {most} contradict one another; leave one of them out")
    return objectives


def check_promises(objectives: Sequence[Objective], scenario: Scenario, source: str = "--slo") -> None:
    """Raises InputError if an objective counts good requests, but the scenario promises nothing to any."""
    senders = [scenario.workload, *(scenario.workload.mix or {}).values()]
    limits = [scenario.slo, *(c.slo for sender in senders for c in sender.classes)]
    if any(limit is not None and (limit.ttft, limit.tpot, limit.e2e) != (None, None, None) for limit in limits):
        return
    for objective in objectives:
        if objective.metric in _NEEDS_SLO:
            raise InputError(
                f"{source}: {objective} counts requests within their promises, but the scenario makes none; state some, such as "
                "--set slo.ttft=500ms"
            )


def _contradict(least: Objective, most: Objective) -> bool:
    """Whether a figure that is at least the one limit and a figure that is at most the other cannot both be."""
    if least.metric != most.metric or not least.limit > most.limit:
        return False
    lower, upper = _percentile(least), _percentile(most)
    if lower is None or upper is None:
        return least.statistic == most.statistic
    return lower <= upper  # the figure that must be large is never above the one that must be small


def _percentile(objective: Objective) -> float | None:
    return 50.0 if objective.statistic == "median" else objective.percentile
