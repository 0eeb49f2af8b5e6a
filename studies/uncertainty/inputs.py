"""What a simulation takes for granted: the inputs whose uncertainty is stated somewhere, and those of which nobody says how far off
they may be.

An input is one number of one thing (a profile, a device, an engine): two scenarios that share the thing share the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scenarios.errors import InputError, unknown
from scenarios.hardware import HardwareSpec
from scenarios.presets import PRESETS
from scenarios.schema import Scenario
from sim.measured_acceptance import MeasuredAcceptance
from sim.operator_profile import OperatorProfile
from sim.profile import Profile
from sim.profile_parts import Errors
from sim.profiles import AnyProfile
from studies.aspects import kv_interval
from studies.aspects.step_costs import profile_of
from studies.uncertainty.spreads import ERROR_TO_SD, Between, Bytes, Factor, Share, Spread

KV, ACCEPTANCE, HOST, REQUESTS = "kv-capacity", "acceptance", "host", "requests"
EFFICIENCIES = {f"{name}-efficiency": f"{name}_efficiency" for name in ("compute", "attention", "memory")}
"""Inputs of a roofline that are shares of the sheet, and their fields of it."""

_CALLED = {
    KV: "KV capacity",
    HOST: "host time",
    "linears": "cost of linear layers",
    "dense": "cost of dense layers",
    "output-head": "cost of the output head",
    "prefill-attention": "cost of prefill attention",
    "decode-attention": "cost of decode attention",
    "mixed-attention": "cost of mixed attention",
    "element-wise": "cost of element-wise kernels",
    "experts": "cost of experts",
    "all-reduce": "cost of all-reduces",
    "launches": "cost of launches without graphs",
    "jitter": "jitter of ranks",
    "link": "time on the link",
}

Ranges = Mapping[str, tuple[float, float]]
"""How many times what is assumed an input may be, by its part."""

_MEASURE = {
    KV: "state engine.num_gpu_blocks, which the engine's log says at its start",
    ACCEPTANCE: "count more drafts: servetwin acceptance --requests N --profile FILE",
    HOST: "fit the engine's own step log: servetwin calibrate, or servetwin validate --measured",
}
_KERNELS = "import tables that hold this workload's shapes, or measure steps there: servetwin calibrate --device cuda"
_STEPS = "measure more steps of this workload's shapes: servetwin calibrate"


@dataclass(frozen=True)
class Number:
    """part: what it is, and what a range is given by. of: the thing that it belongs to. where: the device or machine, by which inputs of
    a kind are put together."""

    part: str
    of: str
    where: str

    @property
    def key(self) -> str:
        """What it is told from others by, and what its draws depend on."""
        return f"{self.part} of {self.of}"


@dataclass(frozen=True)
class Input(Number):
    """One uncertain number. basis: where its spread is stated. measure: what would settle it."""

    spread: Spread
    basis: str
    measure: str = _KERNELS

    @property
    def group(self) -> str:
        """What would be measured together, in words."""
        return f"{called(self.part)} {'of' if self.part == ACCEPTANCE else 'on'} {self.where}"


@dataclass(frozen=True)
class Unstated(Number):
    """A number of which nobody says how far off it may be: it is the same in every world. ranged: whether a range may be given."""

    why: str
    ranged: bool = True


@dataclass(frozen=True)
class Inputs:
    """drawn: those of which every world has its own value."""

    drawn: tuple[Input, ...]
    unstated: tuple[Unstated, ...]


def inputs_of(scenarios: Sequence[Scenario], ranges: Ranges | None = None) -> Inputs:
    """The inputs of some scenarios, each once. ranges: instead of what is stated, or where nothing is.

    Raises:
        InputError: a range of an input that there is not, or that leads to what cannot be.
    """
    drawn: dict[str, Input] = {}
    unstated: dict[str, Unstated] = {}
    for scenario in scenarios:
        for view in scenario.of_pools():
            for found in _of_engine(view):
                (drawn if isinstance(found, Input) else unstated).setdefault(found.key, found)  # type: ignore[arg-type]
    for part, (low, high) in (ranges or {}).items():
        _check(part, high, drawn, unstated, scenarios)
        basis, spread = f"given: --range {part}={low:g}..{high:g}", Between(low, high)
        for key, one in drawn.items():
            if one.part == part:
                drawn[key] = replace(one, spread=spread, basis=basis)
        for key, other in list(unstated.items()):
            if other.part == part and other.ranged:
                measure = _MEASURE.get(part, _KERNELS)
                drawn[key] = Input(other.part, other.of, other.where, spread, basis, measure)
                del unstated[key]
    return Inputs(tuple(drawn.values()), tuple(unstated.values()))


def _check(
    part: str, high: float, drawn: Mapping[str, Input], unstated: Mapping[str, Unstated], scenarios: Sequence[Scenario]
) -> None:
    factors = {one.part for one in drawn.values() if isinstance(one.spread, Factor)}
    allowed = sorted(factors | {one.part for one in unstated.values() if one.ranged})
    if part not in allowed:
        if not allowed:
            raise InputError(f"--range {part}: nothing that these scenarios depend on takes a range")
        raise InputError(f"--range: {unknown('input', part, allowed)}")
    if part in EFFICIENCIES:
        for view in (view for scenario in scenarios for view in scenario.of_pools()):
            value = getattr(view.hardware, EFFICIENCIES[part])
            if value * high > 1:
                raise InputError(
                    f"--range {part}: found an upper end of {high:g}, but {view.hardware.name} is assumed to reach {value:g} of its "
                    f"sheet, and more than all of it cannot be; allowed: at most {1 / value:.4g}"
                )


def _of_engine(view: Scenario) -> list[Input | Unstated]:
    """Of the engine of a scenario without pools."""
    profile = profile_of(view)
    if profile is None:
        found = _of_sheet(view)
    elif isinstance(profile, Profile):
        found = _of_whole_steps(profile)
    else:
        found = _of_operators(profile)
    return [*found, *_of_drafts(view, profile), *_of_memory(view)]


def _of_memory(view: Scenario) -> list[Input | Unstated]:
    device = view.hardware.name
    of = f"{view.engine.preset} on {device}"
    if kv_interval.ends(view) is None:
        return [Unstated(KV, of, device, "stated, or fixed for this device", ranged=False)]
    capacity = view.engine.kv_capacity(view.model, view.hardware)
    spread = Bytes(*PRESETS[view.engine.preset].reserves_on(view.hardware))
    return [Input(KV, of, device, spread, capacity.basis, _MEASURE[KV])]


def measured_acceptance(view: Scenario, profile: AnyProfile | None) -> MeasuredAcceptance | None:
    """What a profile says of the scenario's drafts, where the scenario itself leaves it to the profile."""
    given = view.engine.speculation
    if given is None or given.acceptance is not None or not isinstance(profile, Profile):
        return None
    of_method = [found for found in profile.acceptance if found.method == given.method]
    return min(of_method, key=lambda m: (abs(m.k - given.k), m.k), default=None)


