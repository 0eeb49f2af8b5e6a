"""Is the prediction true? One scenario executed several times, simulated once, and compared layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scenarios
from calibration import validate as judged
from calibration.calibrate import Calibration
from calibration.measure import Grid
from scenarios.errors import InputError
from scenarios.models import BYTES
from scenarios.schema import Scenario
from scenarios.workload import Workload
from serving.metrics import by_request
from serving.records import Records
from sim.cost import CostModel
from sim.host_link import link_of
from sim.profile import Profile
from studies import calibrating, results
from studies.aspects import pools
from studies.aspects.binding import binding
from studies.aspects.speculation import drafting_of
from studies.aspects.step_costs import profile_cost
from studies.progress import Progress
from studies.reports import html, report, tables
from studies.reports.limits import BEYOND, NOT_MODELLED
from studies.reports.measurement_tables import side_by_side
from studies.reports.strict_json import dumps
from studies.reports.tables import Table
from studies.results import Run
from studies.run import Clock, backends, execute, loaded, replayed, simulate

BATCHINGS = ("chunked", "prefill_first", "static")
RANKED_BY = "mean_e2el_ms"
LEAST_ROUNDS = 8  # of calibration, beside the one that warms up
VARIANT_REPEATS = 2  # enough for the noise of a variant; the scenario itself is repeated as often as asked


@dataclass
class ValidationReport:
    """Layers apart: schedule, step costs, outcome beside its noise, matched requests, ranking of policies.

    executed: the repeats. predicted: the simulated run. variants: mean E2E in ms by variant, live ones by repeat.
    profiles: of each pool where there are several; `profile` is the first.
    """

    executed: list[Run]
    predicted: Run
    profile: Profile
    schedule: dict[str, Any]
    cost: judged.StepErrors
    outcome: list[judged.OutcomeRow]
    matched: dict[str, judged.Matched]
    ranking: judged.Ranking | None
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    profiles: Sequence[Profile] = ()

    @property
    def repeats(self) -> str:
        """How many executions there are, in words."""
        return f"{len(self.executed)} repeats" if len(self.executed) > 1 else "one execution"

    @property
    def verdict(self) -> str:
        """`fail` if the replayed schedule differs or a headline metric fails, `void` if the machine was too noisy."""
        return judged.overall(self.outcome) if self.schedule["identical"] else "fail"

    @property
    def sentence(self) -> str:
        """What came of it, in words."""
        same = "is identical" if self.schedule["identical"] else "DIFFERS"
        judged_rows = [row for row in self.outcome if row.metric in judged.HEADLINES]
        said = f"The replayed schedule {same} over {self.schedule['steps']:,} steps of {self.repeats}."
        if judged_rows:
            worst = max(judged_rows, key=lambda row: abs(row.error))
            said += f" Largest headline error: {tables.label(worst.metric)} {tables.percent(worst.error, signed=True)}"
            said += f", where repeats differ by {tables.percent(worst.noise)}." if worst.noise is not None else "."
        meaning = {
            "pass": "every headline is within 5 % or the noise",
            "fail": "a headline is off by more than 5 % and the noise",
            "void": "repeats differ by more than 10 %, so this machine was too unsteady to tell; close other programs, "
            "give more --repeats, or lower the load",
        }
        return f"{said} Verdict: {self.verdict} ({meaning[self.verdict]})."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; errors are signed fractions, noise unsigned ones."""
        return {
            "scenario": self.predicted.info["scenario_hash"],
            "profile": self.predicted.info["profile_hash"],
            "clock": self.executed[0].info["clock"],
            "device": self.executed[0].info["device"],
            "repeats": len(self.executed),
            "verdict": self.verdict,
            "schedule": self.schedule,
            "cost": {
                "by_kind": {kind: errors._asdict() for kind, errors in self.cost.by_kind.items()},
                "worst": [step._asdict() for step in self.cost.worst],
                "extrapolated_steps": self.cost.extrapolated,
            },
            "outcome": [row._asdict() for row in self.outcome],
            "matched": {name: found._asdict() for name, found in self.matched.items()},
            "ranking": self.ranking._asdict() | {"by": RANKED_BY, "variants": self.variants} if self.ranking else None,
            "not_modelled": [*NOT_MODELLED, *BEYOND],
        }

    def tables(self) -> list[Table]:
        """The same for people."""
        found = [
            self.schedule_table(),
            side_by_side([row._asdict() for row in self.outcome], len(self.executed)),
            self.cost_table(),
        ]
        rows = [
            (m, str(x.requests), tables.percent(x.mape), tables.number(x.pearson_r)) for m, x in self.matched.items()
        ]
        found.append(Table("Request by request", ("", "n", "MAPE", "r"), rows))
        return [*found, self.ranking_table()] if self.ranking else found

    def schedule_table(self) -> Table:
        same = "identical" if self.schedule["identical"] else "DIFFERENT"
        note = self.schedule["first_difference"] or ""
        rows = [
            ("replayed schedule", same),
            (f"steps of {self.repeats}", f"{self.schedule['steps']:,}"),
            ("verdict", self.verdict),
        ]
        return Table("Schedule", ("", ""), rows, note)

    def cost_table(self) -> Table:
        rows = [
            (
                kind,
                f"{e.steps:,}",
                tables.percent(e.total, signed=True),
                tables.percent(e.mape),
                tables.percent(e.share_of_time),
            )
            for kind, e in self.cost.by_kind.items()
        ]
        note = f"steps of {self.repeats} together; simulated on the executed schedule"
        return Table("Step costs", ("", "steps", "error of sum", "MAPE", "share of time"), rows, note)

    def ranking_table(self) -> Table:
        assert self.ranking is not None
        rows = []
        for name, found in sorted(self.variants.items(), key=lambda item: float(np.mean(item[1]["live"]))):
            live = float(np.mean(found["live"]))
            noise = tables.percent(judged.noise(found["live"]))
            rows.append((name, tables.number(live), tables.number(found["simulated"]), noise))
        tau = self.ranking.kendall_tau
        note = (
            f"Kendall's tau {tables.number(tau)} over {self.ranking.pairs} pairs that differ by more than their noise"
        )
        return Table("Policies by mean E2E (ms)", ("", "executed", "simulated", "noise"), rows, note)


