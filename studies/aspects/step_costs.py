"""Which step costs a scenario asks for: the roofline, a profile by its name, or the shipped profile that fits it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from scenarios.cost import AUTO
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.profile import Profile
from sim.profile_cost import ProfileCost
from sim.profile_parts import Noise
from sim.profiles import AnyProfile, load_profile, shipped_bytes, shipped_profiles
from sim.roofline import Roofline


class Subject(NamedTuple):
    """What step costs are of."""

    model: str
    hardware: str
    dtype: str
    kv_cache_dtype: str
    tensor_parallel_size: int

    def __str__(self) -> str:
        return (
            f"{self.model} in {self.dtype} (KV in {self.kv_cache_dtype}) on {self.hardware} with tensor_parallel_size "
            f"{self.tensor_parallel_size}"
        )


def cost_of(scenario: Scenario) -> CostModel:
    """The step costs that the scenario asks for.

    Raises:
        InputError: there is no such profile, or it is of something else.
    """
    profile = profile_of(scenario)
    if profile is not None:
        return profile_cost(profile, scenario)
    return Roofline(
        scenario.model,
        scenario.hardware,
        dtype=scenario.dtype,
        kv_dtype=scenario.kv_dtype,
        tensor_parallel_size=scenario.engine.tensor_parallel_size,
    )


def profile_of(scenario: Scenario) -> AnyProfile | None:
    """The profile that the scenario names, or that fits it where it says `auto`; None where it asks for the roofline.

    Raises:
        InputError: there is none.
    """
    if scenario.cost.source != "profile":
        return None
    if scenario.cost.profile != AUTO:
        return load_profile(str(scenario.cost.profile))
    names = fitting(scenario)
    if not names:
        raise InputError(_nothing_fits(subject_of(scenario)))
    return load_profile(names[0])


def profile_cost(profile: AnyProfile, scenario: Scenario) -> ProfileCost | OperatorCost:
    """The step costs of a profile, for a scenario of what was measured.

    Raises:
        InputError: they are of another model, hardware, precision or tensor-parallel degree.
    """
    asked = subject_of(scenario)
    if isinstance(profile, Profile):
        # One machine's own. Its report names precisions, which what-if questions about quality change.
        on_cpu = profile.source.device == "cpu"
        hardware = asked.hardware if on_cpu == scenario.hardware.is_cpu else profile.source.device
        held = asked._replace(model=profile.model, hardware=hardware, tensor_parallel_size=1)
    else:
        tp = profile.tensor_parallel_size
        held = Subject(profile.model, profile.hardware, profile.dtype, profile.kv_dtype, tp)
    wrong = [
        f"{name} {there} (the scenario has {here})"
        for name, there, here in zip(Subject._fields, held, asked, strict=True)
        if there != here
    ]
    if wrong:
        names = fitting(scenario)
        remedy = f"cost: {{profile: auto}} takes {names[0]}" if names else "without cost, the roofline serves"
        if (held.model, held.hardware) == (asked.model, asked.hardware):
            fields = Subject._fields[2:]
            differ = [
                f"{name}: {getattr(held, name)}" for name in fields if getattr(held, name) != getattr(asked, name)
            ]
            remedy += f"; engine: {{{', '.join(differ)}}} asks for what this one holds"
        raise InputError(f"profile {profile.name}: holds step costs of {', '.join(wrong)}; {remedy}")
    return priced(profile)


def priced(profile: AnyProfile) -> ProfileCost | OperatorCost:
    """The step costs of a profile, whatever it is of."""
    return ProfileCost(profile) if isinstance(profile, Profile) else OperatorCost(profile)


def noise_of(cost: CostModel) -> Noise:
    """The noise of the profile that step costs come from.

    Raises:
        InputError: nobody measured any.
    """
    noise: Noise | None = getattr(getattr(cost, "profile", None), "noise", None)
    if noise is None:
        raise InputError(
            f"cost.noise: found true, but {cost.name} holds no noise; it is estimated where a profile is fitted to the "
            "successive steps of an engine's log"
        )
    return noise


def subject_of(scenario: Scenario) -> Subject:
    """What a scenario needs step costs of."""
    tp = scenario.engine.tensor_parallel_size
    return Subject(scenario.model.name, scenario.hardware.name, scenario.dtype, scenario.kv_dtype, tp)


def fitting(scenario: Scenario) -> list[str]:
    """Shipped profiles of just what the scenario asks for; those of its own engine first. (One that was fitted to whole steps is
    of one machine, and taken by name only.)"""
    asked, engine = subject_of(scenario), _family(scenario.engine.preset)
    found = [(name, of) for name, (held, of) in _shipped().items() if held == asked]
    return [name for name, of in sorted(found, key=lambda item: (item[1] != engine, item[0]))]


@cache
def _shipped() -> Mapping[str, tuple[Subject, str]]:
    """What each shipped profile of operators is of, and the engine whose kernels were measured."""
    found = {}
    for name in shipped_profiles():
        data = json.loads(shipped_bytes(name))
        if data.get("kind") == "operators":
            tp = data.get("tensor_parallel_size", 1)
            subject = Subject(data["model"], data["hardware"], data["dtype"], data["kv_dtype"], tp)
            found[name] = subject, _family(data["engine"])
    return found


def _family(engine: str) -> str:
    return engine.partition("@")[0]


def _nothing_fits(asked: Subject) -> str:
    """Says what there is instead: of that model on that hardware, or else of either."""
    held = {name: subject for name, (subject, _) in _shipped().items()}
    there = [n for n, of in held.items() if (of.model, of.hardware) == (asked.model, asked.hardware)]
    lines = [f"of this model on this hardware there are {', '.join(there)}"] if there else []
    if not there:
        hardware = sorted({of.hardware for of in held.values() if of.model == asked.model})
        models = sorted({of.model for of in held.values() if of.hardware == asked.hardware})
        lines.append(f"{asked.model} is there on {', '.join(hardware) or 'no hardware'}")
        lines.append(f"on {asked.hardware} there are {', '.join(models) or 'no models'}")
    return (
        f"cost.profile: auto: no shipped profile is of {asked}; {'; '.join(lines)}; without cost, the roofline serves"
    )


def described(cost: CostModel | None, scenario: Scenario) -> dict[str, Any] | None:
    """The profile that step costs come from, JSON-able: what it is, and its error; for a roofline, the shipped profiles that fit.
    None where there is neither.

    other_engine: the scenario's, where the profile was measured with an engine of another name. noise: of the run, None without. errors: by part, the mean absolute relative error of what was predicted without being seen.
    """
    profile: AnyProfile | None = getattr(cost, "profile", None)
    if profile is None:
        names = fitting(scenario) if isinstance(cost, Roofline) else []
        return {"fitting": names} if names else None
    whole, noise = isinstance(profile, Profile), profile.noise if scenario.cost.noise else None
    engine = None if isinstance(profile, Profile) else profile.engine
    return {
        "name": profile.name,
        "hash": profile.hash(),
        "kind": "whole steps" if whole else "operators",
        "device": profile.source.device,
        "engine": engine,
        "other_engine": scenario.engine.preset
        if engine and _family(engine) != _family(scenario.engine.preset)
        else None,
        "dtype": profile.dtype,
        "errors": {part: errors.mape for part, errors in profile.cv_error.items()},
        "noise": {"sd": noise.sd, "correlation": noise.correlation} if noise is not None else None,
    }


def sentence(found: Mapping[str, Any] | None) -> str | None:
    """`described` in a line; None if there is nothing to say."""
    if not found:
        return None
    if "fitting" in found:
        return f"a measured profile exists ({found['fitting'][0]}): cost: {{profile: auto}}"
    if found["kind"] == "operators":
        said = f"step costs: profile {found['name']}, composed of operators measured on {found['device']} ({found['engine']})"
    else:
        said = f"step costs: profile {found['name']}, fitted to whole steps in {found['dtype']} on {found['device']}"
    errors = sorted(found["errors"].items(), key=lambda item: item[1])
    if "all" in found["errors"]:
        said += f"; cross-validated error {found['errors']['all']:.1%}"
    elif errors:
        (least, low), (most, high) = errors[0], errors[-1]
        said += f"; what was left out is predicted within {low:.1%} ({least}) to {high:.1%} ({most}) on average"
    if other := found.get("other_engine"):
        said += f"; nothing of {other} was measured: kernels and host time are those of {found['engine']}"
    if noise := found.get("noise"):
        said += f"; with its noise (standard deviation {noise['sd']:.1%}, correlation of successive steps {noise['correlation']:.2f})"
    return said