def _of_drafts(view: Scenario, profile: AnyProfile | None) -> list[Input | Unstated]:
    given = view.engine.speculation
    if given is None:
        return []
    measured = measured_acceptance(view, profile)
    if measured is None:
        of = f"{given.method} drafts of {view.model.name}"
        return [Unstated(ACCEPTANCE, of, of, "the scenario states it, without an interval", ranged=False)]
    of = f"{given.method} drafts in {profile.name}"  # type: ignore[union-attr]
    # Between requests, the beta distribution that was fitted; within one, drafts stand or fall.
    spread, c = measured.mean * (1 - measured.mean), measured.concentration
    variance = spread / (c + 1) / max(measured.requests, 1) + spread * c / (c + 1) / max(measured.verifications, 1)
    basis = f"counted on {measured.verifications:,} rows of {measured.requests:,} requests"
    where = f"{given.method} drafts of {view.model.name}"
    return [Input(ACCEPTANCE, of, where, Share(measured.mean, variance**0.5), basis, _MEASURE[ACCEPTANCE])]


def _of_sheet(view: Scenario) -> list[Input | Unstated]:
    sheet: HardwareSpec = view.hardware
    name = sheet.name
    found: list[Input | Unstated] = [
        Unstated(part, name, name, f"assumed to be {getattr(sheet, field):g} of the sheet (roofline)")
        for part, field in EFFICIENCIES.items()
    ]
    step, sequence = sheet.step_overhead * 1e3, sheet.sequence_overhead * 1e3
    found.append(Unstated(HOST, name, name, f"{step:g} ms a step and {sequence:g} ms a sequence (roofline)"))
    if view.engine.tensor_parallel_size > 1:
        found.append(Unstated("link", name, name, "the sheet's bandwidth and an assumed latency (roofline)"))
    return found


