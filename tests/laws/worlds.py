"""Small random deployments for the laws: an engine, a workload, replicas and a router, drawn by hypothesis.

About half of the engines work ahead: they speculate, or schedule asynchronously, or both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scenarios.hardware import hardware
from scenarios.models import model
from scenarios.workload import Workload
from serving.batching import BATCHINGS
from serving.capacity import CAPACITIES
from serving.config import EngineConfig
from serving.policies import ORDERS
from serving.records import Records
from serving.routing import ROUTERS
from sim.acceptance import Acceptance
from sim.cluster import simulate
from sim.drafting import DraftModel
from sim.front import NOTHING, Front
from sim.host_link import HostLink
from sim.roofline import Roofline
from tests.laws.bent import BentCost
from tests.laws.fronts import fronts

MICROSECOND = 1_000


def law(max_examples: int) -> settings:
    """Repeatable, and few enough examples that all laws together stay short."""
    return settings(max_examples=max_examples, derandomize=True, deadline=None, database=None)


@cache
def roofline() -> Roofline:
    """A small model on a fast card: steps of about a millisecond."""
    return Roofline(model("Qwen3-0.6B"), hardware("H100"), dtype="bfloat16")


@dataclass(frozen=True)
class World:
    """A whole run; `run()` simulates it."""

    engine: EngineConfig
    workload: Workload
    replicas: int = 1
    router: str = "round_robin"
    horizon_ns: int | None = None
    rates: tuple[float, ...] = (0.8, 0.5)  # of acceptance, by position
    found: float = 0.7
    bent: bool = False  # steps cost what tests.laws.bent says
    front: Front = NOTHING

    @property
    def acceptance(self) -> Acceptance:
        return Acceptance(5, [self.rates] * len(self.workload), self.engine.num_speculative_tokens, self.found)

    def run(self, **options: Any) -> Records:
        return simulate(
            self.engine,
            self.workload,
            options.pop("cost", None) or (BentCost() if self.bent else roofline()),
            acceptance=self.acceptance if self.engine.speculation != "none" else None,
            drafting=DraftModel(roofline(), self.engine.num_speculative_tokens) if self.drafts else None,
            replicas=self.replicas,
            router=self.router,
            horizon_ns=self.horizon_ns,
            front=self.front,
            link=HostLink(100_000, 1e9, 10e-6),
            **options,
        )

    @property
    def drafts(self) -> bool:
        """Whether a draft model proposes."""
        return self.engine.speculation == "draft"

    def with_engine(self, **settings: Any) -> World:
        return replace(self, engine=replace(self.engine, **settings))


@st.composite
def engines(draw: st.DrawFn) -> EngineConfig:
    """Tight ones, so that every rule bites. With chunking off the budget holds a whole window, as engines demand; with
    speculation it holds a row with all its drafts."""
    window = draw(st.sampled_from((120, 300, 2048)))
    chunked = draw(st.sampled_from((True, True, True, False)))
    budget = draw(st.sampled_from((256, 256, 48, 16, 2)))
    block_size = draw(st.sampled_from((16, 4, 1)))
    tokens = draw(st.integers(60, 500))
    speculation = draw(st.sampled_from(("none", "none", "none", "ngram", "draft")))
    k = 0 if speculation == "none" else draw(st.sampled_from((1, 2, 4)))
    budget = max(budget, k + 2 if k else 1)
    policy = draw(st.sampled_from((*["fcfs"] * 6, *ORDERS)))
    waits = draw(st.sampled_from((*[0] * 7, 3)))
    engine = EngineConfig(
        num_gpu_blocks=-(-tokens // block_size) + 1,
        block_size=block_size,
        max_model_len=window,
        max_num_seqs=draw(st.sampled_from((16, 16, 4, 1))),
        max_num_batched_tokens=budget if chunked else max(budget, window + 1),
        enable_prefix_caching=draw(st.booleans()),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from((0, 0, 0, 10))),
        policy=policy,
        batching=draw(st.sampled_from((*["chunked"] * 3, *BATCHINGS))),
        # (Requests of equal rank would take each other's blocks for ever.)
        scheduler_reserve_full_isl=draw(st.booleans()) or policy == "priority",
        watermark=draw(st.sampled_from((0.0, 0.0, 0.1))),
        async_scheduling=draw(st.sampled_from((False, False, True))),
        speculation=speculation,
        num_speculative_tokens=k,
        speculation_off_above=draw(st.sampled_from((0, 0, 2))),
        capacity_scheduler_policy=draw(st.sampled_from((*["max_utilization"] * 4, *CAPACITIES)))
        if not k
        else "max_utilization",
        batch_wait_timeout_iters=waits,
        batch_wait_max_tokens_ratio=0.3 if waits else 0.0,
        kv_allocation=draw(st.sampled_from((*["paged"] * 9, "contiguous"))),
    )
    return replace(engine, **draw(memories(engine)))


@st.composite
def memories(draw: st.DrawFn, engine: EngineConfig) -> dict[str, Any]:
    """Settings by which KV goes to the host, or stays for good, for one engine in four."""
    kind = draw(st.sampled_from((*["plain"] * 12, "swap", "tier", "both", "pinned")))
    settings: dict[str, Any] = {}
    if engine.kv_allocation != "paged":
        return settings
    if kind in ("swap", "both") and engine.capacity_scheduler_policy == "max_utilization":
        settings |= {"preemption": "swap", "swap_blocks": draw(st.sampled_from((engine.usable_blocks, 1000, 3)))}
    if kind in ("tier", "both") and engine.enable_prefix_caching:
        settings["offload_blocks"] = draw(st.sampled_from((engine.usable_blocks, 1000, 2)))
    if kind == "pinned" and engine.enable_prefix_caching:
        blocks = max(1, engine.usable_blocks // draw(st.sampled_from((8, 20, 3))))
        settings["pinned_prefixes"] = (("system", blocks * engine.block_size),)
    return settings


@st.composite
def workloads(draw: st.DrawFn, room: int, loops: tuple[str, ...] = ("open", "closed", "sessions")) -> Workload:
    """Up to 32 requests with shared prefixes; `room` tokens are what an engine can hold of one of them, and a few
    are longer. The lengths come from a drawn seed."""
    n = draw(st.integers(2, 8)) * 4
    loop = draw(st.sampled_from(loops))
    pace = draw(st.sampled_from((0, 50, 700, 3_000))) * MICROSECOND
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    new = rng.integers(1, max(2, room // draw(st.sampled_from((6, 3, 20)))), n)
    output = rng.integers(1, max(2, room // draw(st.sampled_from((2, 3, 60)))), n)
    new[rng.random(n) < 0.04] *= 8
    extra = room // draw(st.sampled_from((1000, 1000, 10)))
    follows = np.full(n, -1)
    if loop == "sessions":
        goes_on = rng.random(n) < 0.5
        follows[1:] = np.where(goes_on[1:], np.arange(n - 1), -1)
    arrival = np.cumsum(rng.integers(0, 4, n) * pace)
    if loop == "closed":
        arrival[:] = -1
    arrival[follows >= 0] = -1
    prompts = _prompts(new.tolist(), output.tolist(), follows.tolist(), ("system", room // 6), rng.random(n) < 0.4)
    known = np.random.default_rng([n, room])  # what orders look at
    return Workload(
        arrival_ns=arrival.astype(np.int64),
        prompt_tokens=np.array([sum(k for _, k in p) for p in prompts], dtype=np.int64),
        output_tokens=output.astype(np.int64),
        max_tokens=output.astype(np.int64) + extra,
        priority=rng.integers(0, 3, n),
        tenant=known.integers(0, 3, n),
        tenants=("a", "b", "c"),
        predicted_tokens=np.maximum(1, (output * known.uniform(0.5, 2, n)).astype(np.int64)),
        ttft_ns=known.choice((-1, 5_000 * MICROSECOND, 60_000 * MICROSECOND), n),
        service_class=known.integers(0, 2, n),
        classes=("interactive", "batch"),
        session=np.full(n, -1, dtype=np.int64),
        follows=follows.astype(np.int64),
        think_ns=rng.integers(0, 5, n) * 500 * MICROSECOND,
        joins=_joins(follows, np.random.default_rng(n)) if loop == "sessions" else None,
        concurrency=draw(st.integers(1, 8)) if loop == "closed" else None,
        segment_offset=np.cumsum([0, *(len(p) for p in prompts)]).astype(np.int64),
        segment_keys=[key for p in prompts for key, _ in p],
        segment_tokens=np.array([k for p in prompts for _, k in p], dtype=np.int64),
    )


def _joins(follows: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Some turns wait for a second answer besides that of the turn before, as an agent does for its sub-agents."""
    pairs = [(i, int(rng.integers(0, i - 1))) for i in range(2, len(follows)) if follows[i] >= 0 and rng.random() < 0.2]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2) if pairs else None


