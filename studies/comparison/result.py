"""Policies that were run under the same seeds, and what they say of one another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from studies import pareto
from studies.aspects import extrapolation, step_costs
from studies.pareto import Standing
from studies.replications import Replications
from studies.reports import tables, written
from studies.reports.tables import Table
from studies.results import Run
from studies.statistics.differences import Difference
from studies.statistics.intervals import CONFIDENCE, Interval

ROWS = (
    "kv_capacity_tokens",
    "kv_capacity_requests",
    "mean_ttft_ms",
    "p95_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p95_tpot_ms",
    "mean_e2el_ms",
    "request_throughput",
    "output_throughput",
    "output_throughput_per_gpu",
    "output_token_throughput_per_user",
    "request_goodput",
    "good_request_fraction",
    "kv_cache_hit_percent",
    "completed",
    "rejected",
    "preemptions",
    "expected_quality",
    "usd_per_1m_output_tokens",
    "usd_per_1m_total_tokens",
    "usd_per_hour",
)
"""Figures that are shown where any policy has them."""


@dataclass
class Comparison:
    """Policies by name.

    runs: of the first seed, one each. replications: figures of all seeds. baseline: the policy that the others are held against.
    metrics: figures of the decision, by their keys. fronts: pairs of figures of which the Pareto set is told.
    """

    runs: dict[str, Run]
    replications: dict[str, Replications]
    baseline: str
    metrics: tuple[str, ...]
    fronts: tuple[tuple[str, str], ...] = ()
    question: str = ""
    confidence: float = CONFIDENCE

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.replications[self.baseline].seeds

    def interval(self, name: str, key: str) -> Interval:
        """A figure of a policy."""
        return self.replications[name].interval(key, self.confidence)

    def difference(self, name: str, key: str, than: str | None = None) -> Difference:
        """What a policy has more than another one, the baseline by default."""
        first = self.replications[self.baseline if than is None else than]
        return first.difference(self.replications[name], key, self.confidence)

    @cached_property
    def standings(self) -> list[dict[str, Standing]]:
        """Where each policy is, of each pair of `fronts`."""
        figures = {
            name: {key: found.by_seed(key) for front in self.fronts for key in front}
            for name, found in self.replications.items()
        }
        return [pareto.standings(figures, front, self.confidence) for front in self.fronts]

    @property
    def exact(self) -> bool:
        """Whether seeds change nothing at all: what was replayed is no sample of anything."""
        return all(found.alike for found in self.replications.values())

    @property
    def figures(self) -> tuple[str, ...]:
        """All figures that any policy has as a number, those of the decision first."""
        numbers = dict.fromkeys(
            key
            for found in self.replications.values()
            for row in found.rows
            for key, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        )
        return tuple(dict.fromkeys((*self.keys, *numbers)))

    @property
    def keys(self) -> tuple[str, ...]:
        """Figures that have an interval and a difference in what is written: those of the decision first."""
        wanted = dict.fromkeys((*self.metrics, *(key for front in self.fronts for key in front), *ROWS))
        return tuple(key for key in wanted if self._any(key))

    def without_steps(self) -> Comparison:
        """The same in a tenth of the memory: of runs only what requests got. All that is written of a comparison needs no more."""
        return replace(self, runs={name: _without_steps(run) for name, run in self.runs.items()})

    def _any(self, key: str) -> bool:
        return any(v is not None for found in self.replications.values() for v in found.values(key))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: `scenarios` with the figures of the first seed, and over seeds `intervals` and `differences` to the baseline."""
        return {
            "question": self.question or None,
            "seeds": list(self.seeds),
            "confidence": self.confidence,
            "baseline": self.baseline,
            "metrics": list(self.metrics),
            "seeds_change_nothing": self.exact,
            "pareto": [
                {"metrics": list(front), "standings": {name: found.to_dict() for name, found in standing.items()}}
                for front, standing in zip(self.fronts, self.standings, strict=True)
            ],
            "scenarios": [
                {
                    "name": name,
                    "scenario_hash": run.info["scenario_hash"],
                    "cost": run.info["cost"],
                    "profile": run.info.get("profile"),
                    "binding": run.info["binding"],
                    "intervals": {key: self.interval(name, key).to_dict() for key in self.keys},
                    "differences": None
                    if name == self.baseline
                    else {key: self.difference(name, key).to_dict() for key in self.keys},
                    **run.summary,
                }
                for name, run in self.runs.items()
            ],
        }

    def table(self) -> Table:
        """A column a policy, figures that are no part of the decision; rows that no policy has are left out."""
        rows, withheld, partly = [], [], []
        for key in ROWS:
            if key in self.metrics:
                continue
            cells = [written.figure(key, self.interval(name, key)) for name in self.runs]
            short = self._too_few(key)
            if any(cell != tables.DASH for cell in cells):
                rows.append((tables.label(key), *cells))
                partly += [tables.label(key)] if tables.DASH in cells and short else []
            elif short:
                withheld.append(tables.label(key))
        if any(run.info["quality"] for run in self.runs.values()):
            rows.append(("mean KL of its precision (nats)", *(_lost(run) for run in self.runs.values())))
        busy = "binding.busy"
        rows.append(("engine busy", *(written.figure(busy, self.interval(name, busy)) for name in self.runs)))
        notes = [f"Too few independent requests for {', '.join(withheld)}"] if withheld else []
        notes += [f"{tables.DASH} {', '.join(partly)}: not every run can carry it"] if partly else []
        if open_ := self._open_capacities():
            notes.append(f"KV capacity (tokens) that no log states: {', '.join(open_)}")
        return Table("Compared", ("", *self.runs), rows, "\n".join(notes))

    def _open_capacities(self) -> list[str]:
        """Intervals of KV capacities that nobody stated, each behind the policies that have it."""
        names: dict[str, list[str]] = {}
        for name, run in self.runs.items():
            if said := tables.between(run.summary):
                names.setdefault(said, []).append(name)
        return [f"{tables.few(those, 4)}{said}" for said, those in names.items()]

    def _too_few(self, key: str) -> bool:
        """Whether a sample is too small for a figure, under the first seed or under others."""
        refused = any("effective samples" in run.summary["refused"].get(key, "") for run in self.runs.values())
        return refused or any(
            0 < found.values(key).count(None) < len(self.seeds) for found in self.replications.values()
        )

    def sentences(self) -> list[str]:
        """What binds each, and how much of it lies outside what was measured."""
        return [
            " ".join(filter(None, (f"{name}: {run.info['binding']['sentence']}", _outside(run))))
            for name, run in self.runs.items()
        ]

    def costs(self) -> list[str]:
        """Where step costs come from, once for all policies that have them from the same place."""
        found: dict[str, list[str]] = {}
        for name, run in self.runs.items():
            said = step_costs.sentence(run.info.get("profile")) or ""
            if not said.startswith("step costs: "):
                said = "; ".join(filter(None, (f"step costs: {run.info['cost']}", said)))
            found.setdefault(said, []).append(name)
        if len(found) == 1:
            return list(found)
        return [f"{', '.join(names)}: {said}" for said, names in found.items()]


def _without_steps(run: Run) -> Run:
    r = run.records
    steps = {name: column[:0] for name, column in r.steps.items()}
    events = {
        name: getattr(r, name)[:0] for name in ("visible", "preempted", "aborted", "drafts", "chunks", "stranded")
    }
    return replace(run, records=replace(r, steps=steps, **events), workload=None, account=None, cost=None)


def _lost(run: Run) -> str:
    """Quality that a run's precision costs."""
    found = run.info["quality"]
    if not found:
        return tables.DASH
    return tables.number(found["loss"]["mean_kl"]) if found["loss"] else "not measured"


def _outside(run: Run) -> str | None:
    """How much of a run lies outside what its profile was measured on; None without."""
    said = extrapolation.sentence(run.info["binding"].get("outside"))
    return f"{said}." if said else None
