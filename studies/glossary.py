"""What words mean here, and how other tools use the same ones or others: entries, search, and docs/metrics.md.

glossary.entry("TTFT").formula
[found.term for found in glossary.search("inter token")]
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from scenarios.errors import InputError, unknown
from studies.reports import markdown
from studies.reports.tables import Table, joined

FILE = "texts/glossary.yaml"
WIDTH = 140
GROUPS = (
    "Latency", "Throughput", "Money", "The engine", "KV memory", "Speculation", "Deployment", "Studies", "Statistics", "The twin",
)  # fmt: skip
"""In the order in which they are told."""


@dataclass(frozen=True)
class Other:
    """A word of another tool. same: whether its figure may stand beside ours; note: what is different, or how it is counted."""

    tool: str
    word: str
    same: bool
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One term.

    Args:
        name: in full. meaning: the definition. formula, unit: empty where it is no figure.
        keys: patterns of the export keys that hold it (`*_ttft_ms`).
        refused: when such a figure is withheld; empty where it never is.
        see: terms to read next.
    """

    term: str
    name: str
    group: str
    meaning: str
    formula: str = ""
    unit: str = ""
    keys: tuple[str, ...] = ()
    refused: str = ""
    others: tuple[Other, ...] = ()
    see: tuple[str, ...] = ()

    def holds(self, key: str) -> bool:
        """Whether an export key is of this term."""
        return any(fnmatchcase(key, pattern) for pattern in self.keys)

    def facts(self) -> list[tuple[str, str]]:
        """What there is beside the definition, by name."""
        found = [("formula", self.formula), ("unit", self.unit), ("export keys", ", ".join(self.keys))]
        found += [("withheld", self.refused), ("see", ", ".join(self.see))]
        return [(name, value) for name, value in found if value]


@cache
def entries() -> tuple[Entry, ...]:
    """All of them, group by group as they are told."""
    import yaml

    text = resources.files("studies").joinpath(*FILE.split("/")).read_text(encoding="utf-8")
    return tuple(
        Entry(
            term=found["term"],
            name=found["name"],
            group=found["group"],
            meaning=" ".join(found["is"].split()),
            formula=found["formula"],
            unit=found["unit"],
            keys=tuple(found["keys"]),
            refused=found["refused"],
            others=tuple(Other(**other) for other in found["others"]),
            see=tuple(found["see"]),
        )
        for found in yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    )


def groups() -> dict[str, list[Entry]]:
    """Entries by group, in the order in which groups are told."""
    return {group: [found for found in entries() if found.group == group] for group in GROUPS}


def entry(term: str) -> Entry:
    """The entry of a term, in any case.

    Raises:
        InputError: there is none; the message names those that are near.
    """
    for found in entries():
        if found.term.lower() == term.strip().lower():
            return found
    if near := search(term):
        raise InputError(f"glossary: found {term!r}, but there is no such term; did you mean {_either(near)}?")
    raise InputError(f"glossary: {unknown('term', term, [found.term for found in entries()])}")


def of_key(key: str) -> Entry | None:
    """The entry of an export key (`p95_ttft_ms`), None where no entry holds it."""
    key = key.rsplit(".", 1)[-1]  # by_class.chat.p95_ttft_ms is a p95_ttft_ms
    return next((found for found in entries() if found.holds(key)), None)


def search(text: str) -> list[Entry]:
    """Entries that a text may mean, likeliest first: by term, name, export key, another tool's word, and at last the definition."""
    wanted = _plain(text)
    if not wanted:
        return list(entries())
    ranked = [(rank, found) for found in entries() if (rank := _rank(found, wanted, text.strip())) is not None]
    return [found for _, found in sorted(ranked, key=lambda pair: pair[0])]


def _rank(found: Entry, wanted: str, key: str) -> int | None:
    """How near an entry is, 0 the nearest; None where nothing of it fits."""
    term, words = _plain(found.term), [_plain(other.word) for other in found.others]
    tests = (
        term == wanted,
        found.holds(key) or _plain(found.name) == wanted,
        wanted in words,
        term.startswith(wanted),
        wanted in term or wanted in _plain(found.name),
        any(wanted in word for word in words),
        any(wanted in _plain(other.tool) for other in found.others),
        all(word in _plain(f"{found.meaning} {found.formula}") for word in wanted.split()),
    )
    return next((rank for rank, holds in enumerate(tests) if holds), None)


def _plain(text: str) -> str:
    """Small letters, with hyphens and underscores as spaces."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _either(found: list[Entry]) -> str:
    return " or ".join(each.term for each in found[:3])


def words_of_others() -> Table:
    """A row a word of another tool: what it is called here, and whether the figures may stand side by side."""
    rows = sorted(
        (other.tool, other.word, found.term, "yes" if other.same else "no", other.note)
        for found in entries()
        for other in found.others
    )
    note = "same: whether their figure may stand beside ours."
    return Table("Words of other tools", ("tool", "its word", "ours", "same", "what is different"), rows, note)


HEAD = """# Metrics and words

What each figure and each word means in servetwin, and how other tools say it. `servetwin glossary` lists the terms,
`servetwin glossary TTFT` tells one, and any word of another tool finds ours. Export keys are those of vLLM's serving benchmark, in milliseconds
where they end in `_ms`; a figure that is refused is null in JSON, a dash in a report, and the reason stands in `refused`.
This page is written from `studies/texts/glossary.yaml`; a test keeps it so.
"""


def page() -> str:
    """docs/metrics.md as Markdown."""
    parts = [HEAD]
    for group, found in groups().items():
        parts += [f"## {group}\n", *(_section(each) for each in found)]
    parts.append(markdown.table(words_of_others(), level=2))
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(found: Entry) -> str:
    lines = [f"### {found.term}\n", textwrap.fill(f"*{found.name}.* {found.meaning}", WIDTH) + "\n"]
    written = {
        "export keys": joined([f"`{key}`" for key in found.keys]) if found.keys else "",
        "see": ", ".join(f"[{term}](#{anchor(term)})" for term in found.see),
    }
    lines += [f"- {name.capitalize()}: {written.get(name, value)}" for name, value in found.facts()]
    return "\n".join(lines) + "\n"


def anchor(heading: str) -> str:
    """What a heading is linked by, as GitHub makes it."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