def _prompts(
    new: list[int], output: list[int], follows: list[int], system: tuple[str, int], shares: NDArray[np.bool_]
) -> list[list[tuple[str, int]]]:
    """A text of its own behind a system prompt, or behind the turns before it."""
    prompts: list[list[tuple[str, int]]] = []
    for i, tokens in enumerate(new):
        if follows[i] >= 0:
            before = [*prompts[follows[i]], (f"out:{follows[i]}", output[follows[i]])]
        else:
            before = [system] if shares[i] else []
        prompts.append([*before, (f"p{i}", tokens)])
    return prompts


def room_of(engine: EngineConfig) -> int:
    """Tokens of the longest request that an empty engine holds."""
    return max(2, min(engine.blocks_for_anyone * engine.block_size - engine.draft_room, engine.max_model_len))


@st.composite
def worlds(
    draw: st.DrawFn,
    loops: tuple[str, ...] = ("open", "closed", "sessions"),
    most_replicas: int = 3,
    horizons: bool = False,
    gated: bool = False,
) -> World:
    """gated: something may stand before the replicas (`tests.laws.fronts`)."""
    engine = draw(engines())
    world = World(
        engine=engine,
        workload=draw(workloads(room_of(engine), loops)),
        replicas=min(most_replicas, draw(st.sampled_from((1, 1, 2, 3)))),
        router=draw(st.sampled_from(tuple(ROUTERS))),
        horizon_ns=draw(st.sampled_from((None, None, 6_000_000, 60_000_000))) if horizons else None,
    )
    if not gated:
        return world
    front = draw(fronts(len(world.workload)))
    tries = 1 if front.patience is None else 1 + front.patience.retries
    return replace(world, front=front, workload=replace(world.workload, tries=tries))


def content(records: Records) -> dict[str, list[Any]]:
    """Every value of a run's records, comparable."""
    found = {f"requests.{name}": column.tolist() for name, column in records.requests.items()}
    found |= {f"steps.{name}": column.tolist() for name, column in records.steps.items()}
    found |= {
        name: getattr(records, name).tolist()
        for name in ("visible", "preempted", "aborted", "drafts", "chunks", "tenant", "session")
    }
    return found
