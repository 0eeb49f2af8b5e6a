"""The parts of a scenario that every engine's launch has: preset, device, model, precision, replicas; and putting it together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scenarios import hardware as catalog
from scenarios.engine import Engine
from scenarios.errors import InputError, one_message
from scenarios.fields import MOST_TOKENS
from scenarios.launch.assembly import Assembly
from scenarios.launch.devices import sheet_of
from scenarios.launch.launch import Contradiction, Launch, NotModelled
from scenarios.launch.launched_model import (
    LaunchedModel,
    launched_model,
    refuse_architecture,
    with_positions,
)
from scenarios.models import BYTES, CATALOG, ModelSpec
from scenarios.presets import PRESETS
from scenarios.schema import Scenario

GIB = 2**30
_PLACEHOLDER = [(1024 >> n or 1, 128 >> n or 1) for n in range(11)]
"""(prompt, answer) tokens of the placeholder, until one fits the window."""


def take_preset(a: Assembly, prefix: str, stated: str | None) -> None:
    """The preset of the version that was stated, or the nearest one."""
    version = a.options.version or (a.log.version if a.log else None) or stated
    if a.options.version and a.log and a.log.version and _numbers(a.log.version)[:2] != _numbers(a.options.version)[:2]:
        a.contradictions.append(
            Contradiction(
                "engine.preset",
                f"--version {a.options.version}",
                f"the log is of {a.log.version}",
                "the option is used",
            )
        )
    names = {name: _numbers(name.partition("@")[2]) for name in PRESETS if name.split("@")[0] == prefix}
    if version is None:
        newest = max(names, key=lambda name: names[name])
        a.take(
            "engine.preset", newest, origin="assumed", text="no log and no --version; the newest that is described here"
        )
        return
    wanted = _numbers(version)
    if not wanted:
        raise InputError(f"--version {version[:40]}: a version such as {names[min(names)]} is needed, such as 0.19.0")
    name = min(names, key=lambda name: [abs(x - y) for x, y in zip(_padded(names[name]), _padded(wanted), strict=True)])
    how = "option" if a.options.version else "log" if a.log and a.log.version else "command"
    a.take("engine.preset", name, origin=how, text=f"{a.engine} {version}")
    if wanted[: len(names[name])] != names[name]:
        a.notes.append(f"{a.engine} {version} is not described here; the nearest is {name}, of {', '.join(names)}")


def version_of(a: Assembly, stated: str | None) -> str | None:
    return a.options.version or (a.log.version if a.log else None) or stated


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    parts = found[1].split(".")[:3] if found else []
    return tuple(int(part) for part in parts) if max(map(len, parts), default=0) < 10 else ()


def _padded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, 0, 0, 0)[:3]


def numbers_of(version: str | None) -> tuple[int, ...]:
    """(major, minor, patch); of nothing, beyond any."""
    return _padded(_numbers(version)) if version and _numbers(version) else (999, 0, 0)


def take_hardware(a: Assembly) -> None:
    """The device: what the user says, else the log.

    Raises:
        InputError: nobody says, or it is not in the catalog.
    """
    logged = {device: sheet_of(device) for device in (a.log.devices if a.log else {})}
    known = {sheet: device for device, sheet in logged.items() if sheet}
    if a.options.hardware:
        sheet = catalog.hardware(a.options.hardware).name
        a.take("hardware", sheet, origin="option", text=f"--hardware {a.options.hardware}")
        if known and sheet not in known:
            seen = f"the log names {', '.join(known.values())}"
            used = "the option is used; memory that the log states is that of the other device"
            a.contradictions.append(Contradiction("hardware", f"--hardware {a.options.hardware}", seen, used))
    elif known:
        sheet, device = next(iter(known.items()))
        a.take("hardware", sheet, origin="log", text=device)
        if len(known) > 1:
            a.notes.append(f"the log names several devices ({', '.join(known.values())}); {sheet} is taken for all")
    elif a.value("platform") == "cpu":
        a.take("hardware", "cpu", a.settings["platform"])
        a.notes.append("hardware cpu is the sheet of one core; measure your own: servetwin calibrate")
    else:
        named = f"; the log names {', '.join(logged)}, of which there is no sheet" if logged else ""
        raise InputError(
            f"--hardware: neither the command nor a log names the device{named}; write --hardware H100 or another of: "
            f"{', '.join(catalog.CATALOG)}"
        )
    _warn_of_variant(a, known)


def _warn_of_variant(a: Assembly, known: dict[str, str]) -> None:
    device = known.get(a.fields["hardware"], "")
    for variant in ("PCIe", "NVL", "40GB", "MIG"):
        if variant.lower() in device.lower():
            a.notes.append(f"{device}: the sheet is of the SXM board of {a.fields['hardware']}, which is faster")


def take_model(a: Assembly) -> LaunchedModel:
    """The model, with the positions that the launch stretches it to."""
    given = a.settings.get("model")
    if given is None:
        raise InputError(f"no model is named; {a.engine} would serve its own default. Write it: {_EXAMPLES[a.engine]}")
    if "$" in str(given.value):
        raise InputError(f"{given.text}: a shell variable that is set nowhere in the command; write the model's name")
    if a.log and a.log.architecture:
        refuse_architecture(a.log.architecture, f"the log: {given.value}")
    found = launched_model(str(given.value), a.options.model_config)
    if a.log and a.log.architecture and a.log.architecture != found.spec.architecture:
        said = f"{found.spec.name} is {found.spec.architecture}"
        against = f"the log says {a.log.architecture}"
        used = "the former is used; --model-config gives other dimensions"
        if not a.log.architecture.startswith("Transformers"):
            a.contradictions.append(Contradiction("model", said, against, used))
    spec = found.spec
    window = a.value("max_model_len")
    stretched = a.settings.get("positions")
    if (
        window
        and window > spec.max_position_embeddings
        and (stretched is not None or a.settings["max_model_len"].origin == "log")
    ):
        spec = with_positions(spec, window)
        a.notes.append(
            f"{found.spec.name} has {found.spec.max_position_embeddings} positions in the catalog; the launch stretches them to "
            f"{window}, which changes no timing"
        )
    elif stretched is not None and not set(stretched.value) & {
        "rope_scaling",
        "rope_parameters",
        "rope_type",
        "max_position_embeddings",
    }:
        a.not_modelled["hf-overrides"] = (stretched.text, "dimensions of the model: give them by --model-config")
    plain = _catalog_name(spec)
    a.take("model", plain or _sheet(spec), origin=given.origin, text=f"{given.text} ({found.how})")
    return LaunchedModel(spec, found.precision, found.how)


_EXAMPLES = {"vLLM": "vllm serve MODEL", "SGLang": "--model-path MODEL"}


def _catalog_name(spec: ModelSpec) -> str | None:
    return spec.name if CATALOG.get(spec.name) == spec else None


def _sheet(spec: ModelSpec) -> dict[str, Any]:
    return {name: value for name, value in vars(spec).items() if value is not None}


def take_precision(a: Assembly, model: LaunchedModel) -> tuple[str, str]:
    """Precision of the weights and of KV; the resolved ones are returned."""
    stated, dtype = a.settings.get("quantization"), a.settings.get("dtype")
    if stated is not None and stated.value:
        a.take("engine.dtype", stated.value, stated)
        if model.precision and model.precision != stated.value and stated.value != "":
            a.notes.append(f"the checkpoint's name or config says {model.precision}, {stated.text} says {stated.value}")
    elif model.precision:
        a.take(
            "engine.dtype", model.precision, origin=a.settings["model"].origin, text=f"checkpoint {a.value('model')}"
        )
        a.not_modelled.pop("quantization", None)
    elif "quantization" in a.not_modelled and (measured := _by_weights(a, model.spec)):
        a.take("engine.dtype", measured, a.log.weights_gib[0] if a.log else None)
        flag, _ = a.not_modelled.pop("quantization")
        a.notes.append(f"{flag} does not say how many bits weights have; {measured} is what their memory comes to")
    elif dtype is not None and dtype.value != "auto":
        a.take("engine.dtype", dtype.value, dtype)
    weights = a.fields.get("engine", {}).get("dtype", "bfloat16")
    if weights == "int4" and re.search("fp4", str(a.value("model")) + (stated.text if stated else ""), re.IGNORECASE):
        a.notes.append("4-bit floats count as int4: their memory is right, arithmetic is priced in 16 bits")
    a.take_setting("kv_cache_dtype")
    kv = a.fields.get("engine", {}).get("kv_cache_dtype", "auto")
    return weights, kv if kv != "auto" else weights if BYTES[weights] >= 2 else "bfloat16"


def _by_weights(a: Assembly, model: ModelSpec) -> str | None:
    """The precision whose weights are as large as those that the log saw loaded."""
    if a.log is None or not a.log.weights_gib:
        return None
    tp = a.value("tensor_parallel_size", 1)
    off = {
        dtype: abs(a.log.weights_gib[0].value * GIB * tp / model.weight_bytes(dtype) - 1)
        for dtype in ("bfloat16", "fp8", "int4")
    }
    nearest = min(off, key=lambda dtype: off[dtype])
    return nearest if off[nearest] < 0.15 else None


def take_parallel(a: Assembly, router: str, model: ModelSpec) -> None:
    """Devices of one engine, and engines beside each other with the router that the engine's own balancing is."""
    if a.value("tensor_parallel_size", 1) != 1:
        a.take_setting("tensor_parallel_size")
    given = a.settings.get("replicas")
    if given is not None and given.value != 1:
        a.take("replicas", given.value, given)
        if router != "round_robin":
            a.take("router", router, origin="default", text=f"{a.engine} sends a request to the engine with the fewest")
        if model.num_experts:
            a.notes.append(
                "data parallel engines of a model with experts wait for each other in every step; here they do not"
            )


