"""Which of two scenarios is better, in how many of the worlds that may be the true one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError, unknown
from scenarios.schema import Scenario
from serving.metrics import latencies
from serving.records import Records
from studies import workers
from studies.aspects import per_device
from studies.run import loaded, simulated_figures
from studies.statistics.directions import Better, better
from studies.statistics.intervals import Interval
from studies.statistics.proportions import proportion
from studies.sweeps.cells import Row, flat
from studies.uncertainty.influence import Influences, influences
from studies.uncertainty.inputs import Inputs, Ranges, described, inputs_of
from studies.uncertainty.worlds import Values, Worlds, applied, draw

Floats = NDArray[np.float64]
Tell = Callable[[str, float], None]

_TAIL = re.compile(r"p([0-9.]+)_([a-z0-9]+)_ms")

WORLDS = 200
FEWEST = 20
"""Worlds below which no probability is worth saying."""


@dataclass(frozen=True)
class Decision:
    """Two scenarios in many worlds.

    names, hashes, texts: of the first and the second; texts as YAML. metric: what is compared; better: which way it is better. worlds: what was drawn.
    values: `(worlds, 2)`, the metric of each. frozen: `(m, 2)`, the same where only requests differ; its first row is both scenarios as
    they are. ratios: whether figures are compared by their ratio, as they are where all are above 0. requests_differ: whether their draw
    changes anything.
    """

    names: tuple[str, str]
    hashes: tuple[str, str]
    texts: tuple[str, str]
    metric: str
    better: Better
    inputs: Inputs
    worlds: Worlds
    values: Floats
    frozen: Floats
    ratios: bool
    requests_differ: bool
    influences: Influences
    seed: int

    @property
    def defined(self) -> Floats:
        """`(worlds, 2)`, only those in which both have the figure."""
        return self.values[np.isfinite(self.values).all(axis=1)]

    def first(self) -> Interval:
        """Part of worlds in which the first is better."""
        return self._part(self.defined[:, 0], self.defined[:, 1])

    def second(self) -> Interval:
        """Part of worlds in which the second is better."""
        return self._part(self.defined[:, 1], self.defined[:, 0])

    def same(self) -> float:
        """Part of worlds in which both have the same figure."""
        return float(np.mean(self.defined[:, 0] == self.defined[:, 1]))

    @property
    def certain(self) -> bool:
        """Whether nothing differs between worlds, so that one is all."""
        return not self.inputs.drawn and not self.requests_differ

    def _part(self, one: Floats, other: Floats) -> Interval:
        wins = one < other if self.better == "lower" else one > other
        if self.certain:
            found = float(wins[0])
            return Interval(found, found, found, 1)
        return proportion(wins)

    def settled(self) -> int | None:
        """Which of the two is better in more than half of the worlds, beyond chance; None where that is open."""
        for number, found in enumerate((self.first(), self.second())):
            if found.low is not None and found.low > 0.5:
                return number
        return None

    @property
    def chosen(self) -> int | None:
        """Which of the two is better on average over the worlds; None where neither is."""
        mean = float(_advantage(self.defined, self.better, self.ratios).mean())
        return None if mean == 0 else int(mean < 0)

    def relative(self) -> Floats:
        """`(n,)`: what the first has more than the second, as a part of the second; NaN where that has nothing."""
        a, b = self.defined.T
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(b != 0, a / b - 1, np.nan))

    def quantiles(self) -> dict[str, dict[str, float | None]]:
        """5, 50 and 95 % of each one's figure, of the difference, and of the relative one."""
        a, b = self.defined.T
        rows = {"first": a, "second": b, "difference": a - b, "relative": self.relative()}
        return {name: _quantiles(values) for name, values in rows.items()}

    def to_dict(self) -> dict[str, Any]:
        from studies.uncertainty.words import sentences

        found = self.influences
        return {
            "first": self.names[0],
            "second": self.names[1],
            "scenario_hashes": list(self.hashes),
            "metric": self.metric,
            "better": self.better,
            "worlds": len(self.worlds),
            "without_a_figure": len(self.values) - len(self.defined),
            "seed": self.seed,
            "as_they_are": [_finite(v) for v in self.frozen[0].tolist()],
            "first_is_better": self.first().to_dict(),
            "second_is_better": self.second().to_dict(),
            "the_same": self.same(),
            "settled": None if (settled := self.settled()) is None else self.names[settled],
            "better_on_average": None if self.chosen is None else self.names[self.chosen],
            "quantiles": self.quantiles(),
            "inputs": [described(one) for one in self.inputs.drawn],
            "without_stated_uncertainty": [described(one) for one in self.inputs.unstated],
            "requests_differ": self.requests_differ,
            "influences": [one.to_dict() for one in found.ranked],
            "share_of_requests": found.requests,
            "share_of_the_rest": found.rest,
            "worth_of_knowing_all": found.worth,
            "in_units_of": "logarithm of the ratio" if self.ratios else self.metric,
            "influences_refused": found.refused,
            "sentences": sentences(self),
        }


