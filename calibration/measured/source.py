"""What the files of a measured run do not say of themselves: engine flags, which step log to fit, where overhead comes from.

Stands beside the data as `measured.yaml`, is given as a file, or comes with the package for data sets that are public.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from calibration.measured import sources
from scenarios import serving_profile
from scenarios.documents import mapping, read_text
from scenarios.errors import InputError, one_message, unknown
from scenarios.fields import Section
from scenarios.shipped import Shipped

_SHIPPED = Shipped(sources, "source")
BESIDE = "measured.yaml"


class Steps(Section):
    """An engine's own step log, to fit step costs on.

    rows: iterations `FROM:TO`; the others are never looked at. input_tokens: length of prompts in it, where it is known.
    """

    file: str = "steps.csv"
    rows: str | None = None
    input_tokens: int | None = Field(default=None, ge=1)


class MeasuredSource(Section):
    """A data source. What the command line gives wins over it, and what the files state over what it assumes.

    recognise: files by which a folder is known to be of this source.
    serving: a serving profile, by name or file, that holds the engine's settings. engine: fields of a scenario's engine section
        beside it, or instead. model, hardware: as in a scenario.
    ready_check: the client sent its first prompt once before the run, so the run's own first request may find it cached.
    overhead_from: runs on which the terms between step log and client are set; those are not validated.
    """

    description: str = ""
    recognise: Annotated[tuple[str, ...], Field(strict=False)] = ()
    model: str | None = None
    hardware: str | dict[str, Any] | None = None
    serving: str | None = None
    engine: dict[str, Any] = Field(default_factory=dict)
    ready_check: bool = False
    steps: Steps | None = None
    overhead_from: Annotated[tuple[str, ...], Field(strict=False)] = ()
    not_modelled: Annotated[tuple[str, ...], Field(strict=False)] = ()


def load_source(named: str | Path | None, folder: Path) -> tuple[str | None, MeasuredSource]:
    """Name and contents of the source that is named, stands beside the data, or is recognised by it; an empty one if none is.

    Args:
        named: a source or a serving profile, by name or file; a serving profile takes the place of the source's own.

    Raises:
        InputError: there is none of that name, or it is wrong.
    """
    names = _SHIPPED.names()
    if named is not None:
        file = Path(named)
        if file.is_file() and set(mapping(read_text(file), str(file))) <= set(MeasuredSource.model_fields):
            return file.stem, _parse(read_text(file), str(file))
        if str(named) in names:
            return str(named), _shipped(str(named))
        if not file.is_file() and str(named) not in serving_profile.names():
            both = sorted({*names, *serving_profile.names()})
            raise InputError(f"--serving: {unknown('profile', str(named), both)}, or a file such as {BESIDE}")
        name, source = load_source(None, folder)
        return name, source.model_copy(update={"serving": str(named)})
    if (folder / BESIDE).is_file():
        return folder.name, _parse(read_text(folder / BESIDE), str(folder / BESIDE))
    for name in names:
        source = _shipped(name)
        if source.recognise and all((folder / file).exists() for file in source.recognise):
            return name, source
    return None, MeasuredSource()


def _shipped(name: str) -> MeasuredSource:
    return _parse(_SHIPPED.text(name), f"{name}.yaml")


def _parse(text: str, where: str) -> MeasuredSource:
    data = mapping(text, where)
    try:
        return MeasuredSource.model_validate(data)
    except ValidationError as error:
        inside, problem = one_message(error, data)
        raise InputError(f"{where}: {inside or 'source'}: {problem}") from None
