"""Pools and routers in a scenario: what is inherited, hashed and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import scenarios
from scenarios.errors import InputError

TWO = """
pools:
- {name: small, model: Qwen3-0.6B, hardware: H100, quality: [[0, 0.95], [1, 0.3]]}
- {name: large, model: Qwen3-8B, hardware: H100, replicas: 2, quality: 0.95}
router: {name: cascade, thresholds: [0.5]}
workload: {requests: 10, arrivals: {process: poisson, rate: 5}, input: 100, output: 20, difficulty: 0.4}
"""


def changed(document: dict[str, Any] | None = None, **fields: Any) -> str:
    return yaml.safe_dump({**yaml.safe_load(TWO), **(document or {}), **fields}, sort_keys=False)


def pool(i: int, **fields: Any) -> str:
    data = yaml.safe_load(TWO)
    data["pools"][i] |= fields
    return yaml.safe_dump(data, sort_keys=False)


def test_a_scenario_is_written_out_as_an_equal_one() -> None:
    loaded = scenarios.loads(TWO)
    again = scenarios.loads(loaded.to_yaml())
    assert again == loaded
    assert again.hash() == loaded.hash()


def test_each_pool_sees_its_own_model_engine_and_price_and_shares_the_rest() -> None:
    text = pool(1, engine={"max_num_seqs": 7}, gpu_hour=9.5)
    text = yaml.safe_dump(yaml.safe_load(text) | {"engine": {"max_num_seqs": 5}, "prices": {"gpu_hour": 2.0}})
    small, large = scenarios.loads(text).of_pools()
    assert (small.model.name, large.model.name) == ("Qwen3-0.6B", "Qwen3-8B")
    assert (small.replicas, large.replicas) == (1, 2)
    assert (small.engine_config().max_num_seqs, large.engine_config().max_num_seqs) == (5, 7)
    assert (small.prices.gpu_hour, large.prices.gpu_hour) == (2.0, 9.5)
    assert small.workload == large.workload


def test_without_pools_the_scenario_is_its_only_one() -> None:
    demo = scenarios.load("demo")
    assert demo.of_pools() == [demo]
    assert demo.routing.name == "round_robin"


@pytest.mark.parametrize(
    "text",
    [
        pool(0, replicas=2),
        pool(0, quality=0.5),
        pool(0, gpu_hour=1.0),
        pool(1, model="Qwen3-0.6B"),
        changed(router={"name": "cascade", "thresholds": [0.6]}),
        changed(router="random"),
    ],
)
def test_what_a_pool_states_is_hashed(text: str) -> None:
    assert scenarios.loads(text).hash() != scenarios.loads(TWO).hash()


def test_a_router_with_its_default_options_may_be_written_short() -> None:
    short = scenarios.loads(changed(router="prefix_affinity"))
    long = scenarios.loads(changed(router={"name": "random"}))
    assert short.routing.name == "prefix_affinity"
    assert long.router == "random"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (changed(router="cascade"), "router.thresholds: is required and missing"),
        (changed(router={"name": "cascade", "thresholds": [0.2, 0.4]}), "router.thresholds: found 2, but one fewer"),
        (changed(router={"name": "cascade", "thresholds": [1.4]}), "router.thresholds"),
        (changed(router={"name": "cascade", "thresholds": [0.4], "order": ["smal", "large"]}), "did you mean 'small'"),
        (changed(router={"name": "cascade", "thresholds": [0.4], "order": ["small"]}), "each of small, large"),
        (changed(router={"name": "cascade", "thresholds": [0.4], "within": {"name": "cascade"}}), "router.within.name"),
        (changed(router={"name": "cascade", "judge": {}, "estimate_error": 0.1}), "nothing is estimated"),
        (changed(router={"name": "cascade", "judge": {"latency": 3}}), "router.judge.latency: found 3 without a unit"),
        (changed(router="power_of_three"), "router: unknown router 'power_of_three': did you mean 'power_of_two'"),
        (
            changed(router={"name": "random", "seed": 1}),
            "router.seed: unknown field 'seed'; router random has no options",
        ),
        (changed(router={"name": "power_of_two", "choises": 3}), "did you mean 'choices'"),
        (changed(router={"name": "prefix_affinity", "cache_threshold": 2}), "router.cache_threshold"),
        (changed(replicas=2), "replicas: found beside pools"),
        (pool(1, name="small"), "pools[1].name: found 'small' again"),
        (pool(1, model="Qwen3-32B", hardware="RTX 4090"), "pools[1].model: Qwen3-32B in bfloat16 does not fit"),
        (pool(1, engine={"max_model_len": 10**8}), "pools[1].engine.max_model_len"),
        (pool(0, quality=1.5), "pools[0].quality"),
        (pool(0, quality=[[0.5, 0.9], [0.2, 0.8]]), "they must rise"),
        (pool(0, quality={"measured": "none.csv"}), "pools[0].quality.measured: there is no file"),
        (pool(0, qualty=0.5), "did you mean 'quality'"),
    ],
)
def test_contradictions_are_refused_with_the_place_and_the_reason(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        scenarios.loads(text)
    assert says in str(error.value)


def test_a_judge_needs_to_know_how_good_the_answers_are_that_it_reads() -> None:
    data = yaml.safe_load(changed(router={"name": "cascade", "judge": {}}))
    scenarios.loads(yaml.safe_dump(data))
    del data["pools"][0]["quality"]
    with pytest.raises(InputError, match=r"router.judge: .*pool small has no quality"):
        scenarios.loads(yaml.safe_dump(data))


def test_a_cascade_needs_several_pools() -> None:
    data = yaml.safe_load(TWO)
    data["pools"] = data["pools"][:1]
    with pytest.raises(InputError, match=r"router.name: found cascade, but it needs pools"):
        scenarios.loads(yaml.safe_dump(data))


def test_a_workload_that_no_pool_could_hold_is_refused_and_one_that_one_could_is_not() -> None:
    data = yaml.safe_load(pool(0, engine={"max_model_len": 64}))
    scenarios.loads(yaml.safe_dump(data))
    data["pools"][1]["engine"] = {"max_model_len": 64}
    with pytest.raises(InputError, match=r"workload.input: no engine with these settings could ever run it"):
        scenarios.loads(yaml.safe_dump(data))


def test_a_measured_curve_is_the_mean_of_groups_of_neighbours(tmp_path: Path) -> None:
    rows = [(k / 100, 1.0 if k < 60 else 0.0) for k in range(100)]
    (tmp_path / "answers.csv").write_text("score,difficulty\n" + "".join(f"{s},{d}\n" for d, s in rows))
    data = yaml.safe_load(pool(0, quality={"measured": "answers.csv"}))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(data))
    curve = scenarios.load(tmp_path / "s.yaml").pools[0].quality
    assert curve is not None
    assert [quality for _, quality in curve.curve] == [1.0] * 6 + [0.0] * 4
    assert curve.curve[0][0] == pytest.approx(0.045)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("difficulty,mark\n0.1,1\n", "columns difficulty and score are needed"),
        ("difficulty,score\n0.1,yes\n", "line 2: found '0.1,yes'"),
        ("difficulty,score\n0.1,7\n", "both are shares"),
        ("difficulty,score\n", "not one answer"),
    ],
)
def test_a_measured_curve_that_is_none_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "answers.csv").write_text(content)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(yaml.safe_load(pool(0, quality={"measured": "answers.csv"}))))
    with pytest.raises(InputError, match=says):
        scenarios.load(tmp_path / "s.yaml")
