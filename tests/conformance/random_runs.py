"""Small random engines and request lists that make every rule bite: tight memory, shared text, ties, aborts, drafts."""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import dataclass, replace

from serving.config import EngineConfig
from serving.plan import StepPlan
from serving.request import Request, Segment


@dataclass(frozen=True)
class Client:
    """One request: what it sends, when (step), and when it gives up."""

    arrival_step: int
    prompt: tuple[Segment, ...]
    output_tokens: int
    max_tokens: int
    priority: int
    arrival_order: int
    abort_step: int | None = None
    abort_before_update: bool = False


@dataclass(frozen=True)
class RandomRun:
    """One engine and its clients; `requests()` makes fresh engine objects of them."""

    config: EngineConfig
    clients: tuple[Client, ...]
    seed: int = 0

    def requests(self) -> list[Request]:
        return [
            Request(
                i,
                c.prompt,
                c.output_tokens,
                c.max_tokens,
                arrival_order=c.arrival_order,
                output_key=f"out:{i}",
                priority=c.priority,
            )
            for i, c in enumerate(self.clients)
        ]

    def without(self, i: int) -> RandomRun:
        """The same run with one client fewer, for making a failure small. Later quotations keep their text."""
        return replace(self, clients=self.clients[:i] + self.clients[i + 1 :])


def random_run(seed: int, *, common: bool = False) -> RandomRun:
    """The run of a seed; `common`: with settings as most engines have them, which the fast path must take too."""
    rng = random.Random(seed)
    block_size = rng.choice((1, 2, 3, 4, 4, 8, 16, 16))
    usable = rng.randint(4, 24) if rng.random() < 0.75 else rng.randint(24, 200)
    config = EngineConfig(
        num_gpu_blocks=usable + 1,
        block_size=block_size,
        max_model_len=rng.choice((40, 120, 2048)),
        max_num_seqs=rng.choice((1, 2, 3, 4, 8, 16)),
        max_num_batched_tokens=rng.choice((1, 3, 5, 8, 16, 32, 64, 64, 256)),
        enable_prefix_caching=rng.random() < 0.65,
        enable_chunked_prefill=rng.random() < 0.8,
        long_prefill_token_threshold=0 if common else rng.choice((0, 0, 0, 1, 3, 7, 20)),
        policy="fcfs" if common or rng.random() < 0.6 else "priority",
        scheduler_reserve_full_isl=rng.random() < 0.5,
        watermark=rng.choice((0.0, 0.0, 0.0, 0.01, 0.1, 0.3)),
    )
    if common:
        config = replace(config, max_num_batched_tokens=max(config.max_num_batched_tokens, config.max_num_seqs))
    return RandomRun(config, _clients(rng, config), seed)


def ahead_run(seed: int) -> RandomRun:
    """A run of an engine that works ahead: with drafts, or decided before the last step's tokens are known, or both."""
    rng = random.Random(f"ahead {seed}")
    run = random_run(seed)
    speculation = rng.choice(("none", "ngram", "ngram", "draft"))
    config = replace(
        run.config,
        async_scheduling=speculation == "none" or rng.random() < 0.5,
        speculation=speculation,
        num_speculative_tokens=0 if speculation == "none" else rng.choice((1, 2, 3, 5)),
        speculation_off_above=rng.choice((0, 0, 0, 1, 3)),
        # Requests of equal rank would take each other's blocks for ever: chunks are small, and drafts take blocks too.
        scheduler_reserve_full_isl=run.config.scheduler_reserve_full_isl or run.config.policy == "priority",
    )
    # An admission that is padded must fit in some step.
    config = replace(
        config, max_num_batched_tokens=max(config.max_num_batched_tokens, 2 + config.num_speculative_tokens)
    )
    fitting = [c for c in run.clients if config.why_it_can_never_run(sum(n for _, n in c.prompt), c.max_tokens) is None]
    return RandomRun(config, tuple(fitting), seed)


class Drafter:
    """Which drafts are found and which of them are right: by chance, but the same for whoever asks."""

    def __init__(self, run: RandomRun) -> None:
        self.run = run
        self.outputs = [0] * len(run.clients)

    def results(self, plan: StepPlan, alive: Set[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Drafts accepted, of the rows of a plan, and proposed for the next one."""
        accepted, proposed = {}, {}
        for row in plan.scheduled:
            i = row.request.index
            if row.samples and i in alive:
                accepted[i] = 0 if row.padded else min(self._draw("right", i), row.drafts)
                self.outputs[i] += accepted[i] + 1
                proposed[i] = self._draw("found", i)
        return accepted, proposed

    def _draw(self, what: str, i: int) -> int:
        rng = random.Random(f"{what} {self.run.seed} {i} {self.outputs[i]}")
        return rng.choice((0, 1, self.run.config.num_speculative_tokens, rng.randint(0, 6)))


def _clients(rng: random.Random, config: EngineConfig) -> tuple[Client, ...]:
    room = min(config.usable_blocks * config.block_size, config.max_model_len - 1)
    clients: list[Client] = []
    systems: list[Segment] = [(f"sys{k}", rng.randint(1, max(1, room // 2))) for k in range(rng.randint(1, 3))]
    step = 0
    pace = rng.choice((0.0, 0.3, 1.0, 4.0))
    equal_arrivals = rng.random() < 0.3
    for i in range(rng.randint(2, 20)):
        step += int(rng.expovariate(1 / pace)) if pace else 0
        longest = rng.choice((room, max(1, room // 2), max(1, room // 4), max(1, room // 8)))
        prompt = _cut(_prompt(rng, i, clients, systems, longest), longest)
        output = rng.choice((1, rng.randint(1, 6), rng.randint(1, 40), rng.randint(1, max(1, room // 2))))
        declared = output if rng.random() < 0.6 else output + rng.randint(0, 20)
        aborts = rng.random() < 0.12
        client = Client(
            arrival_step=step,
            prompt=prompt,
            output_tokens=output,
            max_tokens=declared,
            priority=rng.choice((0, 0, 1, 3)),
            arrival_order=step if equal_arrivals else i,
            abort_step=step + rng.randint(0, 25) if aborts else None,
            abort_before_update=rng.random() < 0.5,
        )
        if config.why_it_can_never_run(sum(n for _, n in prompt), declared) is None:
            clients.append(client)
    return tuple(clients)


def _prompt(
    rng: random.Random, i: int, earlier: list[Client], systems: list[Segment], longest: int
) -> tuple[Segment, ...]:
    """A text of its own, behind a system prompt, a shortened copy of an earlier prompt, or the next turn of a talk."""
    own = (f"own{i}", rng.randint(1, max(1, longest // 2)))
    kind = rng.random()
    if kind < 0.35 or not earlier:
        return (rng.choice(systems), own) if rng.random() < 0.5 else (own,)
    k = rng.randrange(len(earlier))
    before = earlier[k]
    if kind < 0.55:
        return _cut(before.prompt, rng.randint(1, sum(n for _, n in before.prompt)))
    if kind < 0.65:
        return before.prompt
    quoted = rng.randint(1, before.output_tokens)
    return (*before.prompt, (f"out:{k}", quoted), own)


def _cut(prompt: tuple[Segment, ...], tokens: int) -> tuple[Segment, ...]:
    """The first so many tokens, as segments."""
    kept = []
    for key, n in prompt:
        if tokens > 0:
            kept.append((key, min(n, tokens)))
        tokens -= n
    return tuple(kept)
