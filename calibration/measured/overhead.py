"""The terms between an engine's step log and what clients see, set on runs that are then not validated.

Two constants, each by matching one moment, so that nothing of a run's distribution is fitted:

- `step_ns`: host time of a step that its log does not count (scheduling, handing tokens over, writing the log): the mean gap
  between tokens.
- `client_ns`: from a client's clock to the engine and back (HTTP, tokenising, the queue between processes, streaming the
  first token): the mean TTFT, once steps are right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from calibration.measured.run import MeasuredRun
from scenarios.errors import InputError
from sim.operator_profile import OperatorProfile
from sim.profile import Profile
from sim.profiles import AnyProfile

_LONGEST_NS = 1_000_000_000
_NEAR_NS = 500


class Overhead(NamedTuple):
    """step_ns: of every step. client_ns: of every request. by_run: both as each run alone would have them, for a look."""

    step_ns: int = 0
    client_ns: int = 0
    runs: tuple[str, ...] = ()
    by_run: Mapping[str, tuple[int, int]] = {}

    def to_dict(self) -> dict[str, Any]:
        return {
            "host_per_step_ms": self.step_ns / 1e6,
            "client_ms": self.client_ns / 1e6,
            "set_on": list(self.runs),
            "by_run": {
                name: {"host_per_step_ms": step / 1e6, "client_ms": client / 1e6}
                for name, (step, client) in self.by_run.items()
            },
        }


Simulate = Callable[[MeasuredRun, int], MeasuredRun]
"""A run's simulation with so many ns of host time a step, as the engine sees it."""


def fit_overhead(runs: Sequence[MeasuredRun], simulate: Simulate) -> Overhead:
    """The constants for which relative errors of the runs' mean gaps, and errors of their mean TTFT, cancel.

    Raises:
        InputError: there is no run, or a run has no gaps between tokens.
    """
    if not runs:
        raise InputError("there is no run to set the client's overhead on")
    step = _step(runs, simulate)
    by_run = {}
    for run in runs:
        alone = _step([run], simulate) if len(runs) > 1 else step
        by_run[run.name] = (alone, _client(run, simulate(run, step)))
    client = sum(found for _, found in by_run.values()) / len(by_run)
    return Overhead(step, max(0, round(client)), tuple(run.name for run in runs), by_run)


def with_host_time(profile: AnyProfile, step_ns: int) -> AnyProfile:
    """The profile with so much more on every step."""
    if not step_ns:
        return profile
    if isinstance(profile, OperatorProfile):
        host = profile.host.model_copy(update={"step_ns": profile.host.step_ns + step_ns})
        return profile.model_copy(update={"host": host})
    assert isinstance(profile, Profile)
    return profile.model_copy(update={"dense": tuple((tokens, ns + step_ns) for tokens, ns in profile.dense)})


def _gap(run: MeasuredRun) -> float:
    summary = run.summary(())
    found = summary.get("mean_itl_ms", summary.get("mean_tpot_ms"))
    if found is None:
        raise InputError(f"{run.source}: answers of one token have no gaps to set overhead on; use another run")
    return float(found)


def _step(runs: Sequence[MeasuredRun], simulate: Simulate) -> int:
    """Bisection: gaps grow with host time."""
    live = [_gap(run) for run in runs]

    def short(step_ns: int) -> bool:
        return sum(_gap(simulate(run, step_ns)) / gap - 1.0 for run, gap in zip(runs, live, strict=True)) < 0

    low, high = 0, 1_000_000
    if not short(low):
        return 0
    while short(high):
        low, high = high, 2 * high
        if high > _LONGEST_NS:
            raise InputError(
                f"{runs[0].source}: its steps take a second longer than predicted; is it this engine's profile?"
            )
    while high - low > _NEAR_NS:
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return (low + high) // 2


def _client(run: MeasuredRun, simulated: MeasuredRun) -> int:
    return round((float(run.summary(())["mean_ttft_ms"]) - float(simulated.summary(())["mean_ttft_ms"])) * 1e6)
