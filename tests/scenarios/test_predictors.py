"""Predictors: what an order with foresight is told of answers, and that it comes from a stream of its own."""

from __future__ import annotations

import numpy as np
import pytest

import scenarios
from scenarios.errors import InputError
from scenarios.workload import Workload
from tests.laws.test_law_15_common_random_numbers import OPEN, columns, drawn

CLASSES = "workload.classes=[{name: short, weight: 3, output: 20}, {name: long, output: 200}]"


def predicted(*overrides: str) -> tuple[Workload, list[int]]:
    workload = drawn(OPEN, *overrides)
    assert workload.predicted_tokens is not None
    return workload, workload.predicted_tokens.tolist()


def test_without_a_predictor_nobody_knows_anything() -> None:
    assert drawn(OPEN).predicted_tokens is None


def test_an_oracle_knows_where_an_answer_ends() -> None:
    workload, said = predicted("workload.predictor=oracle", "workload.max_tokens=60")
    assert said == np.minimum(workload.output_tokens, 60).tolist()


def test_declared_is_what_clients_declare() -> None:
    assert set(predicted("workload.predictor=declared", "workload.max_tokens=60")[1]) == {60}


def test_class_mean_is_one_number_a_class() -> None:
    workload, said = predicted("workload.predictor=class_mean", CLASSES)
    assert {*zip(workload.service_class.tolist(), said, strict=True)} == {(0, 20), (1, 200)}  # type: ignore[union-attr]
    workload, said = predicted("workload.predictor=class_mean")
    assert set(said) == {round(workload.output_tokens.mean())}


def test_noise_has_the_mean_and_spread_it_says() -> None:
    workload, said = predicted(
        "workload.predictor={kind: noisy_oracle, cv: 0.5}",
        "workload.requests=20000",
        "workload.output=1000",
        "workload.max_tokens=32000",
    )
    error = np.array(said) / workload.output_tokens
    assert error.mean() == pytest.approx(1, abs=0.01)
    assert error.std() == pytest.approx(0.5, abs=0.02)


def test_a_predictor_moves_nothing_else_that_is_drawn() -> None:
    for predictor in ("oracle", "class_mean", "{kind: noisy_oracle, cv: 2}"):
        assert columns(drawn(OPEN, f"workload.predictor={predictor}")) == columns(drawn(OPEN))


def test_predictions_depend_on_the_seed_alone() -> None:
    noisy = "workload.predictor={kind: noisy_oracle, cv: 1}"
    assert predicted(noisy)[1] == predicted(noisy, "workload.arrivals.rate=60")[1] != predicted(noisy, "seed=9")[1]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("workload.predictor=orcle", "unknown kind 'orcle': did you mean 'oracle'"),
        ("workload.predictor={kind: noisy_oracle}", "cv"),
        ("workload.predictor=3", "allowed: oracle, class_mean, declared, or a mapping"),
    ],
)
def test_other_predictors_are_refused(override: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        scenarios.loads(OPEN, overrides=(override,))


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("engine.policy=shortest_first",), "name a workload.predictor"),
        (("engine.policy=deadline",), "give slo.ttft"),
        (("engine.policy=longest_prefix", "engine.enable_prefix_caching=false"), "nothing is ever found"),
        (("engine.policy=fair", "workload.tenants=[]"), "name workload.tenants"),
        (("engine.policy=fair", "workload.tenants=[{name: only}]"), "there is only one tenant"),
    ],
)
def test_an_order_with_nothing_to_go_by_is_refused(overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InputError, match=f"engine.policy: found .*{problem}"):
        scenarios.loads(OPEN, overrides=overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ("engine.policy=shortest_first", "workload.predictor=class_mean"),
        ("engine.policy=deadline", "slo.ttft=1s"),
        ("engine.policy=deadline", "workload.classes=[{name: a, slo: {ttft: 1s}}, {name: b}]"),
        ("engine.policy=longest_prefix",),
        ("engine.policy=fair",),
    ],
)
def test_an_order_that_knows_what_it_needs_is_taken(overrides: tuple[str, ...]) -> None:
    scenario = scenarios.loads(OPEN, overrides=overrides)
    assert scenario.engine_config().policy == overrides[0].partition("=")[2]


def test_deadlines_are_what_classes_are_promised() -> None:
    workload = drawn(
        OPEN, "engine.policy=deadline", "slo.ttft=2s", "workload.classes=[{name: a, slo: {ttft: 1s}}, {name: b}]"
    )
    assert workload.ttft_ns is not None
    assert workload.service_class is not None
    assert {*zip(workload.service_class.tolist(), workload.ttft_ns.tolist(), strict=True)} == {
        (0, 10**9),
        (1, 2 * 10**9),
    }
