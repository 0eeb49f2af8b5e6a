"""Engine settings, by vLLM's field names, as the scheduler reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.speculation import METHODS


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
        async_scheduling: a step is decided while the one before it still runs, so its tokens are not known yet.
        speculation: who proposes drafts, a name of `serving.speculation.METHODS`.
        num_speculative_tokens: drafts proposed at a time (k).
        speculation_off_above: no drafts are asked for while more requests than that run, 0 for no such limit.
        tensor_parallel_size: devices of the replica. Decisions are the same for any; it is here for memory and money.
        capacity_scheduler_policy: who is admitted when memory is short, a name of `serving.capacity.CAPACITIES`.
        schedule_conservativeness: factor on the answers that `new_token_ratio` expects.
        batch_wait_timeout_iters: steps that waiting prompts stay back beside decodes, so that more of them run together; 0: none.
        batch_wait_max_tokens_ratio: share of the budget from which on they stay back no longer.
        kv_allocation: `paged`: blocks are taken one by one as a text grows; `contiguous`: consecutive ones for the longest text that
            it may become (`serving.contiguous_pool`).
        preemption: `recompute` (a victim's KV is dropped) or `swap` (copied to the host and back; recomputed where the host has
            no room).
        swap_blocks: KV blocks that the host holds of swapped-out requests.
        offload_blocks: KV blocks of the prefix cache's second tier in the host's memory, 0 for none.
        pinned_prefixes: `(content key, tokens)`: whole blocks of these texts at the start of a prompt are never evicted.
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
    async_scheduling: bool = False
    speculation: str = "none"
    num_speculative_tokens: int = 0
    speculation_off_above: int = 0
    tensor_parallel_size: int = 1
    capacity_scheduler_policy: str = "max_utilization"
    schedule_conservativeness: float = 1.0
    batch_wait_timeout_iters: int = 0
    batch_wait_max_tokens_ratio: float = 0.0
    kv_allocation: str = "paged"
    preemption: str = "recompute"
    swap_blocks: int = 0
    offload_blocks: int = 0
    pinned_prefixes: tuple[tuple[str, int], ...] = ()

    @property
    def usable_blocks(self) -> int:
        """Blocks that can hold tokens: all but the null block."""
        return self.num_gpu_blocks - 1

    @property
    def pinned_blocks(self) -> int:
        """Most blocks that pinned prefixes keep from everybody else."""
        return sum(tokens // self.block_size for _, tokens in self.pinned_prefixes)

    @property
    def blocks_for_anyone(self) -> int:
        """Blocks that a single request can have beside all pinned ones."""
        return self.usable_blocks - self.pinned_blocks

    @property
    def host_blocks(self) -> int:
        """KV blocks in the host's memory."""
        return self.swap_blocks + self.offload_blocks

    @property
    def plain_memory(self) -> bool:
        """Whether KV is in pages, on the device alone, and any cached block may be evicted."""
        away = self.preemption != "recompute" or self.offload_blocks
        return self.kv_allocation == "paged" and not away and not self.pinned_prefixes

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def draft_room(self) -> int:
        """Tokens beyond its own length that a request may take blocks for: drafts to be verified, those of a step in flight, and
        those that a draft model writes ahead."""
        steps = 1 + self.async_scheduling + METHODS[self.speculation].lookahead
        return 0 if self.speculation == "none" else steps * self.num_speculative_tokens

    @property
    def memory_never_binds(self) -> bool:
        """Whether as many requests as may run fit with the longest answers there are: then every memory policy is the same."""
        return self.max_num_seqs * -(-self.max_model_len // self.block_size) <= self.blocks_for_anyone

    @property
    def admits_what_fits(self) -> bool:
        """Whether admission asks for nothing but blocks for the request itself, as soon as it can have them."""
        policy = self.capacity_scheduler_policy
        return not self.batch_wait_timeout_iters and (policy == "max_utilization" or self.memory_never_binds)

    @property
    def largest_chunk(self) -> int:
        """Tokens of one request that a step can compute."""
        return self.max_num_batched_tokens - METHODS[self.speculation].input_slots

    def why_it_can_never_run(self, prompt_tokens: int, max_tokens: int) -> str | None:
        """The reason why no empty engine could hold such a request, or None if it fits.

        The true output length is never consulted: what counts is what the client declared.
        """
        if prompt_tokens < 1:
            return "the prompt has no tokens"
        if prompt_tokens >= self.max_model_len:
            return f"prompt of {prompt_tokens} tokens >= max_model_len {self.max_model_len}"
        tokens = min(prompt_tokens + max_tokens, self.max_model_len) - 1
        drafts = min(self.draft_room, self.max_model_len - tokens)
        blocks = -(-(tokens + drafts) // self.block_size)
        if blocks > self.blocks_for_anyone:
            held = f"{tokens} tokens and {drafts} drafts" if drafts else f"{tokens} tokens"
            pins = f" beside {self.pinned_blocks} pinned ones" if self.pinned_blocks else ""
            return f"{held} need {blocks} KV blocks of {self.block_size}, {self.blocks_for_anyone} are usable{pins}"
        if self.capacity_scheduler_policy == "guaranteed_no_evict":
            tokens = prompt_tokens
        if not self.enable_chunked_prefill and tokens > self.largest_chunk:
            # In one piece, also when it comes back after a preemption with most of its answer.
            limit = f"max_num_batched_tokens {self.max_num_batched_tokens}"
            slots = self.max_num_batched_tokens - self.largest_chunk
            taken = f" less {slots} for the draft model" if slots else ""
            return f"{tokens} tokens > {limit}{taken}, and prompts are not chunked"
        return None

    def fits(self, prompt_tokens: NDArray[np.int64], max_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """`why_it_can_never_run(...) is None` for arrays of requests `(n,)`."""
        tokens = np.minimum(prompt_tokens + max_tokens, self.max_model_len) - 1
        fits = (prompt_tokens >= 1) & (prompt_tokens < self.max_model_len)
        held = np.minimum(tokens + self.draft_room, self.max_model_len)
        fits &= -(-held // self.block_size) <= self.blocks_for_anyone
        if not self.enable_chunked_prefill:
            never_back = self.capacity_scheduler_policy == "guaranteed_no_evict"
            fits &= (prompt_tokens if never_back else tokens) <= self.largest_chunk
        return fits
