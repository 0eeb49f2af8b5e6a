"""What one setting has otherwise than another, by the names that the knobs have."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard import knobs
from dashboard.knobs import Choice, Knob, Number, Scale, Switch
from dashboard.settings import Settings
from scenarios import InputError

MOST = 60
"""Characters of a value that has no name of its own."""


def between(settings: Settings, baseline: Settings) -> list[str]:
    """A line each: `Replicas: 2 → 4`. Of another scenario first that."""
    lines = [] if settings.base == baseline.base else [f"Scenario: {baseline.named()} → {settings.named()}"]
    mine, theirs = _knobs(settings), _knobs(baseline)
    paths = sorted({*settings.changes, *baseline.changes})
    for path in paths:
        if settings.changes.get(path) == baseline.changes.get(path) and settings.base == baseline.base:
            continue
        before, after = (_said(path, held, known) for held, known in ((baseline, theirs), (settings, mine)))
        if before != after:
            knob = mine.get(path) or theirs.get(path)
            lines.append(f"{knob.label if knob is not None else path}: {before} → {after}")
    if settings.trace != baseline.trace:
        lines.append(f"Trace: {baseline.trace or 'none'} → {settings.trace or 'none'}")
    return lines


def _knobs(settings: Settings) -> Mapping[str, Knob]:
    try:
        return {knob.path: knob for knob in knobs.of(settings.scenario())}
    except InputError:
        return {}


def _said(path: str, settings: Settings, known: Mapping[str, Knob]) -> str:
    if path in known:
        return in_words(known[path])
    text = settings.changes.get(path)
    return "as in the scenario" if text is None else _short(text)


def in_words(knob: Knob) -> str:
    """The present value of a knob as its widget shows it."""
    shown, control = knob.shown(), knob.control
    if isinstance(control, Choice):
        return str(knobs.options(control, shown).get(shown, shown))
    if isinstance(control, Switch):
        return "on" if shown else "off"
    if shown is None:
        return "none"
    if isinstance(control, Scale):
        return f"{shown:,.6g}{control.unit}"
    assert isinstance(control, Number)
    return f"{shown:,.6g} {control.unit}".strip()


def _short(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"
