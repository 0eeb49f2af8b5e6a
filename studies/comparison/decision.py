"""The decision table of a comparison: policies in rows, figures with what they have more than the baseline's, and the Pareto set."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from studies.aspects.binding import LIMITS
from studies.comparison.result import Comparison
from studies.pareto import Standing
from studies.reports import folding, tables, written
from studies.reports.tables import DASH, Table
from studies.statistics.differences import Difference
from studies.statistics.directions import better
from studies.statistics.intervals import FEWEST

HEAD = 13  # characters of a line of a column's head
NAME = 28  # and of a policy's name
FEW = 8
"""Policies up to which each has its sentences."""
VERDICTS = ("better", "worse", "higher", "lower", "not distinguishable", "the same")
_WORDS = {"not distinguishable": "no difference seen", "the same": "the same"}


def decision(found: Comparison) -> Table:
    """A row a policy, a column a figure; of all but the baseline, what they have more stands below the figure."""
    rows = []
    for policy in found.runs:
        cells = [_named(policy)]
        for key in found.metrics:
            cell = written.figure(key, found.interval(policy, key))
            if policy != found.baseline:
                cell += "\n" + written.change(key, found.difference(policy, key))
            cells.append(cell)
        rows.append((*cells, binds(found, policy)))
    head = ("", *(tables.label(key) for key in found.metrics), "binds")
    return Table(
        "Decision", tuple(map(_wrapped, head)), rows, "\n".join([*_notes(found), *_missing(found), *_own_seeds(found)])
    )


def binds(found: Comparison, policy: str) -> str:
    """What a policy's first run waits for, or else what its busy time goes to; a dash for one of several pools."""
    bound = found.runs[policy].info["binding"]
    cause, terms = bound.get("cause"), bound.get("terms")
    if cause:
        return LIMITS[cause]
    return next(iter(terms)).replace(", ", ",\n") if terms else DASH


def _notes(found: Comparison) -> list[str]:
    """How figures are to be read."""
    seeds, count = _listed(found.seeds), len(found.seeds)
    others = len(found.runs) > 1
    below = [f"Below each figure: what it has more than {found.baseline}"] if others else []
    if found.exact:
        said = f"Seeds ({seeds}) change nothing here, nothing is drawn: figures are exact, of these requests alone"
        return [said, *below]
    if count < FEWEST:
        said = f"{count} seed{'s' if count > 1 else ''} ({seeds}): no intervals"
        unknown = f", and nobody knows which differences are chance; --seeds {FEWEST} tells" if others else ""
        return [said + unknown, *below]
    lines = [f"Means over {count} seeds ({seeds}), ±: {tables.percent(found.confidence)} intervals, each by itself"]
    if others:
        lines.append(f"{below[0]} under the same seeds; {written.NONE_SEEN}: its interval holds 0")
    return lines


def _missing(found: Comparison) -> list[str]:
    """Figures that samples of some seeds cannot carry."""
    said = []
    for key in found.metrics:
        lacking = [policy for policy in found.runs if None in found.replications[policy].values(key)]
        if lacking:
            said.append(f"{DASH} {tables.name(key)}: not every run of {', '.join(lacking)} can carry it")
    return said


def _own_seeds(found: Comparison) -> list[str]:
    """Policies whose files ask for a seed that none is run with: all have those of the first."""
    return [
        f"{policy}: seed {r.scenario.seed} of its own is not among them; all policies have the same seeds"
        for policy, r in found.replications.items()
        if r.scenario.seed not in found.seeds
    ]


def _listed(seeds: Sequence[int]) -> str:
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 2 and list(seeds) == list(range(first, last + 1)):
        return f"{first} to {last}"
    return ", ".join(map(str, seeds))


def pareto(found: Comparison) -> Table | None:
    """A column a pair of figures: who is on the front of it, and who is dominated by whom. None where nothing can be said."""
    marks = {standing[policy].mark for standing in found.standings for policy in found.runs}
    if len(found.runs) < 2 or not marks - {"open", "not placed"}:
        return None
    head = ("", *(" against ".join(tables.name(key) for key in front) for front in found.fronts))
    rows = [(_named(policy), *(_standing(standing, policy) for standing in found.standings)) for policy in found.runs]
    notes = [
        "yes: every other policy is worse in one of the two; no: those named are better, in both or in the one that differs"
    ]
    if "open" in marks:
        notes.append("open: intervals do not say yet; more seeds may")
    return Table("Pareto set", tuple(map(_wrapped, head)), rows, "; ".join(notes))


