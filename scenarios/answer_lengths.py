"""How much longer or shorter answers get when the model, its precision or what the product does to prompts changes.

A workload states answer lengths of one deployment: a trace's, or those that somebody assumed. Another model, fewer bits or a
trimmed prompt may make the same questions be answered at other lengths, and nothing but a measurement says by how much. So these
are numbers that somebody must state; where nobody did, lengths stay as they are, and the report says that this is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from scenarios.errors import misplaced, unknown
from scenarios.fields import Section
from scenarios.models import BYTES
from scenarios.transforms import Transform

if TYPE_CHECKING:
    from scenarios.schema import Scenario

TRANSFORMS = tuple(get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Transform)[0]))
Factor = Annotated[float, Field(gt=0, le=100)]


class AnswerLengths(Section):
    """Multipliers of `output`: `{models: {Qwen3-8B: 1.3}, precisions: {int4: 1.05}, transforms: {drop_stale_turns: 0.9}}`. Those
    that apply to the scenario are multiplied; what is not stated counts as 1 and is reported as unknown.

    Args:
        models: by the name of the model that answers.
        precisions: by the precision of its weights.
        transforms: by what the product does to prompts (`workload.transforms`).
    """

    models: dict[str, Factor] = {}  # noqa: RUF012
    precisions: dict[str, Factor] = {}  # noqa: RUF012
    transforms: dict[str, Factor] = {}  # noqa: RUF012

    @field_validator("precisions", "transforms")
    @classmethod
    def _known(cls, given: dict[str, float], info: Any) -> dict[str, float]:
        allowed = BYTES if info.field_name == "precisions" else TRANSFORMS
        for name in given:
            if name not in allowed:
                raise ValueError(unknown(info.field_name.removesuffix("s"), name, allowed))
        return given

    @model_validator(mode="after")
    def _says_something(self) -> AnswerLengths:
        if not (self.models or self.precisions or self.transforms):
            raise misplaced("states no multiplier: give models, precisions or transforms, or leave it out")
        return self


@dataclass(frozen=True)
class Multiplier:
    """By how much answers are longer because of one thing. what: `model`, `precision` or `transform`; known: somebody stated it."""

    what: str
    name: str
    factor: float
    known: bool


def multipliers(scenario: Scenario, transforms: Sequence[Transform]) -> list[Multiplier]:
    """What answers of a workload with these transforms are multiplied by, one thing after the other; of several pools, for the
    first one's model."""
    stated = scenario.workload.answer_lengths
    return [*_of_model(stated, scenario.of_pools()[0]), *(_multiplier(stated, "transform", t.kind) for t in transforms)]


def unknown_of(scenario: Scenario, transforms: Sequence[Transform]) -> list[Multiplier]:
    """Multipliers that nobody stated, of all pools' models."""
    stated = scenario.workload.answer_lengths
    pools = [m for view in scenario.of_pools()[1:] for m in _of_model(stated, view)]
    return [m for m in dict.fromkeys([*multipliers(scenario, transforms), *pools]) if not m.known]


def _of_model(stated: AnswerLengths | None, view: Scenario) -> list[Multiplier]:
    return [_multiplier(stated, "model", view.model.name), _multiplier(stated, "precision", view.dtype)]


def _multiplier(stated: AnswerLengths | None, what: str, name: str) -> Multiplier:
    factor = None if stated is None else getattr(stated, f"{what}s").get(name)
    return Multiplier(what, name, 1.0 if factor is None else factor, factor is not None)


def check_pools(scenario: Scenario) -> None:
    """Refuses pools whose models would answer at different lengths: an answer is as long whoever gives it.

    Raises:
        PydanticCustomError: names the field of the scenario.
    """
    stated = scenario.workload.answer_lengths
    factors = {view.model.name: stretch(_of_model(stated, view)) for view in scenario.of_pools()}
    if len(set(factors.values())) > 1:
        found = ", ".join(f"{name}: {factor:g}" for name, factor in factors.items())
        why = "an answer is as long whichever pool gives it; state equal ones, or leave them out"
        raise misplaced(
            f"found different multipliers for the models of pools ({found}), but {why}", "workload", "answer_lengths"
        )


def stretch(multipliers: Iterable[Multiplier]) -> float:
    """All of them together."""
    return math.prod(m.factor for m in multipliers)


def stretched(output: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    """Answer tokens, at least one each, `(n,)`."""
    return output if factor == 1.0 else np.maximum(np.rint(output * factor), 1).astype(np.int64)


def described(scenario: Scenario) -> list[dict[str, Any]]:
    """Every multiplier with its name, factor and whether it is known, JSON-able."""
    parts = (scenario.workload.mix or {"": scenario.workload}).values()
    found = [
        m for part in parts for m in (*multipliers(scenario, part.transforms), *unknown_of(scenario, part.transforms))
    ]
    return [asdict(m) for m in dict.fromkeys(found)]
