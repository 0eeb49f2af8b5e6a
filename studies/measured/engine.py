"""The engine that is simulated beside a measured run: what files, a serving profile, a scenario and options say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from calibration.measured.folder import Found
from calibration.measured.run import MeasuredRun
from calibration.measured.source import MeasuredSource
from scenarios import serving_profile
from scenarios.errors import InputError, one_message
from scenarios.hardware import CATALOG as HARDWARE
from scenarios.hardware import HardwareSpec
from scenarios.hf_config import read_config
from scenarios.models import CATALOG as MODELS
from scenarios.models import ModelSpec
from scenarios.schema import Scenario
from studies.aspects.kv_interval import ends

CONFIGS = ("model_config.json", "config.json")
_UNKNOWN_MEMORY, _UNKNOWN_BANDWIDTH, _UNKNOWN_FLOPS = 192e9, 1e12, 1e14
"""Of a device that no sheet describes: enough for what it served; steps cost what kernels say."""


@dataclass(frozen=True)
class Engine:
    """What is simulated. lowest, highest: the ends of a KV capacity that nothing states, as scenarios; None where it is stated.
    client_ns: between engine and client, as the serving profile states it."""

    scenario: Scenario
    lowest: Scenario | None = None
    highest: Scenario | None = None
    client_ns: int = 0


def engine_of(
    found: Found, source: MeasuredSource, scenario: Scenario | None, model: str | None, hardware: str | None
) -> Engine:
    """The scenario to simulate: the given one, or one made of what files, source and options say.

    Raises:
        InputError: nothing says which model or hardware ran, or the settings cannot be.
    """
    stated: dict[str, Any] = {}
    for run in found.runs.values():
        stated |= run.engine
    given = {} if scenario is None else scenario.engine.model_dump(mode="json", exclude_unset=True)
    serving = None if source.serving is None else serving_profile.load(source.serving)
    fields = {**({} if serving is None else serving.engine_section()), **source.engine, **stated, **given}
    run = next(iter(found.runs.values()))
    data: dict[str, Any] = {
        "name": found.folder.name,
        "model": model or (scenario.model if scenario else None) or source.model or _model(found, run),
        "hardware": hardware or (scenario.hardware if scenario else None) or source.hardware or _hardware(found, run),
        "workload": {"requests": 1, "arrivals": "all_at_once", "input": 1, "output": 1},
    }
    if scenario is not None:
        data |= {"cost": scenario.cost, "replicas": scenario.replicas, "router": scenario.router}
    for what in ("model", "hardware"):
        if data[what] is None:
            raise InputError(f"{found.folder}: nothing in it says which {what} ran; give --{what} NAME, or a scenario")

    data["engine"] = fields
    try:
        whole = Scenario.model_validate(data, context={"base": None})
    except ValidationError as error:
        inside, problem = one_message(error, data)
        raise InputError(f"{found.folder}: {inside or 'scenario'}: {problem}") from None
    client_ns = 0 if serving is None else round(serving.client_overhead * 1e9)
    pair = ends(whole)
    return Engine(whole, client_ns=client_ns) if pair is None else Engine(whole, *pair, client_ns)


def _model(found: Found, run: MeasuredRun) -> ModelSpec | str | None:
    """The model of a config file in the folder, or the one that the run names."""
    for name in CONFIGS:
        if (found.folder / name).is_file():
            return read_config(found.folder / name)
    said = run.stated.get("model") or run.stated.get("model_id") or ""
    plain = said.rstrip("/").rsplit("/", 1)[-1].lower() + "-"
    fits = [known for known in MODELS if plain.startswith(known.lower() + "-")]  # Qwen3-30B-A3B-Instruct-2507
    return max(fits, key=len, default=None)


def _hardware(found: Found, run: MeasuredRun) -> HardwareSpec | str | None:
    """The catalog's device that the run names, the longest name that fits; a device that is not there, where kernels say what
    steps cost, as a sheet of which only the memory counts."""
    stated = run.stated.get("hardware", "")
    said = _plain(stated)
    fits = [name for name in HARDWARE if _plain(name) in said and name != "cpu"]
    if fits or not stated or not (found.folder / "kernels").is_dir():
        return max(fits, key=len, default=None)
    return HardwareSpec(stated, _UNKNOWN_MEMORY, _UNKNOWN_BANDWIDTH, {"bfloat16": _UNKNOWN_FLOPS})


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
