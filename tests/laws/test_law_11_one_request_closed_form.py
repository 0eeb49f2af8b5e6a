"""One request on an idle replica: TTFT and E2E equal the closed-form sum of step costs, to the rounding of a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.workload import Workload
from serving.batching import BATCHINGS
from serving.config import EngineConfig
from serving.plan import StepShape
from serving.policies import ORDERS
from sim.cost import CostModel
from tests.laws.alone import alone
from tests.laws.worlds import World, law, roofline


def prefill_ns(cost: CostModel, prompt: int, budget: int) -> int:
    """Chunks of the budget, the last one samples."""
    total = context = 0
    while context < prompt:
        chunk = min(budget, prompt - context)
        ends = context + chunk == prompt
        total += cost.step_ns(StepShape(prefill=((chunk, context),), sampled=int(ends)))
        context += chunk
    return total


def decodes_ns(cost: CostModel, prompt: int, output: int) -> int:
    """Token k (from 1) of the answer is computed over the prompt and the k - 1 answer tokens before it."""
    return sum(cost.decode_ns(1, prompt + k, prompt + k) for k in range(output - 1))


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("policy", ORDERS)
@pytest.mark.parametrize("fast", [True, False])
def test_times_are_the_sum_of_the_steps(batching: str, policy: str, fast: bool) -> None:
    @law(20)
    @given(st.integers(1, 3000), st.integers(1, 300), st.sampled_from((16, 100, 512, 4096)), st.integers(0, 10**10))
    def check(prompt: int, output: int, budget: int, arrival: int) -> None:
        engine = EngineConfig(
            num_gpu_blocks=1000, max_num_batched_tokens=budget, max_num_seqs=8, batching=batching, policy=policy
        )
        r = World(engine, alone(prompt, output, arrival)).run(fast=fast).requests
        first = prefill_ns(roofline(), prompt, budget)
        assert int(r["scheduled_ns"][0]) == arrival
        assert int(r["first_token_ns"][0]) - arrival == first
        assert int(r["finish_ns"][0]) - arrival == first + decodes_ns(roofline(), prompt, output)

    check()


def test_second_request_on_an_idle_replica_is_like_the_first() -> None:
    one: Workload = alone(500, 20, 0)
    engine = EngineConfig(num_gpu_blocks=100)
    alone_ns = int(World(engine, one).run().requests["finish_ns"][0])
    later = alone(500, 20, 0, 10 * alone_ns)
    r = World(engine, later).run().requests
    assert (r["finish_ns"] - r["arrival_ns"]).tolist() == [alone_ns, alone_ns]
