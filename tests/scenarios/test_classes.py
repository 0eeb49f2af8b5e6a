"""Service classes, tenants with a mix of their own, and difficulty: who sends what, and that nobody moves anybody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scenarios
from scenarios import Scenario, Workload
from tests.scenarios.test_generate import columns

Build = Callable[..., Scenario]

WIDE = {"distribution": "uniform", "min": 10, "max": 90}
CLASSES: list[dict[str, Any]] = [
    {"name": "chat", "weight": 3, "input": WIDE, "output": 20, "slo": {"ttft": "200ms"}, "priority": -1},
    {"name": "batch", "weight": 1, "input": 400, "output": {"distribution": "uniform", "min": 100, "max": 300}},
]


def drawn(build: Build, **workload: Any) -> Workload:
    return scenarios.generate(build(workload={"requests": 400} | workload))


def of_class(workload: Workload, name: str, column: str) -> np.ndarray:
    assert workload.service_class is not None
    mine = workload.service_class == workload.classes.index(name)
    return np.asarray(getattr(workload, column))[mine]


class TestClasses:
    def test_each_sends_its_share_with_its_own_lengths_and_priority(self, build: Build) -> None:
        workload = drawn(build, requests=20_000, classes=CLASSES)
        assert workload.classes == ("chat", "batch")
        assert len(of_class(workload, "batch", "priority")) == pytest.approx(5_000, rel=0.05)
        assert set(of_class(workload, "batch", "prompt_tokens")) == {400}
        assert set(of_class(workload, "chat", "prompt_tokens")) == set(range(10, 91))
        assert set(of_class(workload, "chat", "priority")) == {-1}
        assert set(of_class(workload, "batch", "priority")) == {0}

    def test_what_a_class_does_not_state_is_the_workloads(self, build: Build) -> None:
        classes = [{"name": "a"}, {"name": "b", "output": 7, "max_tokens": 9}]
        workload = drawn(build, classes=classes)
        plain = drawn(build)
        a = workload.service_class == 0
        assert (workload.prompt_tokens == plain.prompt_tokens).all()
        assert (workload.output_tokens[a] == plain.output_tokens[a]).all()
        assert set(of_class(workload, "b", "max_tokens")) == {9}
        assert (of_class(workload, "a", "max_tokens") == of_class(workload, "a", "output_tokens")).all()

    def test_lengths_may_be_the_classes_alone(self, build: Build) -> None:
        data = build().model_dump(mode="json", exclude_unset=True)
        del data["workload"]["input"], data["workload"]["output"]
        data["workload"]["classes"] = CLASSES
        assert len(scenarios.generate(Scenario.model_validate(data))) == 10
        del data["workload"]["classes"][1]["input"]
        with pytest.raises(ValueError, match="class batch has none of its own"):
            Scenario.model_validate(data)

    def test_requests_know_their_class_and_what_it_is_promised(self, build: Build) -> None:
        workload = scenarios.generate(build(slo={"ttft": "2s"}, workload={"requests": 50, "classes": CLASSES}))
        assert workload.class_slo == ({"ttft": 0.2, "tpot": None, "e2e": None}, None)
        for i in range(50):
            tags = workload.request(i, 5).tags
            assert tags.ttft_ns == (200_000_000 if workload.classes[tags.service_class] == "chat" else 2_000_000_000)

    def test_where_nothing_is_promised_there_is_no_limit(self, build: Build) -> None:
        classes = [CLASSES[0], CLASSES[1] | {"slo": {}}]
        workload = scenarios.generate(build(slo={"ttft": "2s"}, workload={"requests": 50, "classes": classes}))
        assert set(of_class(workload, "batch", "ttft_ns")) == {-1}
        assert drawn(build, classes=[{"name": "a"}]).ttft_ns is None

    def test_a_class_may_have_prompts_of_its_own(self, build: Build) -> None:
        talk = {"kind": "sessions", "turns": 3, "system": {"prefix_tokens": 50}}
        classes = [CLASSES[0] | {"prompts": talk}, CLASSES[1]]
        workload = drawn(build, requests=300, classes=classes)
        assert workload.service_class is not None
        assert len(workload) == 300
        for i in range(300):
            prompt = workload.prompt(i)
            assert sum(tokens for _, tokens in prompt) == workload.prompt_tokens[i]
            before = int(workload.follows[i])
            if workload.service_class[i] == 1:
                assert len(prompt) == 1
                assert (before, workload.session[i]) == (-1, -1)
            elif before >= 0:
                asked = workload.prompt(before)
                assert before == i - 1
                assert prompt[: len(asked)] == asked
                assert prompt[len(asked)] == (f"out:{before}", workload.output_tokens[before])
                assert workload.service_class[before] == 0
            else:
                assert prompt[0] == ("chat/sys:0", 50)
        assert (np.diff(workload.arrival_ns[workload.follows < 0]) >= 0).all()

    def test_agents_of_a_class_do_what_they_meant_to(self, build: Build) -> None:
        agents = {"kind": "agents", "steps": {"distribution": "uniform", "min": 1, "max": 6}, "tool_result": 40}
        classes = [
            CLASSES[0] | {"prompts": agents},
            CLASSES[1] | {"prompts": {"kind": "sessions", "turns": 2}},
            {"name": "x"},
        ]
        workload = drawn(build, requests=300, classes=classes)
        assert len(workload) == 300
        assert workload.service_class is not None
        for i in range(300):
            assert sum(tokens for _, tokens in workload.prompt(i)) == workload.prompt_tokens[i]
            before = workload.follows[i]
            if before >= 0:
                assert workload.session[before] == workload.session[i]
                assert workload.service_class[before] == workload.service_class[i]

    def test_a_conversation_is_of_one_class_and_tenant(self, build: Build) -> None:
        tenants = [{"name": "x"}, {"name": "y"}]
        workload = drawn(build, prompts={"kind": "sessions", "turns": 4}, classes=CLASSES, tenants=tenants)
        later = np.flatnonzero(workload.follows >= 0)
        for column in (workload.service_class, workload.tenant, workload.priority):
            assert column is not None
            assert (column[later] == column[workload.follows[later]]).all()


class TestTenants:
    def test_a_tenant_may_have_its_own_mix_of_classes(self, build: Build) -> None:
        tenants = [{"name": "app", "classes": {"batch": 1, "chat": 9}}, {"name": "jobs", "classes": {"batch": 1}}]
        workload = drawn(build, requests=20_000, classes=CLASSES, tenants=tenants)
        assert workload.service_class is not None
        app = workload.service_class[workload.tenant == 0]
        assert (app == 0).mean() == pytest.approx(0.9, rel=0.02)
        assert set(workload.service_class[workload.tenant == 1]) == {1}

    def test_in_which_order_it_lists_them_changes_nothing(self, build: Build) -> None:
        one, other = (
            drawn(build, classes=CLASSES, tenants=[{"name": "app", "classes": mix}])
            for mix in ({"batch": 1, "chat": 9}, {"chat": 9, "batch": 1})
        )
        assert (one.service_class == other.service_class).all()

    def test_a_tenant_may_have_lengths_of_its_own(self, build: Build) -> None:
        tenants = [{"name": "a"}, {"name": "b", "input": 700, "output": 3, "max_tokens": 5}]
        workload = drawn(build, tenants=tenants)
        b = workload.tenant == 1
        assert set(workload.prompt_tokens[b]) == {700}
        assert set(workload.max_tokens[b]) == {5}
        assert set(workload.prompt_tokens[~b]) == {100}

    def test_priorities_add_up(self, build: Build) -> None:
        tenants = [{"name": "a", "priority": 10}, {"name": "b", "priority": 20}]
        workload = drawn(build, tenants=tenants, classes=CLASSES)
        assert set(workload.priority) == {9, 10, 19, 20}


class TestDifficulty:
    @pytest.mark.parametrize(
        ("given", "mean", "low", "high"),
        [
            (0.25, 0.25, 0.25, 0.25),
            ({"distribution": "uniform", "min": 0.2, "max": 0.6}, 0.4, 0.2, 0.6),
            ({"distribution": "beta", "mean": 0.3, "concentration": 5}, 0.3, 0.0, 1.0),
            ({"distribution": "hard_tail", "share": 0.2, "border": 0.5}, 0.8 * 0.25 + 0.2 * 0.75, 0.0, 1.0),
        ],
    )
    def test_distributions(self, build: Build, given: Any, mean: float, low: float, high: float) -> None:
        drawn_ = drawn(build, requests=50_000, difficulty=given).difficulty
        assert drawn_ is not None
        assert drawn_.mean() == pytest.approx(mean, rel=0.02)
        assert drawn_.min() >= low
        assert drawn_.max() <= high

    def test_the_hard_tail_has_its_share(self, build: Build) -> None:
        found = drawn(build, requests=50_000, difficulty={"distribution": "hard_tail", "share": 0.1}).difficulty
        assert found is not None
        assert (found >= 0.5).mean() == pytest.approx(0.1, rel=0.05)

    def test_a_class_may_have_its_own(self, build: Build) -> None:
        workload = drawn(build, difficulty=0.1, classes=[CLASSES[0], CLASSES[1] | {"difficulty": 0.9}])
        assert set(of_class(workload, "chat", "difficulty")) == {0.1}
        assert set(of_class(workload, "batch", "difficulty")) == {0.9}
        assert workload.request(0, 1).tags.difficulty in (0.1, 0.9)

    @pytest.mark.parametrize("given", [-0.1, 1.1, "hard", True, {"distribution": "uniform", "min": 0.5, "max": 0.2}])
    def test_nonsense_is_refused(self, build: Build, given: Any) -> None:
        with pytest.raises(ValueError, match="difficulty"):
            build(workload={"difficulty": given})


class TestLaw15:
    """What one class or tenant does moves nobody else's draws."""

    def test_a_classs_lengths_move_no_others_and_no_arrival(self, build: Build) -> None:
        base = drawn(build, classes=CLASSES, difficulty={"distribution": "uniform"})
        slower = [
            CLASSES[0],
            CLASSES[1] | {"input": {"distribution": "lognormal", "median": 300, "sigma": 1, "max": 900}},
        ]
        moved = drawn(build, classes=slower, difficulty={"distribution": "uniform"})
        for column in ("arrival_ns", "output_tokens", "service_class", "difficulty", "priority", "tenant"):
            assert (getattr(base, column) == getattr(moved, column)).all()
        assert (of_class(base, "chat", "prompt_tokens") == of_class(moved, "chat", "prompt_tokens")).all()
        assert (of_class(base, "batch", "prompt_tokens") != of_class(moved, "batch", "prompt_tokens")).any()

    def test_a_length_is_the_same_whoever_else_there_is(self, build: Build) -> None:
        base = drawn(build, classes=CLASSES)
        more = drawn(build, classes=[CLASSES[0] | {"weight": 30}, CLASSES[1]])
        assert base.service_class is not None
        assert more.service_class is not None
        same = (base.service_class == more.service_class) & (base.service_class == 0)
        assert (base.prompt_tokens[same] == more.prompt_tokens[same]).all()

    def test_more_requests_keep_the_first_ones(self, build: Build) -> None:
        few, many = (columns(drawn(build, requests=n, classes=CLASSES)) for n in (200, 300))
        assert {name: values[:200] for name, values in many.items()} == few

    def test_classes_move_no_tenant(self, build: Build) -> None:
        tenants = [{"name": "a"}, {"name": "b"}]
        assert (drawn(build, tenants=tenants).tenant == drawn(build, tenants=tenants, classes=CLASSES).tenant).all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("workload", "why"),
        [
            ({"classes": [{"name": "a"}, {"name": "a"}]}, "names must differ, found a, a"),
            ({"classes": [{"name": "a", "weight": 0}]}, "weight"),
            ({"classes": [{"name": "a"}], "tenants": [{"name": "t", "classes": {"aa": 1}}]}, "did you mean 'a'"),
            ({"tenants": [{"name": "t", "classes": {"a": 1}}]}, "workload.classes names none"),
            (
                {"classes": [{"name": "a", "input": 5}], "tenants": [{"name": "t", "input": 6}]},
                "class a, which t sends, states it as well",
            ),
            (
                {"classes": [{"name": "a"}, {"name": "b"}], "tenants": [{"name": "t", "classes": {"a": 1}}]},
                "no tenant sends b",
            ),
            (
                {
                    "arrivals": {"process": "closed_loop", "concurrency": 2},
                    "classes": [{"name": "a", "prompts": {"kind": "sessions", "turns": 2}}],
                },
                "closed_loop with sessions",
            ),
            ({"classes": [{"name": "a", "input": 3_000_000}]}, "no engine with these settings"),
            ({"tenants": [{"name": "a"}, {"name": "b", "input": 3_000_000}]}, "no engine with these settings"),
        ],
    )
    def test_contradictions(self, build: Build, workload: dict[str, Any], why: str) -> None:
        data = build().model_dump(mode="json", exclude_unset=True)
        data["workload"] |= workload
        with pytest.raises(ValueError, match=why):
            Scenario.model_validate(data)

    def test_a_refusal_names_the_place(self, refusal: Callable[..., str], good: str) -> None:
        text = f"{good}  classes: [{{name: a}}, {{name: b, input: 5000}}]\n"
        assert refusal(text).startswith("bad.yaml: workload.classes[1].input: no engine with these settings")
        text = f"{good}  tenants: [{{name: t, input: 5000}}]\n"
        assert refusal(text).startswith("bad.yaml: workload.tenants[0].input: no engine with these settings")
        text = f"{good}  classes: [{{name: a}}]\n  tenants: [{{name: t, classes: {{}}}}]\n"
        assert refusal(text) == "bad.yaml: workload.tenants[0].classes: found {}, but at least 1 of them must be named"
        assert "workload.classes[0].max_tokens: found 0; allowed" in refusal(
            f"{good}  classes: [{{name: a, max_tokens: 0}}]\n"
        )


