"""A small study of the present scenario: one or two knobs varied, written as a file that `servetwin sweep` reads too. No Streamlit here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dashboard import uploads, workspace
from dashboard.knobs import Choice, Knob, Number, Scale, Switch
from dashboard.settings import QUESTIONED, UPLOADED, Settings
from scenarios import InputError, documents
from studies.reports import files
from studies.results import file_name
from studies.sweeps import study as studies_of
from studies.sweeps.run import Plan, plan

FOLDER = "out/sweeps"
"""Within the workspace."""
MOST_CELLS = 400
"""Of a study that is started from a page."""
MOST_SEEDS = 50
NONE_VARIED = "-"
"""No knob."""


@dataclass(frozen=True)
class Begun:
    """A study that was written: its file and its folder, as paths below the workspace."""

    file: str
    folder: str

    @property
    def command(self) -> str:
        """What goes on with it on a terminal, in the workspace."""
        return f"servetwin sweep {self.file} --out {self.folder} --allow-bad"


def usual(knob: Knob) -> str:
    """Values of a knob around the present one, as the form has them."""
    control, shown = knob.control, knob.shown()
    if isinstance(control, Choice):
        return ", ".join(list(control.options)[:3])
    if isinstance(control, Switch):
        return "false, true"
    if isinstance(control, Scale):
        least, most = min(*control.values, shown), max(*control.values, shown)
        return _listed(min(max(shown * part, least), most) for part in (0.25, 0.5, 1, 2, 4))
    if not shown:
        return f"{control.step:.10g}, {4 * control.step:.10g}"
    found = [min(max(shown * part, control.least), control.most) for part in (0.5, 1, 2)]
    return _listed(map(round, found) if control.whole else found)


def _listed(found: Iterable[float]) -> str:
    return ", ".join(dict.fromkeys(f"{each:.10g}" for each in found))


def values(knob: Knob, text: str) -> list[Any]:
    """Values of a knob as a scenario has them, from what was typed: in the knob's unit, with commas between.

    Raises:
        InputError: one is none that the knob can have.
    """
    found = documents.parse(f"[{text}]", f"values of {knob.label}")
    if not found:
        raise InputError(
            f"values of {knob.label}: none are given; write some with commas between, such as {usual(knob)}"
        )
    return [_value(knob, each) for each in found]


def _value(knob: Knob, value: Any) -> Any:
    control = knob.control
    if isinstance(control, Choice | Switch) or value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"values of {knob.label}: found {value!r}, but a number is needed, such as {usual(knob)}")
    if isinstance(control, Number) and not control.least <= value <= control.most:
        raise InputError(
            f"values of {knob.label}: found {value:g}, allowed: {control.least:g} to {control.most:g} {control.unit}".rstrip()
        )
    return documents.parse(knob.text(value), knob.label)


def name_of(settings: Settings, axes: Mapping[str, Sequence[Any]]) -> str:
    """What a study is called where nobody says: what it is of, what it varies."""
    return file_name("-".join([Path(settings.named()).stem, *(path.rpartition(".")[2] for path in axes)]))


def planned(settings: Settings, axes: Mapping[str, Sequence[Any]], seeds: int) -> Plan:
    """The study, with every cell's scenario looked at.

    Raises:
        InputError: it is wrong, none of its cells can be run, or they are too many for a page.
    """
    fields: dict[str, Any] = {"axes": {"grid": dict(axes)}, "seeds": seeds}
    whole = settings.scenario().to_yaml()
    named = settings.trace is not None or str(uploads.folder()) in whole
    if named or settings.base.startswith((UPLOADED, QUESTIONED)):
        fields["scenario"] = yaml.safe_load(whole)
    else:
        fields["base"] = settings.base
        fields["set"] = [f"{override.path}={settings.changes[override.path]}" for override in settings.overrides()]
    # Values come from a page: a file that they name is looked for among the uploads, as one of the scenario is.
    asked = studies_of.from_mapping(fields, "this study", within=uploads.folder())
    if asked.cell_count > MOST_CELLS:
        raise InputError(
            f"{asked.cell_count:,} cells, but a page starts at most {MOST_CELLS}: fewer values or seeds, or `servetwin sweep` on a terminal"
        )
    found = plan(asked)
    if len(found.refused) == len(found.cells):
        raise InputError(found.refused[0])
    return found


def write(found: Plan, name: str) -> Begun:
    """Writes the file of a study.

    Raises:
        InputError: the name is none, another study has it, or nothing can be written.
    """
    safe = file_name(name)
    begun = Begun(f"{FOLDER}/{safe}.yaml", f"{FOLDER}/{safe}")
    file = workspace.inside(begun.file)
    workspace.inside(begun.folder)
    text = found.study.to_yaml()
    if file.is_file() and documents.read_text(file) != text:
        raise InputError(f"{safe}: another study of that name is in {FOLDER}; take another name, or open that one")
    try:
        files.check_folder(workspace.folder() / begun.folder, "a study")
        file.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(file) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{safe}: cannot be written into {FOLDER} ({error.strerror})") from None
    return begun


def begun_as(folder: str) -> Begun | None:
    """How a study that was started from a page goes on; None of another."""
    begun = Begun(f"{folder}.yaml", folder)
    return begun if Path(folder).parent.as_posix() == FOLDER and workspace.inside(begun.file).is_file() else None
