"""What becomes of a launch: a scenario, where each of its values came from, and what it leaves out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scenarios.schema import Scenario

WORKLOAD = (
    "The workload is a placeholder: a launch says nothing of what is asked of it. Put your own here, or replay a trace: "
    "servetwin run FILE --trace TRACE"
)


@dataclass(frozen=True)
class Taken:
    """A value of the scenario. origin: `command`, `config file`, `log`, `option`, `default`, `assumed`; text: what said so."""

    field: str
    value: Any
    origin: str
    text: str


@dataclass(frozen=True)
class NotModelled:
    """A flag, and what it would change."""

    flag: str
    effect: str


@dataclass(frozen=True)
class Contradiction:
    """Two statements about one field. used: what the scenario has, and why."""

    field: str
    stated: str
    against: str
    used: str


@dataclass(frozen=True)
class Launch:
    """A scenario that stands for an engine as it was started.

    Args:
        engine: `vLLM` or `SGLang`. version: as stated, None if nothing states it. command: without what looks like a secret.
        log: the log's name. unknown: flags in no table, and the nearest known ones. harmless: flags that change no timing.
    """

    engine: str
    version: str | None
    command: str
    log: str | None
    scenario: Scenario
    taken: tuple[Taken, ...]
    not_modelled: tuple[NotModelled, ...]
    contradictions: tuple[Contradiction, ...]
    unknown: tuple[tuple[str, str | None], ...]
    harmless: tuple[str, ...]
    notes: tuple[str, ...]

    def to_yaml(self) -> str:
        """A scenario file; what was taken from where stands above it as comments."""
        body = self.scenario.to_yaml().replace("\nworkload:", "\n" + _comment(WORKLOAD) + "\nworkload:", 1)
        return "\n".join(self._header()) + "\n" + body

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "scenario": self.scenario.model_dump(mode="json", exclude_unset=True),
            "engine": self.engine,
            "version": self.version,
            "taken": [{"field": t.field, "value": t.value, "from": t.origin, "text": t.text} for t in self.taken],
            "not_modelled": [{"flag": n.flag, "effect": n.effect} for n in self.not_modelled],
            "contradictions": [vars(c) for c in self.contradictions],
            "unknown": [{"flag": flag, "nearest": close} for flag, close in self.unknown],
            "harmless": list(self.harmless),
            "notes": list(self.notes),
            "placeholder": ["workload"],
        }

    def messages(self) -> Iterator[str]:
        """What a person should know before using it, one line each."""
        for c in self.contradictions:
            yield f"{c.field}: {c.stated}, but {c.against}; {c.used}"
        for flag, close in self.unknown:
            yield f"{flag}: not a flag that is known here" + (f"; did you mean {close}?" if close else "")
        for n in self.not_modelled:
            yield f"{n.flag}: not modelled: {n.effect}"
        yield from self.notes

    def _header(self) -> Iterator[str]:
        said = f"{self.engine} {self.version}" if self.version else f"{self.engine} of a version that nothing states"
        yield _comment(f"{said}, as it was launched:")
        yield _comment(self.command, indent="  ")
        if self.log:
            yield _comment(f"and as its log {self.log} says.")
        for title, origins in (
            ("From the command:", ("command", "config file")),
            ("From the log:", ("log",)),
            ("From options of this command:", ("option",)),
            ("Assumed:", ("assumed",)),
            ("Defaults of the engine that are stated here:", ("default",)),
        ):
            rows = [t for t in self.taken if t.origin in origins]
            if rows:
                yield "#"
                yield _comment(title)
                yield from (_comment(f"{t.field}: {_short(t.value)}   <- {t.text}", indent="  ") for t in rows)
        yield _comment(f"All else is the preset's: {self.scenario.engine.preset}.")
        sections = (
            ("Contradictions:", [f"{c.field}: {c.stated}, but {c.against}; {c.used}" for c in self.contradictions]),
            ("Not modelled, and what each would change:", [f"{n.flag}: {n.effect}" for n in self.not_modelled]),
            ("Not known here:", [f"{f}" + (f" (did you mean {c}?)" if c else "") for f, c in self.unknown]),
            ("Notes:", list(self.notes)),
        )
        for title, lines in sections:
            if lines:
                yield "#"
                yield _comment(title)
                yield from (_comment(line, indent="  ") for line in lines)
        if self.harmless:
            yield "#"
            yield _comment("No effect on timing: " + ", ".join(dict.fromkeys(self.harmless)))


def _comment(text: str, indent: str = "") -> str:
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    lines = textwrap.wrap(plain, 112 - len(indent), break_on_hyphens=False) or [""]
    return "\n".join(f"# {indent}{'  ' if number and indent else ''}{line}" for number, line in enumerate(lines))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
