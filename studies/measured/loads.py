"""Measured runs, load by load, beside their simulation: the same requests at the same times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibration import validate as judged
from calibration.measured.run import MeasuredRun
from calibration.measured.seen import as_seen
from scenarios.errors import InputError
from scenarios.schema import Scenario
from serving.records import Records
from sim.cost import CostModel
from sim.profile_parts import Noise
from studies.measured.engine import Engine

METRICS = (
    *(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in ("mean", "p50", "p90", "p95", "p99")),
    "output_throughput",
    "request_throughput",
)
SEEDS = 8
"""Draws of noise that a figure is the mean of: one moves mean TTFT by 1 to 2 % and p99 TTFT by 3 to 7 %."""

SHIFTED = ("mean_ttft_ms", "mean_e2el_ms")
SPREADS = (0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5)
"""Factors of the gaps between arrivals at which a load is simulated to express an error as a shift in load."""

MATCHED = (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "e2e"))


@dataclass
class Load:
    """Runs of one load, and what became of those that are validated.

    runs: all repeats. simulated: by name of a validated run, a simulation for each draw of noise. rows: means of the validated
    runs against means of their simulations; noise is that of all repeats. by_run: the same of each. matched: requests of the
    first validated run against the mean of its simulations. shift: by metric, the change of load at which the simulation
    (without noise) has the measured mean, None beyond the loads that were tried.
    interval: simulated values by metric at both ends of the KV capacity, where that is not stated.
    """

    name: str
    runs: list[MeasuredRun]
    simulated: dict[str, list[MeasuredRun]]
    rows: list[judged.OutcomeRow]
    by_run: dict[str, list[judged.OutcomeRow]]
    matched: dict[str, judged.Matched]
    shift: dict[str, float | None]
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    few: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Replays:
    """Simulates measured runs. ready_check: the client sent its first prompt before. client_ns: between engine and client.
    noise: of step times."""

    scenario: Scenario
    cost: CostModel
    ready_check: bool = False
    client_ns: int = 0
    noise: Noise | None = None

    @property
    def draws(self) -> range:
        """Seeds of the noise; none where there is no noise."""
        return range(0 if self.noise is None else SEEDS)

    def records(
        self, run: MeasuredRun, *, scenario: Scenario | None = None, spread: float = 1.0, seed: int | None = None
    ) -> Records:
        """The run's requests simulated; without noise where no seed is given.

        Raises:
            InputError: the engine could not hold one of them.
        """
        from sim.cluster import simulate

        scenario = self.scenario if scenario is None else scenario
        sent = run.after_ready_check() if self.ready_check else run
        records = simulate(
            scenario.engine_config(),
            sent.workload(spread=spread),
            self.cost,
            replicas=scenario.replicas,
            router=scenario.router,
            noise=None if seed is None else self.noise,
            seed=seed or 0,
        )
        if not records.finished.all():
            refused = records.info["rejected"]
            why = f": {refused[0]['reason']}" if isinstance(refused, list) and refused else ""
            raise InputError(
                f"{run.source}: {int((~records.finished).sum())} of {len(run)} requests cannot run in this engine{why}; its "
                f"settings are not those of the run"
            )
        return records

    def seen(
        self, run: MeasuredRun, *, scenario: Scenario | None = None, spread: float = 1.0, seed: int | None = None
    ) -> MeasuredRun:
        """The same as clients see it; row i is row i of the run."""
        records = self.records(run, scenario=scenario, spread=spread, seed=seed)
        seen = as_seen(records, name=run.name, before_ns=self.client_ns, by_engine=run.sent_ns is not None)
        return seen.take(np.arange(1, len(seen))) if self.ready_check else seen

    def all_seen(self, run: MeasuredRun) -> list[MeasuredRun]:
        """One for each draw of noise, or the only one."""
        return [self.seen(run, seed=seed) for seed in self.draws] or [self.seen(run)]


def compared(runs: list[MeasuredRun], kept: list[MeasuredRun], replays: Replays, engine: Engine) -> Load:
    """Repeats of one load, of which those `kept` are validated."""
    found = {run.name: replays.all_seen(run) for run in kept}
    live = {run.name: run.summary() for run in runs}
    predicted = {name: _mean([run.summary() for run in draws]) for name, draws in found.items()}
    repeats = list(live.values())
    interval: dict[str, tuple[float, float]] = {}
    if engine.lowest is not None and engine.highest is not None:
        low, high = (replays.seen(kept[0], scenario=s).summary() for s in (engine.lowest, engine.highest))
        interval = {metric: (low[metric], high[metric]) for metric in METRICS if metric in low and metric in high}
    return Load(
        name=_name(runs),
        runs=runs,
        simulated=found,
        rows=_rows([live[run.name] for run in kept], list(predicted.values()), repeats),
        by_run={run.name: _rows([live[run.name]], [predicted[run.name]], repeats) for run in kept},
        matched=_matched(kept[0], found[kept[0].name]),
        shift=_shift(kept[0], lambda spread: replays.seen(kept[0], spread=spread)),
        interval=interval,
        few={key: why for summary in repeats for key, why in summary["few"].items()},
    )


def _mean(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Figures of several draws, each their mean."""
    return {
        metric: sum(float(summary[metric]) for summary in summaries) / len(summaries)
        for metric in METRICS
        if all(metric in summary for summary in summaries)
    }


