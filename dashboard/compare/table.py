"""The table of a comparison as HTML: variants in rows, figures in columns, and each variant a card where the page is narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from studies.aspects.kv_use import KvUse
from studies.comparison import Comparison
from studies.comparison.decision import binds
from studies.reports import tables, written
from studies.statistics.differences import Difference

CSS = """
<style>
.compared {width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.88rem}
.compared-scroll {overflow-x: auto}
.compared th, .compared td {text-align: left; vertical-align: top; padding: 0.45rem 0.4rem; border-bottom: 1px solid var(--compared-line)}
.compared thead th {font-weight: 600; white-space: normal; vertical-align: bottom}
.compared tbody th {font-weight: 650; min-width: 7rem; overflow-wrap: anywhere}
.compared thead th:first-child, .compared tbody th {position: sticky; left: 0; background: var(--compared-ground)}
.compared .value, .compared .change {display: block}
.compared .value {white-space: nowrap}
.compared .change {min-width: 4.2rem}
.compared .change {font-size: 0.82rem; color: var(--compared-faint)}
.compared .better {color: var(--compared-better)}
.compared .worse {color: var(--compared-worse)}
.compared .role {display: block; font-weight: 400; font-size: 0.85rem; color: var(--compared-faint)}
.compared .words {min-width: 3.6rem}
.compared-light {--compared-ground: #ffffff; --compared-line: #d5dae0; --compared-faint: #59636e; --compared-better: #00694d; --compared-worse: #a63f00}
.compared-dark {--compared-ground: #0e1117; --compared-line: #39414d; --compared-faint: #a3acb7; --compared-better: #45c79c; --compared-worse: #ff9d62}
@media (max-width: 640px) {
  .compared, .compared tbody, .compared tr, .compared th, .compared td {display: block}
  .compared thead {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%)}
  .compared tbody tr {border: 1px solid var(--compared-line); border-radius: 6px; margin-bottom: 0.7rem; padding: 0.3rem 0}
  .compared tbody th {position: static; font-size: 1.05rem; border-bottom: none; padding: 0.2rem 0.7rem}
  .compared td {display: grid; grid-template-columns: 44% 56%; border-bottom: none; padding: 0.18rem 0.7rem}
  .compared td::before {content: attr(data-label); color: var(--compared-faint); grid-row: 1 / span 2}
  .compared .value, .compared .change, .compared .words {grid-column: 2; white-space: normal}
}
</style>
"""
NONE_SEEN = "no difference seen"
_WORDS = {
    "better": "better",
    "worse": "worse",
    "higher": "more",
    "lower": "less",
    "not distinguishable": NONE_SEEN,
    "the same": "the same",
}


def table(found: Comparison, metrics: Sequence[str], uses: Mapping[str, KvUse], dark: bool) -> str:
    """The page's HTML of the table, without its style. metrics: figures in columns. uses: how full KV memory was, by policy."""
    heads = ["Variant, and what binds it", *map(tables.label, metrics), *(["KV in use, mean / peak"] if uses else [])]
    rows = "".join(_row(found, policy, metrics, uses, heads) for policy in found.runs)
    head = "".join(f'<th scope="col" role="columnheader">{escape(text)}</th>' for text in heads)
    return (
        f'<div class="compared-scroll compared-{"dark" if dark else "light"}" tabindex="0" role="region" aria-label="Variants compared">'
        f'<table class="compared" role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{rows}</tbody></table></div>'
    )


def _row(
    found: Comparison, policy: str, metrics: Sequence[str], uses: Mapping[str, KvUse], heads: Sequence[str]
) -> str:
    role = _span("role", "baseline") if policy == found.baseline and len(found.runs) > 1 else ""
    role += _span("role", binds(found, policy).replace("\n", " "))
    cells = [_figure(found, policy, key) for key in metrics]
    if uses:
        use = uses.get(policy)
        said = (
            tables.DASH
            if use is None
            else f"{tables.percent(use.mean)}\u2009/\u2009{tables.percent(use.peak)}".replace(" %", "\u00a0%")
        )
        cells.append(_span("words", said))
    data = "".join(
        f'<td role="cell" data-label="{escape(label)}">{cell}</td>'
        for label, cell in zip(heads[1:], cells, strict=True)
    )
    return f'<tr role="row"><th scope="row" role="rowheader">{escape(policy)}{role}</th>{data}</tr>'


def _figure(found: Comparison, policy: str, key: str) -> str:
    value = _span("value", written.figure(key, found.interval(policy, key)))
    if policy == found.baseline:
        return value
    difference = found.difference(policy, key)
    said = change(key, difference)
    kind = difference.verdict if difference.verdict in ("better", "worse") else ""
    return value + (_span(f"change {kind}".strip(), said) if said else "")


def change(key: str, found: Difference) -> str:
    """`-12 % ± 3 % better`, `no difference seen`; without an interval the difference alone, and nothing where there is none."""
    word = _WORDS.get(found.verdict, "")
    if found.verdict in ("not distinguishable", "the same"):
        return word
    said = written.change(key, found)
    return "" if said == tables.DASH else f"{said} {word}".strip()


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'