def validate(
    scenario: Scenario | str | Path,
    *,
    device: str = "cpu",
    clock: Clock = "device",
    repeats: int = 3,
    profile: Profile | Sequence[Profile] | None = None,
    grid: Grid = "standard",
    ranking: bool = True,
    progress: Progress | None = None,
) -> ValidationReport:
    """Executes a scenario `repeats` times and each policy variant twice, and compares with the simulation.

    profile: step costs; of several pools, one each. If not given they are measured here, between the steps of the repeats, so that
    both meet the same fast and slow minutes of the machine; no execution is ever fitted.

    Raises:
        InputError: fewer than one repeat, the backend cannot run it, or the profile is of another kind of run.
    """
    scenario = loaded(scenario)
    if repeats < 1:
        raise InputError(f"--repeats: found {repeats}, at least 1 is needed")
    views = scenario.of_pools()
    profiles = list(profile) if isinstance(profile, Sequence) else [] if profile is None else [profile]
    if profiles and len(profiles) != len(views):
        found = "one" if len(profiles) == 1 else str(len(profiles))
        raise InputError(
            f"--profile: found {found}, but {len(views)} pools have step costs of their own; leave it out to measure them now"
        )
    for given, view in zip(profiles, views, strict=False):
        profile_cost(given, view)  # refused before any work
    engines = backends(scenario, device, clock)
    for given, engine in zip(profiles, engines, strict=False):
        _same_kind(given, engine.info())
    for view in views if not profiles else ():
        if view.hardware.is_cpu != (device == "cpu"):
            raise InputError(
                f"hardware: found {view.hardware.name}, but the step costs of {device} are measured, which simulate {device} only; "
                f"give hardware: {'cpu' if device == 'cpu' else 'a GPU'} (--set hardware=...)"
            )
    workload = scenarios.generate(scenario)
    variants = variants_of(scenario) if ranking else {}
    queue = {"": scenario} | variants
    # Variants go round by round, so that a slow minute of the machine meets all of them.
    turns = [""] * repeats + [*variants] * VARIANT_REPEATS
    between = None
    if not profiles:
        # On KV memory of its own, so that measuring in the middle of an execution touches nobody's blocks.
        made = [
            calibrating.calibration(view, engine.replica(), grid) for view, engine in zip(views, engines, strict=True)
        ]
        if progress is not None:
            progress("calibrating", 0.0)
        between = _Between(made, repeats, within=clock == "device")
    live: dict[str, list[Run]] = {name: [] for name in queue}
    for done, name in enumerate(turns):

        def tell(what: str, part: float, name: str = name, done: int = done) -> None:
            if progress is not None:
                progress(f"{what} {name or scenario.name} {done + 1} of {len(turns)}", (done + part) / len(turns))
            if between is not None and between.within:
                between.reach(done + part)

        if between is not None:
            between.reach(done)
        live[name].append(
            execute(queue[name], device=device, clock=clock, workload=workload, engine=engines, progress=tell)
        )
    if between is not None:
        profiles = between.finish()
    costs = [profile_cost(found, view) for found, view in zip(profiles, views, strict=True)]
    predicted = {name: simulate(variant, workload=workload, cost=costs) for name, variant in queue.items()}
    executed = live[""]
    for run in executed:
        _explain(run, scenario, costs)
    shown = _variants(list(variants), live, predicted)
    return ValidationReport(
        executed,
        predicted[""],
        profiles[0],
        _schedule(executed, workload),
        _step_errors(executed, scenario, costs),
        judged.outcome([run.summary for run in executed], predicted[""].summary),
        _matched(executed[0].records, predicted[""].records),
        judged.ranking({n: v["live"] for n, v in shown.items()}, {n: v["simulated"] for n, v in shown.items()})
        if ranking
        else None,
        shown,
        profiles if scenario.pools else (),
    )