def _rows(
    live: Sequence[Mapping[str, Any]], simulated: Sequence[Mapping[str, Any]], repeats: Sequence[Mapping[str, Any]]
) -> list[judged.OutcomeRow]:
    """Means of measured against means of simulated, by metric that all have; the noise is that of all repeats."""
    rows = []
    for metric in METRICS:
        if any(metric not in summary for summary in (*live, *simulated)):
            continue
        measured = sum(float(s[metric]) for s in live) / len(live)
        predicted = sum(float(s[metric]) for s in simulated) / len(simulated)
        if not measured:  # answers in one piece, say: there is no relative error
            continue
        error = predicted / measured - 1.0
        floor = judged.noise([float(s[metric]) for s in repeats])
        rows.append(judged.OutcomeRow(metric, measured, predicted, error, floor, judged.verdict(error, floor)))
    return rows


def _matched(run: MeasuredRun, draws: Sequence[MeasuredRun]) -> dict[str, judged.Matched]:
    found = {}
    for label, column in MATCHED:
        expected = np.mean([getattr(draw, column) for draw in draws], axis=0)
        match = judged.matched(getattr(run, column), expected)
        if match is not None:
            found[label] = match
    return found


def _shift(run: MeasuredRun, simulated: Callable[[float], MeasuredRun]) -> dict[str, float | None]:
    """By metric: so much more (or less) load gives the simulation the measured mean."""
    tried = [simulated(spread).summary(()) for spread in SPREADS]
    live = run.summary(())
    found: dict[str, float | None] = {}
    for metric in SHIFTED:
        if metric not in live:
            continue
        values = np.array([summary[metric] for summary in tried])
        falling = np.minimum.accumulate(values)  # wider gaps, less waiting; a wiggle is not a load
        if not falling[-1] <= live[metric] <= falling[0]:
            found[metric] = None
            continue
        spread = float(np.interp(-live[metric], -falling, np.array(SPREADS)))
        found[metric] = 1.0 / spread - 1.0
    return found


def _name(runs: Sequence[MeasuredRun]) -> str:
    """What runs of a load are called together: what their names begin with alike, and the rate."""
    first, last = min(run.name for run in runs), max(run.name for run in runs)
    alike = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = first[:alike].rstrip("_-. ")
    rate = f"{runs[0].rate:.3g}/s" if np.isfinite(runs[0].rate) else f"{len(runs[0])} at once"
    return f"{common or first} ({rate})"
