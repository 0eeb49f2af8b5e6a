"""Settings as a line for a shell: what an architect hands to a researcher. Nothing here needs Streamlit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dashboard import uploads
from dashboard.settings import QUESTIONED, UPLOADED, Settings
from studies import questions


def line(settings: Settings, command: Sequence[str] = ("run",)) -> str:
    """`servetwin run demo --set engine.max_num_seqs=4`; of a scenario that has no name there, with the file that is downloaded."""
    return shlex.join(words(settings, command))


def words(settings: Settings, command: Sequence[str]) -> list[str]:
    """The words of such a line, to which a page adds its own."""
    start, given = _start(settings)
    found = ["servetwin", *command, start]
    for text in (*given, *(f"{override.path}={settings.changes[override.path]}" for override in settings.overrides())):
        found += ["--set", text]
    if settings.trace is not None:
        upload = uploads.find(settings.trace)
        found += ["--trace", settings.trace if upload is None else upload.name]
    return found


def file(settings: Settings) -> str | None:
    """The file that the line needs, if it needs one."""
    start, _ = _start(settings)
    return start if start.endswith((".yaml", ".yml")) else None


def _start(settings: Settings) -> tuple[str, Sequence[str]]:
    if settings.base.startswith(QUESTIONED):
        study = questions.read(settings.named())
        return (f"{settings.named()}.yaml", study.set) if study.base is None else (study.base, study.set)
    if settings.base.startswith(UPLOADED):
        name = settings.named()
        return (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"), ()
    return settings.base, ()
