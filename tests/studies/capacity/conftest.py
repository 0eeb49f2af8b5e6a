"""Queues of one server with given service times, whose waits are known in closed form."""

from pathlib import Path

import pytest

import scenarios
from scenarios.schema import Scenario
from tests.laws.straight import straight_cost

MODEL = "Qwen3-0.6B"
SERVICE = 0.01
"""Seconds that a request of 1,000 tokens takes."""


@pytest.fixture(scope="session")
def straight_profile(tmp_path_factory) -> Path:
    """A prompt token takes 10 us, and nothing else takes any time."""
    profile = straight_cost(step=1, token=10e3).profile.model_copy(update={"model": MODEL})
    return profile.save(tmp_path_factory.mktemp("profile") / "straight.json")


@pytest.fixture
def one_server(straight_profile):
    """A scenario of one request at a time, 10 ms each; requests come by a Poisson process unless `overrides` say otherwise."""

    def make(*overrides: str) -> Scenario:
        return scenarios.loads(text(straight_profile), overrides=overrides)

    return make


def text(profile: Path) -> str:
    return f"""
name: one server
model: {MODEL}
hardware: H100
engine: {{max_num_seqs: 1, max_model_len: 40960, max_num_batched_tokens: 40960, enable_prefix_caching: false}}
cost: {{profile: {profile}}}
workload:
  requests: 3000
  arrivals: {{process: poisson, rate: 50}}
  input: 1000
  output: 1
"""
