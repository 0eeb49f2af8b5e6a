"""What a decision hangs on: how much of its spread each input explains, and what knowing one would be worth.

The worlds are drawn independently, so the advantage of one scenario over the other is the sum of a part of each input, a part of the
requests, and what inputs do only together. Parts of inputs are fitted by least squares, a polynomial of second degree each, all at once
(a first-order analysis of variance by regression: Saltelli et al. 2008, section 1.2.5; given worlds serve all inputs, where freezing one
at a time takes runs of its own for each). The part of the requests is what is left when all inputs are frozen at what is assumed
of them. Knowing an input exactly, one would choose by the mean over all others; how often that is another choice, and what it
gains on average, is the expected value of partial perfect information, here from the fit (Strong, Oakley and Brennan 2014).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.statistics.intervals import CONFIDENCE, Interval
from studies.uncertainty.inputs import Input

Floats = NDArray[np.float64]

RESAMPLES = 200
SIGNIFICANT = 0.01
"""Chance of seeing such an influence where there is none, below which it is seen."""
_WORLDS_A_TERM = 8
"""Worlds that a term of the fit takes at least."""


@dataclass(frozen=True)
class Influence:
    """Of what would be measured together.

    share: of the variance of the advantage. seen: whether that is more than chance makes of nothing. changes: part of worlds in
    which knowing it exactly would turn the choice. worth: what the better choice gains then, on average over all worlds, in
    units of the advantage.
    """

    group: str
    inputs: tuple[Input, ...]
    share: Interval
    seen: bool
    changes: float
    worth: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "share_of_variance": self.share.to_dict(),
            "seen": self.seen,
            "would_change_the_choice_in": self.changes,
            "worth": self.worth,
            "measure": list(dict.fromkeys(one.measure for one in self.inputs)),
        }


@dataclass(frozen=True)
class Influences:
    """ranked: by how often knowing it would turn the choice, then by share. requests: share of the draw of requests, None where they do
    not differ. rest: share of what inputs do together and what the fit does not follow. worth: of knowing all inputs exactly, though
    not the requests to come. refused: why there are none."""

    ranked: tuple[Influence, ...] = ()
    requests: float | None = None
    rest: float = 0.0
    worth: float = 0.0
    refused: str = ""


def influences(
    inputs: Sequence[Input], scores: Floats, advantage: Floats, frozen: Floats | None, seed: int
) -> Influences:
    """scores: `(worlds, inputs)`. advantage: `(worlds,)`, above 0 where the first scenario is better. frozen: `(m,)`, the same where only
    requests differ; None where they do not."""
    y = advantage - advantage.mean()
    total = float(np.mean(y * y))
    if total == 0:
        return Influences(refused="the two differ by the same in every world")
    if not inputs:
        return Influences(requests=1.0)
    groups: dict[str, list[int]] = {}
    for k, one in enumerate(inputs):
        groups.setdefault(one.group, []).append(k)
    degree = 2 if len(y) >= _WORLDS_A_TERM * (1 + 2 * len(inputs)) else 1
    if len(y) < _WORLDS_A_TERM * (1 + degree * len(inputs)):
        needed = _WORLDS_A_TERM * (1 + len(inputs))
        why = f"{len(y)} worlds are too few to tell {len(inputs)} inputs apart; --worlds {needed} serve"
        return Influences(refused=why)
    terms = _terms(scores, degree)
    columns = {name: [k * degree + d for k in members for d in range(degree)] for name, members in groups.items()}
    parts, shares, noise = _fit(terms, y, columns)
    resampled = _resampled(terms, y, columns, seed)
    found, together = [], np.full(len(y), float(advantage.mean()))
    for name, members in groups.items():
        raw = float(np.mean(parts[name] ** 2)) / total
        # A fit takes up chance too; what is left of the part is shrunk by as much.
        kept = (shares[name] / raw) ** 0.5 if raw > 0 else 0.0
        mean = float(advantage.mean()) + kept * parts[name]
        together += kept * parts[name]
        low, high = (float(q) for q in np.quantile(resampled[name], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
        share = Interval(min(shares[name], 1.0), min(low, shares[name], 1.0), min(max(high, shares[name]), 1.0), len(y))
        seen = _chance(terms, y, columns[name], noise) < SIGNIFICANT
        changes = float(np.mean(mean * advantage.mean() < 0)) if seen else 0.0
        worth = _worth(mean) if seen else 0.0
        found.append(Influence(name, tuple(inputs[k] for k in members), share, seen, changes, worth))
    explained = sum(one.share.estimate or 0.0 for one in found)
    requests = None if frozen is None else float(frozen.var(ddof=1)) / total
    # By chance, parts that were drawn or estimated apart come to more than the whole.
    over = max(1.0, explained + (requests or 0.0))
    found = [replace(one, share=_scaled(one.share, 1 / over)) for one in found]
    found.sort(key=lambda one: (-one.changes, -(one.share.estimate or 0.0), one.group))
    requests = None if requests is None else requests / over
    rest = max(0.0, 1.0 - explained / over - (requests or 0.0))
    everything = _worth(advantage if frozen is None else together) if any(one.seen for one in found) else 0.0
    return Influences(tuple(found), requests, rest, everything)


def _scaled(share: Interval, by: float) -> Interval:
    values = ((share.estimate or 0.0) * by, (share.low or 0.0) * by, (share.high or 0.0) * by)
    return Interval(*values, share.n, share.confidence)


def _worth(advantage: Floats) -> float:
    """What is gained on average by choosing in every world what is better there, over choosing once."""
    mean = float(advantage.mean())
    return max(0.0, float(np.maximum(advantage, 0).mean()) - max(mean, 0.0))


def _terms(scores: Floats, degree: int) -> Floats:
    """`(worlds, inputs * degree)`: powers of each score, of mean 0."""
    powers = np.stack([scores ** (d + 1) for d in range(degree)], axis=2).reshape(len(scores), -1)
    return np.asarray(powers - powers.mean(axis=0))


def _fit(
    terms: Floats, y: Floats, columns: Mapping[str, Sequence[int]]
) -> tuple[dict[str, Floats], dict[str, float], float]:
    """The part of each group in every world, its share of the variance without what chance adds, and the variance of what is left."""
    slopes = np.linalg.lstsq(terms, y, rcond=None)[0]
    left = y - terms @ slopes
    freedom = max(len(y) - terms.shape[1] - 1, 1)
    noise = float(left @ left) / freedom
    total = float(np.mean(y * y))
    parts = {name: np.asarray(terms[:, cols] @ slopes[cols]) for name, cols in columns.items()}
    shares = {
        name: max(0.0, float(np.mean(part * part)) - noise * len(columns[name]) / len(y)) / total
        for name, part in parts.items()
    }
    return parts, shares, noise


def _chance(terms: Floats, y: Floats, columns: Sequence[int], noise: float) -> float:
    """The F test of leaving a group out: chance of such a fit where it has no part."""
    from scipy.stats import f

    others = np.delete(terms, list(columns), axis=1)
    left = y - others @ np.linalg.lstsq(others, y, rcond=None)[0] if others.shape[1] else y
    freedom = max(len(y) - terms.shape[1] - 1, 1)
    more = float(left @ left) - noise * freedom
    if noise <= 1e-18 * float(np.mean(y * y)):  # the fit leaves nothing
        return 0.0 if more > 1e-12 * float(y @ y) else 1.0
    return float(f.sf(max(more, 0.0) / len(columns) / noise, len(columns), freedom))


def _resampled(terms: Floats, y: Floats, columns: Mapping[str, Sequence[int]], seed: int) -> dict[str, list[float]]:
    """Shares of each group when worlds are drawn again from those that were run (the bootstrap)."""
    rng = np.random.default_rng([seed, RESAMPLES])
    found: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(RESAMPLES):
        rows = rng.integers(0, len(y), len(y))
        again = y[rows] - y[rows].mean()
        if not again.any():
            continue
        _, shares, _ = _fit(terms[rows] - terms[rows].mean(axis=0), again, columns)
        for name, share in shares.items():
            found[name].append(share)
    return {name: values or [0.0] for name, values in found.items()}
