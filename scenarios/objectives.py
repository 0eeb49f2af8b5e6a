"""What a run is held to: limits for every request (SLO), and limits for the run as a whole (objectives)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from scenarios.errors import unknown
from scenarios.fields import PositiveDuration, Section, format_duration, parse_duration

LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el", "queue": "queue"}
"""Latency metrics by the name that scenarios use, and the name that exports use."""
RATES = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "request_goodput",
    "good_request_fraction",
)

_FORM = re.compile(r"\s*([a-z][a-z0-9_.]*?)\s*(<=|>=)\s*(\S.*?)\s*")
_LATENCY = re.compile(r"(.+)_(mean|median|p\d{1,2}(?:\.\d+)?)")


class Slo(Section):
    """What every request is promised. One that misses any of these is not good; an undefined TPOT passes."""

    ttft: PositiveDuration | None = None
    tpot: PositiveDuration | None = None
    e2e: PositiveDuration | None = None


@dataclass(frozen=True)
class Objective:
    """A limit on a figure of the whole run: `ttft_p99 <= 500ms`, `request_goodput >= 5`.

    Args:
        metric: a name of `LATENCIES` or of `RATES`.
        statistic: mean, median, p99, ... for latencies; None for rates.
        limit: seconds for latencies; as exported for rates (per second, or a share).
    """

    metric: str
    statistic: str | None
    comparison: Literal["<=", ">="]
    limit: float

    @property
    def key(self) -> str:
        """The exported figure that it is about."""
        return self.metric if self.statistic is None else f"{self.statistic}_{LATENCIES[self.metric]}_ms"

    @property
    def percentile(self) -> float | None:
        """The percentile that it needs, None for other statistics and for rates."""
        return float(self.statistic[1:]) if self.statistic and self.statistic.startswith("p") else None

    def met_by(self, figure: float) -> bool:
        """Whether an exported figure (milliseconds for latencies) keeps the limit."""
        value = figure if self.statistic is None else figure / 1e3
        return value <= self.limit if self.comparison == "<=" else value >= self.limit

    def __str__(self) -> str:
        if self.statistic is None:
            return f"{self.metric} {self.comparison} {self.limit!r}"
        return f"{self.metric}_{self.statistic} {self.comparison} {format_duration(self.limit)}"


def parse_objective(value: object) -> Objective:
    """Reads `ttft_p99 <= 500ms`."""
    if isinstance(value, Objective):
        return value
    form = _FORM.fullmatch(value) if isinstance(value, str) else None
    if form is None:
        raise ValueError(f"found {value!r}, but an objective reads like 'ttft_p99 <= 500ms' or 'request_goodput >= 5'")
    name, comparison, limit = form[1], form[2], form[3]
    sign: Literal["<=", ">="] = "<=" if comparison == "<=" else ">="
    if name in RATES:
        try:
            number = float(limit)
        except ValueError:
            raise ValueError(f"found {limit!r}, but {name} is compared with a number") from None
        if not 0 <= number < float("inf"):
            raise ValueError(f"found {limit!r}, but a finite number, not negative, is needed")
        return Objective(name, None, sign, number)
    latency = _LATENCY.fullmatch(name)
    if latency is None or latency[1] not in LATENCIES:
        allowed = [f"{metric}_{statistic}" for metric in LATENCIES for statistic in ("mean", "p50", "p95", "p99")]
        raise ValueError(unknown("metric", name, (*allowed, *RATES)))
    return Objective(latency[1], latency[2], sign, parse_duration(limit))


ObjectiveText = Annotated[
    Objective,
    BeforeValidator(parse_objective),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9_.]+ *(<=|>=) *[0-9].*$"}),
]
