"""The scenario of a study's point, or of a kept run, as settings that Explore opens. Nothing here needs Streamlit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

import scenarios
from dashboard import uploads, workspace
from dashboard.settings import UPLOADED, Settings, as_text
from scenarios import InputError, Override, documents
from studies.sweeps.axes import Point
from studies.sweeps.results import Sweep


def of_point(sweep: Sweep, point: Point, seed: int) -> Settings:
    """A point's scenario: what the study is based on, and what the point changes in it.

    Raises:
        InputError: what it is based on is not here, or outside the workspace.
    """
    given = [Override.parse(text, text) for text in sweep.study.set]
    settings = _changed(Settings(_base(sweep)), [*given, *point.overrides])
    if settings.base_scenario().seed != seed:
        settings = settings.changed("seed", str(seed))
    settings.scenario()
    return settings


def of_run(folder: Path) -> Settings:
    """The scenario of a run's folder.

    Raises:
        InputError: it is not there, or rests on files that are not here.
    """
    settings = Settings(
        _uploaded(f"{folder.name}.yaml", documents.read_text(workspace.inside(folder / "scenario.yaml")))
    )
    settings.scenario()
    return settings


def _changed(settings: Settings, overrides: Iterable[Override]) -> Settings:
    """One after another: what stood below a path that is given anew is gone."""
    changes: dict[str, str] = {}
    for override in overrides:
        below = (f"{override.path}.", f"{override.path}[")
        changes = {path: text for path, text in changes.items() if not path.startswith(below)}
        changes[override.path] = as_text(override.value)
    return Settings(settings.base, changes, settings.trace)


def _base(sweep: Sweep) -> str:
    """What a study is based on, as settings name it."""
    study = sweep.study
    if study.base is None:
        text = yaml.safe_dump(study.model_dump(mode="json")["scenario"], sort_keys=False, allow_unicode=True)
        return _uploaded(f"{sweep.name}.yaml", text)
    outside: InputError | None = None
    for above in (sweep.folder, workspace.folder()):
        try:
            if above is not None and (file := workspace.inside(above / study.base)).is_file():
                return _uploaded(file.name, documents.read_text(file))
        except InputError as error:
            outside = error
    if study.base in scenarios.names():
        return study.base
    if outside is not None:
        raise outside
    raise InputError(
        f"{study.base}: this study is based on a file that the workspace has not; upload it on Explore, and set what the point changes"
    )


def _uploaded(name: str, text: str) -> str:
    return UPLOADED + uploads.keep(name, text.encode()).digest
