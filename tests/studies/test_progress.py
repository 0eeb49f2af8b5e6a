"""A run that tells how far it is: about a hundred times, never backwards, and without changing anything."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

import scenarios
import studies
from tests.laws.worlds import World, content, law, worlds

PLAIN = ["workload.requests=2000", "workload.arrivals={process: poisson, rate: 4}"]
KINDS: dict[str, list[str]] = {
    "open loop": PLAIN,
    "one short of a hundred": ["workload.requests=99", PLAIN[1]],
    "one request": ["workload.requests=1", PLAIN[1]],
    "all at once": [PLAIN[0], "workload.arrivals={process: all_at_once}"],
    "overload": [PLAIN[0], "workload.arrivals={process: poisson, rate: 4000}"],
    "replicas": [*PLAIN, "replicas=3", "router=least_requests"],
    "horizon": [*PLAIN, "horizon=60s"],
    "closed loop": [PLAIN[0], "workload.arrivals={process: closed_loop, concurrency: 8}"],
    "closed loop to a horizon": [PLAIN[0], "workload.arrivals={process: closed_loop, concurrency: 8}", "horizon=60s"],
    "patience": [*PLAIN, "client_behaviour={first_token_timeout: 1s, retries: 1}"],
    "conversations": [*PLAIN, "workload.prompts={kind: sessions, turns: 3, think_time: 5s}"],
    "front end": [*PLAIN, "front_end={workers: 2, per_request: 20ms}"],
}


def shares(overrides: list[str]) -> list[float]:
    told: list[float] = []
    scenario = scenarios.load("demo", overrides=overrides)
    studies.simulate(scenario, progress=lambda _, share: told.append(share))
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_shares_never_fall_and_end_at_one(kind: str) -> None:
    told = shares(KINDS[kind])
    assert all(a <= b for a, b in pairwise(told))
    assert told[-1] == 1.0
    assert len(told) <= 110


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("one")])
def test_a_run_of_any_kind_tells_of_itself_all_along(kind: str) -> None:
    told = [share for share in shares(KINDS[kind]) if 0.05 < share < 0.85]
    assert len(told) > 10
    assert max(b - a for a, b in pairwise([0.05, *told, 0.85])) < 0.2


@law(120)
@given(worlds(horizons=True, gated=True))
def test_records_are_the_same_with_and_without(world: World) -> None:
    told: list[float] = []
    assert content(world.run(progress=told.append)) == content(world.run())
    assert all(a < b for a, b in pairwise(told))
    assert told[0] > 0
    assert told[-1] == 1.0


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("kind", ["open loop", "all at once", "closed loop", "front end"])
def test_what_a_listener_raises_ends_the_run(kind: str) -> None:
    calls = 0

    def stop(what: str, share: float) -> None:
        nonlocal calls
        calls += 1
        if what == "simulating" and share > 0.3:
            raise StoppedError

    with pytest.raises(StoppedError):
        studies.simulate(scenarios.load("demo", overrides=KINDS[kind]), progress=stop)
    assert calls < 70
