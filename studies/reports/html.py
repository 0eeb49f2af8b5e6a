"""One self-contained HTML file: tables and figures of one or several runs, plotly.js inlined once, no network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from studies.figures import Figure, described
from studies.reports import files
from studies.reports.limits import NOT_MODELLED
from studies.reports.tables import Table

STYLE = """
:root{--ink:#222;--soft:#5b6470;--rule:#dfe3e8;--back:#f6f7f9;--accent:#0072B2}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}
h2{font-size:19px;margin:36px 0 12px;padding-top:14px;border-top:1px solid var(--rule)}
h3{font-size:14px;margin:0 0 8px}
.lead{color:var(--soft);margin:0 0 18px;overflow-wrap:anywhere;white-space:pre-line}
.said{background:#fff;border-left:4px solid var(--accent);border-radius:4px;padding:10px 14px;margin:0 0 18px;white-space:pre-line}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:0 0 18px}
.card{background:#fff;border:1px solid var(--rule);border-radius:8px;padding:10px 14px}
.card b{display:block;font-size:22px;line-height:1.3;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(360px,100%),1fr));gap:14px;align-items:start;grid-auto-flow:dense;margin-bottom:14px}
.small{grid-template-columns:repeat(auto-fit,minmax(min(310px,100%),1fr))}
.box{background:#fff;border:1px solid var(--rule);border-radius:8px;padding:12px 14px;min-width:0;margin:0}
.wide{grid-column:1/-1}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:4px 8px;text-align:right;border-bottom:1px solid var(--rule);white-space:pre;vertical-align:top}
th{color:var(--soft);font-weight:600;vertical-align:bottom;white-space:pre-line}
td.long{white-space:pre-line;min-width:170px}.whole{white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0;white-space:normal}
tr:last-child td{border-bottom:0}
.note{color:var(--soft);font-size:13px;margin:8px 0 0;white-space:pre-line;overflow-wrap:anywhere}
.after{margin:-8px 0 18px}
details{margin-top:28px}
summary{cursor:pointer;font-weight:600}
pre{margin:8px 0 0;font-size:13px;overflow-x:auto}
footer{color:var(--soft);font-size:13px;margin-top:28px}
footer ul{margin:4px 0 0;padding-left:18px}
@media(max-width:560px){main{padding:16px 12px 32px}h1{font-size:21px}.box{padding:10px}
.cards{grid-template-columns:1fr 1fr;gap:8px}.card b{font-size:18px}table{font-size:13px}th,td{padding:4px 4px}th:last-child,td:last-child{padding-right:0}}
"""

NARROW = 30
"""Characters of a table's figures that stand beside another table."""

LONG = 30
"""Characters of a line from which on a cell wraps."""
WHOLE = 24
"""Characters up to which a word with a hyphen stays in one line."""
PER_AXIS = 150
"""Pixels that an axis of parallel coordinates needs for its name; where there are fewer, the figure is moved sideways."""

SCRIPT = """
const wide = {responsive:true, displaylogo:false, displayModeBar:false};
for (const f of document.querySelectorAll('script[type="application/json"]')) {
  const {data, layout} = JSON.parse(f.textContent);
  Plotly.newPlot(f.dataset.for, data, layout, wide);
}
"""


@dataclass
class Section:
    """A part of the page: a heading, a sentence, cards `(value, label)`, tables, and figures `(title, figure, wide?)`.

    caption: what the cards show, where that is not plain."""

    title: str
    sentence: str = ""
    cards: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[tuple[str, Figure, bool]] = ()
    caption: str = ""


@dataclass
class Page:
    title: str
    lead: str = ""
    sections: list[Section] = field(default_factory=list)
    folded: Sequence[tuple[str, str]] = ()
    """Texts `(title, text)` at the end that open with a click: scenario files."""


def write(page: Page, path: Path | str) -> Path:
    """Writes the file, complete or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as part:
        part.write_text(render(page), encoding="utf-8", errors="replace")
    return path


def render(page: Page) -> str:
    """The whole document as text (about 5 MB, nearly all of it plotly.js)."""
    body: list[str] = []
    count = 0
    for section in page.sections:
        count = _section(body, section, count)
    body += [
        f'<details class="box"><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>'
        for title, text in page.folded
        if text
    ]
    missing = "".join(f"<li>{html.escape(text)}</li>" for text in NOT_MODELLED)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{html.escape(page.title)}</title><style>{STYLE}</style></head><body><main>'
        f'<h1>{html.escape(page.title)}</h1><p class="lead">{html.escape(page.lead)}</p>'
        + "".join(body)
        + f"<footer><strong>Not modelled</strong><ul>{missing}</ul></footer></main>"
        + f"<script>{plotly_js()}</script><script>{SCRIPT}</script></body></html>\n"
    )


def plotly_js() -> str:
    """The library's minified source, as plotly ships it."""
    return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


def _section(body: list[str], section: Section, count: int) -> int:
    escape = html.escape
    body.append(f"<h2>{escape(section.title)}</h2>" if section.title else "")
    if section.sentence:
        body.append(f'<p class="said">{escape(section.sentence)}</p>')
    if section.cards:
        cells = "".join(f'<div class="card"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for v, k in section.cards)
        body.append(f'<div class="cards">{cells}</div>')
    if section.caption:
        body.append(f'<p class="note after">{escape(section.caption)}</p>')
    body.append('<div class="grid small">')
    for table in section.tables:
        body.append(_table(table))
    body.append('</div><div class="grid">')
    for title, figure, wide in section.figures:
        name = f"figure{count}"
        count += 1
        body.append(
            f'<figure class="box{" wide" if wide else ""}"><h3>{escape(title)}</h3>'
            f"{_place(name, title, figure)}"
            f'<script type="application/json" data-for="{name}">{_json(figure)}</script></figure>'
        )
    body.append("</div>")
    return count


def _place(name: str, title: str, figure: Figure) -> str:
    """The element that a figure is drawn in."""
    drawn = f'<div id="{name}" role="img" aria-label="{html.escape(f"{title}. {described(figure)}")}"'
    axes = max((len(trace.get("dimensions") or ()) for trace in figure["data"]), default=0)
    if not axes:
        return f"{drawn}></div>"
    return f'<div class="scroll">{drawn} style="min-width:{PER_AXIS * axes}px"></div></div>'


def _words(text: str) -> str:
    """Text whose names are broken after an underscore, and not at a hyphen."""
    words = re.split(r"(\s+)", text)
    return "".join(
        f'<span class="whole">{html.escape(word)}</span>'
        if "-" in word.strip("-") and len(word) <= WHOLE
        else html.escape(word).replace("_", "_<wbr>")
        for word in words
    )


def _cell(text: str) -> str:
    if max(map(len, text.split("\n"))) <= LONG:
        return f"<td>{html.escape(text)}</td>"
    return f'<td class="long">{_words(text)}</td>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_words(cell)}</th>' for cell in table.head)
    rows = "".join(f"<tr><td>{_words(row[0])}</td>{''.join(map(_cell, row[1:]))}</tr>" for row in table.rows)
    note = f'<p class="note">{html.escape(table.note)}</p>' if table.note else ""
    figures = list(zip(table.head, *table.rows, strict=True))[1:]  # the first column wraps
    widest = sum(max(len(line) for cell in column for line in cell.split("\n")) for column in figures)
    wide = " wide" if len(table.head) > 4 or widest > NARROW else ""
    return (
        f'<div class="box{wide}"><h3>{html.escape(table.title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}</div>"
    )


def _json(figure: Any) -> str:
    """JSON that cannot end its script element early."""
    return json.dumps(figure, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
