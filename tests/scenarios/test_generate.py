"""The requests that a scenario generates: prompts as segments, sessions, and independent random streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import scenarios
from scenarios import Scenario, Workload

Build = Callable[..., Scenario]


def columns(workload: Workload) -> dict[str, list[Any]]:
    names = (
        "arrival_ns",
        "prompt_tokens",
        "output_tokens",
        "max_tokens",
        "priority",
        "tenant",
        "session",
        "follows",
        "think_ns",
    )
    found = {name: getattr(workload, name).tolist() for name in names}
    found["prompts"] = [workload.prompt(i) for i in range(len(workload))]
    return found


def test_unique_prompts_share_nothing(build: Build) -> None:
    workload = scenarios.generate(build())
    assert len(workload) == 10
    assert [tokens for _, tokens in workload.prompt(3)] == [100]
    assert len({workload.prompt(i)[0][0] for i in range(10)}) == 10
    assert (workload.max_tokens == workload.output_tokens).all()
    assert workload.request(3, 5).output_key == "out:3"


def test_declared_tokens_may_be_fixed(build: Build) -> None:
    workload = scenarios.generate(build(workload={"max_tokens": 64}))
    assert set(workload.max_tokens.tolist()) == {64}
    assert set(workload.output_tokens.tolist()) == {20}


class TestSharedPrefixes:
    def test_prompt_is_prefix_then_own_text(self, build: Build) -> None:
        prompts = {"kind": "shared_prefix", "num_prefixes": 3, "prefix_tokens": 50}
        workload = scenarios.generate(build(workload={"prompts": prompts}))
        for i in range(len(workload)):
            (key, tokens), own = workload.prompt(i)
            assert str(key).startswith("sys:")
            assert tokens == 50
            assert own == (f"p{i}", 100)
        assert set(workload.prompt_tokens.tolist()) == {150}

    def test_popularity_follows_zipf(self, build: Build) -> None:
        prompts = {"kind": "shared_prefix", "num_prefixes": 4, "prefix_tokens": 50, "zipf": 1.0}
        workload = scenarios.generate(build(workload={"requests": 50_000, "prompts": prompts}))
        counts = np.bincount([int(str(workload.segment_keys[2 * i])[4:]) for i in range(50_000)])
        assert counts / counts[0] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.05)

    def test_a_prefix_has_one_length(self, build: Build) -> None:
        lengths = {"distribution": "uniform", "min": 10, "max": 500}
        prompts = {"kind": "shared_prefix", "num_prefixes": 5, "prefix_tokens": lengths}
        workload = scenarios.generate(build(workload={"requests": 200, "prompts": prompts}))
        prefixes = {workload.prompt(i)[0] for i in range(200)}
        assert len(prefixes) == len({key for key, _ in prefixes})


class TestCase14Sessions:
    def sessions(self, build: Build, requests: int = 4, **more: Any) -> Workload:
        prompts = {"kind": "sessions", "turns": 4} | more
        return scenarios.generate(
            build(workload={"requests": requests, "input": 100, "output": 50, "prompts": prompts})
        )

    def test_inputs_grow_by_question_and_answer(self, build: Build) -> None:
        workload = self.sessions(build)
        assert workload.prompt_tokens.tolist() == [100, 250, 400, 550]
        assert workload.prompt(2) == (("p0", 100), ("out:0", 50), ("p1", 100), ("out:1", 50), ("p2", 100))
        assert workload.follows.tolist() == [-1, 0, 1, 2]
        assert workload.session.tolist() == [0, 0, 0, 0]
        assert (workload.arrival_ns[1:] == -1).all()
        assert workload.arrival_ns[0] > 0

    def test_system_prompt_appears_once_a_request(self, build: Build) -> None:
        workload = self.sessions(build, system={"prefix_tokens": 1000})
        assert workload.prompt_tokens.tolist() == [1100, 1250, 1400, 1550]
        for i in range(4):
            assert [key for key, _ in workload.prompt(i)].count("sys:0") == 1
            assert sum(tokens for _, tokens in workload.prompt(i)) == workload.prompt_tokens[i]

    def test_answers_are_quoted_as_far_as_they_came(self, build: Build) -> None:
        spec = {
            "requests": 2,
            "input": 100,
            "output": 50,
            "max_tokens": 30,
            "prompts": {"kind": "sessions", "turns": 2},
        }
        assert scenarios.generate(build(workload=spec)).prompt(1) == (("p0", 100), ("out:0", 30), ("p1", 100))

    def test_requests_count_turns_and_cut_the_last_session(self, build: Build) -> None:
        workload = self.sessions(build, requests=10)
        assert np.bincount(workload.session).tolist() == [4, 4, 2]
        starts = workload.arrival_ns[workload.follows < 0]
        assert len(starts) == 3
        assert (np.diff(starts) > 0).all()

    def test_think_time_stands_before_later_turns_only(self, build: Build) -> None:
        workload = self.sessions(build, requests=8, think_time="3s")
        assert workload.think_ns.tolist() == [0, 3 * 10**9, 3 * 10**9, 3 * 10**9] * 2
        drawn = self.sessions(build, requests=20_000, think_time={"distribution": "exponential", "mean": "3s"})
        assert drawn.think_ns[drawn.follows >= 0].mean() == pytest.approx(3e9, rel=0.03)

    def test_stages_count_conversations(self, build: Build) -> None:
        arrivals = {"process": "staged", "stages": [{"rate": 1, "duration": "5s"}]}
        data = build().model_dump(mode="json", exclude_unset=True)
        data["workload"] |= {"requests": None, "arrivals": arrivals, "prompts": {"kind": "sessions", "turns": 3}}
        assert len(scenarios.generate(Scenario.model_validate(data))) == 15


def test_closed_loop(build: Build) -> None:
    data = build().model_dump(mode="json", exclude_unset=True)
    data["workload"]["arrivals"] = {"process": "closed_loop", "concurrency": 3, "think_time": "1s"}
    workload = scenarios.generate(Scenario.model_validate(data))
    assert workload.concurrency == 3
    assert set(workload.arrival_ns.tolist()) == {-1}
    assert set(workload.think_ns.tolist()) == {10**9}
    data["workload"]["prompts"] = {"kind": "sessions", "turns": 3}
    with pytest.raises(ValueError, match="not modelled"):
        Scenario.model_validate(data)


def test_tenants_share_requests_by_weight_and_carry_priorities(build: Build) -> None:
    tenants = [{"name": "gold", "weight": 1, "priority": -1}, {"name": "free", "weight": 3, "priority": 2}]
    workload = scenarios.generate(build(workload={"requests": 20_000, "tenants": tenants}))
    assert workload.tenants == ("gold", "free")
    assert (workload.tenant == 0).mean() == pytest.approx(0.25, rel=0.05)
    assert (workload.priority == np.where(workload.tenant == 0, -1, 2)).all()
    with pytest.raises(ValueError, match="names must differ"):
        build(workload={"tenants": [{"name": "a"}, {"name": "a"}]})


class TestLaw15CommonRandomNumbers:
    """Changing one axis changes no other axis' draws."""

    RANDOM: dict[str, Any] = {  # noqa: RUF012
        "requests": 200,
        "input": {"distribution": "lognormal", "median": 80, "sigma": 0.5},
        "output": {"distribution": "uniform", "min": 5, "max": 50},
        "prompts": {"kind": "shared_prefix", "num_prefixes": 4, "prefix_tokens": {"distribution": "uniform", "min": 9, "max": 90}},
    }  # fmt: skip

    def test_policy_hardware_and_replicas_change_nothing(self, build: Build) -> None:
        base = columns(scenarios.generate(build(workload=self.RANDOM)))
        changes: list[dict[str, Any]] = [
            {"engine": {"policy": "priority", "batching": "static", "enable_prefix_caching": False, "max_num_seqs": 3}},
            {"hardware": "H100", "replicas": 3, "router": "least_requests"},
            {"slo": {"ttft": "1s"}, "prices": {"gpu_hour": 3.5}},
        ]
        for change in changes:
            assert columns(scenarios.generate(build(workload=self.RANDOM, **change))) == base

    @pytest.mark.parametrize(
        ("change", "moves"),
        [
            ({"arrivals": {"rate": 7}}, {"arrival_ns"}),
            ({"arrivals": {"process": "gamma", "burstiness": 0.5}}, {"arrival_ns"}),
            ({"output": {"distribution": "uniform", "min": 5, "max": 60}}, {"output_tokens", "max_tokens"}),
            ({"input": {"distribution": "lognormal", "median": 90, "sigma": 0.5}}, {"prompt_tokens", "prompts"}),
            ({"prompts": {"zipf": 2.0}}, {"prompt_tokens", "prompts"}),
            ({"tenants": [{"name": "a"}, {"name": "b", "priority": 1}]}, {"tenant", "priority"}),
            ({"max_tokens": 99}, {"max_tokens"}),
        ],
    )
    def test_one_axis_moves_alone(self, build: Build, change: dict[str, Any], moves: set[str]) -> None:
        base = columns(scenarios.generate(build(workload=self.RANDOM)))
        moved = columns(
            scenarios.generate(build(workload=self.RANDOM | {k: self._laid(k, v) for k, v in change.items()}))
        )
        assert {name for name in base if base[name] != moved[name]} == moves

    def _laid(self, key: str, value: Any) -> Any:
        return self.RANDOM[key] | value if key == "prompts" else value

    def test_think_times_do_not_follow_lengths(self, build: Build) -> None:
        prompts = {"kind": "sessions", "turns": 3, "think_time": {"distribution": "exponential", "mean": "1s"}}
        first = scenarios.generate(build(workload={"requests": 30, "prompts": prompts}))
        second = scenarios.generate(build(workload={"requests": 30, "prompts": prompts, "input": 70}))
        assert (first.think_ns == second.think_ns).all()

    def test_more_requests_keep_the_first_ones(self, build: Build) -> None:
        few = columns(scenarios.generate(build(workload=self.RANDOM)))
        many = columns(scenarios.generate(build(workload=self.RANDOM | {"requests": 300})))
        assert {name: values[:200] for name, values in many.items()} == few

    def test_seeds_differ_and_repeat(self, build: Build) -> None:
        one, again, two = (columns(scenarios.generate(build(workload=self.RANDOM, seed=s))) for s in (1, 1, 2))
        assert one == again
        assert one["arrival_ns"] != two["arrival_ns"]
        assert one["prompt_tokens"] != two["prompt_tokens"]


def test_nothing_generated_is_said(build: Build) -> None:
    stages = [{"rate": 1e-9, "duration": "1s"}]
    spec = {"arrivals": {"process": "staged", "within": "poisson", "stages": stages}}
    data = build().model_dump(mode="json", exclude_unset=True)
    data["workload"] = {"input": 1, "output": 1} | spec
    with pytest.raises(scenarios.InputError, match="not one request"):
        scenarios.generate(Scenario.model_validate(data))


def test_a_hundred_thousand_requests_take_little_time(build: Build) -> None:
    spec = {
        "requests": 100_000,
        "input": {"distribution": "normal", "mean": 512, "std": 256, "min": 2, "max": 2048},
        "prompts": {"kind": "shared_prefix", "num_prefixes": 8, "prefix_tokens": 64},
    }
    scenario = build(workload=spec)
    start = time.process_time()
    assert len(scenarios.generate(scenario)) == 100_000
    assert time.process_time() - start < 1.5  # 0.1 s on a quiet core
