"""Several models in one deployment: pools of replicas, each of a model on an engine on hardware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from scenarios.cost import Cost
from scenarios.engine import NamedEngine
from scenarios.errors import misplaced
from scenarios.fields import Section
from scenarios.quality_curve import Quality
from scenarios.routers import Cascade, PowerOfTwo, PrefixAffinity
from scenarios.sheets import Hardware, Model


class PoolSpec(Section):
    """Replicas of one kind. What a pool does not state is as the scenario says; an engine that it states stands alone.

    Args:
        gpu_hour: price of one device in USD; the sheet's if not given.
        quality: of the model's answers, by difficulty: what it costs to ask the smaller one.
    """

    later: ClassVar[tuple[str, ...]] = ("model", "hardware", "engine", "cost", "gpu_hour", "quality")

    name: Annotated[str, Field(min_length=1)]
    model: Model | None = None
    hardware: Hardware | None = None
    engine: NamedEngine | None = None
    replicas: Annotated[int, Field(ge=1)] = 1
    cost: Cost | None = None
    gpu_hour: Annotated[float, Field(ge=0)] | None = None
    quality: Quality | None = None


def check_names(pools: Sequence[PoolSpec]) -> None:
    """Refuses pools of equal names.

    Raises:
        PydanticCustomError: names the field.
    """
    names = [pool.name for pool in pools]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise misplaced(f"found {name!r} again; names must differ", "pools", i, "name")


def check_router(router: str | PowerOfTwo | PrefixAffinity | Cascade, pools: Sequence[PoolSpec]) -> None:
    """Refuses a cascade that these pools cannot be.

    Raises:
        PydanticCustomError: names the field of the router.
    """
    if not isinstance(router, Cascade):
        return
    router.check([pool.name for pool in pools])
    if router.judge is None:
        return
    for number in router.numbers([pool.name for pool in pools])[:-1]:
        if pools[number].quality is None:
            raise misplaced(
                f"found a judge, but pool {pools[number].name} has no quality, so nobody knows which of its answers are wrong; give it "
                f"(pools[{number}].quality: 0.8, or [[0, 0.95], [1, 0.4]])",
                "judge",
            )
