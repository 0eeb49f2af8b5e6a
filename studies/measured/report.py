"""What a validation against measured runs says: as JSON, as tables, as a page; worst cells first."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from calibration import validate as judged
from studies.aspects import step_costs
from studies.measured.loads import Load
from studies.measured.validation import Measured
from studies.reports import files, html, tables
from studies.reports.strict_json import dumps
from studies.reports.tables import Table

DECISIVE = (
    *(f"{stat}_{name}_ms" for stat in ("mean", "p50") for name in ("ttft", "tpot", "itl", "e2el")),
    "output_throughput",
    "request_throughput",
)
"""Metrics that decide the verdict; tails are reported beside them."""

WORST = 10
_VERDICT = {
    "pass": "every mean and median is within 5 % or the spread of the repeats",
    "fail": "a mean or median is off by more than 5 % and the spread of the repeats",
    "void": "repeats of a load differ by more than 10 % in a mean or median, so the measurement cannot tell",
}


def verdict(found: Measured) -> judged.Verdict:
    """`fail` if a mean or median of a load fails, else `void` if one is void, else `pass`."""
    return judged.overall([row for load in found.loads for row in load.rows], DECISIVE)


def worst(found: Measured) -> list[tuple[str, judged.OutcomeRow]]:
    """Load and row of the largest errors."""
    cells = [(load.name, row) for load in found.loads for row in load.rows]
    return sorted(cells, key=lambda cell: -abs(cell[1].error))[:WORST]


def to_dict(found: Measured) -> dict[str, Any]:
    """JSON-able. `outcome` has the rows of every load, largest errors first; errors are signed fractions, noise unsigned."""
    scenario = found.engine.scenario
    rows = [
        row._asdict() | {"load": load.name} | _interval(load, row.metric) for load in found.loads for row in load.rows
    ]
    return {
        "measured": str(found.found.folder),
        "layout": found.found.layout,
        "source": found.source,
        "model": scenario.model.name,
        "hardware": scenario.hardware.name,
        "engine": _engine(found),
        "kv_blocks": _kv_blocks(found),
        "cost": found.cost.name,
        "profile": None if found.profile is None else found.profile.hash(),
        "cost_errors": {} if found.profile is None else {k: e.model_dump() for k, e in found.profile.cv_error.items()},
        "overhead": found.overhead.to_dict(),
        "constants": _constants(found),
        "noise": _noise(found),
        "verdict": verdict(found),
        "outcome": sorted(rows, key=lambda row: -abs(float(row["error"]))),
        "loads": {load.name: _load(load) for load in found.loads},
        "queues": None if found.queues is None else found.queues._asdict(),
        "ignored_files": list(found.found.ignored),
        "not_modelled": found.not_modelled,
    }


def _constants(found: Measured) -> list[dict[str, Any]]:
    """Numbers that no table and no fitted log holds: those of the profile, and those set on runs that are not validated."""
    listed = [c.model_dump() for c in getattr(found.profile, "constants", ())]
    overhead = found.overhead
    for name, ns in (("host time per step", overhead.step_ns), ("client and server, on TTFT", overhead.client_ns)):
        if overhead.runs:
            why = f"set on {', '.join(overhead.runs)}"
            listed.append({"name": name, "value": ns / 1e6, "unit": "ms", "basis": "fitted", "why": why})
    return listed


def _noise(found: Measured) -> dict[str, Any] | None:
    """Of step times, where it was drawn."""
    noise = None if found.profile is None else found.profile.noise
    return None if noise is None or not found.seeds else {"correlation": noise.correlation, "seeds": found.seeds}


def _load(load: Load) -> dict[str, Any]:
    return {
        "requests": len(load.runs[0]),
        "rate": load.runs[0].rate if math.isfinite(load.runs[0].rate) else None,
        "arrivals": load.runs[0].origin,
        "repeats": [run.name for run in load.runs],
        "validated": list(load.simulated),
        "by_run": {name: [row._asdict() for row in rows] for name, rows in load.by_run.items()},
        "matched": {name: match._asdict() for name, match in load.matched.items()},
        "shift_in_load": load.shift,
        "few_samples": load.few,
    }


def _interval(load: Load, metric: str) -> dict[str, Any]:
    return {"simulated_at_kv_ends": list(load.interval[metric])} if metric in load.interval else {}


def _engine(found: Measured) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(found.engine.scenario.engine_config())


def _kv_blocks(found: Measured) -> dict[str, Any]:
    blocks = found.engine.scenario.engine_config().num_gpu_blocks
    lowest, highest = found.engine.lowest, found.engine.highest
    if lowest is None or highest is None:
        return {"blocks": blocks, "stated": True}
    ends = [scenario.engine_config().num_gpu_blocks for scenario in (lowest, highest)]
    return {"blocks": blocks, "stated": False, "between": ends}


def sentence(found: Measured) -> str:
    """What came of it, in words."""
    load, row = worst(found)[0]
    decisive = [(name, row) for name, row in _cells(found) if row.metric in DECISIVE]
    said = ""
    if decisive:
        name, largest = max(decisive, key=lambda cell: abs(cell[1].error))
        said = f"Largest error of a mean or median: {tables.label(largest.metric)} {tables.percent(largest.error, signed=True)}"
        said += f" ({name}){_spread(largest)}. "
    said += f"Worst cell of all: {tables.label(row.metric)} {tables.percent(row.error, signed=True)} ({load}){_spread(row)}. "
    judgement = verdict(found)
    said += _unit(found)
    return f"{said}Verdict: {judgement} ({_VERDICT[judgement]})."


def _unit(found: Measured) -> str:
    """A question, where every mean is off by about the factor between two units."""
    means = {f"mean_{name}_ms" for name in ("ttft", "tpot", "e2el")}
    ratios = [row.simulated / row.live for _, row in _cells(found) if row.metric in means and row.live > 0]
    if not ratios or not (all(1 / 5000 < r < 1 / 200 for r in ratios) or all(200 < r < 5000 for r in ratios)):
        return ""
    side = "shorter" if ratios[0] < 1 else "longer"
    return (
        f"All latencies come out about a thousand times {side} than measured: are the measured ones in another unit? "
    )


def _cells(found: Measured) -> list[tuple[str, judged.OutcomeRow]]:
    return [(load.name, row) for load in found.loads for row in load.rows]


def _spread(row: judged.OutcomeRow) -> str:
    return "" if row.noise is None else f", where repeats differ by {tables.percent(row.noise)}"


def report_tables(found: Measured) -> list[Table]:
    """For people: the worst cells, then each load, then what it rests on."""
    return [
        _worst_table(found),
        *(_load_table(load) for load in found.loads),
        _matched_table(found),
        *_queue_tables(found),
        *_capacity_tables(found),
        basis_table(found),
    ]


def _queue_tables(found: Measured) -> list[Table]:
    """The schedule, apart from what steps cost: as much of it as the run recorded."""
    gap = found.queues
    if gap is None:
        return []
    cells = [
        ("requests running, mean", tables.number(gap.mean_running), tables.number(gap.running)),
        ("requests waiting, mean", tables.number(gap.mean_waiting), tables.number(gap.waiting)),
        (
            "all answered after (s)",
            tables.number(gap.drained),
            tables.percent(gap.simulated_drained / gap.drained - 1.0, signed=True),
        ),
    ]
    note = "difference: of requests, the mean at all ticks of |simulated - measured|"
    return [Table(f"Queues, at {gap.ticks:,} ticks", ("", "measured", "difference"), cells, note)]


def _worst_table(found: Measured) -> Table:
    cells = [
        (f"{tables.label(row.metric)}, {name}", tables.percent(row.error, signed=True), tables.percent(row.noise))
        for name, row in worst(found)
    ]
    return Table("Worst cells", ("", "error", "noise"), cells)


def _load_table(load: Load) -> Table:
    cells = [
        (
            tables.label(row.metric),
            tables.number(row.live),
            tables.number(row.simulated),
            tables.percent(row.error, signed=True),
            tables.percent(row.noise),
            row.verdict,
        )
        for row in sorted(load.rows, key=lambda row: -abs(row.error))
    ]
    note = f"{len(load.runs[0]):,} requests, arrivals as {load.runs[0].origin}; validated: {', '.join(load.simulated)}"
    if len(load.runs) > 1:
        note += f"; noise: largest difference among {', '.join(run.name for run in load.runs)}"
    else:
        note += "; one run, so nobody knows its noise"
    if load.few:
        note += (
            f"\n{len(load.few)} tails rest on few requests of the run; they are those of the same requests simulated"
        )
    head = ("", "measured", "simulated", "error", "noise", "verdict")
    return Table(load.name, head, cells, note)


def _matched_table(found: Measured) -> Table:
    cells = []
    for load in found.loads:
        for name, match in load.matched.items():
            key = {"TTFT": "mean_ttft_ms", "E2E": "mean_e2el_ms"}.get(name)
            shift = "" if key is None or key not in load.shift else _shift(load.shift[key])
            cells.append(
                (
                    f"{name}, {load.name}",
                    f"{match.requests:,}",
                    tables.percent(match.mape),
                    tables.number(match.pearson_r),
                    shift,
                )
            )
    note = "load: so much more load gives the simulation the measured mean; a dash beyond -33 % to +43 %"
    return Table("Request by request", ("", "n", "MAPE", "r", "error as load"), cells, note)


def _shift(value: float | None) -> str:
    return tables.DASH if value is None else tables.percent(value, signed=True)


def _capacity_tables(found: Measured) -> list[Table]:
    """Both ends of a KV capacity that nothing states."""
    if found.engine.lowest is None or found.engine.highest is None:
        return []
    low, high = (s.engine_config().num_gpu_blocks for s in (found.engine.lowest, found.engine.highest))
    cells = [
        (f"{tables.label(metric)}, {load.name}", tables.number(ends[0]), tables.number(ends[1]))
        for load in found.loads
        for metric, ends in load.interval.items()
        if metric in DECISIVE and metric in {row.metric for row in load.rows}
    ]
    scenario = found.engine.scenario
    note = scenario.engine.kv_capacity(scenario.model, scenario.hardware).basis
    return [Table("KV capacity", ("", f"{low:,} blocks", f"{high:,} blocks"), cells, note)]


def basis_table(found: Measured) -> Table:
    """What the prediction rests on: settings, step costs, constants."""
    scenario, overhead = found.engine.scenario, found.overhead
    config = scenario.engine_config()
    cells = [
        ("layout", found.found.layout),
        ("model and hardware", f"{scenario.model.name} on {scenario.hardware.name}"),
        ("engine", f"{config.max_num_batched_tokens:,} batched tokens, {config.max_num_seqs} sequences"),
        ("KV memory", f"{config.num_gpu_blocks:,} blocks of {config.block_size}"),
        ("step costs", found.cost.name),
    ]
    if found.profile is not None:
        log = found.profile.source.details.get("rows") if hasattr(found.profile, "source") else None
        cells += [("rows of the step log", log)] if log else []
        if "all" in found.profile.cv_error:
            errors = found.profile.cv_error["all"]
            cells.append(
                ("step costs, cross-validated", f"MAPE {tables.percent(errors.mape)} of {errors.observations:,}")
            )
        elif found.profile.cv_error:
            mapes = sorted(errors.mape for errors in found.profile.cv_error.values())
            spread = f"MAPE {tables.percent(mapes[0])} to {tables.percent(mapes[-1])}"
            cells.append(("operators, predicted without themselves", spread))
    elif names := step_costs.fitting(scenario):
        cells.append(("a measured profile exists", f"{names[0]}: --profile auto"))
    if noise := _noise(found):
        cells.append(("noise of step times", f"mean of {noise['seeds']} draws, lag-1 {noise['correlation']:.2f}"))
    if overhead.runs:
        cells += [
            ("host time per step (constant)", f"{overhead.step_ns / 1e6:.3g} ms"),
            ("client and server (constant)", f"{overhead.client_ns / 1e6:.3g} ms on TTFT"),
            ("constants set on", ", ".join(overhead.runs)),
        ]
    note = "Not modelled: " + "; ".join(found.not_modelled)
    if found.found.ignored:
        note += f"\nFiles without a run: {', '.join(found.found.ignored)}"
    return Table("What it rests on", ("", ""), cells, note)


FILES = ("measured.json", "report.html")


def check_target(folder: Path) -> None:
    """Raises InputError if nothing can be written to `folder`, or would be lost among other files there."""
    files.check_folder(folder, "a result", lambda name: name in FILES)


def write(found: Measured, folder: Path) -> Path:
    """Writes measured.json and report.html into a folder."""
    check_target(folder)
    section = html.Section("", sentence(found), (), report_tables(found), ())
    page = html.Page(
        f"{found.found.folder.name}: simulated against measured",
        f"{found.engine.scenario.model.name} on {found.engine.scenario.hardware.name}",
        [section],
        [("Scenario", found.engine.scenario.to_yaml())],
    )
    files.write(folder, {"measured.json": dumps(to_dict(found)) + "\n", "report.html": html.render(page)})
    return folder / "report.html"
