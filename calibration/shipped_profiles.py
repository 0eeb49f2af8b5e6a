"""The profiles that come with the package, composed anew by one command: `python -m calibration.shipped_profiles`.

They hold curves and grids for one model each, not the tables; the same installed tables give the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from calibration.operators.aiconfigurator import load_tables
from calibration.operators.checkpoints import checkpoint
from calibration.operators.compose import compose
from calibration.operators.curves import jumps
from calibration.silicon import constants as silicon_constants
from scenarios.hardware import CATALOG as HARDWARE
from scenarios.kv_memory import kv_blocks
from scenarios.models import CATALOG as MODELS
from scenarios.models import ModelSpec
from sim.operator_profile import OperatorProfile

CREATED = "2026-11-30"
"""The day on which the rules of composition last changed: a date of the run would change the bytes."""

ENGINE = "vllm"
GPUS = ("H100", "H200", "B200", "A100-80G", "L40S")
MODEL_NAMES = ("Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-8B", "Qwen3-32B", "Qwen3-30B-A3B")
DEGREES = (1, 2, 4, 8)
FITTED_ON = ("H100", "H200")
"""Devices whose measured points the constants were fitted on."""

LEAST_TOKENS = 16_384
"""KV memory that has to be left beside the weights for a degree to be shipped."""

SCALE_BLOCK = 128
"""Published FP8 checkpoints of mixtures scale weights in blocks of so many columns, which a rank's share must not cut."""

FOLDER = Path(__file__).parent / "profiles"


class Shipped(NamedTuple):
    """One of them."""

    gpu: str
    model: str
    dtype: str
    tensor_parallel_size: int

    @property
    def name(self) -> str:
        short = {"bfloat16": "bf16"}.get(self.dtype, self.dtype)
        return f"{self.gpu.lower()}/{self.model.lower()}-{short}-tp{self.tensor_parallel_size}"


def catalog() -> Iterator[Shipped]:
    """All of them: where the weights leave room for KV, the heads divide and the device computes in that precision."""
    for gpu in GPUS:
        for name in MODEL_NAMES:
            for dtype in ("bfloat16", "fp8"):
                for degree in DEGREES:
                    if _sensible(gpu, MODELS[name], dtype, degree):
                        yield Shipped(gpu, name, dtype, degree)


def _sensible(gpu: str, model: ModelSpec, dtype: str, degree: int) -> bool:
    hardware = HARDWARE[gpu]
    if dtype not in hardware.flops or degree not in model.tensor_parallel_sizes() or model.num_kv_heads % degree:
        return False
    if dtype == "fp8" and model.num_experts and model.moe_intermediate_size // degree % SCALE_BLOCK:
        return False
    try:
        blocks = kv_blocks(model, hardware, dtype, "bfloat16", 0.9, 16, tensor_parallel_size=degree)
    except PydanticCustomError:
        return False
    return blocks * 16 >= LEAST_TOKENS


def composed(wanted: Shipped) -> OperatorProfile:
    """One of them, from the installed tables.

    Raises:
        InputError: the tables are not installed, or of another version.
    """
    hardware, model = HARDWARE[wanted.gpu], MODELS[wanted.model]
    profile = compose(
        load_tables(wanted.gpu, ENGINE),
        model,
        hardware=hardware,
        tensor_parallel_size=wanted.tensor_parallel_size,
        dtype=wanted.dtype,
        **checkpoint(model, wanted.dtype),
        name=wanted.name,
        created=CREATED,
    )
    return with_constants(profile, ENGINE)


def with_constants(profile: OperatorProfile, engine: str) -> OperatorProfile:
    """With what no table holds of an engine: constants that were fitted to public measured points, and jumps as they then are."""
    constants = silicon_constants.constants_of(engine)
    profile = silicon_constants.applied(profile, constants)
    tokens = {
        term: curve.model_copy(update={"ns": tuple(float(round(ns)) for ns in curve.ns)})
        for term, curve in profile.tokens.items()
    }
    said = profile.not_modelled
    if constants != silicon_constants.DATA_SHEET and profile.hardware not in FITTED_ON:
        said += (
            f"what host time is on {profile.hardware}: the constants fitted on {' and '.join(FITTED_ON)} are taken",
        )
    return profile.model_copy(update={"tokens": tokens, "jumps": jumps(list(tokens.values())), "not_modelled": said})


def to_json(profile: OperatorProfile) -> str:
    """Compact, a row of numbers a line: fit to be shipped and to be read in a diff."""
    return _text(profile.model_dump(mode="json"), 0) + "\n"


def _text(value: Any, depth: int) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dict) and value and (depth < 2 or any(isinstance(v, dict | list) for v in value.values())):
        inner = ",\n".join(f"{json.dumps(k)}: {_text(v, depth + 1)}" for k, v in value.items())
        return "{\n" + inner + "\n}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_text(v, depth + 1)}" for k, v in value.items()) + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return "[\n" + ",\n".join(_text(v, depth + 2) for v in value) + "\n]"
    if isinstance(value, list):
        return "[" + ",".join(_text(v, depth + 1) for v in value) + "]"
    return json.dumps(value)


def write(folder: Path, wanted: Sequence[Shipped]) -> list[Path]:
    """Writes them and returns their paths; whatever else lies in their folders stays."""
    paths = []
    for one in wanted:
        path = folder.joinpath(*f"{one.name}.json".split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(to_json(composed(one)), encoding="utf-8")
        unfinished.replace(path)
        paths.append(path)
    return paths


def main(arguments: Sequence[str]) -> None:
    """Writes all of them, or those whose names begin with one of the arguments."""
    wanted = [one for one in catalog() if not arguments or one.name.startswith(tuple(arguments))]
    paths = write(FOLDER, wanted)
    size = sum(p.stat().st_size for p in paths)
    print(
        f"{len(paths)} profiles, {size / 1e6:.2f} MB, the largest {max((p.stat().st_size for p in paths), default=0) / 1e3:.1f} kB"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
