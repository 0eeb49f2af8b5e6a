"""The degradation ladder: what a deployment gives up, and in which order, when it cannot keep up.

Each rung has a trigger of its own: it is switched on when its signal reaches one level and off when it falls below a lower one, but
not before it has held for a while. All rungs below the highest one that is on are in force too. The ladder is looked at when a
request comes; what has been handed to an engine stays as it is.

To add a signal: write a function here and name it in `SIGNALS`. To add something that a rung does: name it in `EFFECTS`, with its
argument in `Rung` and what it comes to in `effects`; the field of the scenario is in `scenarios.degradation`, and a change of the request
itself in `sim.front.degrade`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.admission import Load
from serving.request import Cause, Request

EFFECTS = ("cap_output", "drop_stale_turns", "route_to", "shed_class", "reject")
"""What a rung does, the mildest first."""


def queue_requests(loads: Sequence[Load], now: int) -> float:
    """Waiting requests, mean over replicas."""
    return sum(len(load.waiting) for load in loads) / len(loads)


def queue_tokens(loads: Sequence[Load], now: int) -> float:
    """Prompt tokens of waiting requests, mean over replicas."""
    return sum(load.waiting_tokens for load in loads) / len(loads)


def kv_use(loads: Sequence[Load], now: int) -> float:
    """Share of the KV blocks that requests own, mean over replicas."""
    return sum(load.kv_use for load in loads) / len(loads)


def oldest_wait(loads: Sequence[Load], now: int) -> float:
    """Seconds for which the oldest request that was never scheduled has waited, whichever replica's it is."""
    return max(load.oldest_wait(now) for load in loads) / 1e9


SIGNALS: dict[str, Callable[[Sequence[Load], int], float]] = {
    "queue_requests": queue_requests,
    "queue_tokens": queue_tokens,
    "kv_use": kv_use,
    "oldest_wait": oldest_wait,
}


@dataclass(frozen=True)
class Rung:
    """One thing that is given up, and when.

    does: one of EFFECTS, with its argument: the cap of `max_tokens`, how many earlier turns are kept, the pool to go to, the index of
        the class that is shed.
    signal: one of SIGNALS. on, off: it is switched on at or above `on`, off below `off`. hold_ns: it stays on for so long at least.
    """

    does: str
    signal: str
    on: float
    off: float
    hold_ns: int = 0
    cap: int = 0
    keep_turns: int = 0
    pool: str = ""
    service_class: int = -1


@dataclass(frozen=True)
class Effects:
    """What the rungs in force come to; None, -1 or empty where none of them says anything."""

    cap: int | None = None
    keep_turns: int | None = None
    pool: str | None = None
    shed: frozenset[int] = frozenset()
    reject: bool = False

    def refuses(self, request: Request) -> Cause:
        """Why a request is refused, NONE where it is not."""
        if self.reject:
            return Cause.LADDER
        return Cause.SHED if request.tags.service_class in self.shed else Cause.NONE


def effects(rungs: Sequence[Rung], level: int) -> Effects:
    """Of the first `level` rungs together; of two that do the same thing the higher one counts."""
    cap = keep = pool = None
    shed: set[int] = set()
    reject = False
    for rung in rungs[:level]:
        if rung.does == "cap_output":
            cap = rung.cap
        elif rung.does == "drop_stale_turns":
            keep = rung.keep_turns
        elif rung.does == "route_to":
            pool = rung.pool
        elif rung.does == "shed_class":
            shed.add(rung.service_class)
        else:
            reject = True
    return Effects(cap, keep, pool, frozenset(shed), reject)


class Ladder:
    """Rungs, and which of them are on.

    history: (ns, level) whenever the number of rungs in force has changed.
    """

    def __init__(self, rungs: Sequence[Rung]) -> None:
        self.rungs = tuple(rungs)
        self.effects = [effects(rungs, level) for level in range(len(rungs) + 1)]
        self.since: list[int | None] = [None] * len(rungs)  # when each that is on was switched on
        self.history: list[tuple[int, int]] = []
        self.level = 0

    def look(self, loads: Sequence[Load], now: int) -> int:
        """Switches rungs by what the replicas have to do at `now`; returns how many are in force."""
        values: dict[str, float] = {}
        for i, rung in enumerate(self.rungs):
            if rung.signal not in values:
                values[rung.signal] = SIGNALS[rung.signal](loads, now)
            value, since = values[rung.signal], self.since[i]
            if since is None:
                if value >= rung.on:
                    self.since[i] = now
            elif value < rung.off and now - since >= rung.hold_ns:
                self.since[i] = None
        level = max((i + 1 for i, since in enumerate(self.since) if since is not None), default=0)
        if level != self.level:
            self.level = level
            self.history.append((now, level))
        return level
