"""Steps that really ran are charged to the nanosecond too, whatever is known of what they are made of."""

from __future__ import annotations

import pytest

import scenarios
from studies import execute
from studies.aspects.step_costs import cost_of
from studies.run import replayed

pytest.importorskip("torch", reason="executions need the extra gpu")

TEXT = """
model: qwen3-tiny
hardware: cpu
engine: {num_gpu_blocks: 200, max_model_len: 300, max_num_batched_tokens: 64}
workload:
  requests: 8
  arrivals: {process: poisson, rate: 20}
  prompts: {kind: shared_prefix, prefix_tokens: 64}
  input: 40
  output: 8
prices: {gpu_hour: 0.05}
"""


@pytest.mark.parametrize(("known", "attribution"), [(False, "tokens"), (True, "cost terms")])
def test_an_execution_is_charged_whole(known: bool, attribution: str) -> None:
    scenario = scenarios.loads(TEXT)
    run = execute(scenario, device="cpu", cost=cost_of(scenario) if known else None)
    account, steps = run.account, run.records.steps
    assert account is not None
    assert int(account.charges.total_ns.sum()) == int((steps["end_ns"] - steps["start_ns"]).sum())
    assert int(account.charges.total_ns.sum() + account.idle_ns.sum()) == account.window_ns
    assert run.info["economics"]["attribution"] == attribution
    assert run.workload is not None
    assert replayed(run, run.workload).identical
