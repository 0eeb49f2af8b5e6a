"""Reports of finished runs: on the terminal, and as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.metrics import arrays
from studies import figures, results
from studies.reports import html, run_tables, tables
from studies.reports.limits import BRIEFLY
from studies.results import Run

if TYPE_CHECKING:
    from rich.console import Console


def show(run: Run, console: Console) -> None:
    """Prints a run: KV capacity first, what binds, then latency, throughput, how requests ended, what is not modelled."""
    console.print(run_tables.heading(run), style="bold", highlight=False, markup=False)
    for line in run_tables.about(run):
        console.print(line, style="dim", highlight=False, markup=False)
    for table in run_tables.every(run):
        show_table(table, console)
    sentence = run.info.get("binding", {}).get("sentence")
    if sentence:
        console.print(f"\n{sentence}", highlight=False)
    console.print(f"\n[dim]Not modelled, among others: {BRIEFLY}. All: report.html or --json.[/]", highlight=False)


def show_table(table: tables.Table, console: Console) -> None:
    from rich import box
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    def grid(head: Sequence[str]) -> Table:
        found = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            show_header=any(head),
        )
        for i, title in enumerate(head):
            cells = [title, *(row[i] for row in table.rows)]
            # The first column wraps between words, the others nowhere; nothing is cut.
            parts = [part for cell in cells for part in (cell.split() if i == 0 else cell.split("\n"))]
            widest = max(map(cell_len, parts), default=1)
            found.add_column(title, justify="left" if i == 0 else "right", no_wrap=i > 0, min_width=widest)
        for row in table.rows:
            found.add_row(*(escape(cell) for cell in row))
        return found

    def least(found: Table) -> int:
        return Measurement.get(console, console.options.update(max_width=1000), found).minimum

    shown = grid(table.head)
    if least(shown) > console.width:
        shown = grid([title.replace(" ", "\n") for title in table.head])
    # What is wider even so is printed in full, and the terminal breaks its lines.
    if least(shown) > console.width:
        shown.width = least(shown)
    console.print()
    if table.title:  # not the table's own, which is broken where the table is narrow
        console.print(escape(table.title), style="bold", highlight=False)
    console.print(shown, crop=False)
    if table.note:
        console.print(f"[dim]{escape(table.note)}[/]", highlight=False)


def cards(s: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Headline figures of a summary as `(value, label)`, KV capacity first."""
    ms, number = tables.milliseconds, tables.number
    held = [
        (number(s["kv_capacity_tokens"]), f"KV capacity, tokens{tables.between(s)}"),
        (number(s["kv_capacity_requests"]), "conversations that fit"),
    ]
    # Of several pools each has its own, in a table.
    found = [
        *(held if s["kv_capacity_tokens"] is not None else ()),
        (ms(s["mean_ttft_ms"]), "mean TTFT"),
        (ms(s["mean_tpot_ms"]), "mean TPOT"),
        (ms(s["mean_e2el_ms"]), "mean E2E"),
        (f"{number(s['output_throughput'])} /s", "output tokens"),
    ]
    if s["good_request_fraction"] is not None:
        found.append((tables.percent(s["good_request_fraction"]), "of requests meet the SLO"))
    return found


def figures_of(run: Run, label: str = "") -> list[tuple[str, figures.Figure, bool]]:
    """Every figure of one run: `(title, figure, wide?)`."""
    runs = {label or run.name: run.records}
    engine = run.info.get("engine") or {}
    usable = engine["num_gpu_blocks"] - 1 if engine and not run.info.get("pools") else None
    return [
        *((title, figures.latency_cdf(metric, runs, run.slo), False) for metric, title in CDFS),
        ("Requests and KV memory", figures.load_over_time(run.records, usable), True),
        ("Batches", figures.batch_composition(run.records), True),
    ]


CDFS = (("ttft", "Time to first token"), ("tpot", "Time per output token"), ("e2el", "End-to-end latency"))


def page(run: Run) -> html.Page:
    """One run as a page."""
    sentence = run.info.get("binding", {}).get("sentence", "")
    section = html.Section("", sentence, cards(run.summary), run_tables.every(run), figures_of(run))
    return html.Page(run.name, _lead(run), [section], [("Scenario", run.scenario_yaml)])


def comparison_page(
    title: str,
    predicted: Run,
    repeats: Sequence[Run],
    extra: Sequence[tables.Table],
    sentence: str = "",
) -> html.Page:
    """A simulated run beside executed ones: errors first, then what each looked like.

    repeats: executions of the same scenario; the first is drawn. extra: tables of errors, schedule and ranking.
    """
    measured = repeats[0]
    a, b = predicted.records, measured.records
    runs = {"executed": b, "simulated": a}
    caption = f"Executed, mean of {len(repeats)} repeats" if len(repeats) > 1 else "Executed"
    overlay = [(name, figures.latency_cdf(metric, runs, measured.slo), False) for metric, name in CDFS]
    scatter = [(f"{name}, by request", figures.predicted_against_measured(a, b, m), False) for m, name in CDFS]
    return html.Page(
        title,
        _lead(measured),
        [
            html.Section("", sentence, cards(mean_summary(repeats)), extra, [*overlay, *scatter], caption),
            html.Section(
                f"Executed, repeat 1 of {len(repeats)}",
                run_tables.heading(measured),
                (),
                run_tables.every(measured),
                figures_of(measured)[3:],
            ),
            html.Section(
                "Simulated", run_tables.heading(predicted), (), run_tables.every(predicted), figures_of(predicted)[3:]
            ),
        ],
        [("Scenario", measured.scenario_yaml)],
    )


def mean_summary(runs: Sequence[Run]) -> dict[str, float | None]:
    """Figures of repeats, each their mean; None where a repeat has none."""
    found: dict[str, float | None] = {}
    for key, value in runs[0].summary.items():
        values = [run.summary.get(key) for run in runs]
        if all(isinstance(v, (int, float)) for v in values):
            same = all(v == value for v in values)
            found[key] = value if same else sum(values) / len(values)
        elif not isinstance(value, dict):
            found[key] = None
    return found


def save(run: Run, folder: Path | str, *, detailed: bool = False) -> Path:
    """Writes a result folder with report.html in it. detailed: raw values of each request in result.json too.

    Raises:
        InputError: the folder holds something that is not a result.
    """
    extra = arrays(run.records) if detailed else {}
    return results.save(run, folder, extra=extra, texts={"report.html": html.render(page(run))})


def write(run: Run, folder: Path | str) -> Path:
    """Writes the run's page into its result folder: report.html, or executed.html where a validation has its report there."""
    folder = Path(folder)
    name = "executed.html" if (folder / "validation.json").is_file() else "report.html"
    return html.write(page(run), folder / name)


def _lead(run: Run) -> str:
    i = run.info
    hashes = [f"scenario {i['scenario_hash']}"] if i.get("scenario_hash") else []
    hashes += [f"profile {i['profile_hash']}"] if i.get("profile_hash") else []
    versions = ", ".join(f"{name} {version}" for name, version in i.get("versions", {}).items())
    return "\n".join([run_tables.heading(run), *run_tables.about(run), " · ".join([*hashes, versions])])