def _standing(standing: Mapping[str, Standing], policy: str) -> str:
    """Where a policy is; of those that dominate it, one on the front is named first."""
    found = standing[policy]
    if found.mark == "dominated":
        ordered = sorted(found.by, key=lambda other: standing[other].mark != "on the front")
        whole = f"no: {', '.join(ordered)}"
        return whole if len(whole) <= NAME else _named(f"no: {tables.few(ordered, 1)}")
    return {"on the front": "yes", "open": "open"}.get(found.mark, DASH)


def verdicts(found: Comparison) -> list[str]:
    """A sentence a policy: in what it is better than the baseline, in what worse, and in what nobody can tell. Of many policies a
    sentence a figure: who has the best."""
    if len(found.runs) > FEW:
        return list(filter(None, (_best(found, key) for key in found.metrics)))
    said: list[str] = []
    for policy in found.runs:
        if policy == found.baseline:
            continue
        by_verdict: dict[str, list[str]] = {}
        for key in found.metrics:
            difference = found.difference(policy, key)
            figure = f"{tables.name(key)} ({size})" if (size := _size(key, difference)) else tables.name(key)
            by_verdict.setdefault(difference.verdict, []).append(figure)
        parts = [
            f"{_WORDS.get(word, word)} in {tables.joined(by_verdict[word])}" for word in VERDICTS if word in by_verdict
        ]
        if parts:
            said.append(f"{policy} against {found.baseline}: {'; '.join(parts)}.")
    return said


def _best(found: Comparison, key: str) -> str:
    """Who has the best of a figure, and who cannot be told from it; nothing where nobody is better."""
    way = better(key)
    figures = {p: v for p in found.runs if (v := found.interval(p, key)).estimate is not None}
    if way is None or len({v.estimate for v in figures.values()}) < 2:
        return ""
    order = sorted(figures, key=lambda p: figures[p].estimate, reverse=way == "higher")  # type: ignore[arg-type, return-value]
    first = order[0]
    same = [p for p in order[1:] if found.difference(p, key, first).verdict in ("not distinguishable", "the same")]
    with_it = f"; as good, as far as anybody can tell: {tables.few(same)}" if same else ""
    return f"{tables.name(key)} is {'lowest' if way == 'lower' else 'highest'} with {first} ({written.figure(key, figures[first])}){with_it}."


def _size(key: str, found: Difference) -> str:
    """How large a difference is, without its interval; nothing where none is seen."""
    if found.verdict not in ("better", "worse", "higher", "lower"):
        return ""
    return re.split(r" ± | \(", written.change(key, found))[0].strip()


def sentences(found: Comparison) -> list[str]:
    """All that is said below the tables of a terminal: verdicts, where step costs come from, and what binds each of a few policies."""
    return [*verdicts(found), *found.costs(), *(found.sentences() if len(found.runs) <= FEW else ())]


def shown(found: Comparison, width: int) -> list[Table]:
    """All tables in what `width` characters hold: the decision and the Pareto set with a row a policy, further figures with a column
    a policy, or else a row a policy too."""
    front, compared = pareto(found), found.table()
    further = [compared]
    if folding.width(compared) > width:
        further = folding.folded(_heads_in_lines(turned(compared)), width)
    decided = folding.folded(decision(found), width)
    return [*decided, *(folding.folded(front, width) if front is not None else ()), *further]


def turned(table: Table) -> Table:
    """The same with rows as columns, and columns as rows."""
    head, *rows = zip(table.head, *table.rows, strict=True)
    named = [(_named(str(first)), *others) for first, *others in rows]
    return Table(table.title, tuple(head), named, table.note)


def _heads_in_lines(table: Table) -> Table:
    return replace(table, head=tuple(map(_wrapped, table.head)))


def _named(policy: str) -> str:
    return "\n".join(textwrap.wrap(policy, NAME, break_long_words=False))


def _wrapped(head: str) -> str:
    return "\n".join(textwrap.wrap(head, HEAD, break_long_words=False))
