"""Worlds: in each, every uncertain input has one value that all scenarios share, and all see the same requests."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.schema import Scenario
from sim.cost import CostModel
from sim.operator_profile import Curve, OperatorProfile
from sim.profile import Profile
from sim.profiles import AnyProfile
from studies.aspects import kv_interval, step_costs
from studies.uncertainty.inputs import ACCEPTANCE, EFFICIENCIES, HOST, KV, Input, measured_acceptance

Values = Mapping[str, float]
"""Of each input that is drawn, by its key."""


@dataclass(frozen=True)
class Worlds:
    """What was drawn.

    ranks: `(worlds, inputs)`, the probability of a lower value. seeds: of each world's requests, noise and routing.
    """

    inputs: tuple[Input, ...]
    ranks: NDArray[np.float64]
    seeds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.seeds)

    def values(self, world: int) -> Values:
        """Of the inputs in one world."""
        pairs = zip(self.inputs, self.ranks[world].tolist(), strict=True)
        return {one.key: one.spread.value(rank) for one, rank in pairs}

    def scores(self) -> NDArray[np.float64]:
        """`(worlds, inputs)`: values on scales of mean 0 and variance 1."""
        found = [[one.spread.score(r) for r in self.ranks[:, k].tolist()] for k, one in enumerate(self.inputs)]
        return np.array(found, dtype=np.float64).reshape(len(self.inputs), len(self)).T


def draw(inputs: Sequence[Input], count: int, seed: int, seeds: Sequence[int], *, seeded: bool = True) -> Worlds:
    """`count` independent worlds. An input's draws depend on the seed and its own key alone: more inputs change no other's.

    seeds: of requests; only the first where they do not differ by it (`seeded`).
    """
    columns = [np.random.default_rng([seed, zlib.crc32(one.key.encode())]).random(count) for one in inputs]
    ranks = np.clip(np.array(columns).reshape(len(inputs), count).T, 1e-9, 1 - 1e-9)
    return Worlds(tuple(inputs), ranks, tuple(seeds[:count]) if seeded else (seeds[0],) * count)


def applied(scenario: Scenario, values: Values, seed: int) -> tuple[Scenario, list[CostModel]]:
    """The scenario in a world, and its step costs, one a pool. Values of inputs that it does not have are not its own.

    Noise of steps is drawn wherever the profile holds it.
    """
    views = scenario.of_pools()
    changes = [_changes(view, values) for view in views]
    if scenario.pools:
        # A price that follows from the hardware's sheet follows from it still.
        pools = tuple(
            pool.model_copy(update=change | {"gpu_hour": view.prices.gpu_hour})
            for pool, change, view in zip(scenario.pools, changes, views, strict=True)
        )
        found = scenario.model_copy(update={"pools": pools, "seed": seed})
    else:
        found = scenario.model_copy(update=changes[0] | {"seed": seed})
    return found, [_cost(view, values) for view in found.of_pools()]


def _changes(view: Scenario, values: Values) -> dict[str, Any]:
    """Fields of an engine's part of the scenario that a world changes."""
    changed: dict[str, Any] = {}
    device = view.hardware.name
    if (reserve := values.get(f"{KV} of {view.engine.preset} on {device}")) is not None and kv_interval.ends(view):
        blocks = view.engine.blocks_beside(view.model, view.hardware, reserve)
        changed["engine"] = kv_interval.with_blocks(view, blocks).engine
    sheet = {f: getattr(view.hardware, f) * values.get(f"{part} of {device}", 1.0) for part, f in EFFICIENCIES.items()}
    host = values.get(f"{HOST} of {device}", 1.0)
    sheet |= {f: getattr(view.hardware, f) * host for f in ("step_overhead", "sequence_overhead", "layer_overhead")}
    link = values.get(f"link of {device}", 1.0)
    if view.hardware.link_bandwidth is not None:
        sheet |= {
            "link_bandwidth": view.hardware.link_bandwidth / link,
            "link_latency": view.hardware.link_latency * link,
        }
    hardware = replace(view.hardware, **sheet)
    if hardware != view.hardware:
        changed["hardware"] = hardware
    profile = step_costs.profile_of(view)
    if profile is not None and profile.noise is not None and not view.cost.noise:
        changed["cost"] = view.cost.model_copy(update={"noise": True})
    return changed


def _cost(view: Scenario, values: Values) -> CostModel:
    profile = step_costs.profile_of(view)
    if profile is None:
        return step_costs.cost_of(view)
    changed = _whole_steps(profile, view, values) if isinstance(profile, Profile) else _operators(profile, values)
    return step_costs.profile_cost(changed, view)


def _whole_steps(profile: Profile, view: Scenario, values: Values) -> AnyProfile:
    def factor(part: str) -> float:
        return values.get(f"{part} of {profile.name}", 1.0)

    dense, prefill, decode = factor("dense"), factor("prefill-attention"), factor("decode-attention")
    c = profile.coefficients
    changed: dict[str, Any] = {
        "dense": tuple((tokens, ns * dense) for tokens, ns in profile.dense),
        "coefficients": c.model_copy(
            update={
                **{name: getattr(c, name) * dense for name in ("head", "head_row")},
                **{name: getattr(c, name) * prefill for name in ("chunk", "pair", "prefill_context")},
                **{name: getattr(c, name) * decode for name in ("decode_sequence", "decode_context")},
            }
        ),
    }
    measured = measured_acceptance(view, profile)
    if measured is not None:
        mean = values.get(f"{ACCEPTANCE} of {measured.method} drafts in {profile.name}", measured.mean)
        changed["acceptance"] = tuple(
            found.model_copy(update={"mean": mean}) if found is measured else found for found in profile.acceptance
        )
    return profile.model_copy(update=changed)


def _operators(profile: OperatorProfile, values: Values) -> AnyProfile:
    def factor(part: str) -> float:
        return values.get(f"{part} of {profile.name}", 1.0)

    def curve(of: Curve, by: float) -> Curve:
        return of.model_copy(update={"ns": tuple(ns * by for ns in of.ns)})

    def rows(of: tuple[tuple[float, ...], ...], by: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(ns * by for ns in row) for row in of)

    prefill, decode, mixed = profile.prefill_attention, profile.decode_attention, profile.mixed_attention
    by = factor("prefill-attention")
    changed: dict[str, Any] = {
        "tokens": {name: curve(of, factor(name)) for name, of in profile.tokens.items()},
        "head": curve(profile.head, factor("output-head")),
        "prefill_attention": prefill.model_copy(
            update={"pair_ns": prefill.pair_ns * by, "shared_ns": prefill.shared_ns * by, "ns": rows(prefill.ns, by)}
        ),
        "decode_attention": decode.model_copy(update={"ns": rows(decode.ns, factor("decode-attention"))}),
        "graphs": profile.graphs.model_copy(update={"eager_ns": profile.graphs.eager_ns * factor("launches")}),
        "jitter": profile.jitter * factor("jitter"),
    }
    if mixed is not None:
        by = factor("mixed-attention")
        changed["mixed_attention"] = mixed.model_copy(update={"ns": tuple(ns * by for ns in mixed.ns)})
    host = values.get(f"{HOST} of {profile.engine.partition('@')[0]} on {profile.hardware}", 1.0)
    if host != 1.0:
        of = profile.host
        changed["host"] = of.model_copy(update={"step_ns": of.step_ns * host, "sequence_ns": of.sequence_ns * host})
    return profile.model_copy(update=changed)
