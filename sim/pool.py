"""Replicas of one kind in a deployment: a model on an engine on hardware, and how many of them."""

from __future__ import annotations

from dataclasses import dataclass

from serving.config import EngineConfig
from sim.acceptance import Acceptance
from sim.cost import CostModel
from sim.drafting import Drafting
from sim.host_link import HostLink
from sim.profile_parts import Noise


@dataclass(frozen=True)
class Pool:
    """A pool of equal replicas.

    Args:
        cost: what steps take; None where they really run.
        acceptance: which drafts stand, needed where the engine speculates. drafting: what proposing them costs, if anything.
        noise: what steps take more or less than `cost` says.
        link: to the host's memory, where the engine keeps KV there; None where it costs nothing.
    """

    engine: EngineConfig
    cost: CostModel | None = None
    replicas: int = 1
    name: str = "default"
    acceptance: Acceptance | None = None
    drafting: Drafting | None = None
    noise: Noise | None = None
    link: HostLink | None = None