def check_memory(a: Assembly, model: ModelSpec, weights: str, kv: str) -> None:
    """Compares what the log measured with what the model should take: a wrong model or precision shows here."""
    if a.log is None or {"pipeline-parallel-size", "pp-size", "cpu-offload-gb"} & a.not_modelled.keys():
        return
    tp = a.value("tensor_parallel_size", 1)
    drafts = "speculation" in a.settings or {"speculative-config", "speculative-algorithm"} & a.not_modelled.keys()
    if a.log.weights_gib and not drafts:
        loaded = a.log.weights_gib[0]
        expected = model.weight_bytes(weights) / tp / GIB
        if not 0.85 <= loaded.value / expected <= 1.2:
            said = f"{model.name} in {weights} has {expected:.2f} GiB of weights" + (
                f" on each of {tp} devices" if tp > 1 else ""
            )
            used = "check the model and engine.dtype"
            a.contradictions.append(Contradiction("model", said, f"{loaded.text!r} (log)", used))
    if a.log.kv_gib and a.log.kv_tokens and model.tensor_parallel_sizes().count(tp):
        fewest = min(g.value for g in a.log.kv_tokens)
        each = a.log.kv_gib[0].value * GIB / fewest if 0 < fewest < MOST_TOKENS else 0.0
        expected = model.kv_bytes_per_token(kv, tp)
        if not 0.93 <= each / expected <= 1.08 and not drafts:
            said = f"a token's KV of {model.name} in {kv} takes {expected:,.0f} bytes on a device"
            against = f"{a.log.kv_gib[0].text!r} and {a.log.kv_tokens[0].text!r} are {each:,.0f} (log)"
            used = "the log's number of tokens is used; check the model and engine.kv_cache_dtype"
            a.contradictions.append(Contradiction("engine.kv_cache_dtype", said, against, used))