def _explain(run: Run, scenario: Scenario, costs: Sequence[CostModel]) -> None:
    """Says what bound an execution, now that step costs are known."""
    if not scenario.pools:
        config, drafting = scenario.engine_config(), drafting_of(scenario, costs[0])
        duration, link = run.summary["duration"], link_of(scenario)
        run.info["binding"] = binding(run.records, config, costs[0], duration, drafting, link)
        return
    before = run.info["pools"]
    found = pools.overview(scenario, run.records, "execute", costs, run.summary)
    for pool, known in zip(found["pools"], before, strict=True):
        pool |= {name: value for name, value in known.items() if name not in pool}
    run.info |= {"binding": found["binding"], "pools": found["pools"]}


def _step_errors(runs: Sequence[Run], scenario: Scenario, costs: Sequence[CostModel]) -> judged.StepErrors:
    """Errors of the steps of all repeats; of several pools kind by kind of each."""
    if not scenario.pools:
        return judged.step_errors(_steps([run.records for run in runs]), costs[0])
    parts = [pools.apart(run.records, [view.replicas for view in scenario.of_pools()]) for run in runs]
    by_kind: dict[str, Any] = {}
    worst: list[Any] = []
    outside = 0
    for number, (name, cost) in enumerate(zip(pools.names(scenario), costs, strict=True)):
        found = judged.step_errors(_steps([part[number] for part in parts]), cost)
        by_kind |= {f"{name}: {kind}": errors for kind, errors in found.by_kind.items()}
        worst += found.worst
        outside += found.extrapolated
    worst.sort(key=lambda step: -abs(step.error))
    return judged.StepErrors(by_kind, tuple(worst[:10]), outside)


class _Between:
    """A calibration spread evenly over `turns` executions, after a round that warms up.

    within: between the steps of an execution too. That is for a clock which only measured steps advance; in real time the
    measurements wait for the end of an execution.
    """

    def __init__(self, made: Sequence[Calibration], turns: int, within: bool) -> None:
        self.made, self.turns, self.within = made, turns, within
        # Of several pools one after the other in every round.
        self.order = [one for one in made for _ in range(one.steps)]
        self.total = len(self.order) * max(LEAST_ROUNDS, turns)
        self.done = 0
        for one in self.order:
            one.step()

    def reach(self, position: float) -> None:
        """Measures what is due at `position`, counted in executions."""
        while self.done < min(position / self.turns, 1.0) * self.total:
            self.order[self.done % len(self.order)].step()
            self.done += 1

    def finish(self) -> list[Profile]:
        """The profile of each pool."""
        self.reach(self.turns)
        return [one.profile() for one in self.made]


