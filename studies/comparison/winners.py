"""Who wins where: a comparison in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from studies.comparison.result import Comparison
from studies.reports import tables
from studies.statistics.directions import better

_AS_GOOD = ("not distinguishable", "the same")


def winners(found: Comparison, metrics: Sequence[str] = ()) -> str:
    """`fp8 wins in p95 TTFT and TPOT; nobody can be told from the best in goodput.` metrics: those of the decision by default.

    A policy wins a figure if every other one is worse by paired intervals; who cannot be told from the best shares it. Nothing
    where there are no two policies, or no intervals.
    """
    if len(found.runs) < 2:
        return ""
    by_best: dict[tuple[str, ...], list[str]] = {}
    for key in metrics or found.metrics:
        if best := _best(found, key):
            by_best.setdefault(best, []).append(tables.name(key))
    ordered = sorted(by_best.items(), key=lambda item: len(item[0]))
    said = [_said(best, len(found.runs), tables.joined(names)) for best, names in ordered]
    return f"{_upper('; '.join(said))}." if said else ""


def _best(found: Comparison, key: str) -> tuple[str, ...]:
    """Who has the best of a figure, and all who cannot be told from it; nobody where intervals do not say."""
    way = better(key)
    figures = {policy: found.interval(policy, key).estimate for policy in found.runs}
    known = {policy: value for policy, value in figures.items() if value is not None}
    if way is None or len(known) < len(figures):
        return ()
    first = (max if way == "higher" else min)(known, key=lambda policy: known[policy])
    verdicts = {policy: found.difference(policy, key, first).verdict for policy in known if policy != first}
    if "not compared" in verdicts.values():
        return ()
    return tuple(policy for policy in known if policy == first or verdicts[policy] in _AS_GOOD)


def _said(best: tuple[str, ...], count: int, figures: str) -> str:
    if len(best) == 1:
        return f"{best[0]} wins in {figures}"
    if len(best) == count:
        return f"no difference is seen in {figures}"
    return f"{tables.joined(best)} are as good as each other, and better than the rest, in {figures}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("no difference") else text
