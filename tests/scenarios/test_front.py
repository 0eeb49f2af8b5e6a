"""What stands before the replicas: settings that contradict each other, or the rest of the scenario, are refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

import scenarios
from scenarios.client_behaviour import ClientBehaviour
from scenarios.errors import InputError
from scenarios.generate import Streams
from scenarios.schema import Scenario

BASE: dict[str, Any] = {
    "model": "Qwen3-0.6B",
    "hardware": "H100",
    "engine": {"max_model_len": 4096},
    "workload": {
        "requests": 100,
        "arrivals": {"process": "poisson", "rate": 10},
        "input": 500,
        "output": 100,
        "tenants": [{"name": "acme"}, {"name": "zeta"}],
        "classes": [{"name": "gold"}, {"name": "bronze", "priority": 1}],
    },
}
POOLS = [{"name": "large", "model": "Qwen3-0.6B", "hardware": "H100"}, {"name": "small"}]


def scenario(**changes: Any) -> Scenario:
    return scenarios.loads(yaml.safe_dump(BASE | changes))


def ladder(*rungs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"degradation": {"ladder": list(rungs), **more}}


CAP = {"cap_output": 50, "on_at": 8}


@pytest.mark.parametrize(
    ("changes", "path", "why"),
    [
        (ladder(CAP | {"off_below": 8}), "degradation.ladder[0].off_below", "must be below on_at"),
        (ladder(CAP | {"off_below": 0}), "degradation.ladder[0].off_below", "could never be left again"),
        (ladder(CAP | {"on_at": 0}), "degradation.ladder[0].on_at", "would always be on"),
        (ladder(CAP | {"signal": "kv_use"}), "degradation.ladder[0].on_at", "share between 0 and 1"),
        (ladder(CAP | {"signal": "oldest_wait"}), "degradation.ladder[0].on_at", "without a unit"),
        (ladder(CAP | {"on_at": "8s"}), "degradation.ladder[0].on_at", "a number is needed"),
        (ladder(CAP | {"reject": True}), "degradation.ladder[0].reject", "exactly one of"),
        (ladder({"on_at": 8}), "degradation.ladder[0].cap_output", "found none of them"),
        (ladder({"reject": True, "on_at": 8}, CAP), "degradation.ladder[1]", "from the mildest to the hardest"),
        (ladder(CAP, CAP | {"on_at": 9}), "degradation.ladder[1].cap_output", "a higher rung caps lower"),
        (ladder(CAP, {"reject": True, "on_at": 4}), "degradation.ladder[1].on_at", "the harder measure comes first"),
        (ladder(CAP, {"reject": True, "on_at": 9, "off_below": 1}), "degradation.ladder[1].off_below", "goes last"),
        (ladder(CAP | {"cap_output": 5000}), "degradation.ladder[0].cap_output", "max_model_len 4096"),
        (ladder(CAP | {"cap_output": 100}), "degradation.ladder[0].cap_output", "no answer is longer than 100"),
        (ladder({"drop_stale_turns": 2, "on_at": 8}), "degradation.ladder[0].drop_stale_turns", "it drops nothing"),
        (ladder({"shed_class": "silver", "on_at": 8}), "degradation.ladder[0].shed_class", "Allowed: gold, bronze"),
        (
            ladder({"shed_class": "gold", "on_at": 8}, {"shed_class": "bronze", "on_at": 9}),
            "degradation.ladder[1].shed_class",
            "this is reject",
        ),
        (ladder({"route_to": "small", "on_at": 8}), "degradation.ladder[0].route_to", "has no pools"),
        (ladder({"route_to": "tiny", "on_at": 8}) | {"pools": POOLS}, "degradation.ladder[0].route_to", "unknown pool"),
        (
            ladder({"route_to": "small", "on_at": 8}, watch="small") | {"pools": POOLS},
            "degradation.ladder[0].route_to",
            "never lowers it",
        ),
        (ladder(CAP, watch="medium") | {"pools": POOLS}, "degradation.watch", "Allowed: large, small"),
        (ladder(CAP) | {"admission": {"max_queue_requests": 4}}, "degradation.ladder[0].on_at", "never reached"),
        (
            ladder({"reject": True, "signal": "oldest_wait", "on_at": "5s"}) | {"admission": {"queue_timeout": "2s"}},
            "degradation.ladder[0].on_at",
            "never reached",
        ),
        ({"admission": {}}, "admission.max_queue_requests", "nothing that it limits"),
        (
            {"admission": {"max_queue_requests": 0, "queue_timeout": "1s"}},
            "admission.queue_timeout",
            "nobody ever waits",
        ),
        ({"admission": {"max_queue_requests": 0, "when_full": "shed_lowest"}}, "admission.when_full", "pushed out"),
        ({"admission": {"queue_timeout": "1s", "when_full": "shed_lowest"}}, "admission.when_full", "never full"),
        ({"admission": {"tenants": {"acm": {"requests": 5}}}}, "admission.tenants.acm", "did you mean 'acme'"),
        ({"admission": {"token_bucket": {"requests": 0.5}}}, "admission.token_bucket.burst", "lets none pass"),
        ({"admission": {"token_bucket": {}}}, "admission.token_bucket.requests", "needs requests or tokens"),
        ({"client_behaviour": {"retries": 3}}, "client_behaviour.retries", "there is no time-out"),
        ({"client_behaviour": {}}, "client_behaviour.timeout", "wait for ever as it is"),
        ({"client_behaviour": {"timeout": "5s", "jitter": 0.1}}, "client_behaviour.jitter", "found without retries"),
        (
            {"client_behaviour": {"timeout": "5s", "first_token_timeout": "6s"}},
            "client_behaviour.first_token_timeout",
            "must be shorter than timeout",
        ),
        (
            {"client_behaviour": {"timeout": "5s", "retries": 1, "backoff": "5m"}},
            "client_behaviour.backoff",
            "backoff_max",
        ),
        ({"front_end": {"workers": 4}}, "front_end.per_request", "changes nothing"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], path: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        scenario(**changes)
    assert path in str(error.value)
    assert why in str(error.value)


def test_pushing_out_needs_somebody_lower() -> None:
    workload = BASE["workload"] | {"classes": [{"name": "gold"}, {"name": "bronze"}]}
    with pytest.raises(
        InputError, match=r"admission.when_full: found shed_lowest, but every request has the same priority"
    ):
        scenario(workload=workload, admission={"max_queue_requests": 4, "when_full": "shed_lowest"})


@pytest.mark.parametrize(
    "changes",
    [
        ladder(CAP, {"shed_class": "bronze", "on_at": 16}, {"reject": True, "signal": "kv_use", "on_at": 0.98}),
        {"client_behaviour": {"retries": 3}, "admission": {"max_queue_requests": 8}},
        {"admission": {"tenants": {"acme": {"tokens": "60000/min", "burst": "10s"}}}},
        {"front_end": {"per_prompt_token": "2.5us"}},
    ],
)
def test_what_is_written_out_is_read_back(changes: dict[str, Any]) -> None:
    given = scenario(**changes)
    again = scenarios.loads(given.to_yaml())
    assert again == given
    assert again.hash() == given.hash() != scenario().hash()


def test_back_off_doubles_up_to_its_maximum_within_its_jitter() -> None:
    clients = ClientBehaviour(timeout="5s", retries=4, backoff="1s", backoff_max="3s", jitter=0.5)  # type: ignore[arg-type]
    waits = clients.patience(500, Streams(1)).waits_ns / 1e9
    for k, middle in enumerate((1, 2, 3, 3)):
        assert middle * 0.5 <= waits[:, k].min() < waits[:, k].max() <= middle * 1.5
        assert abs(waits[:, k].mean() - middle) < 0.1 * middle
    assert (clients.patience(500, Streams(2)).waits_ns / 1e9 != waits).all()


def test_patience_changes_nothing_else_that_is_drawn() -> None:
    plain, impatient = (
        scenarios.generate(scenario(**changes))
        for changes in ({}, {"client_behaviour": {"timeout": "2s", "retries": 2}, "admission": {"queue_timeout": "1s"}})
    )
    assert impatient.tries == 3
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "priority", "service_class"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(impatient, name))
