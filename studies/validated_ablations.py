"""Variants of ablations validated: each is executed in small, decided again in replay, and compared with its simulation."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import scenarios
from calibration import validate as judged
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.profile import Profile
from studies import ablations, calibrating
from studies.progress import Progress
from studies.reports import tables
from studies.run import backend
from studies.validation import ValidationReport, validate

ROUNDS = 3  # of a calibration, beside the one that warms up


@dataclass(frozen=True)
class Row:
    """What came of one variant.

    identical: whether replay decided all `steps` of all repeats alike. cost_error: signed error of the sum of simulated step costs
    over the executed schedule, of the pool where it is largest. metric: the headline that is furthest off, error: signed, noise: largest relative difference
    of it between repeats (None with one). refused: why it was not validated; then all else is empty.
    """

    ablation: str
    variant: str
    steps: int = 0
    identical: bool = False
    cost_error: float | None = None
    metric: str | None = None
    error: float | None = None
    noise: float | None = None
    verdict: str | None = None
    refused: str | None = None


def of_report(ablation: str, variant: str, found: ValidationReport) -> Row:
    """A validation in one line."""
    headlines = [row for row in found.outcome if row.metric in judged.HEADLINES]
    worst = max(headlines, key=lambda row: abs(row.error), default=None)
    pools = [errors.total for kind, errors in found.cost.by_kind.items() if kind == "all" or kind.endswith(": all")]
    row = Row(ablation, variant, found.schedule["steps"], found.schedule["identical"], verdict=found.verdict)
    row = replace(row, cost_error=max(pools, key=abs, default=None))
    return row if worst is None else replace(row, metric=worst.metric, error=worst.error, noise=worst.noise)


def subject(view: Scenario) -> Hashable:
    """What step costs are shared by: pools that agree in it need one profile."""
    section = view.engine
    drafts = None if section.speculation is None else section.speculation.model_dump_json()
    return repr(view.model), section.dtype, section.kv_cache_dtype, view.engine_config().block_size, drafts


def widest(views: Sequence[tuple[Scenario, Scenario]]) -> Scenario:
    """The first of scenarios that share step costs, with an engine as wide as any of them can use. views: with the whole scenario that
    each is a pool of, which has the requests."""
    seqs, window, budget, blocks = 1, 2, 1, 2
    for view, whole in views:
        config, workload = view.engine_config(), scenarios.generate(whole)
        lengths = workload.prompt_tokens + np.minimum(workload.output_tokens, workload.max_tokens)
        seqs = max(seqs, min(config.max_num_seqs, len(workload)))
        window = max(window, min(config.max_model_len, int(lengths.max()) + 1))
        budget = max(budget, min(config.max_num_batched_tokens, int(workload.prompt_tokens.sum())))
        blocks = max(blocks, config.num_gpu_blocks)
    first = views[0][0]
    size = first.engine_config().block_size
    changes = {
        "max_num_seqs": seqs,
        "max_model_len": window,
        "max_num_batched_tokens": max(budget, seqs),
        "num_gpu_blocks": max(blocks, -(-window // size) + 2),
        "pinned_prefixes": {},
    }
    return first.model_copy(update={"engine": first.engine.model_copy(update=changes)})


def variants(names: Sequence[str]) -> dict[tuple[str, str], Scenario]:
    """Every variant of these ablations, in small.

    Raises:
        InputError: an ablation is wrong, or has no small form.
    """
    found = {}
    for name in names:
        ablation = ablations.read(name)
        if not ablation.execution:
            raise InputError(
                f"{name}: execution: is missing: overrides that make every variant small enough for a device"
            )
        for variant, scenario in ablation.scenarios(name, small=True).items():
            found[name, variant] = scenario
    return found


def validated(
    asked: Mapping[tuple[str, str], Scenario],
    *,
    device: str = "cpu",
    repeats: int = 2,
    progress: Progress | None = None,
) -> Iterator[Row]:
    """Validates scenarios one by one. Step costs are measured once for all that share them, before the first of those.

    asked: by ablation and variant.
    """
    sharing: dict[Hashable, list[tuple[Scenario, Scenario]]] = {}
    for scenario in asked.values():
        for view in scenario.of_pools():
            sharing.setdefault(subject(view), []).append((view, scenario))
    known: dict[Hashable, Profile] = {}
    for done, ((name, variant), scenario) in enumerate(asked.items()):

        def tell(what: str, part: float, name: str = name, variant: str = variant, done: int = done) -> None:
            if progress is not None:
                progress(f"{name}: {variant}", (done + part) / len(asked))

        try:
            profiles = []
            for view in scenario.of_pools():
                key = subject(view)
                if key not in known:
                    tell("calibrating", 0.0)
                    wide = widest(sharing[key])
                    known[key] = calibrating.measured(wide, backend(wide, device), grid="quick", repeats=ROUNDS)
                profiles.append(known[key])
            found = validate(scenario, device=device, repeats=repeats, profile=profiles, ranking=False, progress=tell)
        except InputError as error:
            yield Row(name, variant, refused=str(error))
        else:
            yield of_report(name, variant, found)


def table(rows: Sequence[Row], repeats: int) -> tables.Table:
    """A line a variant."""
    found = []
    for row in rows:
        if row.refused is not None:
            found.append((f"{row.ablation}: {row.variant}", "-", "not validated", "-", row.refused, "-", "-"))
            continue
        found.append(
            (
                f"{row.ablation}: {row.variant}",
                f"{row.steps:,}",
                "identical" if row.identical else "DIFFERENT",
                tables.percent(row.cost_error, signed=True),
                "-" if row.metric is None else f"{tables.label(row.metric)} {tables.percent(row.error, signed=True)}",
                tables.percent(row.noise),
                str(row.verdict),
            )
        )
    columns = ("variant", "steps", "replayed", "step costs", "largest headline error", "noise", "verdict")
    note = (
        f"steps of {repeats} executions together; step costs measured once for all variants of one model and precision"
    )
    return tables.Table("Executed and compared with the simulation", columns, found, note)


def to_dict(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
