"""Ablations: a scenario in which one policy is switched, and the direction in which the outcome should move.

A file holds the question, why the answer is expected, the scenario, its variants as overrides, and what is expected of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import Field, model_validator

import scenarios
from scenarios import ablations as shipped
from scenarios import documents
from scenarios.errors import InputError, misplaced, nearest, unknown
from scenarios.fields import Section
from scenarios.schema import Scenario
from serving.metrics import by_request, meets
from serving.tries import last_tries
from studies.expectations import Expectation
from studies.reports import tables
from studies.reports.report import slo_of
from studies.results import Run
from studies.run import Progress, execute, simulate

_LATENCY = re.compile(r"(mean|median|p[0-9.]+)_(ttft|tpot|e2el|queue)_ms")


class Ablation(Section):
    """A file of `scenarios.ablations`.

    Args:
        scenario: a whole one; or `base`, the name of a shipped one. variants: overrides by name.
        execution: overrides that make every variant small enough for a device: a tiny model, few requests.
    """

    question: str
    because: str
    base: str | None = None
    scenario: Mapping[str, Any] | None = None
    variants: Annotated[Mapping[str, Annotated[tuple[str, ...], Field(strict=False)]], Field(min_length=2)]
    expect: Annotated[tuple[Expectation, ...], Field(strict=False, min_length=1)]
    execution: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Ablation:
        if (self.base is None) == (self.scenario is None):
            raise misplaced("needs a scenario or a base, and not both", "scenario")
        for i, expected in enumerate(self.expect):
            for field in ("lower", "higher", "alike", "than"):
                name = getattr(expected, field)
                if name is not None and (not isinstance(name, str) or name not in self.variants):
                    raise misplaced(unknown("variant", name, self.variants), "expect", i, field)
        return self

    def scenarios(self, source: str, *, small: bool = False) -> dict[str, Scenario]:
        """Every variant by its name; `small`: as it is executed.

        Raises:
            InputError: one of them is wrong; names the file and the variant.
        """
        found = {}
        for name, overrides in self.variants.items():
            given = [*(self.execution if small else ()), *overrides]
            if self.base is not None:
                found[name] = scenarios.load(self.base, overrides=given)
            else:
                text = yaml.safe_dump(dict(self.scenario or {}), sort_keys=False)
                found[name] = scenarios.loads(text, source=f"{source}: variant {name}", overrides=given)
        return found


def names() -> tuple[str, ...]:
    """Names of the shipped ablations."""
    return tuple(sorted(f.name[:-5] for f in resources.files(shipped).iterdir() if f.name.endswith(".yaml")))


def read(name: str | Path) -> Ablation:
    """The ablation of a file, or the shipped one of that name.

    Raises:
        InputError: there is none, or it is wrong.
    """
    file = Path(name)
    if str(name) in names() and not file.is_file():
        text, source = resources.files(shipped).joinpath(f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml"
    elif not file.is_file() and not file.suffix:
        close = nearest(str(name), names())
        hint = f"; did you mean {close!r}?" if close else "."
        raise InputError(f"{name}: there is no such file or shipped ablation{hint} Shipped: {', '.join(names())}")
    else:
        text, source = documents.read_text(file), str(file)
    return documents.validated(Ablation, text, source)


@dataclass
class Ablated:
    """An ablation that was run: its runs by variant, and of every expectation both figures and whether it holds (None where a
    figure is missing)."""

    name: str
    ablation: Ablation
    runs: dict[str, Run]
    outcome: list[tuple[Expectation, float | None, float | None, bool | None]]

    @property
    def holds(self) -> bool:
        """Whether every expectation does."""
        return all(found for *_, found in self.outcome)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.ablation.question,
            "because": self.ablation.because,
            "holds": self.holds,
            "expectations": [
                {"expected": str(expected), str(expected.first): first, str(expected.than): second, "holds": found}
                for expected, first, second, found in self.outcome
            ],
        }

    def table(self) -> tables.Table:
        """A row an expectation."""
        words = {True: "yes", False: "NO", None: "not measured"}
        rows = [
            (str(expected), tables.number(first), tables.number(second), words[found])
            for expected, first, second, found in self.outcome
        ]
        return tables.Table(self.ablation.question, ("expected", "is", "against", "holds"), rows, self.ablation.because)


def run(name: str | Path, *, device: str | None = None, progress: Progress | None = None) -> Ablated:
    """Simulates every variant of an ablation, or executes them on a device in the small form that the file gives.

    Raises:
        InputError: the ablation is wrong, or has no small form.
    """
    ablation = read(name)
    if device is not None and not ablation.execution:
        raise InputError(f"{name}: execution: is missing: overrides that make every variant small enough for a device")
    runs: dict[str, Run] = {}
    prepared = ablation.scenarios(str(name), small=device is not None)
    for i, (variant, scenario) in enumerate(prepared.items()):
        if progress is not None:
            progress(f"{name}: {variant}", i / len(prepared))
        runs[variant] = simulate(scenario) if device is None else execute(scenario, device=device)
    outcome = []
    for i, expected in enumerate(ablation.expect):
        first, second = (
            figure(runs[str(v)], expected, f"{name}: expect[{i}]") for v in (expected.first, expected.than)
        )
        missing = first is None or second is None
        outcome.append((expected, first, second, None if missing else expected.holds(first, second)))  # type: ignore[arg-type]
    return Ablated(str(name), ablation, runs, outcome)


def figure(run: Run, expected: Expectation, where: str = "expect") -> float | None:
    """The figure that an expectation is about; None where the run has none. Of a class, percentiles are not refused.

    Raises:
        InputError: no such metric or class.
    """
    key, records = expected.metric, run.records
    if expected.of_class is None:
        if key not in run.summary:
            raise InputError(f"{where}.metric: {unknown('metric', key, run.summary)}")
        value = run.summary[key]
        return None if value is None else float(value)
    if records.service_class is None or expected.of_class not in records.classes:
        raise InputError(f"{where}.of_class: {unknown('class', expected.of_class, records.classes)}")
    mine = records.service_class == records.classes.index(expected.of_class)
    if key == "good_request_fraction":
        sent = mine & last_tries(records)
        return float(meets(records, slo_of(run))[sent].mean()) if sent.any() else None
    found = _LATENCY.fullmatch(key)
    if found is None:
        raise InputError(f"{where}.metric: found {key}; of a class, latencies and good_request_fraction are known")
    values = by_request(records, found[2])[mine]
    values = values[~np.isnan(values)] * 1e3
    if not len(values):
        return None
    if found[1] == "mean":
        return float(values.mean())
    return float(np.percentile(values, 50.0 if found[1] == "median" else float(found[1][1:])))
