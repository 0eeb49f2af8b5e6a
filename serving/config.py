"""Engine settings, by vLLM's field names, as the scheduler reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything a scheduler needs to know about one engine replica.

    Args:
        num_gpu_blocks: KV blocks as engines report them, *including* the one null block.
        block_size: tokens of one KV block.
        max_model_len: window: prompt plus output tokens of one request.
        max_num_seqs: most requests that run at once.
        max_num_batched_tokens: token budget of one step.
        enable_prefix_caching: whole blocks with equal text are shared and kept after use (LRU).
        enable_chunked_prefill: a prompt may be cut to what is left of the budget.
        long_prefill_token_threshold: longest chunk of one request a step, 0 for no limit.
        policy: queue order, a name of `serving.policies.ORDERS`.
        batching: a name of `serving.batching.BATCHINGS`.
        scheduler_reserve_full_isl: admit only with room for the whole current sequence.
        watermark: share of `num_gpu_blocks` that admissions leave free while something runs.
    """

    num_gpu_blocks: int
    block_size: int = 16
    max_model_len: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    policy: str = "fcfs"
    batching: str = "chunked"
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0

    @property
    def usable_blocks(self) -> int:
        """Blocks that can hold tokens: all but the null block."""
        return self.num_gpu_blocks - 1

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_gpu_blocks)

    def why_it_can_never_run(self, prompt_tokens: int, max_tokens: int) -> str | None:
        """The reason why no empty engine could hold such a request, or None if it fits.

        The true output length is never consulted: what counts is what the client declared.
        """
        if prompt_tokens < 1:
            return "the prompt has no tokens"
        if prompt_tokens >= self.max_model_len:
            return f"prompt of {prompt_tokens} tokens >= max_model_len {self.max_model_len}"
        tokens = min(prompt_tokens + max_tokens, self.max_model_len) - 1
        blocks = -(-tokens // self.block_size)
        if blocks > self.usable_blocks:
            return f"{tokens} tokens need {blocks} KV blocks of {self.block_size}, {self.usable_blocks} are usable"
        if not self.enable_chunked_prefill and tokens > self.max_num_batched_tokens:
            # In one piece, also when it comes back after a preemption with most of its answer.
            return (
                f"{tokens} tokens > max_num_batched_tokens {self.max_num_batched_tokens}, and prompts are not chunked"
            )
        return None

    def fits(self, prompt_tokens: NDArray[np.int64], max_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """`why_it_can_never_run(...) is None` for arrays of requests `(n,)`."""
        tokens = np.minimum(prompt_tokens + max_tokens, self.max_model_len) - 1
        fits = (prompt_tokens >= 1) & (prompt_tokens < self.max_model_len)
        fits &= -(-tokens // self.block_size) <= self.usable_blocks
        if not self.enable_chunked_prefill:
            fits &= tokens <= self.max_num_batched_tokens
        return fits