def decide(
    first: Scenario | str | Path,
    second: Scenario | str | Path,
    metric: str = "p95_ttft_ms",
    *,
    worlds: int = WORLDS,
    seed: int = 0,
    ranges: Ranges | None = None,
    prefer: Better | None = None,
    names: tuple[str, str] | None = None,
    processes: int | None = None,
    progress: Tell | None = None,
) -> Decision:
    """How sure it is that one of two scenarios is better, given what their calibration does not know.

    Args:
        metric: a key of the summary; `by_class.chat.mean_ttft_ms` of a class. prefer: which way it is better, where its key does not
            say.
        seed: of the worlds. ranges: how many times what is assumed an input may be, by its name, instead of what is stated.
        processes: side by side; all processors by default.

    Raises:
        InputError: a scenario is wrong or has no such figure, a range is, or there are too few worlds.
    """
    pair = (loaded(first), loaded(second))
    called = names or _names(pair)
    if worlds < FEWEST:
        raise InputError(f"--worlds: found {worlds}, but a probability needs {FEWEST} at least")
    found = inputs_of(pair, ranges)
    tell = progress or (lambda what, part: None)

    tell("as assumed", 0.0)
    run = partial(_run, pair=pair, metric=metric)
    seeds = range(pair[0].seed, pair[0].seed + worlds)
    whole = _together(partial(run, whole=True), [({}, seed) for seed in seeds[:2]], processes)
    _check_metric(whole[0].rows, metric, called)
    direction = _direction(metric, prefer)
    differ = whole[0].rows != whole[1].rows
    drawn = draw(found.drawn, worlds if found.drawn or differ else 1, seed, seeds, seeded=differ)
    frozen: list[Item] = [({}, s) for s in seeds[2 : max(FEWEST, worlds // 5)]] if found.drawn and differ else []
    items = [(drawn.values(k), s) for k, s in enumerate(drawn.seeds)]
    outcome = _together(run, frozen + items, processes, partial(tell, "worlds"))

    before = whole if differ else whole[:1]
    as_assumed = np.array([o.values for o in (*before, *outcome[: len(frozen)])], dtype=np.float64)
    values = np.array([o.values for o in outcome[len(frozen) :]], dtype=np.float64)
    if not np.isfinite(values).all(axis=1).any():
        raise InputError(f"--metric {metric}: has no value in any world")
    known, alone = (rows[np.isfinite(rows).all(axis=1)] for rows in (values, as_assumed))
    ratios = bool((known > 0).all() and (alone > 0).all())
    what_matters = influences(
        found.drawn,
        drawn.scores()[np.isfinite(values).all(axis=1)],
        _advantage(known, direction, ratios),
        _advantage(alone, direction, ratios) if differ else None,
        seed,
    )
    hashes = (pair[0].hash(), pair[1].hash())
    texts = (pair[0].to_yaml(), pair[1].to_yaml())
    return Decision(
        called, hashes, texts, metric, direction, found, drawn, values, as_assumed, ratios, differ, what_matters, seed
    )


Item = tuple[Values, int]
"""Values of inputs, and the seed of requests."""


class _Outcome(NamedTuple):
    """Of both scenarios in one world: their figure, and, where asked for, all others, with what is refused."""

    values: tuple[float, float]
    rows: tuple[Row, Row] | None = None


def _together(
    run: Callable[[Item], _Outcome],
    items: Sequence[Item],
    processes: int | None,
    tell: Callable[[float], None] = lambda part: None,
) -> list[_Outcome]:
    found: dict[int, _Outcome] = {}
    for place, outcome in workers.each(run, items, processes):
        found[place] = outcome
        tell(len(found) / len(items))
    return [found[k] for k in range(len(items))]


def _run(item: Item, pair: tuple[Scenario, Scenario], metric: str, whole: bool = False) -> _Outcome:
    values, seed = item
    found, rows = [], []
    for scenario in pair:
        changed, costs = applied(scenario, values, seed)
        summary, records = simulated_figures(changed, costs)
        row = dict(flat(summary)) | per_device.figures(summary, per_device.devices(scenario))
        found.append(_figure(row, records, metric))
        if whole:
            rows.append(row | {f"refused.{key}": why for key, why in summary["refused"].items()})
    return _Outcome((found[0], found[1]), (rows[0], rows[1]) if whole else None)


def _direction(metric: str, prefer: Better | None) -> Better:
    found = prefer or better(metric)
    if found is None:
        raise InputError(
            f"--metric {metric}: its name does not say which way it is better; add --prefer lower or higher"
        )
    return found


def _figure(row: Row, records: Records, metric: str) -> float:
    """The figure of one world. A tail that the sample of a single world would not carry is taken as it is: across worlds its error is
    part of what the draw of requests does, and worlds with the longest queues must not be the ones left out."""
    found = row.get(metric)
    if isinstance(found, int | float):
        return float(found)
    tail = _TAIL.fullmatch(metric)
    samples = latencies(records).get(tail[2]) if tail else None
    if tail is None or samples is None or not len(samples):
        return float("nan")
    return float(np.percentile(samples, float(tail[1]))) * 1e3


def _check_metric(rows: tuple[Row, Row] | None, metric: str, names: tuple[str, str]) -> None:
    """Both scenarios have the figure, as they are."""
    assert rows is not None
    known = sorted(k for k, v in rows[0].items() if not k.startswith("refused.") and not isinstance(v, str))
    for row, name in zip(rows, names, strict=True):
        if metric not in known or metric not in row:
            raise InputError(f"--metric: {unknown('metric', metric, known)}")
        if row[metric] is None:
            why = row.get(f"refused.{metric}", "it has no value")
            raise InputError(
                f"--metric {metric}: {name} has none ({why}); more requests, or another metric, are needed"
            )


def _names(pair: tuple[Scenario, Scenario]) -> tuple[str, str]:
    first, second = (scenario.name for scenario in pair)
    return (first, second) if first != second else (first, f"{second} (2)")


def _advantage(values: Floats, direction: Better, ratios: bool) -> Floats:
    """`(n,)`: how much better the first is, above 0 where it is."""
    found = np.log(values[:, 1] / values[:, 0]) if ratios else values[:, 1] - values[:, 0]
    return found if direction == "lower" else -found


def _quantiles(values: Floats) -> dict[str, float | None]:
    known = values[np.isfinite(values)]
    if not len(known):
        return {"p5": None, "p50": None, "p95": None}
    return {f"p{level}": float(np.percentile(known, level)) for level in (5, 50, 95)}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