def finish(a: Assembly, *, version: str | None, command: str, log: Path | None) -> Launch:
    """The scenario, with the longest placeholder that fits.

    Raises:
        InputError: what was stated does not go together; names the flag or log line.
    """
    device, engine = a.fields["hardware"], a.fields.get("engine", {})
    name = a.fields["model"] if isinstance(a.fields["model"], str) else a.fields["model"]["name"]
    tp = engine.get("tensor_parallel_size", 1)
    head: dict[str, Any] = {
        "schema_version": 1,
        "name": f"{name} on {f'{tp} x ' if tp > 1 else ''}{device}",
        "description": _description(command),
    }
    order = ("model", "hardware", "engine", "replicas", "router")
    fields = head | {key: a.fields[key] for key in order if key in a.fields}
    if engine:
        fields["engine"] = {key: engine[key] for key in Engine.model_fields if key in engine}
    scenario = _fitting(a, fields)
    return Launch(
        engine=a.engine,
        version=version,
        command=command,
        log=log.name if log else None,
        scenario=scenario,
        taken=tuple(a.taken),
        not_modelled=tuple(NotModelled(flag, effect) for flag, effect in a.not_modelled.values()),
        contradictions=tuple(a.contradictions),
        unknown=tuple(a.command.unknown.items()),
        harmless=tuple(a.command.harmless),
        notes=tuple(a.notes),
    )


def _fitting(a: Assembly, fields: dict[str, Any]) -> Scenario:
    problem = ("", "")
    for prompt, answer in _PLACEHOLDER:
        workload = {"requests": 200, "arrivals": {"process": "poisson", "rate": 1}, "input": prompt, "output": answer}
        data = fields | {"workload": workload}
        try:
            return Scenario.model_validate(data)
        except ValidationError as error:
            problem = one_message(error, data)
            if not problem[0].startswith("workload"):
                break
    path, sentence = problem
    said = [t for t in a.taken if t.field == path]
    blamed = f"{said[-1].text} ({said[-1].origin})" if said else path or "the launch"
    hint = ""
    if path == "model":
        hint = "; on this device the engine would not start either: check --hardware and the precision"
    raise InputError(f"{blamed}: {path}: {sentence}{hint}" if said else f"{blamed}: {sentence}{hint}")


def _description(command: str) -> str:
    plain = " ".join("".join(char if char.isprintable() else " " for char in command).split())
    return plain if len(plain) <= 300 else plain[:297] + "..."
