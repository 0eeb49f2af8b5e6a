"""The fidelity page: every validation of predictions against measurements, beside what others reach on the same data."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibration import validate as judged
from calibration.silicon.constants import FITTED
from scenarios import serving_profile
from scenarios.errors import InputError
from sim.operator_profile import OperatorProfile
from sim.profiles import load_profile, shipped_profiles
from studies.measured import report as measured_report
from studies.measured.validation import Measured, validate_measured
from studies.progress import Progress
from studies.reports import markdown, tables
from studies.reports.limits import NOT_MODELLED
from studies.reports.measurement_tables import side_by_side
from studies.reports.tables import Table
from studies.silicon.report import SiliconReport
from studies.silicon.validation import validate as validate_silicon
from studies.validations import made, shipped
from studies.validations.record import Validation

GPU_RUN = "rtx4090-llama-3.1-8b"
CPU_RUN = "vllm-cpu-qwen3-tiny"
WORST = 10

PEERS_ON_POINTS = {"TTFT": "38 to 42 %", "TPOT": "8 to 22 %"}
"""MAPE of aiconfigurator's own formulas on the vLLM points of dense models on H100 and H200."""


class Cell(NamedTuple):
    """One figure of one validation that is off. noise: what repeats of the measurement differ by, None if nobody knows."""

    where: str
    figure: str
    error: float
    noise: float | None


@dataclass
class Chapter:
    """One validation: what it is, what came of it, and its worst figures."""

    title: str
    about: str
    verdict: str
    sentence: str
    shown: list[Table]
    cells: list[Cell] = field(default_factory=list)
    attempts: str = ""
    not_modelled: tuple[str, ...] = ()
    record: Validation | None = None


