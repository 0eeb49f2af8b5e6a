"""One validation, whatever was validated: what was predicted, what was measured, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from calibration import validate as judged

Share = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Part):
    """One figure. metric: its export key (`p95_ttft_ms`). of: the load or group it belongs to.

    error: predicted / measured - 1, or the mean of that over points. noise: what repeats differ by, None if nobody knows. size: mean
    of the sizes of the errors, of `points` points; None of a single figure.
    """

    metric: str
    of: str = ""
    measured: float | None = None
    predicted: float | None = None
    error: Share
    noise: Share | None = None
    verdict: judged.Verdict | None = None
    size: Share | None = None
    points: int | None = None


class Points(_Part):
    """The same thing measured and predicted, one by one.

    metric: `ttft`, `tpot` or `e2el`; values in seconds, `(n,)` each. group: what they are told apart by. each: what one of them is
    (`request`, `measured point`).
    """

    metric: Literal["ttft", "tpot", "e2el"]
    group: str
    each: str
    measured: tuple[Positive, ...]
    predicted: tuple[Positive, ...]


class Variant(_Part):
    """One policy. measured: a value a repeat, ms."""

    name: str
    measured: Annotated[tuple[Positive, ...], Field(min_length=1)]
    predicted: Positive

    @property
    def mean(self) -> float:
        """Of the repeats."""
        return sum(self.measured) / len(self.measured)


class Ranking(_Part):
    """Policies in their order. by: export key. kendall_tau: over the pairs that differ by more than their noise."""

    by: str
    kendall_tau: float | None
    pairs: int
    variants: tuple[Variant, ...]


class Worst(_Part):
    """A figure that is far off. where: of which run, load or point."""

    where: str
    figure: str
    error: Share
    noise: Share | None = None


class Validation(_Part):
    """What a validation found.

    Args:
        title: what against what. about: how it was done. measured: when and where it was, as far as its source says.
        kind: runs that were executed here, runs of a real engine, or single points.
        facts: of the layers below the outcome, by name (replayed schedule, step costs, ...).
        headlines: metrics that decide the verdict; empty where something else does.
        noise: by latency, what repeats of points differ by where that is known of all of them.
        absent: what this record cannot show and why, by figure (`points`, `ranking`).
    """

    name: str
    title: str
    kind: Literal["own engine", "real engine", "points"]
    about: str
    measured: str
    verdict: judged.Verdict
    sentence: str
    facts: tuple[tuple[str, str], ...] = ()
    headlines: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    points: tuple[Points, ...] = ()
    noise: dict[str, Share] = Field(default_factory=dict)
    ranking: Ranking | None = None
    worst: tuple[Worst, ...] = ()
    not_modelled: tuple[str, ...] = ()
    absent: dict[str, str] = Field(default_factory=dict)

    def decisive(self) -> list[Row]:
        """Rows that decide the verdict, or all where it is decided otherwise; farthest off first."""
        found = [row for row in self.rows if row.metric in self.headlines] or list(self.rows)
        return sorted(found, key=lambda row: -farness(row.error))


class Pair(NamedTuple):
    """Measured and predicted values of one request or point, seconds."""

    measured: float
    predicted: float


def farness(error: float) -> float:
    """How far off: half is as far as double."""
    return abs(math.log1p(max(error, -0.999)))


def farthest(found: Sequence[Worst], count: int = 10) -> tuple[Worst, ...]:
    """The worst of many."""
    return tuple(sorted(found, key=lambda worst: -farness(worst.error))[:count])


def points_of(metric: Literal["ttft", "tpot", "e2el"], group: str, each: str, pairs: Sequence[Pair]) -> Points | None:
    """Points of which both values are there and above 0, five digits each; None without any."""
    kept = [pair for pair in pairs if all(math.isfinite(value) and value > 0 for value in pair)]
    if not kept:
        return None
    measured, predicted = zip(*kept, strict=True)
    return Points(metric=metric, group=group, each=each, measured=_short(measured), predicted=_short(predicted))


def _short(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)
