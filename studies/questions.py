"""The question library: ready studies with an answer, and whether what this version simulates still bears it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.errors import InputError, unknown
from studies import expectations, workers
from studies.expectations import Case, Outcome
from studies.progress import Progress
from studies.reports import tables
from studies.stated_figures import Shown
from studies.statistics import intervals
from studies.statistics.intervals import Interval
from studies.sweeps import cells
from studies.sweeps.cells import Row
from studies.sweeps.study import Study, names, read

__all__ = ["TOPICS", "Answered", "answered", "ask", "first_sentence", "names", "read"]

TOPICS: Mapping[str, tuple[str, ...]] = {
    "Steps and batches": (
        "long_prompt_beside_short_requests",
        "which_token_budget",
        "larger_batch_slower_tokens",
        "benchmarking_at_concurrency_one",
    ),
    "KV memory": (
        "how_many_users_fit",
        "does_fp8_kv_double_capacity",
        "when_preemption_thrashes",
        "does_kv_survive_tool_pauses",
    ),
    "Faster tokens": (
        "when_speculation_stops_paying",
        "int4_at_batch_256",
        "tensor_parallel_or_replicas",
    ),
    "Load and tenants": (
        "bounded_queue_under_bursts",
        "batch_jobs_beside_interactive",
    ),
    "Money": (
        "own_gpu_against_an_api_price",
        "small_model_first",
    ),
}
"""Shipped studies in the order in which they are told."""


@dataclass
class Answered:
    """A study whose cells were run.

    outcome: of every expectation, of means over points and seeds.
    figures: of everything that the answer states what this run gives, in the unit that is written, with its interval over seeds,
    and whether that is what is written; empty in small.
    """

    study: Study
    rows: list[Row]
    outcome: list[Outcome]
    figures: list[tuple[Shown, Interval, bool]]

    @property
    def holds(self) -> bool:
        """Whether every expectation does."""
        return all(found.holds for found in self.outcome)

    @property
    def says_what_is(self) -> bool:
        """Whether every figure of the answer is what this run gives."""
        return all(found for *_, found in self.figures)

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "question": self.study.question,
            "answer": self.study.answer,
            "assumes": self.study.assumes,
            "on_hardware": self.study.on_hardware,
            "holds": self.holds,
            "expectations": [
                {"expected": str(found.expected), "is": found.first, "against": found.than, "holds": found.holds}
                for found in self.outcome
            ],
            "figures": [
                {"figure": str(shown), "answer": shown.say, "same": same} | interval.to_dict()
                for shown, interval, same in self.figures
            ],
            "runs": len(self.rows),
        }

    def tables(self) -> list[tables.Table]:
        """A row an expectation; a row a figure of the answer."""
        found = [expectations.table("Does it hold?", self.outcome)]
        if self.figures:
            rows = [
                (str(shown), shown.say, tables.number(i.estimate), _ends(i), "" if same else "differs")
                for shown, i, same in self.figures
            ]
            head = ("figure of the answer", "stated", "this run", "95 % interval", "")
            found.append(tables.Table("What the answer states", head, rows, _footing(self)))
        return found


def _ends(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return interval.refused or tables.DASH
    return f"{tables.number(interval.low)} to {tables.number(interval.high)}"


def _footing(answered: Answered) -> str:
    seeds = len({row["seed"] for row in answered.rows})
    return f"Means of {seeds} runs a point, whose requests are the same at every point; Student's t."


def first_sentence(study: Study) -> str:
    """The answer in short."""
    head, dot, _ = study.answer.partition(". ")
    return head + dot.rstrip() if dot else head


def ask(
    name: str | Path | Study,
    *,
    small: bool = False,
    overrides: Sequence[str] = (),
    processes: int | None = None,
    progress: Progress | None = None,
) -> Answered:
    """Runs a study and holds its outcome against what is expected and what its answer states.

    Args:
        small: as its `reduced` says; then the answer's figures are not looked at.
        overrides: of every point, such as another model; then they are not either, for they are not about that.
        processes: side by side; all processors by default.

    Raises:
        InputError: the study is wrong, or one of its cells cannot be run.
    """
    study = name if isinstance(name, Study) else read(name)
    if overrides:
        study = study.with_overrides(overrides)
    chosen = cells.cells(study, small=small)
    found: dict[int, Row] = {}
    for i, row in workers.each(cells.row, chosen, processes):
        if row["error"] is not None:
            raise InputError(f"{study.source}: {chosen[i].point}: {row['error']}")
        found[i] = row
        if progress is not None:
            progress(f"{study.name}: {chosen[i].point}", len(found) / len(chosen))
    rows = [found[i] for i in range(len(chosen))]
    return answered(study, rows, figures=not small and not overrides)


def answered(study: Study, rows: list[Row], *, figures: bool = True) -> Answered:
    """Holds rows of a study against what is expected of it and, with `figures`, what its answer states.

    Raises:
        InputError: an expectation or a stated figure names one that no row has.
    """
    outcome = []
    for i, expected in enumerate(study.expect):
        where = f"{study.source}: expect[{i}]"
        first, than = (_mean(_values(rows, case, expected.key, where)) for case in (expected.first, expected.than))
        outcome.append(Outcome(expected, first, than))
    shown = []
    for i, figure in enumerate(study.shown if figures else ()):
        interval = _interval(rows, figure, f"{study.source}: shown[{i}]")
        same = interval.estimate is not None and figure.agrees(interval.estimate, interval.half_width)
        shown.append((figure, interval, same))
    return Answered(study, rows, outcome, shown)


def _values(rows: Sequence[Row], case: Case, key: str, where: str) -> list[float | None]:
    """A figure of every seed, the mean of the points that are meant; None where one of them has none."""
    assert isinstance(case, Mapping)
    mine = [row for row in rows if all(row.get(f"axis.{axis}") == value for axis, value in case.items())]
    if not any(key in row for row in mine):
        raise InputError(f"{where}.metric: {unknown('metric', key, sorted({k for row in mine for k in row}))}")
    seeds = list(dict.fromkeys(row["seed"] for row in mine))
    return [_mean([row.get(key) for row in mine if row["seed"] == seed]) for seed in seeds]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _interval(rows: Sequence[Row], figure: Shown, where: str) -> Interval:
    """A stated figure in its unit; of a comparison, of how many times as large it is with each seed."""
    values = _values(rows, figure.of, figure.key, where)
    if figure.against is not None:
        others = _values(rows, figure.against, figure.key, where)
        values = [a / b if a is not None and b else None for a, b in zip(values, others, strict=True)]
    stated = [None if value is None else figure.in_its_unit(value) for value in values]
    found = intervals.mean(stated)
    if found.low is not None and len(set(stated)) == 1:  # an interval of width zero would lie
        return Interval(found.estimate, n=1, refused="the same with every seed")
    return found
