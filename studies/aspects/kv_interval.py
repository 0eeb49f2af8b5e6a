"""A KV capacity that no log states is an interval: the same scenario at both of its ends."""

from __future__ import annotations

from typing import Any

from scenarios.errors import InputError
from scenarios.schema import Scenario


def ends(scenario: Scenario) -> tuple[Scenario, Scenario] | None:
    """The scenario with the least and with the most KV blocks that it may have; None where they are known.

    Raises:
        InputError: at the lower end no block is left.
    """
    capacity, config = scenario.engine.kv_capacity(scenario.model, scenario.hardware), scenario.engine_config()
    if capacity.low == capacity.high:
        return None
    if capacity.low < config.block_size:
        raise InputError(
            f"{scenario.name}: {scenario.model.name} may leave no KV memory on {scenario.hardware.name} ({capacity.basis}); "
            "state engine.num_gpu_blocks"
        )
    low, high = (with_blocks(scenario, tokens // config.block_size + 1) for tokens in (capacity.low, capacity.high))
    return low, high


def with_blocks(scenario: Scenario, blocks: int) -> Scenario:
    """The same scenario with so many KV blocks. Where they cut its window, they do so here."""
    config = scenario.engine_config()
    window = min(
        scenario.engine.max_model_len or scenario.model.max_position_embeddings, (blocks - 1) * config.block_size
    )
    stated: dict[str, Any] = {"num_gpu_blocks": blocks, "max_model_len": window}
    engine = scenario.engine.model_copy(update=stated)
    return scenario.model_copy(update={"engine": engine})
