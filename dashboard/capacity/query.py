"""What the capacity page is asked, read from its link. Nothing here needs Streamlit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dashboard.command import words as words_of
from dashboard.numbers import whole
from dashboard.settings import UPLOADED, Settings
from scenarios import InputError, Scenario
from scenarios.objectives import Objective
from studies.capacity import choices, objectives
from studies.capacity.load import Load, load_of

T = TypeVar("T")

LIMIT, OVER, CONFIDENCE, TARGET, SIZE = "limits", "over", "confidence", "target", "size"
LENGTH, DEVICES, PRECISIONS, PARALLEL = "length", "devices", "precisions", "parallel"
OWN = (LIMIT, OVER, CONFIDENCE, LENGTH, TARGET, SIZE, DEVICES, PRECISIONS, PARALLEL)
"""Query parameters of the page."""
SHORTEST, LONGEST = 50, 100_000
"""Requests of a run at first."""
SURE = ("80%", "90%", "95%", "99%")
USUAL = "95%"
FALLBACK = "ttft_p99<=1s, tpot_p95<=50ms"
"""Of a scenario that promises nothing."""
PRECISE: tuple[str, ...] = ("auto", "fp8")
SIZES: tuple[int, ...] = (1, 2)
"""Precisions and tensor parallel sizes that are tried where nobody says which."""
LIMITS = {  # metric -> label, unit, how many of it are a second, percentile where none is stated
    "ttft": ("First token", "ms", 1e3, "p99"),
    "tpot": ("Each further token", "ms", 1e3, "p95"),
    "e2e": ("Whole answer", "s", 1.0, "p95"),
}


@dataclass(frozen=True)
class Question:
    """What is asked.

    objectives: all must hold. stated: where they are from, in words. load: of the scenario, as it is. confidence: 0 to 1. requests: of a run at first; None: as suits. target: the
    load that is to be carried. size: path of the number of replicas. told: a sentence on everything in the link that cannot be had;
    that is left as usual.
    """

    load: Load
    objectives: tuple[Objective, ...]
    stated: str
    confidence: float
    requests: int | None
    target: float
    size: str
    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    parallel: tuple[int, ...]
    told: tuple[str, ...] = field(default=(), compare=False)

    @property
    def scenario(self) -> Scenario:
        return self.load.scenario

    @property
    def key(self) -> tuple[Any, ...]:
        """What the curve and the highest load depend on."""
        return (self.scenario.hash(), self.objectives, self.load.path, self.confidence, self.requests)

    def at_target(self) -> Scenario:
        """The scenario under the load that is to be carried."""
        return self.load.at(self.target)

    def slo(self) -> str:
        """The objectives as a link and `--slo` have them."""
        return text_of(self.objectives)


def read(query: Mapping[str, str], scenario: Scenario) -> Question:
    """The question of a link about a scenario.

    Raises:
        InputError: the objectives or the load are wrong, without which there is nothing to ask.
    """
    told: list[str] = []
    load = load_of(scenario, query.get(OVER) or None)
    asked, stated = limits(query, scenario)
    sure = _taken(query, CONFIDENCE, _share, _share(USUAL), told)
    length = _taken(query, LENGTH, _length, None, told)
    target = _taken(query, TARGET, lambda text: _load(load, text), load.start, told)
    offered = sizes(scenario)
    size = _taken(query, SIZE, lambda text: _among((text,), offered)[0], offered[0], told)
    devices = _taken(query, DEVICES, lambda t: _among(_listed(t), choices.DEVICES), usual_devices(scenario), told)
    precisions = _taken(query, PRECISIONS, lambda t: _among(_listed(t), choices.PRECISIONS), PRECISE, told)
    parallel = _taken(
        query,
        PARALLEL,
        lambda t: tuple(int(x) for x in _among(_listed(t), [str(n) for n in choices.PARALLEL])),
        SIZES,
        told,
    )
    return Question(load, asked, stated, sure, length, target, size, devices, precisions, parallel, tuple(told))


def limits(query: Mapping[str, str], scenario: Scenario) -> tuple[tuple[Objective, ...], str]:
    """The objectives, and where they are from.

    Raises:
        InputError: they are wrong, or contradict one another.
    """
    text = query.get(LIMIT, "").strip()
    if text:
        asked, stated = objectives.parse(text, LIMIT), ""
    elif scenario.objectives:
        asked, stated = objectives.of_scenario(scenario), "the scenario's own"
    else:
        asked, stated = _promised(scenario)
    objectives.check_promises(asked, scenario, LIMIT)
    return asked, stated


def _promised(scenario: Scenario) -> tuple[tuple[Objective, ...], str]:
    """What is promised to every request, held for most of them."""
    found = []
    for metric, (_, _, _, statistic) in LIMITS.items():
        limit = getattr(scenario.slo, metric)
        if limit is not None:
            found.append(Objective(metric, statistic, "<=", limit))
    if found:
        return tuple(found), "the scenario states none: its promises to requests (slo), held at these percentiles"
    return objectives.parse(FALLBACK), "the scenario states none and promises nothing: what people who chat expect"


def text_of(found: Sequence[Objective]) -> str:
    return ", ".join(str(objective) for objective in found)


def with_limit(found: Sequence[Objective], metric: str, value: float | None) -> str:
    """Objectives as text with another limit on a latency, in the unit of `LIMITS`; None: without one."""
    place = at(found, metric)
    _, _, factor, statistic = LIMITS[metric]
    changed = list(found)
    if value is None:
        return text_of([o for o in found if o is not place])
    new = Objective(metric, place.statistic if place else statistic, "<=", float(f"{value / factor:.9g}"))
    if place is None:
        changed.append(new)
    else:
        changed[changed.index(place)] = new
    return text_of(changed)


def at(found: Sequence[Objective], metric: str) -> Objective | None:
    """The first upper limit on a latency."""
    return next((o for o in found if o.metric == metric and o.statistic is not None and o.comparison == "<="), None)


def sizes(scenario: Scenario) -> tuple[str, ...]:
    """Paths of numbers of replicas."""
    return tuple(f"pools[{i}].replicas" for i in range(len(scenario.pools))) or ("replicas",)


def loads(scenario: Scenario) -> tuple[str, ...]:
    """Loads that can be chosen, the usual one first: all of it, or one part of a mix."""
    usual = load_of(scenario).path
    parts = [
        f"workload.mix.{name}.arrivals.rate"
        for name, part in (scenario.workload.mix or {}).items()
        if getattr(part.arrivals, "rate", None)
    ]
    return (usual, *parts)


def usual_devices(scenario: Scenario) -> tuple[str, ...]:
    """The scenario's own device, where it is of the catalog, and three that are often rented."""
    own = [scenario.hardware.name] if scenario.hardware.name in choices.DEVICES else []
    return tuple(dict.fromkeys((*own, "H100", "A100-80G", "L40S")))


