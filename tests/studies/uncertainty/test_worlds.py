"""What is uncertain, and what a world makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import scenarios
from serving.plan import StepShape
from sim.measured_acceptance import MeasuredAcceptance
from sim.profile_parts import Noise
from sim.profiles import load_profile
from studies import simulate
from studies.aspects import pools
from studies.uncertainty.inputs import inputs_of
from studies.uncertainty.spreads import ERROR_TO_SD, Between, Bytes, Factor, Share
from studies.uncertainty.worlds import applied, draw

AUTO = ("workload.requests=40", "workload.arrivals.rate=8", "cost.profile=auto")
CPU = (
    "model=qwen3-tiny", "hardware=cpu", "engine.max_model_len=null", "workload.requests=20", "workload.input=64", "workload.output=16",
)  # fmt: skip


def load(*overrides: str):
    return scenarios.load("azure-conversation", overrides=overrides)


def middle(scenario):
    return {one.key: one.spread.value(0.5) for one in inputs_of([scenario]).drawn}


def outcome(scenario, costs=None):
    """All figures but the ends of a KV capacity, which in a world is known."""
    summary = simulate(scenario, cost=costs).summary
    return {
        key: value for key, value in summary.items() if key not in ("kv_capacity_tokens_low", "kv_capacity_tokens_high")
    }


CASES = {
    "operators": AUTO,
    "whole steps": (*CPU, "cost.profile=cpu-avx2-qwen3-tiny"),
    "roofline": AUTO[:2],
    "tensor parallel": (*AUTO, "engine.tensor_parallel_size=2"),
    "experts": (*AUTO, "model=Qwen3-30B-A3B"),
}


@pytest.mark.parametrize("overrides", CASES.values(), ids=CASES)
def test_the_middle_of_every_spread_is_the_scenario_as_it_is(overrides):
    scenario = load(*overrides)
    changed, costs = applied(scenario, middle(scenario), scenario.seed)
    assert outcome(changed, costs) == outcome(scenario)


@pytest.mark.parametrize("overrides", CASES.values(), ids=CASES)
def test_every_input_changes_the_cost_or_the_memory(overrides):
    scenario = load(*overrides)
    base = simulate(scenario).summary
    found = inputs_of([scenario])
    ranged = {one.part: (0.5, 0.9) for one in found.unstated if one.ranged}
    everything = inputs_of([scenario], ranged).drawn
    assert {one.part for one in everything} >= {one.part for one in found.drawn} | set(ranged)
    for one in everything:
        changed, costs = applied(scenario, {one.key: one.spread.value(0.02)}, scenario.seed)
        assert simulate(changed, cost=costs).summary != base, one.key


def test_a_factor_scales_its_part_alone():
    scenario = load(*AUTO)
    shape = pools.costs_of(scenario)[0]
    [linears] = [one for one in inputs_of([scenario]).drawn if one.part == "linears"]
    _, [cost] = applied(scenario, {linears.key: 2.0}, 0)
    step = StepShape(((512, 0),), 8, 4000, 700, 9)
    before, after = shape.terms(step), cost.terms(step)
    assert after.pop("linears") == pytest.approx(2 * before.pop("linears"))
    assert after == before


def test_scenarios_that_share_a_profile_share_its_errors():
    a, b = load(*AUTO), load(*AUTO, "engine.max_num_seqs=64")
    assert inputs_of([a, b]) == inputs_of([a])
    other = inputs_of([a, load(*AUTO, "engine.tensor_parallel_size=2")])
    keys = [one.key for one in other.drawn]
    assert sum(key.startswith("linears") for key in keys) == 2
    assert {one.group for one in other.drawn if one.part == "linears"} == {"cost of linear layers on H100"}
    assert sum(one.part == "host" for one in other.unstated) == 1, "one host, whatever the degree"


def test_the_same_reserve_leaves_each_model_its_own_kv_memory():
    found = inputs_of([load(*AUTO), load(*AUTO, "model=Qwen3-8B")])
    [kv] = [one for one in found.drawn if one.part == "kv-capacity"]
    assert isinstance(kv.spread, Bytes)
    small, large = load(*AUTO), load(*AUTO, "model=Qwen3-8B")
    tight, roomy = ({kv.key: kv.spread.value(rank)} for rank in (0.99, 0.01))
    for scenario in (small, large):
        held = [applied(scenario, values, 0)[0].engine_config().num_gpu_blocks for values in (tight, {}, roomy)]
        assert held == sorted(held)
        assert held[0] < held[2]


def test_a_stated_kv_capacity_is_the_same_in_every_world():
    found = inputs_of([load(*AUTO, "engine.num_gpu_blocks=3000")])
    assert "kv-capacity" not in {one.part for one in found.drawn}
    assert "kv-capacity" in {one.part for one in found.unstated}


def test_what_has_no_stated_error_is_listed_and_may_be_given_a_range():
    found = inputs_of([load(*AUTO)])
    assert {one.part for one in found.unstated} == {"element-wise", "host"}
    assert "fitted" in next(one.why for one in found.unstated if one.part == "host")
    given = inputs_of([load(*AUTO)], {"host": (0.5, 1.5)})
    assert {one.part for one in given.unstated} == {"element-wise"}
    [host] = [one for one in given.drawn if one.part == "host"]
    assert host.spread == Between(0.5, 1.5)


def test_a_roofline_has_no_errors_of_its_own():
    found = inputs_of([load(*AUTO[:2])])
    assert {one.part for one in found.drawn} == {"kv-capacity"}
    assert {one.part for one in found.unstated} == {
        "compute-efficiency", "memory-efficiency", "attention-efficiency", "host",
    }  # fmt: skip


def test_measured_acceptance_has_the_error_of_its_sample(tmp_path):
    profile = load_profile("cpu-avx2-qwen3-tiny")
    few = MeasuredAcceptance(
        method="ngram", k=4, model="qwen3-tiny", text="a text", per_position=(0.6, 0.5, 0.4, 0.4), mean=0.6, concentration=5.0,
        found=0.8, steps_per_token=0.6, requests=10, verifications=300,
    )  # fmt: skip
    many = few.model_copy(update={"requests": 1000, "verifications": 30_000})
    spreads = []
    for number, measured in enumerate((few, many)):
        file = profile.model_copy(update={"acceptance": (measured,)}).save(tmp_path / f"{number}.json")
        scenario = load(*CPU, f"cost.profile={file}", "engine.speculation={method: ngram, k: 4}")
        [found] = [one for one in inputs_of([scenario]).drawn if one.part == "acceptance"]
        assert isinstance(found.spread, Share)
        spreads.append(found.spread.sd)
        changed, costs = applied(scenario, {found.key: 0.05}, 0)
        base = simulate(scenario).summary["target_steps_per_output_token"]
        assert simulate(changed, cost=costs).summary["target_steps_per_output_token"] > base
    assert spreads[0] == pytest.approx(10 * spreads[1])
    stated = load(*CPU, f"cost.profile={file}", "engine.speculation={method: ngram, k: 4, acceptance: 0.6, found: 1}")
    assert "acceptance" in {one.part for one in inputs_of([stated]).unstated}


def test_noise_of_steps_is_drawn_where_a_profile_holds_it(tmp_path):
    profile = load_profile("cpu-avx2-qwen3-tiny")
    noisy = profile.model_copy(update={"noise": Noise(correlation=0.5, quantiles=(-0.2, 0.0, 0.3))})
    scenario = load(
        *CPU, f"cost.profile={noisy.save(tmp_path / 'noisy.json')}", "workload.arrivals={process: constant, rate: 5}"
    )
    assert not scenario.cost.noise
    figures = []
    for seed in (0, 1):
        changed, costs = applied(scenario, {}, seed)
        assert changed.cost.noise
        figures.append(simulate(changed, cost=costs).summary["mean_e2el_ms"])
    assert figures[0] != figures[1], "nothing else differs between seeds"


def test_pools_have_inputs_of_their_own():
    two = (
        "pools=[{name: small, model: Llama-3.1-8B, hardware: A100-80G}, {name: large, model: Qwen3-8B, gpu_hour: 9}]",
        "router=least_requests", *AUTO,
    )  # fmt: skip
    scenario = load(*two)
    found = inputs_of([scenario])
    assert {one.where for one in found.drawn} == {"A100-80G", "H100"}
    values = {one.key: one.spread.value(0.9) for one in found.drawn}
    changed, costs = applied(scenario, values, scenario.seed)
    before, after = (s.of_pools() for s in (scenario, changed))
    assert [view.prices.gpu_hour for view in before] == [view.prices.gpu_hour for view in after]
    assert all(b.engine_config() != a.engine_config() for b, a in zip(before, after, strict=True))
    assert simulate(changed, cost=costs).summary["mean_ttft_ms"] > simulate(scenario).summary["mean_ttft_ms"]
    unchanged, costs = applied(scenario, middle(scenario), scenario.seed)
    assert outcome(unchanged, costs) == outcome(scenario)


def test_worlds_of_an_input_do_not_depend_on_others():
    many = inputs_of([load(*AUTO)]).drawn
    alone = draw(many[1:2], 30, 7, range(30))
    together = draw(many, 30, 7, range(30))
    np.testing.assert_array_equal(alone.ranks[:, 0], together.ranks[:, 1])
    assert together.seeds == tuple(range(30))
    assert draw(many, 30, 7, range(30), seeded=False).seeds == (0,) * 30


@pytest.mark.parametrize("spread", [Factor(0.1), Between(0.5, 1.5), Bytes(1e9, 2e9, 6e9), Share(0.6, 0.05)])
def test_scores_have_mean_zero_and_variance_one(spread):
    ranks = (np.arange(20_000) + 0.5) / 20_000
    scores = np.array([spread.score(r) for r in ranks])
    assert scores.mean() == pytest.approx(0, abs=1e-9)
    assert scores.var() == pytest.approx(1, abs=1e-3)
    values = [spread.value(r) for r in ranks]
    assert values == sorted(values)


def test_the_error_of_a_factor_is_the_stated_one():
    spread = Factor(ERROR_TO_SD * 0.06)
    ranks = (np.arange(20_000) + 0.5) / 20_000
    assert np.mean([abs(np.log(spread.value(r))) for r in ranks]) == pytest.approx(0.06, rel=1e-3)
