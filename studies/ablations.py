"""Ablations: a scenario in which one policy is switched, and the direction in which the outcome should move.

A file holds the question, why the answer is expected, the scenario, its variants as overrides, and what is expected of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import Field, model_validator

import scenarios
from scenarios import ablations as shipped
from scenarios import documents
from scenarios.errors import InputError, misplaced, unknown
from scenarios.fields import Section
from scenarios.load import Override
from scenarios.schema import Scenario
from scenarios.shipped import Shipped
from serving.metrics import by_request
from serving.records import Records
from studies import expectations
from studies.expectations import Expectation, Outcome
from studies.progress import Progress
from studies.reports import tables
from studies.results import Run
from studies.run import execute, simulate

_SHIPPED = Shipped(shipped, "ablation")
_PERCENTILE = re.compile(r"p([0-9.]+)_(ttft|tpot|e2el|queue)_ms")


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

    def scenarios(
        self, source: str, *, overrides: Sequence[str] = (), trace: str | Path | None = None, small: bool = False
    ) -> dict[str, Scenario]:
        """Every variant by its name.

        source: what messages call the file. overrides, trace: of every variant, before what makes it one. small: as it is executed.

        Raises:
            InputError: one of them is wrong; names the file and the variant.
        """
        given: list[str | Override] = [*overrides]
        if small:
            given += [Override.parse(text, f"{source}: execution: {text}") for text in self.execution]
        found = {}
        for name, texts in self.variants.items():
            where = f"{source}: variant {name}"
            varied = [*given, *(Override.parse(text, f"{where}: {text}") for text in texts)]
            if self.base is not None:
                found[name] = scenarios.load(self.base, overrides=varied, trace=trace)
            else:
                whole = yaml.safe_dump(dict(self.scenario or {}), sort_keys=False)
                found[name] = scenarios.loads(whole, source=where, overrides=varied, trace=trace)
        return found


def names() -> tuple[str, ...]:
    """Names of the shipped ablations."""
    return _SHIPPED.names()


def read(name: str | Path) -> Ablation:
    """The ablation of a file, or the shipped one of that name.

    Raises:
        InputError: there is none, or it is wrong.
    """
    text, source, _ = _SHIPPED.find(name)
    return documents.validated(Ablation, text, source)


@dataclass
class Ablated:
    """An ablation that was run: its runs by variant, and what came of every expectation."""

    name: str
    ablation: Ablation
    runs: dict[str, Run]
    outcome: list[Outcome]

    @property
    def holds(self) -> bool:
        """Whether every expectation does."""
        return all(found.holds for found in self.outcome)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.ablation.question,
            "because": self.ablation.because,
            "holds": self.holds,
            "expectations": [
                {
                    "expected": str(found.expected),
                    str(found.expected.first): found.first,
                    str(found.expected.than): found.than,
                    "holds": found.holds,
                }
                for found in self.outcome
            ],
        }

    def table(self) -> tables.Table:
        """A row an expectation."""
        return expectations.table(self.ablation.question, self.outcome, self.ablation.because)


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
        first, than = (figure(runs[str(v)], expected, f"{name}: expect[{i}]") for v in (expected.first, expected.than))
        outcome.append(Outcome(expected, first, than))
    return Ablated(str(name), ablation, runs, outcome)


def figure(run: Run, expected: Expectation, where: str = "expect") -> float | None:
    """The figure that an expectation is about; None where the run has none.

    Of a class percentiles are not refused: an expectation is about these very requests, not about the load that they are a sample of.

    Raises:
        InputError: no such metric or class.
    """
    summary, key = run.summary, expected.metric
    if expected.of_class is not None:
        classes = summary.get("by_class", {})
        if expected.of_class not in classes:
            raise InputError(f"{where}.of_class: {unknown('class', expected.of_class, classes)}")
        summary = classes[expected.of_class]
        if percentile := _PERCENTILE.fullmatch(key):
            return _percentile(run.records, expected.of_class, percentile[2], float(percentile[1]))
    known = [name for name, value in summary.items() if value is None or isinstance(value, int | float)]
    if key not in known:
        raise InputError(f"{where}.metric: {unknown('metric', key, known)}")
    value = summary[key]
    return None if value is None else float(value)


def _percentile(records: Records, service_class: str, latency: str, percent: float) -> float | None:
    """Of a latency of a class's requests, in milliseconds."""
    values = by_request(records, latency)[records.service_class == records.classes.index(service_class)]
    values = values[~np.isnan(values)] * 1e3
    return float(np.percentile(values, percent)) if len(values) else None
