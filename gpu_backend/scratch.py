"""Plans for measuring: a step of a given shape whose requests are nobody's, on any blocks of the pool."""

from __future__ import annotations

import numpy as np

from scenarios.errors import InputError
from serving.config import EngineConfig
from serving.plan import Scheduled, StepPlan, StepShape
from serving.request import Request

SCRATCH = -1
"""Request indices from here down belong to scratch plans."""


def scratch_plan(shape: StepShape, config: EngineConfig, draws: np.random.Generator) -> StepPlan:
    """A plan of that shape. Its blocks are random, as a pool that has served for a while gives them; they are reused only
    where there are too few.

    Raises:
        InputError: the shape contradicts itself or leaves the window or the KV memory of the engine.
    """
    rows: list[tuple[int, int, bool, int]] = [(1, context, True, 0) for context in spread_contexts(shape)]
    left = shape.draft_tokens  # the first rows of `prefill` verify them
    verified = 0
    while left > 0 and verified < len(shape.prefill):
        left -= shape.prefill[verified][0] - 1
        verified += 1
    ends = shape.sampled - shape.decode_sequences - verified - shape.draft_tokens
    if left or not 0 <= ends <= len(shape.prefill) - verified:
        raise InputError(
            f"shape: {shape.sampled} rows sample, {shape.draft_tokens} of them drafts, but {len(rows)} decodes and "
            f"{len(shape.prefill)} chunks run"
        )
    for i, (query, context) in enumerate(shape.prefill):
        rows.append((query, context, i < verified + ends, query - 1 if i < verified else 0))
    if not rows:
        raise InputError("shape: no tokens to compute")
    scheduled, needs = [], []
    for i, (tokens, context, samples, drafts) in enumerate(rows):
        end = context + tokens
        if tokens < 1 or context < 0 or end > config.max_model_len:
            raise InputError(f"shape: {tokens} tokens after {context} do not fit a window of {config.max_model_len}")
        needed = -(-end // config.block_size)
        if needed > config.usable_blocks:
            raise InputError(f"shape: {end} tokens need {needed} KV blocks, {config.usable_blocks} exist")
        request = Request(SCRATCH - i, ((("scratch", i), end),), 1)
        needs.append(needed)
        scheduled.append(Scheduled(request, tokens, context, samples, drafts))
    ids = np.resize(draws.permutation(config.usable_blocks) + 1, sum(needs))
    for row, need, last in zip(scheduled, needs, np.cumsum(needs).tolist(), strict=True):
        row.request.blocks = ids[last - need : last].tolist()
    return StepPlan(0, scheduled, shape)


def spread_contexts(shape: StepShape) -> list[int]:
    """Contexts of the decodes of a shape: one is the longest, the others share the rest evenly.

    Raises:
        InputError: no such contexts exist.
    """
    n, total, longest = shape.decode_sequences, shape.decode_context, shape.decode_max_context
    if n == 0:
        if total or longest:
            raise InputError("shape: contexts of decodes, but no decodes")
        return []
    rest = total - longest
    if not longest >= 0 or not 0 <= rest <= longest * (n - 1):
        raise InputError(f"shape: {n} contexts of at most {longest} cannot sum to {total}")
    if n == 1:
        return [longest]
    share, extra = divmod(rest, n - 1)
    return [longest] + [share + 1] * extra + [share] * (n - 1 - extra)
