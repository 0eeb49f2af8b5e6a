"""Runs of a comparison: every policy under every seed, side by side on the processors of this machine."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scenarios.errors import InputError, nearest, unknown
from scenarios.schema import Scenario
from studies import workers
from studies.comparison import policies as gathering
from studies.comparison.policies import Policies, Source, Variants
from studies.comparison.result import ROWS, Comparison
from studies.progress import Progress
from studies.replications import Replications, seeds_of
from studies.results import Run
from studies.run import simulate
from studies.statistics.directions import better
from studies.statistics.intervals import FEWEST
from studies.sweeps.cells import Row, figures, figures_of

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
TAILS = ("p99", "p95", "p90", "p50", "mean")
"""Statistics of a latency, the outermost first: the decision is about the first that every run's sample can carry."""
COST = "usd_per_1m_total_tokens"
"""Of all tokens: what output alone is charged moves when an engine divides its time between input and output otherwise."""
PER_USER, PER_GPU = "output_token_throughput_per_user", "output_throughput_per_gpu"
SHORT = 3.0
"""Seconds of work below which it is not worth to start processes for it."""
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)_")
_TTFT_TAIL = re.compile(r"(^|\.)p[\d.]+_ttft_ms$")

Job = tuple[str, Scenario, tuple[float, ...], bool]
Outcome = tuple[Row, Run | None]


class PolicyError(InputError):
    """A policy cannot be run. policy: its name. why: a sentence."""

    def __init__(self, policy: str, why: str) -> None:
        super().__init__(f"{policy}: {why}")
        self.policy, self.why = policy, why

    def __reduce__(self) -> tuple[type[PolicyError], tuple[str, str]]:
        return PolicyError, (self.policy, self.why)  # as it comes from another process


