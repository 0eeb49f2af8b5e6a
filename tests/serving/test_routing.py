"""Routers: each chooses by what it says it goes by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from serving.admission import Load
from serving.request import Request, Tags
from serving.routing import POOL_ROUTERS, ROUTERS, Cascade, Router, Routing, make_router


@dataclass
class State:
    outstanding: int = 0
    kv_use: float = 0.0
    cached: int = 0
    pool: int = 0
    asked: list[str] = field(default_factory=list)

    def load(self, now: int) -> Load:
        self.asked.append("load")
        return Load((), 0, 8, self.kv_use)

    def cached_tokens(self, request: Request) -> int:
        self.asked.append("cached_tokens")
        return self.cached


def request(index: int = 0, tokens: int = 100, difficulty: float = 0.0) -> Request:
    found = Request(index, (("text", tokens),), 10)
    found.tags = Tags(difficulty=difficulty)
    return found


def router(name: str, seed: int = 0, requests: int = 100, **options: object) -> Router:
    return make_router(Routing(name, options), np.random.default_rng(seed), requests)


def choices(chooser: Router, replicas: list[State], n: int = 60) -> list[int]:
    return [chooser.choose(request(i), replicas, 0) for i in range(n)]


@pytest.mark.parametrize("name", ROUTERS)
def test_every_router_takes_the_only_replica_and_stays_in_range(name: str) -> None:
    assert set(choices(router(name), [State()], 5)) == {0}
    assert set(choices(router(name), [State(), State(), State()])) <= {0, 1, 2}


def test_random_takes_everybody_and_repeats_with_its_stream() -> None:
    found = choices(router("random"), [State(), State(), State()])
    assert set(found) == {0, 1, 2}
    assert found != [i % 3 for i in range(60)]
    assert found == choices(router("random"), [State(), State(), State()])
    assert found != choices(router("random", seed=1), [State(), State(), State()])


def test_least_kv_goes_by_memory_where_least_requests_goes_by_number() -> None:
    replicas = [State(outstanding=1, kv_use=0.9), State(outstanding=5, kv_use=0.1)]
    assert router("least_kv").choose(request(), replicas, 0) == 1
    assert router("least_requests").choose(request(), replicas, 0) == 0
    even = [State(outstanding=3, kv_use=0.5), State(outstanding=2, kv_use=0.5)]
    assert router("least_kv").choose(request(), even, 0) == 1


def test_power_of_two_avoids_the_longest_queue_but_not_always_the_second() -> None:
    replicas = [State(outstanding=k) for k in (9, 5, 1, 0)]
    found = choices(router("power_of_two"), replicas, 300)
    assert 0 not in found  # it loses against any other
    assert set(found) == {1, 2, 3}
    assert found.count(3) > found.count(2) > found.count(1)


def test_power_of_all_is_least_requests() -> None:
    replicas = [State(outstanding=k) for k in (9, 5, 1, 0)]
    assert set(choices(router("power_of_two", choices=4), replicas)) == {3}
    assert set(choices(router("power_of_two", choices=99), replicas)) == {3}


def test_prefix_affinity_follows_the_cache_where_enough_of_the_prompt_is_there() -> None:
    replicas = [State(outstanding=2, cached=0), State(outstanding=8, cached=64)]
    assert router("prefix_affinity").choose(request(tokens=100), replicas, 0) == 1
    assert router("prefix_affinity", cache_threshold=0.7).choose(request(tokens=100), replicas, 0) == 0


def test_prefix_affinity_takes_the_less_busy_of_equal_caches() -> None:
    replicas = [State(outstanding=5, cached=64), State(outstanding=2, cached=64), State(outstanding=1)]
    assert router("prefix_affinity").choose(request(), replicas, 0) == 1


def test_prefix_affinity_lets_load_win_only_beyond_both_thresholds() -> None:
    hot = State(outstanding=100, cached=96)
    guard = {"balance_abs_threshold": 20, "balance_rel_threshold": 2.0}
    assert router("prefix_affinity", **guard).choose(request(), [hot, State(outstanding=70)], 0) == 0  # under 2 times
    assert router("prefix_affinity", **guard).choose(request(), [hot, State(outstanding=85)], 0) == 0
    assert router("prefix_affinity", **guard).choose(request(), [hot, State(outstanding=40)], 0) == 1
    hot.outstanding = 18
    assert router("prefix_affinity", **guard).choose(request(), [hot, State()], 0) == 0  # by less than 20


TIERS = [State(pool=0), State(pool=1), State(pool=1), State(pool=2)]


def test_cascade_sends_by_difficulty_to_the_first_pool_that_is_meant_for_it() -> None:
    chooser = router("cascade", order=[0, 1, 2], thresholds=[0.3, 0.8])
    pools = [TIERS[chooser.choose(request(i, difficulty=d), TIERS, 0)].pool for i, d in enumerate((0.1, 0.3, 0.5, 0.9))]
    assert pools == [0, 0, 1, 2]
    turned = router("cascade", order=[2, 1, 0], thresholds=[0.3, 0.8])
    assert TIERS[turned.choose(request(difficulty=0.1), TIERS, 0)].pool == 2


def test_cascade_balances_inside_a_pool() -> None:
    chooser = router("cascade", order=[0, 1, 2], thresholds=[0.3, 0.8], within={"name": "round_robin"})
    assert [chooser.choose(request(i, difficulty=0.5), TIERS, 0) for i in range(4)] == [1, 2, 1, 2]
    busy = [State(pool=0), State(pool=1, outstanding=4), State(pool=1)]
    assert router("cascade", order=[0, 1], thresholds=[0.3]).choose(request(difficulty=0.5), busy, 0) == 2


def test_cascade_estimates_belong_to_requests_not_to_the_order_in_which_they_come() -> None:
    options = {"order": [0, 1], "thresholds": [0.5], "estimate_error": 0.3}
    one, other = router("cascade", **options), router("cascade", **options)
    pair = [State(pool=0), State(pool=1)]
    forward = {i: one.choose(request(i, difficulty=0.5), pair, 0) for i in range(40)}
    backward = {i: other.choose(request(i, difficulty=0.5), pair, 0) for i in reversed(range(40))}
    assert forward == backward
    assert set(forward.values()) == {0, 1}


def test_an_escalated_request_and_its_retries_go_to_the_next_pool() -> None:
    chooser = router("cascade", order=[0, 1, 2], requests=10)
    assert isinstance(chooser, Cascade)
    first = request(3)
    assert TIERS[chooser.choose(first, TIERS, 0)].pool == 0
    assert list(chooser.after(first, 0)) == [1, 2]
    chooser.escalate(first, 0)
    assert TIERS[chooser.choose(request(13), TIERS, 0)].pool == 1
    assert TIERS[chooser.choose(request(23), TIERS, 0)].pool == 1  # another try
    assert TIERS[chooser.choose(request(4), TIERS, 0)].pool == 0
    assert list(chooser.after(request(13), 1)) == [2]
    assert list(chooser.after(request(13), 0)) == []  # it was put back to the small model


def test_cascade_takes_another_pool_where_the_one_that_is_meant_could_not_hold_it() -> None:
    chooser = router("cascade", order=[0, 1, 2], thresholds=[0.3, 0.8])
    assert chooser.choose(request(difficulty=0.1), TIERS[1:], 0) in (0, 1)  # the next larger
    assert chooser.choose(request(difficulty=0.9), TIERS[:1], 0) == 0


def test_names_of_routers_do_not_meet() -> None:
    assert not set(ROUTERS) & set(POOL_ROUTERS)