def test_hashes_of_scenarios_without_classes_stand(build: Build) -> None:
    tenants = [{"name": "a"}, {"name": "b", "priority": 1}]
    content = build(workload={"tenants": tenants}).model_dump(mode="json", context={"digest": True})
    assert content["workload"]["tenants"][0] == {"name": "a", "weight": 1.0, "priority": 0}
    base = build().hash()
    assert build(workload={"classes": []}).hash() == base
    assert build(workload={"classes": [{"name": "a"}]}).hash() != base
    assert build(workload={"difficulty": 0.5}).hash() != base


def test_a_scenario_with_classes_survives_its_own_yaml(build: Build) -> None:
    tenants = [{"name": "app", "classes": {"batch": 1, "chat": 9}}]
    scenario = build(workload={"classes": CLASSES, "tenants": tenants, "difficulty": 0.5})
    again = scenarios.loads(scenario.to_yaml())
    assert again.hash() == scenario.hash()
    assert columns(scenarios.generate(again)) == columns(scenarios.generate(scenario))


class TestRecorded:
    """A trace says when and how long; of which class its requests are, and how hard, the scenario may say."""

    def replayed(self, build: Build, tmp_path: Path, **workload: Any) -> Workload:
        trace = tmp_path / "trace.csv"
        lines = [f"2023-11-16 18:{i // 60:02}:{i % 60:02}.1,{100 + i},{10 + i}" for i in range(400)]
        trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
        return scenarios.generate(build(workload={"trace": {"path": str(trace)}} | workload))

    def test_classes_and_difficulty_are_drawn_for_it(self, build: Build, tmp_path: Path) -> None:
        hard = {"distribution": "uniform"}
        workload = self.replayed(build, tmp_path, classes=CLASSES, difficulty=hard)
        assert (workload.prompt_tokens == 100 + np.arange(400)).all()  # not the classes'
        assert len(of_class(workload, "chat", "priority")) == pytest.approx(300, rel=0.1)
        assert set(of_class(workload, "chat", "priority")) == {-1}
        assert set(of_class(workload, "chat", "ttft_ns")) == {200_000_000}
        assert workload.difficulty is not None
        assert workload.difficulty.std() > 0.2

    def test_without_them_it_stays_as_it_was(self, build: Build, tmp_path: Path) -> None:
        workload = self.replayed(build, tmp_path)
        assert workload.service_class is None
        assert workload.difficulty is None
        assert not workload.tagged

    def test_names_given_twice_are_refused_here_too(self, build: Build, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="names must differ"):
            self.replayed(build, tmp_path, classes=[{"name": "a"}, {"name": "a"}])