def _of_whole_steps(profile: Profile) -> list[Input | Unstated]:
    """The error of a kind of step stands for the terms that such steps are made of."""
    where = profile.source.details.get("device_name", profile.source.device)
    kinds = {"dense": "all", "prefill-attention": "prefill", "decode-attention": "decode"}
    return [
        _judged(part, profile.name, where, {kind: profile.cv_error[kind]} if kind in profile.cv_error else {}, _STEPS)
        for part, kind in kinds.items()
    ]


_JUDGED_BY = {
    "linears": ("gemm", "mlp", "dense"),
    "output-head": ("gemm", "per_sequence"),
    "prefill-attention": ("prefill",),
    "decode-attention": ("decode",),
    "mixed-attention": ("mixed",),
}
"""How the cross-validation errors of a part begin, where not as the part itself does."""


def _of_operators(profile: OperatorProfile) -> list[Input | Unstated]:
    where, of = profile.hardware, profile.name
    parts = [*profile.tokens, "output-head", "prefill-attention", "decode-attention"]
    parts += ["mixed-attention"] if profile.mixed_attention is not None else []
    found = []
    for part in parts:
        begins = _JUDGED_BY.get(part, (part,))
        found.append(
            _judged(part, of, where, {k: e for k, e in profile.cv_error.items() if k.startswith(begins) and e.observations})
        )  # fmt: skip
    if profile.graphs.eager_ns:
        found.append(Unstated("launches", of, where, "its profile states no error of it"))
    if profile.jitter:
        found.append(Unstated("jitter", of, where, "its profile states no error of it"))
    host = [f"{c.name} {c.value * 1e3:g} ms, {c.basis}" for c in profile.constants if c.name.startswith("host time")]
    if profile.host.step_ns or profile.host.sequence_ns:
        why = "; ".join(host) or "the profile states it"
        # One machine's host: profiles of several models and degrees in one engine share it.
        engine = profile.engine.partition("@")[0]
        found.append(Unstated(HOST, f"{engine} on {where}", where, f"{why}; no interval is stated"))
    return found


def _judged(part: str, of: str, where: str, errors: Mapping[str, Errors], measure: str = _KERNELS) -> Input | Unstated:
    """By the largest of the errors that a profile states of a part."""
    if not errors:
        return Unstated(part, of, where, "its profile states no error of it")
    kind = max(errors, key=lambda name: errors[name].mape)
    error = errors[kind]
    basis = f"cross-validated error {error.mape:.1%} ({kind}, {error.observations} left out in turn)"
    return Input(part, of, where, Factor(ERROR_TO_SD * error.mape), basis, measure)


def called(part: str) -> str:
    """A part in words."""
    return _CALLED.get(part, part.replace("-", " "))


def described(found: Input | Unstated) -> dict[str, Any]:
    """JSON-able."""
    if isinstance(found, Unstated):
        return {"input": found.part, "of": found.of, "why": found.why}
    spread = found.spread.to_dict()
    return {"input": found.part, "of": found.of, "spread": spread, "basis": found.basis, "measure": found.measure}
