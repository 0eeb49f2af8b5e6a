"""The `router` of a scenario: which replica takes a request. A name alone, or a mapping with its options.

To add options to a router: write a class here, with the fields that its constructor in `serving.routing` takes, and put it into
`Router`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from scenarios.errors import check_name, misplaced, unknown
from scenarios.fields import Duration, Section
from serving.routing import POOL_ROUTERS, ROUTERS, Routing

Share = Annotated[float, Field(ge=0, le=1)]


class PowerOfTwo(Section):
    """Fewest outstanding requests among `choices` drawn replicas."""

    name: Literal["power_of_two"]
    choices: Annotated[int, Field(ge=1, le=1024)] = 2

    def routing(self, pools: Sequence[str]) -> Routing:
        return Routing(self.name, {"choices": self.choices})


class PrefixAffinity(Section):
    """Where most of the prompt is cached, if that is more than the share `cache_threshold` of it; the replica with fewest outstanding
    requests else, and wherever load is out of balance: the most and the fewest outstanding requests of a replica are further apart
    than `balance_abs_threshold`, and than the factor `balance_rel_threshold`. Names and defaults are those of SGLang's router."""

    name: Literal["prefix_affinity"]
    cache_threshold: Share = 0.3
    balance_abs_threshold: Annotated[int, Field(ge=0)] = 64
    balance_rel_threshold: Annotated[float, Field(ge=1)] = 1.5

    def routing(self, pools: Sequence[str]) -> Routing:
        return Routing(self.name, self.model_dump(exclude={"name"}))


def _replica_router(value: Any) -> Any:
    return _router(value, ROUTERS)


def _router(value: Any, known: Sequence[str] | Mapping[str, Any]) -> Any:
    """A name, or a mapping whose name is known; one of options that are not there is refused."""
    if isinstance(value, str):
        return check_name("router", value, known)
    if isinstance(value, Section):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ValueError(f"found {value!r}, but the name of a router is needed, or a mapping with a field name")
    name = value["name"]
    if name not in known:
        raise misplaced(unknown("router", name, known), "name")
    if name in _OPTIONS:
        return value
    others = [str(key) for key in value if key != "name"]
    if others:
        raise misplaced(f"unknown field {others[0]!r}; router {name} has no options", others[0])
    return name


def _tag(value: Any) -> str:
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    return name if isinstance(name, str) else "name"


ReplicaRouter = Annotated[
    Annotated[str, Tag("name")]
    | Annotated[PowerOfTwo, Tag("power_of_two")]
    | Annotated[PrefixAffinity, Tag("prefix_affinity")],
    Discriminator(_tag),
    BeforeValidator(_replica_router),
]
"""A router of replicas of one kind."""


class Judge(Section):
    """Who reads an answer before its client does, and sends the request on to the next model if it is not good enough. Two models err
    independently of each other, once the difficulty is given. A client loses no patience while an answer is read, and its
    patience begins anew with the next model.

    Args:
        latency: what that takes. usd: what it costs, an answer.
        recall: share of the wrong answers that it finds. false_positive_rate: share of the right ones that it takes for wrong.
    """

    latency: Duration = 0.0
    usd: Annotated[float, Field(ge=0)] = 0.0
    recall: Share = 1.0
    false_positive_rate: Share = 0.0


class Cascade(Section):
    """Small model first: by difficulty up front (`thresholds`), after a judgement of its answer (`judge`), or both (FrugalGPT, TMLR
    2024; RouteLLM, ICLR 2025).

    Args:
        order: names of pools, the smallest model first; as they are listed if not given.
        thresholds: one fewer than there are pools: a request goes to the first pool whose threshold its difficulty does not exceed,
            else to the last.
        estimate_error: standard deviation of the difference between the difficulty that the router sees and the true one.
        judge: reads the answers of every pool but the last; what it rejects is sent to the next pool.
        within: the router between replicas of a pool.
    """

    name: Literal["cascade"]
    order: Annotated[tuple[str, ...], Field(strict=False)] = ()
    thresholds: Annotated[tuple[Share, ...], Field(strict=False)] = ()
    estimate_error: Annotated[float, Field(ge=0, le=10)] = 0.0
    judge: Judge | None = None
    within: ReplicaRouter = "least_requests"

    @model_validator(mode="after")
    def _decides(self) -> Cascade:
        if not self.thresholds and self.judge is None:
            raise misplaced(
                "is required and missing: without thresholds and without a judge every request stays with the first model",
                "thresholds",
            )
        if list(self.thresholds) != sorted(self.thresholds):
            raise misplaced(f"found {list(self.thresholds)}, but they must not fall", "thresholds")
        if self.estimate_error and not self.thresholds:
            raise misplaced("found without thresholds, so nothing is estimated", "estimate_error")
        return self

    def check(self, pools: Sequence[str]) -> None:
        """Refuses an order that is not one of these pools.

        Raises:
            PydanticCustomError: names the field.
        """
        if len(pools) < 2:
            raise misplaced(
                f"found cascade, but it needs pools with several models, and there are {len(pools)}", "name"
            )
        for i, name in enumerate(self.order):
            if name not in pools:
                raise misplaced(unknown("pool", name, pools), "order", i)
        if self.order and sorted(self.order) != sorted(pools):
            raise misplaced(f"found {', '.join(self.order)}, but each of {', '.join(pools)} is needed once", "order")
        if self.thresholds and len(self.thresholds) != len(pools) - 1:
            raise misplaced(
                f"found {len(self.thresholds)}, but one fewer than pools is needed: {len(pools) - 1}", "thresholds"
            )

    def numbers(self, pools: Sequence[str]) -> list[int]:
        """Numbers of the pools in order, the smallest model first."""
        return [pools.index(name) for name in self.order or pools]

    def routing(self, pools: Sequence[str]) -> Routing:
        within = routing_of(self.within, pools)
        return Routing(
            self.name,
            {
                "order": self.numbers(pools),
                "thresholds": list(self.thresholds),
                "estimate_error": self.estimate_error,
                "within": {"name": within.name, "options": dict(within.options)},
            },
        )


_OPTIONS = ("power_of_two", "prefix_affinity", "cascade")
NAMES = (*ROUTERS, *POOL_ROUTERS)


def _any_router(value: Any) -> Any:
    # A cascade has nothing to go by without options: its own check says which.
    return {"name": "cascade"} if value == "cascade" else _router(value, NAMES)


Router = Annotated[
    Annotated[str, Tag("name")]
    | Annotated[PowerOfTwo, Tag("power_of_two")]
    | Annotated[PrefixAffinity, Tag("prefix_affinity")]
    | Annotated[Cascade, Tag("cascade")],
    Discriminator(_tag),
    BeforeValidator(_any_router),
]


def routing_of(router: str | PowerOfTwo | PrefixAffinity | Cascade, pools: Sequence[str]) -> Routing:
    """What the router is to be made with; pools: names of all, by number."""
    return Routing(router) if isinstance(router, str) else router.routing(pools)