def command(settings: Settings, question: Question, *more: str) -> str:
    """The same on a command line. more: further options."""
    words = words_of(settings, ("capacity",))
    words += ["--slo", question.slo()]
    if question.confidence != _share(USUAL):
        words += ["--confidence", f"{question.confidence:g}"]
    if question.requests is not None:
        words += ["--requests", str(question.requests)]
    return shlex.join([*words, *more])


def at_target(question: Question) -> list[tuple[str, str]]:
    """What the load's fields are under the target, by path, as YAML."""
    factor = question.target / question.load.start
    return [(path, f"{value * factor:.10g}") for path, value in question.load.values.items()]


def is_uploaded(settings: Settings) -> bool:
    """Whether a command line needs files that were uploaded."""
    return settings.trace is not None or settings.base.startswith(UPLOADED)


def _taken(query: Mapping[str, str], name: str, parse: Callable[[str], T], usual: T, told: list[str]) -> T:
    """A parameter; where it is wrong what is usual, and a sentence."""
    text = query.get(name, "").strip()
    if not text:
        return usual
    try:
        return parse(text)
    except (ValueError, InputError) as error:
        shown = ", ".join(map(str, usual)) if isinstance(usual, tuple) else f"{usual:g}" if isinstance(usual, float) else usual or "as suits"  # fmt: skip
        told.append(f"{name}={text}: {error}. Shown instead: {shown}.")
        return usual


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0.5 <= value < 1:
        raise ValueError("a confidence lies between 50% and 100%, such as 95%")
    return round(value, 6)


def _length(text: str) -> int | None:
    if (found := whole(text, SHORTEST, LONGEST)) is None:
        raise ValueError(f"a run has {SHORTEST} to {LONGEST:,} requests at first")
    return found


def _load(load: Load, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or (load.integer and value != round(value)):
        raise ValueError(f"a load is a {'whole ' if load.integer else ''}number above 0, in {load.unit or 'its unit'}")
    load.at(value)
    return value


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _among(found: Sequence[str], offered: Sequence[str]) -> tuple[str, ...]:
    for name in found:
        if name not in offered:
            raise ValueError(f"there is no {name}; allowed: {', '.join(offered)}")
    return tuple(found)