def page(
    data: Path,
    *,
    attempts: Path | None = None,
    own: Path | None = None,
    records: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """The page as Markdown.

    Args:
        data: folder that holds `measured/`. attempts: folder of Markdown files by run, what was tried on the way.
        own: `validation.json` of a validation on our own engine (`servetwin validate demo --out DIR`).
        records: folder for the record of each validation, as `studies.validations.shipped` reads them.

    Raises:
        InputError: data, tables or a file that is missing.
    """

    def tell(what: str, part: float) -> None:
        if progress is not None:
            progress(what, part)

    measured = data / "measured"
    if not measured.is_dir():
        raise InputError(f"{data}: there is no folder measured in it; --data needs the folder of public measurements")
    chapters = [_gpu_run(measured / GPU_RUN, tell), _cpu_run(measured / CPU_RUN, tell)]
    chapters.append(_silicon(validate_silicon(tell=tell)))
    if own is not None:
        chapters.append(_own(own))
    for chapter, name in zip(chapters, (GPU_RUN, CPU_RUN, "silicon"), strict=False):
        path = None if attempts is None else attempts / f"{name}.md"
        if path is not None and path.is_file():
            chapter.attempts = path.read_text(encoding="utf-8").strip()
    if records is not None:
        for chapter in chapters:
            if chapter.record is not None:
                shipped.write(chapter.record, records)
    return "\n".join(_rendered(chapters)).rstrip() + "\n"


def _rendered(chapters: Sequence[Chapter]) -> Iterable[str]:
    yield "# Fidelity\n"
    yield (
        "What servetwin predicts, against what was measured. Nothing that was fitted is used to validate: each chapter says what "
        "was fitted, and on which data. Errors are signed, predicted / measured - 1; beside them stands what repeats of the "
        "measurement differ by, where there are repeats. This page is written by `servetwin fidelity`.\n"
    )
    rows = [(c.title, c.verdict, c.sentence) for c in chapters]
    yield markdown.table(Table("In short", ("validation", "verdict", "outcome"), rows), level=2)
    yield markdown.table(_worst(chapters), level=2)
    for chapter in chapters:
        yield f"## {chapter.title}\n"
        yield f"{chapter.about}\n\n{chapter.sentence}\n"
        for shown in chapter.shown:
            yield markdown.table(shown)
        if chapter.attempts:
            yield "### Every attempt\n"
            yield chapter.attempts + "\n"
    yield from _profiles()
    yield "## What is not modelled\n"
    said = dict.fromkeys([*NOT_MODELLED, *(text for c in chapters for text in c.not_modelled)])
    yield "\n".join(f"- {text}" for text in said) + "\n"


def _worst(chapters: Sequence[Chapter]) -> Table:
    cells = sorted((c for chapter in chapters for c in chapter.cells), key=_farness, reverse=True)[:WORST]
    rows = [(c.where, c.figure, tables.percent(c.error, signed=True), tables.percent(c.noise)) for c in cells]
    note = (
        "Single measured points and figures of whole runs alike; a prediction of half counts as far off as one of double. Noise of points: "
        "what repeated measurements differ by, at the 90th percentile."
    )
    return Table("The worst ten cells", ("where", "figure", "error", "noise"), rows, note)


def _farness(cell: Cell) -> float:
    return abs(float(np.log1p(max(cell.error, -0.999))))


# -- runs -------------------------------------------------------------------------------------------------------------


def _gpu_run(folder: Path, tell: Progress) -> Chapter:
    found = validate_measured(folder, progress=tell)
    theirs = _summary_of(folder / "llmservingsim_summary.txt")
    rows = []
    for row in found.loads[0].rows:
        own = tables.percent(row.error, signed=True)
        figures = tables.number(row.live), tables.number(row.simulated)
        rows.append((tables.label(row.metric), *figures, own, theirs.get(row.metric, tables.DASH)))
    head = ("", "measured", "servetwin", "error", "LLMServingSim")
    note = "LLMServingSim: its own report on this run. One run, so nobody knows its noise."
    title = "Kernel tables to a real vLLM run: Llama-3.1-8B on an RTX 4090"
    about = (
        "300 requests of a recorded workload, vLLM 0.19.0, compiled, with CUDA graphs and asynchronous scheduling. The prediction "
        "comes from kernel times measured one by one in eager mode; nothing was fitted on the run. The run is saturated: arrivals "
        "end after 29 s and the mean TTFT is 65 s, so it tests how fast the queue drains and how KV memory is used more than latency."
    )
    return Chapter(
        title,
        about,
        measured_report.verdict(found),
        measured_report.sentence(found),
        [Table("Errors", head, rows, note), *_tables(found, loads=False)],
        _cells(found, "RTX 4090"),
        not_modelled=tuple(found.not_modelled),
        record=made.of_measured(found, name=GPU_RUN, title=title, about=about),
    )


def _cpu_run(folder: Path, tell: Progress) -> Chapter:
    found = validate_measured(folder, progress=tell)
    title = "A real vLLM on a CPU: step log to latencies"
    about = (
        "vLLM 0.32.0 on two CPU cores, two rates, three repeats of each. Step costs are fitted on the server's own step log, on steps "
        "of other runs than these; host time between steps and the client's overhead are set on the first repeat of each rate; the "
        "other repeats are validated, replayed from their own send times."
    )
    return Chapter(
        title,
        about,
        measured_report.verdict(found),
        measured_report.sentence(found),
        _tables(found, loads=True),
        _cells(found, "vLLM on a CPU"),
        not_modelled=tuple(found.not_modelled),
        record=made.of_measured(found, name=CPU_RUN, title=title, about=about),
    )


def _tables(found: Measured, *, loads: bool) -> list[Table]:
    """The report's, without worst cells and what is not modelled, which this page lists once for all."""
    left_out = {"Worst cells"} if loads else {"Worst cells", *(load.name for load in found.loads)}
    shown = [table for table in measured_report.report_tables(found) if table.title not in left_out]
    return [replace(t, note="") if t.note.startswith("Not modelled") else t for t in shown]


def _cells(found: Measured, where: str) -> list[Cell]:
    return [
        Cell(f"{where}, {load.name}", tables.label(row.metric), row.error, row.noise)
        for load in found.loads
        for row in load.rows
    ]


_PEER_NAMES = {"ttft": "ttft", "tpot": "tpot", "latency": "e2el"}


def _summary_of(path: Path) -> dict[str, str]:
    """LLMServingSim's own errors by our keys, as it prints them; none where the file is missing."""
    found: dict[str, str] = {}
    if not path.is_file():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"(TTFT|TPOT|Latency) (Mean|Median|P\d+)\s.*?([+-][\d.]+)%\s*$", line)
        if match:
            name, stat, error = match.groups()
            stat = {"mean": "mean", "median": "p50"}.get(stat.lower(), stat.lower())
            found[f"{stat}_{_PEER_NAMES[name.lower()]}_ms"] = f"{error} %"
    return found


# -- points -----------------------------------------------------------------------------------------------------------


