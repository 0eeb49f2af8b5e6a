"""The fewest replicas, or the least of any whole number of a scenario, with which objectives hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import scenarios
from scenarios.errors import InputError
from scenarios.load import Override
from scenarios.objectives import Objective
from scenarios.schema import Scenario
from studies.capacity.judging import Judge
from studies.capacity.space import usd_per_hour

if TYPE_CHECKING:
    from studies.capacity.attainment import Attainment
    from studies.progress import Progress

MOST = 1024
"""Values above which the search gives up."""
USELESS = 0.99
"""Twice as much must bring the worst objective to less than this share of what it was, or it is of no use."""

NEAR = 64
"""Neighbours that are looked at for one that can be: a group of 3 devices cannot, of 4 it can."""


@dataclass
class Fewest:
    """The least value with which every objective holds.

    path, value: None where no value that was tried will do; `why` then says so. decided: the least value that it may be: all below it
    are decided not to do; those from there to `value` are not decided. tried: what was found at each value.
    refused: values that cannot be, each with its reason.
    """

    path: str
    scenario: Scenario
    objectives: tuple[Objective, ...]
    confidence: float
    value: int | None = None
    decided: int | None = None
    why: str = ""
    tried: dict[int, Attainment] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    usd: dict[int, float] = field(default_factory=dict)

    @property
    def interval(self) -> tuple[int, int] | None:
        """Where the least value lies: both ends are the same where its lower neighbour is decided."""
        return None if self.value is None or self.decided is None else (self.decided, self.value)

    @property
    def too_few(self) -> int | None:
        """The largest value below the answer that is decided not to do."""
        return max((k for k, found in self.tried.items() if found.met is False and k < (self.value or 0)), default=None)

    @property
    def broken_above(self) -> list[int]:
        """Values above the answer with which an objective does not hold: more is not always better then."""
        return [
            k
            for k, found in sorted(self.tried.items())
            if self.value is not None and k > self.value and found.met is False
        ]


class _Search:
    def __init__(
        self,
        scenario: Scenario,
        path: str,
        judge: Judge,
        most: int,
        progress: Progress | None,
        partial: Callable[[Fewest], None] | None,
    ) -> None:
        self.found = Fewest(path, scenario, judge.objectives, judge.confidence)
        self.judge, self.most, self.progress, self.partial = judge, most, progress, partial

    def possible(self, value: int) -> bool:
        """Whether there is a scenario with that value."""
        found = self.found
        if value in found.usd:
            return True
        if value in found.refused:
            return False
        try:
            found.usd[value] = usd_per_hour(with_value(found.scenario, found.path, value))
        except InputError as error:
            found.refused[value] = str(error)
        return value in found.usd

    def met(self, value: int) -> bool | None:
        found = self.found
        if value not in found.tried:
            if self.progress is not None:
                self.progress(f"{found.path} {value}", min(0.99, len(found.tried) / 12))
            found.tried[value] = self.judge(with_value(found.scenario, found.path, value))
            if self.partial is not None:
                self.partial(found)
        return found.tried[value].met

    def next_up(self, value: int) -> int | None:
        """The least value that can be, from `value` on and below twice as much."""
        return next((k for k in range(value, min(2 * value, value + NEAR, self.most + 1)) if self.possible(k)), None)

    def between(self, low: int, high: int) -> int | None:
        """A value that can be, strictly between, the nearest to the middle."""
        middle = (low + high) // 2
        inside = sorted(range(low + 1, high), key=lambda k: (abs(k - middle), k))[:NEAR]
        return next((k for k in inside if self.possible(k)), None)

    def least(self, low: int, high: int, will_do: Callable[[bool | None], bool]) -> int:
        """The least value above `low`, which will not do, up to `high`, which will."""
        while (k := self.between(low, high)) is not None:
            if will_do(self.met(k)):
                high = k
            else:
                low = k
        return high


def fewest(
    scenario: Scenario,
    path: str,
    judge: Judge,
    *,
    most: int = MOST,
    progress: Progress | None = None,
    partial: Callable[[Fewest], None] | None = None,
) -> Fewest:
    """The least value at `path`, a whole number such as `replicas`, with which every objective holds.

    It is taken for granted that more is better, and looked at around the answer: below it nothing will do, above it everything does.
    judge: decides one scenario. most: the largest value that is tried. partial: gets what is known after every
    value.

    Raises:
        InputError: the path leads to no whole number, or not even its present value can be.
    """
    search = _Search(scenario, path, judge, most, progress, partial)
    found = search.found
    start = min(value_at(scenario, path), most)
    top = _first_that_does(search, start)
    if top is None:
        return found
    below = [k for k, tried in found.tried.items() if k < top and tried.met is not True]
    found.value = search.least(max(below, default=0), top, lambda met: met is True)
    not_met = [k for k, tried in found.tried.items() if k < found.value and tried.met is False]
    found.decided = search.least(max(not_met, default=0), found.value, lambda met: met is not False)
    neighbour = next((k for k in range(found.value + 1, min(2 * found.value, most) + 1) if search.possible(k)), None)
    if neighbour is not None:
        search.met(neighbour)
    return found


def _first_that_does(search: _Search, start: int) -> int | None:
    """A value that will do, from `start` by halves or doubles; None without, and `why`."""
    found = search.found
    value: int | None = search.next_up(start)
    if value is None:
        raise InputError(
            found.refused.get(start, f"--fewest {found.path}: no value from {start} to {search.most} can be")
        )
    if search.met(value):
        while value > 1 and (half := search.next_up(max(value // 2, 1))) is not None and half < value:
            if not search.met(half):
                break
            value = half
        return value
    useless = 0
    while True:
        before = value
        value = search.next_up(2 * before)
        if value is None:
            refused = found.refused.get(2 * before)
            found.why = refused or f"not even {before} will do, and at most {search.most} are tried"
            return None
        if search.met(value):
            return value
        was, now = (found.tried[k].worst for k in (before, value))
        useless = useless + 1 if now >= USELESS * was else 0
        if useless == 2 and now < float("inf"):
            found.why = f"more of it is of no use: from {before // 2} to {value} no objective comes nearer to its limit"
            return None


def value_at(scenario: Scenario, path: str) -> int:
    """The whole number at a path of a scenario; what it resolves to where the file does not state it.

    Raises:
        InputError: there is none.
    """
    where = Override(path, None, f"--fewest {path}").location
    if where[0] == "workload":
        raise InputError(f"--fewest {path}: is part of the load; --over {path} finds the most of it that is carried")
    if where[0] in ("seed", "schema_version"):
        raise InputError(
            f"--fewest {path}: is no size of a deployment; name one, such as replicas or engine.max_num_seqs"
        )
    node: Any = scenario.model_dump(mode="json")
    for part in where:
        inside = isinstance(node, Sequence) and not isinstance(node, str) and isinstance(part, int) and part < len(node)
        if not inside and not (isinstance(node, Mapping) and part in node):
            with_value(scenario, path, 1)  # says what is wrong with the path, if something is
            return 1
        node = node[part]
    if node is None and where[0] == "engine":
        node = getattr(scenario.engine_config(), str(where[-1]), None)
    if isinstance(node, bool) or not isinstance(node, int | None):
        raise InputError(
            f"--fewest {path}: found {node!r} there, but only whole numbers are searched, such as replicas"
        )
    return 1 if node is None else max(node, 1)


def with_value(scenario: Scenario, path: str, value: int) -> Scenario:
    """The same scenario with another number at a path.

    Raises:
        InputError: there is no such path, or it takes no such value.
    """
    override = Override(path, value, f"--fewest {path}: {value}")
    return scenarios.changed(scenario, [override])
