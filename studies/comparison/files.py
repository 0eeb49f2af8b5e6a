"""What a comparison writes: compare.html, compare.json, and compare.parquet with a row a policy and figure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError
from studies import figures as drawings
from studies import html, report, run_tables
from studies.comparison import decision, figures
from studies.comparison.result import Comparison
from studies.statistics.intervals import Interval
from studies.strict_json import dumps

if TYPE_CHECKING:
    import pyarrow as pa

FILES = ("compare.html", "compare.json", "compare.parquet")
DRAWN = 12
"""Policies up to which distributions are drawn over one another."""


def check_target(folder: Path) -> None:
    """Raises InputError if `folder` is a file, or nothing can be written there."""
    from studies.results import check_parent

    if folder.is_file():
        raise InputError(f"{folder}: a file, but --out is a folder")
    check_parent(folder)


def write(found: Comparison, folder: Path) -> Path:
    """Writes `FILES` into a folder, each complete or not at all; other files in it stay."""
    check_target(folder)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".compare.{os.getpid()}"
    try:
        part.write_text(dumps(found.to_dict()) + "\n", encoding="utf-8")
        part.replace(folder / "compare.json")
        import pyarrow.parquet as pq

        pq.write_table(table(found), part, compression="zstd")
        part.replace(folder / "compare.parquet")
    finally:
        part.unlink(missing_ok=True)
    return html.write(page(found), folder / "compare.html")


def table(found: Comparison) -> pa.Table:
    """A row a policy and figure: `policy`, `metric`, the mean over seeds with its interval (`estimate`, `low`, `high`), `n` seeds,
    `refused` (why there is no interval), what it has more than the baseline (`difference`, and as a part of it `relative`, with
    intervals) and the `verdict`; null where there is none. Seeds, baseline and Pareto sets are in the metadata, `comparison`."""
    import pyarrow as pa

    number, text = pa.float64(), pa.string()
    schema = pa.schema(
        [("policy", text), ("metric", text), ("estimate", number), ("low", number), ("high", number), ("n", pa.int64())]
        + [("refused", text)]
        + [(f"{name}{end}", number) for name in ("difference", "relative") for end in ("", "_low", "_high")]
        + [("verdict", text)]
    )
    told = found.to_dict()
    about = {key: told[key] for key in ("seeds", "confidence", "baseline", "metrics", "pareto")}
    rows = pa.Table.from_pylist(list(_rows(found)), schema=schema)
    return rows.replace_schema_metadata({"comparison": json.dumps(about, sort_keys=True)})


def _rows(found: Comparison) -> Iterator[dict[str, Any]]:
    for policy in found.runs:
        for key in found.figures:
            interval = found.interval(policy, key)
            row: dict[str, Any] = {
                "policy": policy,
                "metric": key,
                "n": interval.n,
                "refused": interval.refused or None,
            }
            row |= _ends(interval, "estimate", "low", "high")
            if policy != found.baseline:
                difference = found.difference(policy, key)
                row |= _ends(difference.absolute, "difference", "difference_low", "difference_high")
                row |= _ends(difference.relative, "relative", "relative_low", "relative_high")
                row["verdict"] = difference.verdict
            yield row


def _ends(interval: Interval, *names: str) -> dict[str, float | None]:
    return dict(zip(names, (interval.estimate, interval.low, interval.high), strict=True))


def page(found: Comparison) -> html.Page:
    """The decision with its Pareto sets, what each policy has more than the baseline, distributions of latencies, further figures."""
    front = decision.pareto(found)
    pairs = [
        (f"{decision.name(up)} against {decision.name(across)}", figures.pareto(found, k), False)
        for k, (across, up) in enumerate(found.fronts)
        if len(found.runs) > 1
    ]
    tables = [decision.decision(found), *([front] if front is not None else [])]
    said = "\n".join(decision.verdicts(found)) or "\n".join(found.sentences())
    sections = [html.Section("", said, (), tables, pairs)]
    if len(found.runs) > 1:
        changes = [(decision.label(key), figures.change(found, key), False) for key in found.metrics]
        sections.append(html.Section(f"Compared with {found.baseline}", "", (), [], changes))
    seed = f", seed {found.seeds[0]}" if len(found.seeds) > 1 else ""
    drawn = {name: run.records for name, run in list(found.runs.items())[:DRAWN]}
    more = f", the first {DRAWN} policies" if len(found.runs) > DRAWN else ""
    curves = [(f"{title}{seed}{more}", drawings.latency_cdf(metric, drawn), False) for metric, title in report.CDFS]
    sections.append(html.Section("Latency of requests", "", (), [], curves))
    sections.append(html.Section("Further figures, and what binds", "\n".join(found.sentences()), (), [found.table()]))
    lead = "\n".join(line for run in found.runs.values() for line in (run_tables.heading(run), *run_tables.about(run)))
    folded = [("What was run", lead), *((f"Scenario {name}", run.scenario_yaml) for name, run in found.runs.items())]
    title = found.question if found.question else " against ".join(found.runs)
    return html.Page(title, "\n".join(found.costs()), sections, folded)
