"""Noise of steps: the distribution and correlation that it was given, a mean of one, and a function of the step alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import ValidationError

import scenarios
from scenarios.errors import InputError
from sim.noise import BLOCK, StepNoise
from sim.profile_parts import Noise
from sim.profiles import load_profile
from studies import simulate
from studies.aspects import step_costs

RIGHT_SKEWED = Noise(correlation=0.8, quantiles=(-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.6))


def factors(noise: Noise, n: int, seed: int = 0, replica: int = 0) -> np.ndarray:
    drawn = StepNoise(noise, seed, replica)
    return np.array([drawn.factor(step) for step in range(n)])


def test_factors_have_the_distribution_correlation_and_mean_that_were_measured() -> None:
    found = factors(RIGHT_SKEWED, 400_000)
    quantiles = np.quantile(found, np.linspace(0, 1, 7)[1:-1])
    assert quantiles == pytest.approx(1 + np.array(RIGHT_SKEWED.quantiles[1:-1]) - RIGHT_SKEWED.mean, abs=0.004)
    assert found.mean() == pytest.approx(1.0, abs=0.002)
    assert found.std() == pytest.approx(RIGHT_SKEWED.sd, rel=0.02)
    ranks = found.argsort().argsort() / len(found)
    assert np.corrcoef(ranks[:-1], ranks[1:])[0, 1] == pytest.approx(6 / np.pi * np.arcsin(0.4), abs=0.01)


def test_blocks_are_joined_like_any_two_steps() -> None:
    found = factors(RIGHT_SKEWED, 400 * BLOCK)
    first = found[BLOCK::BLOCK]
    assert np.corrcoef(first, found[BLOCK - 1 :: BLOCK][: len(first)])[0, 1] > 0.65


def test_a_factor_depends_on_seed_replica_and_step_and_not_on_what_was_asked_before() -> None:
    steps = [5, 3 * BLOCK + 7, BLOCK, 0, BLOCK - 1, 3 * BLOCK + 6, 2 * BLOCK]
    in_order = factors(RIGHT_SKEWED, 4 * BLOCK)
    drawn = StepNoise(RIGHT_SKEWED, 0, 0)
    assert [drawn.factor(step) for step in steps] == in_order[steps].tolist()
    assert factors(RIGHT_SKEWED, 50, seed=1).tolist() != in_order[:50].tolist()
    assert factors(RIGHT_SKEWED, 50, replica=1).tolist() != in_order[:50].tolist()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"correlation": 1.0, "quantiles": (-0.1, 0.1)}, "correlation"),
        ({"correlation": 0.5, "quantiles": (0.1, -0.1)}, "must not fall"),
        ({"correlation": 0.5, "quantiles": (-1.0, 0.5, 1.0)}, "leaves a step no time"),
        ({"correlation": 0.5, "quantiles": (0.0,)}, "quantiles"),
        ({"correlation": 0.5, "quantiles": (0.0, float("nan"))}, "quantiles"),
    ],
)
def test_noise_that_cannot_be_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Noise.model_validate(fields)


# -- in scenarios ------------------------------------------------------------------------------------------------------


def scenario(cost: dict[str, object]) -> scenarios.Scenario:
    document = {
        "model": "qwen3-tiny",
        "hardware": "cpu",
        "engine": {"max_num_seqs": 8},
        "workload": {"requests": 30, "arrivals": {"process": "poisson", "rate": 20}, "input": 100, "output": 20},
        "cost": cost,
    }
    return scenarios.loads(json.dumps(document))


def test_a_profile_without_noise_is_written_and_hashed_as_ever_and_one_with_it_survives_its_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    plain = load_profile("cpu-avx2-qwen3-tiny")
    assert '"noise"' not in plain.model_dump_json()
    noisy = plain.model_copy(update={"noise": RIGHT_SKEWED})
    assert noisy.hash() != plain.hash()
    assert load_profile(noisy.save(tmp_path / "noisy.json")) == noisy


def test_noise_is_off_unless_asked_for_and_changes_no_hash_then(tmp_path) -> None:  # type: ignore[no-untyped-def]
    noisy = load_profile("cpu-avx2-qwen3-tiny").model_copy(update={"noise": RIGHT_SKEWED})
    path = str(noisy.save(tmp_path / "noisy.json"))
    plain, quiet = simulate(scenario({"profile": "cpu-avx2-qwen3-tiny"})), simulate(scenario({"profile": path}))
    assert plain.records.steps["end_ns"].tolist() == quiet.records.steps["end_ns"].tolist()
    assert scenario({"profile": path}).hash() == scenario({"profile": path, "noise": False}).hash()
    loud = simulate(scenario({"profile": path, "noise": True}))
    assert loud.records.steps["end_ns"].tolist() != quiet.records.steps["end_ns"].tolist()
    assert scenario({"profile": path, "noise": True}).hash() != scenario({"profile": path}).hash()
    said = step_costs.sentence(loud.info["profile"])
    assert said is not None
    assert "with its noise (standard deviation 17.0%, correlation of successive steps 0.80)" in said


def test_noise_that_nobody_measured_is_refused() -> None:
    with pytest.raises(InputError, match="holds no noise"):
        simulate(scenario({"profile": "cpu-avx2-qwen3-tiny", "noise": True}))
    with pytest.raises(InputError, match="a roofline has no residuals"):
        scenario({"noise": True})
