"""Simulated saturation throughput equals the analytic limit of the cost model within 1 % after warm-up.

The limits are sums of step costs, written down without a scheduler: which steps a saturated engine repeats for ever.
"""

from __future__ import annotations

from math import lcm

import numpy as np
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

import scenarios
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.plan import StepShape
from serving.records import Records
from sim.cluster import simulate
from sim.cost import CostModel
from tests.laws.alone import alone
from tests.laws.straight import straight_cost
from tests.laws.worlds import law, roofline

ROOM = 1 << 20
WARM, DRAINED = 0.2, 0.9  # shares of the requests that end before the looked-at ones, and before the others run out


def ended_per_second(records: Records) -> float:
    """Requests that end a second, from the end of warm-up until the waiting ones run out."""
    ends, counts = np.unique(records.requests["finish_ns"], return_counts=True)
    done = np.cumsum(counts)
    n = len(records.requests["finish_ns"])
    first, last = np.searchsorted(done, [WARM * n, DRAINED * n])
    assert done[last] - done[first] > 0.4 * n, "too few instants at which requests end"
    return float((done[last] - done[first]) / (ends[last] - ends[first]) * 1e9)


def at_once(prompt: int, output: int, n: int) -> Workload:
    return alone(prompt, output, *[0] * n)


# --- decodes: the same batch again and again ---


def batch_limit(cost: CostModel, batch: int, prompt: int, output: int) -> float:
    """Requests a second of full batches: all prompts in one step, then a decode step a token."""
    ns = cost.step_ns(StepShape(((prompt, 0),) * batch, sampled=batch))
    ns += sum(cost.decode_ns(batch, batch * (prompt + k), prompt + k) for k in range(output - 1))
    return batch / ns * 1e9


@law(15)
@given(
    st.integers(1, 64),
    st.integers(1, 400),
    st.integers(1, 200),
    st.sampled_from(("chunked", "prefill_first", "static")),
    st.booleans(),
)
def test_full_batches(batch: int, prompt: int, output: int, batching: str, fast: bool) -> None:
    engine = EngineConfig(ROOM, max_num_seqs=batch, max_num_batched_tokens=batch * prompt + batch, batching=batching)
    records = simulate(engine, at_once(prompt, output, 12 * batch), roofline(), fast=fast)
    assert ended_per_second(records) == pytest.approx(batch_limit(roofline(), batch, prompt, output), rel=0.01)


