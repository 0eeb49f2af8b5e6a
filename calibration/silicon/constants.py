"""The constants of the measured points that no table holds: at most three an engine, each with what it was fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sim.operator_profile import Constant, Curve, OperatorProfile

LARGE_STEP = 512
"""Tokens above which `large_gemm` counts: from here on GEMMs are bound by arithmetic, so that clocks and power matter."""

OUTSIDE_STEPS = "time of a request outside of steps"
"""No step costs it: it is added to TTFT, and no profile lists it."""


@dataclass(frozen=True)
class Constants:
    """What is added to a composed profile.

    Args:
        step: host time of a step that the device does not hide, seconds.
        sequence: the same of each scheduled sequence, seconds.
        request: time of a request outside of the engine's steps (reading, tokenising, streaming), in each TTFT, seconds.
        large_gemm: factor of quantised GEMMs in steps above `LARGE_STEP` tokens: tables are measured on an idle device at its
            highest clock, one operator after another.
        basis: what they rest on.
    """

    step: float = 0.0
    sequence: float = 0.0
    request: float = 0.0
    large_gemm: float = 1.0
    basis: str = "data sheets and operator tables alone"

    def named(self) -> list[tuple[str, float, str]]:
        """Name, value and unit of those that do something."""
        all_ = (
            ("host time of a step", self.step, "s", 0.0),
            ("host time of a scheduled sequence", self.sequence, "s", 0.0),
            (OUTSIDE_STEPS, self.request, "s", 0.0),
            (f"factor of FP8 GEMMs above {LARGE_STEP} tokens", self.large_gemm, "", 1.0),
        )
        return [(name, value, unit) for name, value, unit, neutral in all_ if value != neutral]


DATA_SHEET = Constants()
"""Nothing fitted: operator tables, and the data sheet where they have no row."""

_VLLM = (
    "fitted on 99 points of Llama-3.1-70B FP8 and Qwen3-32B BF16 on H100 and H200 whose configuration hash is even "
    "(silicon_sample.csv of aiconfigurator-core 0.12.0)"
)
_TRTLLM = (
    "fitted on 25 of 33 points of Llama-3.1-70B FP8 on H200 whose configuration hash is even "
    "(silicon_sample.csv of aiconfigurator-core 0.12.0)"
)
_SGLANG = (
    "fitted on 11 of 38 points of Qwen3-32B BF16 on H100 whose configuration hash is even "
    "(silicon_sample.csv of aiconfigurator-core 0.12.0)"
)

FITTED: Mapping[str, Constants] = {
    "vllm": Constants(step=0.75e-3, sequence=0.043e-3, large_gemm=1.1, basis=_VLLM),
    "sglang": Constants(step=0.5e-3, sequence=0.01e-3, request=20e-3, basis=_SGLANG),
    "trtllm": Constants(request=20e-3, large_gemm=1.05, basis=_TRTLLM),
}
"""By engine."""


def constants_of(engine: str) -> Constants:
    """The fitted constants of an engine; those of data sheets where none were fitted."""
    return FITTED.get(engine, DATA_SHEET)


def applied(profile: OperatorProfile, constants: Constants) -> OperatorProfile:
    """The profile with these constants added to what it has, and listed in it."""
    host = profile.host.model_copy(
        update={
            "step_ns": profile.host.step_ns + constants.step * 1e9,
            "sequence_ns": profile.host.sequence_ns + constants.sequence * 1e9,
        }
    )
    tokens = dict(profile.tokens)
    if constants.large_gemm != 1.0 and profile.dtype == "fp8":
        tokens["linears"] = _scaled_above(tokens["linears"], LARGE_STEP, constants.large_gemm)
    listed = tuple(
        Constant(name=name, value=value, unit=unit, basis="fitted", why=constants.basis)
        for name, value, unit in constants.named()
        if name != OUTSIDE_STEPS
    )
    return profile.model_copy(update={"host": host, "tokens": tokens, "constants": profile.constants + listed})


def listed(constants: Constants) -> dict[str, object]:
    """JSON-able."""
    return asdict(constants)


def _scaled_above(curve: Curve, tokens: int, factor: float) -> Curve:
    return curve.model_copy(
        update={"ns": tuple(ns * factor if at > tokens else ns for at, ns in zip(curve.at, curve.ns, strict=True))}
    )
