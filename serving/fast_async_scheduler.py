"""The fast scheduler of an engine that schedules asynchronously: step s is decided while step s - 1 runs.

The calls come as `decide` of s, `update` for s - 1, `decide` of s + 1. What that changes:

- A decode computes a token whose text is not known yet, so what can be found in the cache ends one token earlier.
- An answer that ends by what the client declared, or by the window, is foreseen: it has no row in the step after its last, but
  keeps its blocks and its place among the running until `update` of its last step. One that ends otherwise is not: its row
  in the step after the last is wasted, and takes blocks like any other.
- Whoever is preempted while a token of his is in flight gets it all the same; he ends by it if it is his last.
"""

from __future__ import annotations

from heapq import heappop

from serving.config import EngineConfig
from serving.fast_scheduler import FastScheduler
from serving.plan import StepShape
from serving.request import Request, Status

_PREEMPTED, _FINISHED = Status.PREEMPTED, Status.FINISHED


class FastAsyncScheduler(FastScheduler):
    """Decides as `FastScheduler`, one step ahead.

    ending: decodes whose last token comes out of the step before the one being decided.
    """

    asynchronous = True

    def decide(self, now_ns: int) -> StepShape | None:
        """Decides the next step, which starts at `now_ns`."""
        self.foresee()
        return super().decide(now_ns)

    def admit_alone(self, now_ns: int) -> Request | None:
        return (
            None if self.ending else super().admit_alone(now_ns)
        )  # those hold blocks and seats that it does not count

    def foresee(self) -> None:
        """Before a step is decided: those who get their last token from the step before it are ending, and compute nothing more
        if that can be foreseen."""
        finishes, step = self.finishes, self.step
        while finishes and finishes[0][0] < step:
            request = heappop(finishes)[2]
            self.ending.append(request)
            if request.stop_after < min(request.max_tokens, self.max_model_len - request.prompt_tokens):
                self.wasting.append(request)
            else:
                if self.cache is not None:
                    self.cache.publish(request, request.base + request.last_step)
                self._forget_decode(request)

    def update(self, plan: object = None, accepted: object = None, proposed: object = None) -> list[Request]:
        """The step before the one decided last has run; returns those whose answer it completed."""
        finished = self.ending
        if finished:
            self.ending = []
        for request in finished:
            if request.status is _PREEMPTED:
                self.waiting.remove(request)
            else:
                del self.running[request]
                self._let_go(request, request.prompt_tokens + request.stop_after - 1)
            request.num_outputs = request.stop_after
            request.status = _FINISHED
        if self.cache is not None:
            for request in finished:
                self.cache.close(request)
        return finished

    def abort(self, request: Request) -> bool:
        aborted = super().abort(request)
        if request in self.ending:
            self.ending.remove(request)
        return aborted

    def find_base_max(self) -> int:
        bases = [request.base for _, _, request in self.finishes]
        bases += [request.base for request in self.wasting]
        self.base_max = found = max(bases, default=0)
        return found

    def decoding(self) -> list[Request]:
        done = set(self.ending).difference(self.wasting)
        return [request for request in super().decoding() if request not in done]

    def outputs_of(self, request: Request, in_flight: bool) -> int:
        """Answer tokens that a request has now; `in_flight`: those of the last two steps decided are not out yet."""
        if request in self.preempted:
            return request.num_outputs - request.placeholders * in_flight
        if request in self.running and request is not self.partial:
            return max(request.num_outputs, request.base + self.step + 1 - request.prompt_tokens - 2 * in_flight)
        return request.num_outputs

    def _let_go(self, request: Request, known: int) -> None:
        """One who is ending gives back the blocks of what he has computed, `known` tokens of which have a known text."""
        computed = request.prompt_tokens + request.stop_after - 1
        if self.wasting and request in self.wasting:
            self.wasting.remove(request)
            computed = request.base + self.step
            self._forget_decode(request)
        self._release(request, computed, known)

    def _remove(self, request: Request) -> None:
        if request in self.ending:
            del self.running[request]
            self._let_go(request, request.prompt_tokens + request.stop_after - 2)
        else:
            super()._remove(request)

    def _known(self, request: Request) -> int:
        return request.base + self.step - 1

    def _preempt(self, victim: Request) -> None:
        victim.placeholders = int(victim is not self.partial)
        super()._preempt(victim)


def fast_scheduler(config: EngineConfig) -> FastScheduler:
    """The fast scheduler for settings that it supports."""
    return FastAsyncScheduler(config) if config.async_scheduling else FastScheduler(config)