@law(15)
@given(st.integers(2, 40), st.integers(1, 200), st.integers(2, 200), st.sampled_from((1, 16, 64)))
def test_memory_for_a_few_is_a_batch_of_a_few(held: int, prompt: int, output: int, block_size: int) -> None:
    """Where every answer's blocks are kept free for it, so many run as fit whole. (The last token is never stored.)"""
    blocks = -(-(prompt + output - 1) // block_size)
    engine = EngineConfig(
        held * blocks + 1 + (blocks - 1),
        block_size=block_size,
        max_num_seqs=256,
        max_num_batched_tokens=256 * prompt,
        capacity_scheduler_policy="guaranteed_no_evict",
        enable_prefix_caching=False,
    )
    records = simulate(engine, at_once(prompt, output, 12 * held), roofline())
    assert records.requests["preemptions"].sum() == 0
    assert ended_per_second(records) == pytest.approx(batch_limit(roofline(), held, prompt, output), rel=0.01)


# --- prompts: every step is as large as the budget ---


def prompt_limit(cost: CostModel, budget: int, prompt: int) -> float:
    """Requests a second that answer with one token: their prompts laid end to end and cut at every `budget` tokens."""
    whole = lcm(budget, prompt)
    ns = 0
    for at in range(0, whole, budget):
        chunks, ended, token = [], 0, at
        while token < at + budget:
            context = token % prompt
            tokens = min(prompt - context, at + budget - token)
            ended += context + tokens == prompt
            chunks.append((tokens, context))
            token += tokens
        ns += cost.step_ns(StepShape(tuple(chunks), sampled=ended))
    return whole / prompt / ns * 1e9


@law(20)
@given(
    st.sampled_from((1, 7, 16, 100, 128, 333, 512, 600, 750, 3000)),
    st.sampled_from((16, 64, 256, 1000, 2048)),
    st.booleans(),
)
def test_prompts_alone(prompt: int, budget: int, fast: bool) -> None:
    steps = lcm(budget, prompt) // budget
    assume(steps <= 200)
    n = max(20, (30 if steps == 1 else 10 * steps) * budget // prompt)
    assume(n <= 8_000)
    engine = EngineConfig(ROOM, max_num_seqs=4096, max_num_batched_tokens=budget)
    records = simulate(engine, at_once(prompt, 1, n), roofline(), fast=fast)
    assert ended_per_second(records) == pytest.approx(prompt_limit(roofline(), budget, prompt), rel=0.01)


# --- everything at once: lengths that vary, prompts among decodes ---

STRAIGHT = straight_cost(
    step=3e6, token=20e3, chunk=50e3, pair=15.0, decode_sequence=30e3, decode_context=60.0, head=400e3, head_row=9e3
)


def mixed_limit(workload: Workload, slots: int) -> float:
    """Requests a second of straight costs: each request brings its own work, and its share of the steps that it sits in.

    A request is in `output` steps (its prompt in one of them), and `slots` requests share every step. The mean is that of the
    requests that are looked at: of all of them it is 0.6 % off.
    """
    looked_at = slice(int(WARM * len(workload)), int(DRAINED * len(workload)))
    prompt, output = workload.prompt_tokens[looked_at], workload.output_tokens[looked_at]
    c = STRAIGHT.profile.coefficients
    (_, step), (far, there) = STRAIGHT.profile.dense
    token = (there - step) / far
    decodes = output - 1
    contexts = decodes * prompt + decodes * (decodes - 1) / 2
    own = (
        token * (prompt + decodes)
        + c.chunk
        + c.pair * prompt * (prompt + 1) / 2
        + c.decode_sequence * decodes
        + c.decode_context * contexts
        + c.head_row * output
    )
    return 1e9 / float(np.mean((step + c.head) * output / slots + own))


LENGTHS = {
    "input": {"distribution": "lognormal", "mean": 300, "sigma": 0.9, "min": 2, "max": 4000},
    "output": {"distribution": "lognormal", "mean": 120, "sigma": 0.7, "min": 1, "max": 2000},
}


def drawn(n: int, arrivals: object) -> Workload:
    workload = {"requests": n, "arrivals": arrivals, **LENGTHS}
    document = {"schema_version": 1, "model": "Qwen3-0.6B", "hardware": "H100", "workload": workload}
    return scenarios.generate(scenarios.loads(yaml.safe_dump(document)))


@pytest.mark.parametrize("loop", ["all_at_once", "poisson", "closed_loop"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_requests_of_all_lengths(loop: str, replicas: int) -> None:
    slots, n = 32, 9000
    lengths = drawn(n, "all_at_once")
    limit = replicas * mixed_limit(lengths, slots)
    arrivals = {
        "all_at_once": "all_at_once",
        "poisson": {"process": "poisson", "rate": 1.5 * limit},
        "closed_loop": {"process": "closed_loop", "concurrency": 2 * replicas * slots},
    }[loop]
    workload = drawn(n, arrivals)
    assert workload.output_tokens.tolist() == lengths.output_tokens.tolist()
    engine = EngineConfig(ROOM, max_model_len=8192, max_num_seqs=slots, max_num_batched_tokens=slots * 4000)
    records = simulate(engine, workload, STRAIGHT, replicas=replicas, router="least_requests")
    assert ended_per_second(records) == pytest.approx(limit, rel=0.01)


def test_below_the_limit_as_many_end_as_come() -> None:
    slots, n = 32, 9000
    lengths = drawn(n, "all_at_once")
    rate = 0.8 * mixed_limit(lengths, slots)
    workload = drawn(n, {"process": "constant", "rate": rate})
    engine = EngineConfig(ROOM, max_model_len=8192, max_num_seqs=slots, max_num_batched_tokens=slots * 4000)
    records = simulate(engine, workload, STRAIGHT)
    assert ended_per_second(records) == pytest.approx(rate, rel=0.01)
    waited = records.requests["scheduled_ns"] - records.requests["arrival_ns"]
    assert waited[n // 2 :].mean() < 2 * waited[n // 10 : n // 2].mean() + 1e9
