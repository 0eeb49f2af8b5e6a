"""Several scenarios simulated, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.errors import InputError
from scenarios.schema import Scenario
from studies import extrapolation, figures, html, report, run_tables, step_costs, tables
from studies.results import Run
from studies.run import loaded, simulate
from studies.strict_json import dumps
from studies.tables import Table

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
    "request_goodput",
    "good_request_fraction",
    "kv_cache_hit_percent",
    "completed",
    "rejected",
    "preemptions",
    "expected_quality",
    "usd_per_1m_output_tokens",
)


@dataclass
class Comparison:
    """Runs by a name of their own each."""

    runs: dict[str, Run]

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenarios": [
                {
                    "name": name,
                    "scenario_hash": run.info["scenario_hash"],
                    "cost": run.info["cost"],
                    "profile": run.info.get("profile"),
                    "binding": run.info["binding"],
                    **run.summary,
                }
                for name, run in self.runs.items()
            ]
        }

    def tables(self, width: int) -> list[Table]:
        """What fits `width` characters: a column a scenario, or else a row a scenario in several tables."""
        upright = self.table()
        if _width(upright.head, upright.rows) <= width:
            return [upright]
        columns = [upright.head, *upright.rows]
        names = tuple(str(name) for name in columns[0][1:])
        found: list[list[tuple[str, ...]]] = []
        for column in columns[1:]:
            if found and _width(*_turned(names, [*found[-1], column])) <= width:
                found[-1].append(column)
            else:
                found.append([column])
        turned = [_turned(names, group) for group in found]
        last = len(turned) - 1
        return [
            Table("Compared" if not k else "", head, rows, upright.note if k == last else "")
            for k, (head, rows) in enumerate(turned)
        ]

    def table(self) -> Table:
        """A column a scenario; rows that no scenario has are left out."""
        rows, withheld = [], []
        for key in ROWS:
            values = [run.summary.get(key) for run in self.runs.values()]
            if any(value is not None for value in values):
                rows.append((tables.label(key), *(tables.number(value) for value in values)))
            elif any("effective samples" in run.summary["refused"].get(key, "") for run in self.runs.values()):
                withheld.append(tables.label(key))
        if any(run.info["quality"] for run in self.runs.values()):
            rows.append(("mean KL of its precision (nats)", *(_lost(run) for run in self.runs.values())))
        rows.append(("engine busy", *(tables.percent(run.info["binding"]["busy"]) for run in self.runs.values())))
        notes = [f"Too few independent requests for {', '.join(withheld)}"] if withheld else []
        if open_ := [
            f"{name}{tables.between(run.summary)}" for name, run in self.runs.items() if tables.between(run.summary)
        ]:
            notes.append(f"KV capacity (tokens) that no log states: {', '.join(open_)}")
        return Table("Compared", ("", *self.runs), rows, "\n".join(notes))

    def sentences(self) -> list[str]:
        """What binds each, and how much of it lies outside what was measured."""
        return [
            " ".join(filter(None, (f"{name}: {run.info['binding']['sentence']}", _outside(run))))
            for name, run in self.runs.items()
        ]

    def costs(self) -> list[str]:
        """Where step costs come from, once for all scenarios that have them from the same place."""
        found: dict[str, list[str]] = {}
        for name, run in self.runs.items():
            said = step_costs.sentence(run.info.get("profile")) or ""
            if not said.startswith("step costs: "):
                said = "; ".join(filter(None, (f"step costs: {run.info['cost']}", said)))
            found.setdefault(said, []).append(name)
        if len(found) == 1:
            return list(found)
        return [f"{', '.join(names)}: {said}" for said, names in found.items()]


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


def _turned(names: Sequence[str], columns: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows with a row a scenario, from columns of a label and a cell a scenario."""
    head = ("", *(column[0] for column in columns))
    return head, [(name, *(column[k + 1] for column in columns)) for k, name in enumerate(names)]


def _width(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> int:
    """Characters that a table takes on the terminal, three of them between two columns."""
    widest = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    return sum(widest) + 3 * (len(widest) - 1)


def compare(found: Sequence[Scenario | str | Path], *, files: Sequence[str] | None = None) -> Comparison:
    """Simulates each scenario, file or shipped name.

    files: where each came from. Scenarios of the same name go by their file's name, or else by a number.

    Raises:
        InputError: there is no such scenario, or it is wrong.
    """
    scenarios = [loaded(scenario) for scenario in found]
    origins = [str(item) if isinstance(item, (str, Path)) else "" for item in found] if files is None else list(files)
    titles = [scenario.name for scenario in scenarios]
    names = [
        Path(origin).stem if titles.count(title) > 1 and origin else title
        for title, origin in zip(titles, origins, strict=True)
    ]
    runs: dict[str, Run] = {}
    for name, scenario in zip(names, scenarios, strict=True):
        unique, k = name, 2
        while unique in runs:
            unique, k = f"{name} ({k})", k + 1
        runs[unique] = simulate(scenario)
    return Comparison(runs)


def check_target(folder: Path) -> None:
    """Raises InputError if `folder` is a file."""
    if folder.is_file():
        raise InputError(f"{folder}: a file, but --out is a folder")


def write(found: Comparison, folder: Path) -> Path:
    """Writes compare.html and compare.json into a folder; other files in it stay."""
    check_target(folder)
    folder.mkdir(parents=True, exist_ok=True)
    records = {name: run.records for name, run in found.runs.items()}
    drawn = [(title, figures.latency_cdf(metric, records), False) for metric, title in report.CDFS]
    lead = "\n".join(line for run in found.runs.values() for line in (run_tables.heading(run), *run_tables.about(run)))
    section = html.Section("", "\n".join(found.sentences()), (), [found.table()], drawn)
    folded = [(f"Scenario {name}", run.scenario_yaml) for name, run in found.runs.items()]
    (folder / "compare.json").write_text(dumps(found.to_dict()) + "\n", encoding="utf-8")
    return html.write(html.Page(" against ".join(found.runs), lead, [section], folded), folder / "compare.html")