def _steps(records: Sequence[Records]) -> dict[str, NDArray[np.int64]]:
    """Steps of all repeats one after another."""
    return {name: np.concatenate([one.steps[name] for one in records]) for name in records[0].steps}


def _variants(names: list[str], live: dict[str, list[Run]], predicted: dict[str, Run]) -> dict[str, dict[str, Any]]:
    """What variants are ranked by, live by repeat and simulated; those without a finished request are left out."""
    found = {}
    for name in names:
        values = [run.summary[RANKED_BY] for run in live[name]]
        simulated = predicted[name].summary[RANKED_BY]
        if simulated is not None and None not in values:
            found[name] = {"live": values, "simulated": simulated}
    return found


def write(found: ValidationReport, folder: Path) -> Path:
    """Writes a result folder: the first executed run, both runs side by side in report.html, validation.json, the same with single
    requests in record.json, and the profile; those of further pools are profile-2.json and so on."""
    from studies.validations.made import of_report

    page = report.comparison_page(
        f"{found.predicted.name}: simulated against executed",
        found.predicted,
        found.executed,
        found.tables(),
        found.sentence,
    )
    texts = {"report.html": html.render(page), "validation.json": dumps(found.to_dict()) + "\n"}
    texts["record.json"] = of_report(found).model_dump_json(indent=1, exclude_defaults=True) + "\n"
    texts["profile.json"] = found.profile.model_dump_json(indent=1) + "\n"
    for number, profile in enumerate(found.profiles[1:], 2):
        texts[f"profile-{number}.json"] = profile.model_dump_json(indent=1) + "\n"
    return results.save(found.executed[0], folder, texts=texts)


def variants_of(scenario: Scenario) -> dict[str, Scenario]:
    """Three batchings with and without prefix cache; all else, and every drawn request, the same. Only the first is modelled with
    drafts or asynchronous scheduling."""
    found = {}
    engines = [view.engine for view in scenario.of_pools()]
    works_ahead = any(engine.speculation is not None or engine.async_scheduling for engine in engines)
    for batching in BATCHINGS[:1] if works_ahead else BATCHINGS:
        for cache in (True, False):
            changes = {"batching": batching, "enable_prefix_caching": cache}
            own = tuple(
                pool
                if pool.engine is None
                else pool.model_copy(update={"engine": pool.engine.model_copy(update=changes)})
                for pool in scenario.pools
            )
            name = f"{batching}, prefix cache {'on' if cache else 'off'}"
            update = {"engine": scenario.engine.model_copy(update=changes), "pools": own}
            found[name] = scenario.model_copy(update={**update, "name": f"{scenario.name}: {name}"})
    return found


def _same_kind(profile: Profile, engine: dict[str, object]) -> None:
    """A profile says something only of runs of the kind that it was measured in.

    Raises:
        InputError: it was measured on another device, by another clock, with other threads, or in another precision of a byte or less
            (of wider ones a CPU takes what it multiplies).
    """
    source = profile.source
    measured = {"device": source.device, "clock": source.clock, "threads": source.threads}
    measured |= {"dtype": profile.dtype, "kv_dtype": profile.kv_dtype}
    for name, value in measured.items():
        wide = name in ("dtype", "kv_dtype") and all(BYTES.get(str(p), 2.0) >= 2 for p in (value, engine[name]))
        if value != engine[name] and not wide:
            raise InputError(
                f"profile {profile.name}: {name}: measured with {value}, but this run has {engine[name]}; "
                f"leave --profile out to measure now"
            )


def _schedule(runs: Sequence[Run], workload: Workload) -> dict[str, Any]:
    """Every repeat replayed with its own durations: identical only if all are."""
    steps, first = 0, None
    for run in runs:
        found = replayed(run, workload)
        steps += found.steps
        if not found.identical and first is None:
            first = found.first_difference
    return {"identical": first is None, "steps": steps, "first_difference": first}


def _matched(live: Records, simulated: Records) -> dict[str, judged.Matched]:
    found = {}
    for name, metric in (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "e2el")):
        a = judged.matched(by_request(live, metric), by_request(simulated, metric))
        if a is not None:
            found[name] = a
    return found
