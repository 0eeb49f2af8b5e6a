"""Batching strategies: which of the scheduler's two passes make up a step.

A strategy is called once a step with the scheduler. It may call `continue_running()` (one more chunk or token for
requests that already hold blocks), `bring_back()` (those that are swapped out) and `admit_waiting()` (new ones, while budget,
sequences and blocks allow, once nobody is swapped out).
To add one: write a class here and name it in `BATCHINGS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from serving.scheduler import Scheduler


class Batching(Protocol):
    def __call__(self, scheduler: Scheduler) -> None: ...


class Chunked:
    """Mixed steps: decodes and prompt chunks share the budget (vLLM V1, Sarathi). Nobody is admitted in a step that had
    to preempt.

    With `batch_wait_timeout_iters` waiting prompts stay back beside decodes for so many steps, or until they and the decodes are
    `batch_wait_max_tokens_ratio` of the budget (TensorRT-LLM).
    """

    def __init__(self) -> None:
        self.waited = 0  # steps since prompts were last let in

    def __call__(self, scheduler: Scheduler) -> None:
        scheduler.continue_running()
        if not scheduler.preempted:
            scheduler.bring_back()
            if not self._stay_back(scheduler):
                scheduler.admit_waiting()

    def _stay_back(self, scheduler: Scheduler) -> bool:
        config = scheduler.config
        if not config.batch_wait_timeout_iters or not scheduler.waiting or not scheduler.scheduled:
            return False
        prompts = scheduler.prompts_in_sight()
        if not prompts:
            return False
        enough = config.batch_wait_max_tokens_ratio * config.max_num_batched_tokens
        decodes = config.max_num_batched_tokens - scheduler.budget
        self.waited = (
            self.waited + 1 if self.waited < config.batch_wait_timeout_iters and decodes + prompts < enough else 0
        )
        return self.waited > 0


class DecodeFirst:
    """Mixed steps in which every decode has its token before any prompt has a chunk (Sarathi-Serve's stall-free batches): chunks get
    what is left of the budget and of the blocks. With `chunked` a long prompt that was admitted before a decode takes the
    blocks that it grows into from it. Nobody is admitted while a prompt lacks blocks."""

    def __call__(self, scheduler: Scheduler) -> None:
        scheduler.continue_decodes()
        if scheduler.continue_prefills() and not scheduler.preempted:
            scheduler.bring_back()
            scheduler.admit_waiting()


class PrefillFirst:
    """Continuous batching with prompts alone (Orca, vLLM V0): while any prompt fits it runs, else every decode does."""

    def __call__(self, scheduler: Scheduler) -> None:
        if any(request.prefilling for request in scheduler.running):
            scheduler.continue_running(prefills_only=True)
        if not scheduler.preempted:
            scheduler.admit_waiting()
        if not scheduler.scheduled:
            scheduler.continue_running()
            if not scheduler.preempted:
                scheduler.bring_back()


class Static:
    """One batch at a time: filled when the engine is empty, closed by its first decode step, run until the slowest ends."""

    def __init__(self) -> None:
        self.filling = True

    def __call__(self, scheduler: Scheduler) -> None:
        self.filling = self.filling or not scheduler.running
        if self.filling:
            scheduler.continue_running(prefills_only=True)
            if not scheduler.preempted:
                scheduler.bring_back()
                scheduler.admit_waiting()
        if not scheduler.scheduled:
            self.filling = False
            scheduler.continue_running()


BATCHINGS: dict[str, Callable[[], Batching]] = {
    "chunked": Chunked,
    "decode_first": DecodeFirst,
    "prefill_first": PrefillFirst,
    "static": Static,
}
