"""What a comparison writes: compare.html, compare.json, and compare.parquet with a row a policy and figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from studies import figures as drawings
from studies.comparison import decision, figures
from studies.comparison.result import Comparison
from studies.reports import files, html, report, run_tables, tables
from studies.reports.strict_json import dumps
from studies.statistics.intervals import Interval

if TYPE_CHECKING:
    import pyarrow as pa

TITLED = 4
"""Policies up to which the title names all."""
DRAWN = 6
"""Policies up to which distributions are drawn over one another."""


def write(found: Comparison, folder: Path) -> Path:
    """Writes compare.html, compare.json and compare.parquet into a folder; other files in it stay. The page's path."""
    document = dumps(found.to_dict()) + "\n"
    files.write(
        folder,
        {"compare.json": document, "compare.parquet": table(found), "compare.html": html.render(page(found))},
    )
    return folder / "compare.html"


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
        (f"{tables.name(up)} against {tables.name(across)}", figures.pareto(found, k), False)
        for k, (across, up) in enumerate(found.fronts)
        if len(found.runs) > 1
    ]
    listed = [decision.decision(found)]
    if front is not None:
        bars = "Bars in the figures: intervals of each policy. Who dominates whom is judged by differences under the same seeds."
        listed.append(front if found.exact else replace(front, note=f"{front.note}\n{bars}"))
    said = "\n".join(decision.verdicts(found)) or "\n".join(found.sentences())
    sections = [html.Section("", said, (), listed, pairs)]
    wide = any(map(figures.is_long, found.runs))
    if len(found.runs) > 1:
        drawn = ((tables.label(key), figures.change(found, key)) for key in found.metrics)
        changes = [(title, figure, wide) for title, figure in drawn if figure is not None]
        sections.append(html.Section(f"Compared with {found.baseline}", "", (), [], changes))
    sections.append(_curves(found, wide))
    few = len(found.runs) <= decision.FEW
    bound, further = "\n".join(found.sentences()), found.table()
    said, further = (bound, further) if few else ("", decision.turned(further))
    sections.append(html.Section("Further figures, and what binds", said, (), [further]))
    lead = "\n".join(line for run in found.runs.values() for line in (run_tables.heading(run), *run_tables.about(run)))
    folded = [
        ("What binds", "" if few else bound),
        ("What was run", lead),
        *((f"Scenario {name}", run.scenario_yaml) for name, run in found.runs.items()),
    ]
    title = found.question or " against ".join(found.runs)
    if not found.question and len(found.runs) > TITLED:
        title = f"{found.baseline} and {len(found.runs) - 1} other policies"
    return html.Page(title, "\n".join(found.costs()), sections, folded)


def _curves(found: Comparison, wide: bool) -> html.Section:
    """Distributions of latencies under the first seed; of many policies those of the baseline and of what nobody dominates."""
    chosen = list(found.runs)
    if len(chosen) > DRAWN:
        placed = {policy for standing in found.standings for policy in chosen if standing[policy].mark != "dominated"}
        chosen.sort(key=lambda policy: (policy != found.baseline, policy not in placed))
        chosen = chosen[:DRAWN]
    records = {policy: found.runs[policy].records for policy in chosen}
    drawn = [(title, drawings.latency_cdf(metric, records), wide) for metric, title in report.CDFS]
    caption = f"Under seed {found.seeds[0]}" if len(found.seeds) > 1 else ""
    if len(found.runs) > DRAWN:
        caption = f"{caption or 'Shown'}: {DRAWN} of {len(found.runs)} policies, the baseline and others that no other dominates first"
    return html.Section("Latency of requests", "", (), [], drawn, caption)
