"""Memory policies: who is admitted when KV memory is short, and who gives way when it runs out.

A policy is asked by the scheduler. To add one: write a class here and name it in `CAPACITIES`; names are those of the engine
that it is from. They look at what clients declared (`max_tokens`) and at what has come out, never at true answer lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serving.config import EngineConfig
from serving.policies import Order
from serving.request import Request
from serving.waiting_queue import WaitingQueue


class MaxUtilization:
    """vLLM: admit what memory holds now. When it runs out the worst of the queue order is preempted; it returns first."""

    def __init__(self, config: EngineConfig, order: Order) -> None:
        self.config = config
        self.order = order

    def room_for(self, request: Request, takes: int) -> int:
        """Tokens that must have room for `request` to be admitted, which will take blocks for `takes` of them."""
        if not self.config.scheduler_reserve_full_isl:
            return takes
        return max(takes, min(request.num_tokens, self.config.max_model_len))

    def promised(self, running: Sequence[Request]) -> int:
        """Free blocks that are kept for those that run."""
        return 0

    def admitted(self, request: Request) -> None:
        """`request` has just been admitted."""

    def victim(self, running: Sequence[Request]) -> Request:
        """Who loses its blocks, of those that run in admission order."""
        return self.order.victim(running)

    def put_back(self, queue: WaitingQueue, victim: Request) -> None:
        queue.put_back(victim)

    def decided(self, running: Sequence[Request], decodes_only: bool, preempted: int) -> None:
        """A step has been decided."""


class GuaranteedNoEvict(MaxUtilization):
    """TensorRT-LLM's default: a request is admitted only with room for its longest answer beside those of all that run, so
    that none is ever preempted."""

    def room_for(self, request: Request, takes: int) -> int:
        return max(takes, self._most(request))

    def promised(self, running: Sequence[Request]) -> int:
        size = self.config.block_size
        return sum(max(0, -(-self._most(request) // size) - len(request.blocks)) for request in running)

    def _most(self, request: Request) -> int:
        """Tokens whose KV it will ever hold: the last one's is not needed."""
        return min(request.prompt_tokens + request.max_tokens, self.config.max_model_len) - 1


class NewTokenRatio(MaxUtilization):
    """SGLang: a request is admitted with room for its own longest answer and a share of what those that run may still say. The
    share shrinks from decode step to decode step; where it was too small, the requests with the shortest answers so far are
    retracted to the end of the queue and the share is estimated anew.

    The figures are that engine's (0.5): a share of 0.7 x `schedule_conservativeness` that shrinks to 14 % of itself in 600 steps,
    20 tokens of grace after a retraction, answers looked ahead for 4,096 tokens at most.
    """

    FIRST, LAST, STEPS, GRACE, HORIZON = 0.7, 0.14, 600, 20, 4096

    def __init__(self, config: EngineConfig, order: Order) -> None:
        super().__init__(config, order)
        self.first = min(1.0, self.FIRST * config.schedule_conservativeness)
        self.least = self.first * self.LAST
        self.ratio = self.first
        self.fresh: set[Request] = set()  # admitted in the step that is being decided

    def room_for(self, request: Request, takes: int) -> int:
        return max(takes, min(request.num_tokens + self._to_come(request), self.config.max_model_len) - 1)

    def promised(self, running: Sequence[Request]) -> int:
        """The rest of prompts that are partly computed, and of answers: a share, or all of it if just admitted."""
        size, share, blocks, tokens = self.config.block_size, self.ratio, 0, 0.0
        for request in running:
            blocks += max(0, -(-request.num_tokens // size) - len(request.blocks))
            tokens += self._to_come(request) * (1.0 if request in self.fresh else share)
        return blocks + -(-int(tokens) // size)

    def admitted(self, request: Request) -> None:
        self.fresh.add(request)

    def victim(self, running: Sequence[Request]) -> Request:
        return min(reversed(running), key=lambda request: (request.num_outputs, -request.prompt_tokens))

    def put_back(self, queue: WaitingQueue, victim: Request) -> None:
        queue.add(victim)

    def decided(self, running: Sequence[Request], decodes_only: bool, preempted: int) -> None:
        self.fresh.clear()
        if preempted:
            come = sum(request.num_outputs for request in running) + self.GRACE * len(running)
            self.ratio = min(1.0, come / (sum(request.max_tokens for request in running) + 1))
        elif not running:
            self.ratio = self.first
        elif decodes_only:
            self.ratio = max(self.least, self.ratio - (self.first - self.least) / self.STEPS)

    def _to_come(self, request: Request) -> int:
        return min(max(request.max_tokens - request.num_outputs, 0), self.HORIZON)


CAPACITIES: dict[str, Callable[[EngineConfig, Order], MaxUtilization]] = {
    "max_utilization": MaxUtilization,
    "guaranteed_no_evict": GuaranteedNoEvict,
    "new_token_ratio": NewTokenRatio,
}
