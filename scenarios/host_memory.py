"""KV in the host's memory, and prefixes that stay: what an engine section may say of them, and what it comes to in blocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from scenarios.errors import InputError, misplaced
from scenarios.hardware import GIB, HardwareSpec
from scenarios.models import ModelSpec

if TYPE_CHECKING:
    from scenarios.engine import Engine
    from scenarios.schema import Scenario
    from scenarios.workload import Workload

SWAP_SPACE = 4.0  # GiB a device, vLLM's default


class HostBlocks(NamedTuple):
    """KV blocks in the host's memory: of swapped-out requests, and of the prefix cache's second tier."""

    swap: int
    offload: int


def check_together(engine: Engine) -> None:
    """Refuses settings that contradict each other.

    Raises:
        PydanticCustomError: names the field of the engine section.
    """
    swaps = engine.preemption == "swap"
    if engine.swap_space is not None and not swaps:
        raise misplaced(f"found with preemption {engine.preemption}; it is for preemption: swap", "swap_space")
    policy = engine.capacity_scheduler_policy
    if swaps and policy != "max_utilization":
        why = "never preempts" if policy == "guaranteed_no_evict" else "retracts requests to recompute them"
        raise misplaced(f"found swap, but capacity_scheduler_policy {policy} {why}; write recompute", "preemption")
    for field in ("kv_offloading_size", "pinned_prefixes"):
        if getattr(engine, field) and not engine.enable_prefix_caching:
            raise misplaced("found with enable_prefix_caching false; it is a part of the prefix cache", field)


def host_blocks(engine: Engine, model: ModelSpec, hardware: HardwareSpec, block_size: int, window: int) -> HostBlocks:
    """What an engine's host memory holds.

    Raises:
        PydanticCustomError: names the field: no link to a host, or too little memory for one sequence.
    """
    if not engine.uses_host_memory:
        return HostBlocks(0, 0)
    field = "preemption" if engine.preemption == "swap" else "kv_offloading_size"
    if hardware.host_bandwidth is None:
        raise misplaced(
            f"needs hardware.host_bandwidth, which the sheet of {hardware.name} does not state", "engine", field
        )
    size = block_bytes(engine, model, block_size)
    swap = offload = 0
    if engine.preemption == "swap":
        space = SWAP_SPACE if engine.swap_space is None else engine.swap_space
        swap, longest = int(space * GIB // size), -(-window // block_size)
        if swap < longest:
            raise misplaced(
                f"{space:g} GiB hold {swap:,} KV blocks of {block_size} tokens, but one sequence of max_model_len {window} has "
                f"{longest:,}; give at least {_up(longest * size / GIB):g} GiB or lower max_model_len",
                "engine", "swap_space",
            )  # fmt: skip
    if engine.kv_offloading_size is not None:
        # Of all devices together, as in vLLM; swap_space is of one.
        offload = int(engine.kv_offloading_size * GIB // (size * engine.tensor_parallel_size))
        if not offload:
            raise misplaced(
                f"found {engine.kv_offloading_size:g} GiB, but one KV block of {block_size} tokens has "
                f"{size * engine.tensor_parallel_size / GIB:.2g} GiB",
                "engine", "kv_offloading_size",
            )  # fmt: skip
    return HostBlocks(swap, offload)


def block_bytes(engine: Engine, model: ModelSpec, block_size: int) -> float:
    """Bytes of one KV block on one device, a draft model's part included."""
    draft = None if engine.speculation is None else engine.speculation.draft_model
    models = [model] if draft is None else [model, draft]
    tp = engine.tensor_parallel_size
    return block_size * sum(m.kv_bytes_per_token(engine.kv_dtype, tp) for m in models)


def pinned(engine: Engine, block_size: int, usable: int) -> tuple[tuple[str, int], ...]:
    """Pinned texts and their tokens, in whole blocks.

    Raises:
        PydanticCustomError: names the text that has no whole block, or the field where nothing would be left.
    """
    pins = tuple((key, tokens // block_size * block_size) for key, tokens in engine.pinned_prefixes.items())
    for key, tokens in pins:
        if not tokens:
            raise misplaced(
                f"found {engine.pinned_prefixes[key]} tokens, but whole blocks are pinned, and one has {block_size}",
                "engine", "pinned_prefixes", key,
            )  # fmt: skip
    blocks = sum(tokens for _, tokens in pins) // block_size
    if blocks >= usable:
        raise misplaced(
            f"{blocks:,} KV blocks of {block_size} tokens would be pinned, but only {usable:,} are usable",
            "engine", "pinned_prefixes",
        )  # fmt: skip
    return pins


def check_pins(scenario: Scenario, workload: Workload) -> None:
    """Refuses pinned texts that no prompt begins with: nothing would ever be pinned.

    Raises:
        InputError: names the text, and those that most prompts begin with.
    """
    pins = {key for part in scenario.of_pools() for key in part.engine.pinned_prefixes}
    if not pins:
        return
    offset = workload.segment_offset
    opening = Counter(workload.segment_keys[i] for i in (() if offset is None else offset[:-1].tolist()))
    for key in sorted(pins):
        if key not in opening:
            shared = [str(name) for name, times in opening.most_common(3) if times > 1]
            known = (
                f"those that most prompts begin with: {', '.join(shared)}" if shared else "no two prompts begin alike"
            )
            raise InputError(f"engine.pinned_prefixes: found {key!r}, but no prompt begins with that text; {known}")


def _up(gib: float) -> float:
    """A little more than so many GiB, with two digits behind the point."""
    return -(-int(gib * 1000) // 10) / 100 + 0.01