def _silicon(found: SiliconReport) -> Chapter:
    peers = Table(
        "Others on the same points",
        ("", "TTFT", "TPOT"),
        [("aiconfigurator's formulas, vLLM on H100 and H200", PEERS_ON_POINTS["TTFT"], PEERS_ON_POINTS["TPOT"])],
    )
    noise = found.noise
    cells = [
        Cell(worst["point"], name.upper(), worst[f"error_{name}"], getattr(noise, f"{name}_p90", None))
        for worst in found.worst(2 * WORST)
        for name in ("ttft", "tpot")
    ]
    targets, *rest = found.tables()
    listed = [
        (engine, name, f"{value:.4g} {unit}".strip(), constants.basis)
        for engine, constants in FITTED.items()
        for name, value, unit in constants.named()
    ]
    assumed = [
        (
            name,
            "a client's pause before its next request",
            f"{profile.client.reaction:.4g} s",
            "assumed; chosen on the fitted half",
        )
        for name in serving_profile.names()
        if (profile := serving_profile.load(name)).client is not None and profile.client.reaction
    ]
    fitted = Table(
        "Constants that no table or data sheet holds",
        ("engine or serving profile", "what", "value", "basis"),
        [*listed, *assumed],
    )
    title = "Measured points of data-centre GPUs"
    about = (
        "Closed loops that others measured on H100, H200 and Blackwell with three engines, replayed as closed loops: operator tables "
        "make step costs, a serving profile of each source makes the engine's settings and the client. Half of the "
        "configurations may be fitted on, the other half never; at most three constants an engine are fitted."
    )
    return Chapter(
        title,
        about,
        found.verdict,
        found.sentence,
        [targets, peers, fitted, *rest],
        cells,
        record=made.of_silicon(found, name="silicon", title=title, about=about),
    )


# -- our own engine ---------------------------------------------------------------------------------------------------


def _own(path: Path) -> Chapter:
    try:
        stored: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        outcome = [judged.OutcomeRow(**row) for row in stored["outcome"]]
        schedule, repeats = stored["schedule"], stored["repeats"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not the validation.json of `servetwin validate SCENARIO --out DIR`: {error}"
        ) from None
    same = "identical" if schedule["identical"] else "DIFFERENT"
    headlines = [row for row in outcome if row.metric in judged.HEADLINES]
    worst = max(headlines, key=lambda row: abs(row.error))
    title = "Our own engine on a CPU: simulated against executed"
    about = (
        "The demo scenario, executed on the CPU engine (every step really computed) and simulated with step costs that were measured "
        "between the repeats. The schedule is replayed with the measured durations and must be the same."
    )
    sentence = (
        f"Replayed schedule {same} over {schedule['steps']:,} steps. Largest error of a mean: {tables.label(worst.metric)} "
        f"{tables.percent(worst.error, signed=True)}, where repeats differ by {tables.percent(worst.noise)}."
    )
    record = None
    if "cost" in stored:  # a whole file, and not one of older versions
        record = made.of_stored(
            stored, name="own-engine", title=title, about=about, measured=f"{stored['device']}, {stored['clock']} clock"
        ).model_copy(update={"sentence": sentence})
    return Chapter(
        title,
        about,
        stored["verdict"],
        sentence,
        [side_by_side([row._asdict() for row in outcome], repeats)],
        [Cell("own engine on a CPU", tables.label(row.metric), row.error, row.noise) for row in outcome],
        not_modelled=tuple(stored.get("not_modelled", ())),
        record=record,
    )


# -- shipped profiles -------------------------------------------------------------------------------------------------


def _profiles() -> Iterable[str]:
    """Cross-validated errors of shipped profiles by device and operator: each measured row predicted without itself."""
    errors: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    dips: dict[str, list[float]] = defaultdict(list)
    for name in shipped_profiles():
        profile = load_profile(name)
        if isinstance(profile, OperatorProfile):
            for operator, found in profile.cv_error.items():
                errors[profile.hardware, profile.dtype][operator].append(found.mape)
            dips[profile.hardware] += [-jump.ns for jump in profile.jumps if jump.kind == "dip"]
    operators = sorted({operator for found in errors.values() for operator in found})
    rows = []
    for (hardware, dtype), by_operator in sorted(errors.items()):
        cells = [tables.percent(max(by_operator[o])) if by_operator[o] else tables.DASH for o in operators]
        count = max(len(values) for values in by_operator.values())
        rows.append((f"{hardware} {dtype}", str(count), *cells))
    yield "## Shipped profiles\n"
    yield (
        "Each profile carries the error of its operators, every measured row predicted from the others; below, the largest of all "
        "models and tensor-parallel degrees. `servetwin profiles NAME` shows one with its domain, provenance, constants, and the "
        "places where a measured table dips.\n"
    )
    yield markdown.table(Table("", ("", "profiles", *operators), rows), level=0)
    yield f"Tables dip at {sum(map(len, dips.values())):,} places, all of them named in their profiles.\n"
