"""What the dashboard's processes do for a comparison."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from studies import workers
from studies.aspects.kv_use import KvUse, kv_use
from studies.comparison import Comparison
from studies.comparison.policies import Policies
from studies.comparison.runs import PolicyError, rounds

if TYPE_CHECKING:
    from dashboard.worker import Tell
    from scenarios import Scenario


@dataclass(frozen=True)
class Compared:
    """found: of the seeds that are done, without steps; None where nothing could be run, or it was not begun. kv_use: of the first
    seed, by policy. refused: a sentence on each policy that could not be run. seconds: that all runs would take, where that is more
    than was allowed."""

    found: Comparison | None
    kv_use: dict[str, KvUse] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    seconds: float | None = None


class _TooLongError(Exception):
    """The first run says that all of them would take so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def compare(
    tell: Tell, policies: dict[str, Scenario], seeds: int, metrics: Sequence[str], patience: float | None
) -> Compared:
    """Compares policies by name, seed by seed. patience: seconds that it may take; None: as long as it takes.

    Policies that cannot be run are left out, the baseline too: the next one is held against then.
    """
    policies = dict(policies)
    refused: list[str] = []
    while policies:
        watch = _Watch(tell, len(policies) * seeds, patience)
        done = Compared(None)
        try:
            for found in rounds(Policies(policies), seeds=seeds, metrics=metrics, progress=watch):
                uses = done.kv_use or _uses(found)
                done = Compared(found.without_steps(), uses, tuple(refused))
                if len(found.seeds) < seeds:
                    tell.partial(done)
            return done
        except PolicyError as error:
            refused.append(str(error))
            del policies[error.policy]
        except _TooLongError as error:
            return Compared(None, {}, tuple(refused), error.seconds)
    return Compared(None, {}, tuple(refused))


def _uses(found: Comparison) -> dict[str, KvUse]:
    return {name: use for name, run in found.runs.items() if (use := kv_use(run)) is not None}


class _Watch:
    """Passes progress on, and ends what would take too long by the time that the first run took."""

    def __init__(self, tell: Tell, runs: int, patience: float | None) -> None:
        self._tell, self._runs, self._patience = tell, runs, patience
        self._begin = time.perf_counter()
        self._ended = -1

    def __call__(self, what: str, share: float) -> None:
        self._ended += 1
        if self._ended == 1 and self._patience is not None:
            left = self._runs - 1
            seconds = (time.perf_counter() - self._begin) * left / max(1, min(workers.processors(), left))
            if seconds > self._patience:
                raise _TooLongError(seconds)
        self._tell(f"{self._ended} of {self._runs} runs" if self._ended else what, share)