def compare(
    found: Source | Sequence[Source] | Mapping[str, Source] | Policies,
    *,
    files: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    trace: str | Path | None = None,
    variants: Variants | None = None,
    seeds: int | Sequence[int] | None = None,
    metrics: Sequence[str] = (),
    baseline: str | None = None,
    fronts: Sequence[tuple[str, str]] = (),
    processes: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Simulates policies under the same seeds and holds them against one another.

    Args:
        found, files, overrides, trace, variants: see `policies.gather`. seeds: how many, from the first scenario's on, or which;
            5 by default, or those of a study.
        metrics: figures of the decision by their keys; by default objectives, tails of latencies, throughput and cost. baseline:
            the first policy by default. fronts: pairs of figures for the Pareto set; by default a tail against cost, and tokens per
            GPU against tokens per user.
        processes: side by side; all processors by default, and none more than this one for little work.

    Raises:
        InputError: there is no such scenario, figure or policy, or something is wrong.
    """
    if not isinstance(found, Policies):
        found = gathering.gather(found, files=files, overrides=overrides, trace=trace, variants=variants)
    by_seed = rounds(
        found,
        seeds=seeds,
        metrics=metrics,
        baseline=baseline,
        fronts=fronts,
        processes=processes,
        progress=progress,
    )
    return deque(by_seed, maxlen=1).pop()


def rounds(
    found: Policies,
    *,
    seeds: int | Sequence[int] | None = None,
    metrics: Sequence[str] = (),
    baseline: str | None = None,
    fronts: Sequence[tuple[str, str]] = (),
    processes: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Comparison]:
    """What is known after every seed: all policies under the first, then under the first two, and at last what `compare` returns.

    Arguments as of `compare`; what `progress` raises ends it.

    Raises:
        PolicyError: a policy cannot be run. InputError: there is no such figure or policy.
    """
    policies = found.scenarios
    first = next(iter(policies))
    if baseline is not None and baseline not in policies:
        raise InputError(f"--baseline {baseline}: {unknown('policy', baseline, policies)}")
    chosen = _seeds(found, seeds)
    asked = _checked(metrics, fronts)
    for rows, runs in _side_by_side(policies, chosen, asked, metrics, processes, progress):
        so_far = chosen[: len(rows)]
        replications = {
            name: Replications(scenario, so_far, tuple(of_seed[name] for of_seed in rows))
            for name, scenario in policies.items()
        }
        result = Comparison(runs, replications, baseline or first, (), (), found.question)
        result.metrics = tuple(dict.fromkeys(metrics)) or _decisive(found, replications)
        result.fronts = tuple(fronts) or _fronts(result.metrics, replications)
        yield result


def _side_by_side(
    policies: Mapping[str, Scenario],
    seeds: Sequence[int],
    asked: Sequence[str],
    metrics: Sequence[str],
    processes: int | None,
    progress: Progress | None,
) -> Iterator[tuple[list[dict[str, Row]], dict[str, Run]]]:
    """Figures by policy of every seed that is complete, and the runs of the first one; again after each seed. asked: figures that the
    first run must have; those of `metrics` were asked for by that name."""
    percentiles = tuple(sorted({*PERCENTILES, *(float(p[1]) for key in asked if (p := _PERCENTILE.search(key)))}))
    jobs: list[Job] = [
        (name, scenario.model_copy(update={"seed": seed}), percentiles, seed == seeds[0])
        for seed in seeds
        for name, scenario in policies.items()
    ]
    outcomes = _one_by_one(jobs, asked, metrics, processes, progress or (lambda what, part: None))
    rows: list[dict[str, Row]] = []
    runs: dict[str, Run] = {}
    for of_seed in _in_order(outcomes, len(policies)):
        rows = [*rows, {name: row for name, (row, _) in zip(policies, of_seed, strict=True)}]
        runs = runs or {name: run for name, (_, run) in zip(policies, of_seed, strict=True) if run is not None}
        yield rows, runs


def _one_by_one(
    jobs: Sequence[Job], asked: Sequence[str], metrics: Sequence[str], processes: int | None, tell: Progress
) -> Iterator[tuple[int, Outcome]]:
    """Place and outcome of every job as it ends: the first one here, which tells whether the others are worth processes of their own."""
    tell("simulating", 0.0)
    begin = time.perf_counter()
    first = _run(jobs[0])
    _check_keys(asked, first[0], metrics)
    small = (time.perf_counter() - begin) * (len(jobs) - 1) < SHORT
    tell("simulating", 1 / len(jobs))
    yield 0, first
    for ended, (place, outcome) in enumerate(workers.each(_run, jobs[1:], 1 if small else processes), 2):
        tell("simulating", ended / len(jobs))
        yield 1 + place, outcome


def _in_order(outcomes: Iterator[tuple[int, Outcome]], count: int) -> Iterator[list[Outcome]]:
    """So many outcomes at a time by their places, as soon as all of them are there."""
    early: dict[int, Outcome] = {}
    place = 0
    for found, outcome in outcomes:
        early[found] = outcome
        while all(place + k in early for k in range(count)):
            yield [early.pop(place + k) for k in range(count)]
            place += count


def _run(job: Job) -> Outcome:
    """Figures of a run, and the run itself where it is wanted."""
    name, scenario, percentiles, whole = job
    try:
        if not whole and percentiles == PERCENTILES:
            return figures_of(scenario), None
        run = simulate(scenario, percentiles=percentiles)
    except InputError as error:
        raise PolicyError(name, str(error)) from None
    return figures(run), run if whole else None


def _seeds(found: Policies, seeds: int | Sequence[int] | None) -> tuple[int, ...]:
    if seeds is None:
        seeds = found.seeds or FEWEST
    if isinstance(seeds, int):
        if seeds < 1:
            raise InputError(f"--seeds {seeds}: at least one run of each policy is needed; {FEWEST} give intervals")
        if found.seeds:
            return (*found.seeds, *range(max(found.seeds) + 1, max(found.seeds) + 1 + seeds))[:seeds]
        return seeds_of(next(iter(found.scenarios.values())), seeds)
    return tuple(seeds)


def _checked(metrics: Sequence[str], fronts: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    for front in fronts:
        for key in front:
            if better(key) is None:
                raise InputError(
                    f"--pareto {','.join(front)}: of {key} neither less nor more is better; "
                    f"write two figures such as p95_ttft_ms,{COST}"
                )
    return (*metrics, *(key for front in fronts for key in front))


def _check_keys(asked: Sequence[str], row: Row, metrics: Sequence[str]) -> None:
    """Raises InputError for a figure that a run does not have."""
    known = [key for key, value in row.items() if not isinstance(value, str)]
    for key in asked:
        if key not in known:
            close = nearest(key, known)
            hint = f": did you mean {close!r}?" if close else "."
            option = "metric" if key in metrics else "pareto"
            raise InputError(
                f"--{option} {key}: a run has no such figure{hint} Figures are those of servetwin run --json, among them "
                f"{', '.join(key for key in ROWS if key in known)}"
            )


def _decisive(found: Policies, replications: Mapping[str, Replications]) -> tuple[str, ...]:
    """Figures that a decision is about, where nobody says which: those of a study, or objectives, tails, throughput, promises, cost."""
    money = [key for key in (COST, "usd_per_hour") if _has(replications, key)]
    if own := [key for key in found.metrics if _has(replications, key)]:
        return tuple(dict.fromkeys((*own, "output_throughput", *money[:1])))
    held = [o.key for scenario in found.scenarios.values() for o in scenario.objectives]
    held = [key for key in held if _complete(replications, key)]
    keys = []
    for latency in ("ttft", "tpot"):
        tail = _tail(replications, latency)
        keys += [key for key in held if f"_{latency}_" in key] or ([tail] if tail else [])
    keys += held
    keys.append("output_throughput")
    keys += [key for key in ("good_request_fraction",) if _has(replications, key)]
    return tuple(dict.fromkeys((*keys, *money)))


def _fronts(metrics: Sequence[str], replications: Mapping[str, Replications]) -> tuple[tuple[str, str], ...]:
    """Pairs for the Pareto set. The tail of TTFT is that of the decision, be it of a class, or else of all requests."""
    decided = (key for key in metrics if _TTFT_TAIL.search(key) and _complete(replications, key))
    tail = next(decided, None) or _tail(replications, "ttft")
    pairs = [(tail, COST)] if tail else []
    return tuple(pair for pair in (*pairs, (PER_USER, PER_GPU)) if all(_has(replications, key) for key in pair))


def _tail(replications: Mapping[str, Replications], latency: str) -> str | None:
    """The outermost statistic that every run has."""
    keys = (f"{stat}_{latency}_ms" for stat in TAILS)
    return next((key for key in keys if _complete(replications, key)), None)


def _complete(replications: Mapping[str, Replications], key: str) -> bool:
    return all(None not in found.values(key) for found in replications.values())


def _has(replications: Mapping[str, Replications], key: str) -> bool:
    return any(value is not None for found in replications.values() for value in found.values(key))
