"""Who sends what next."""

import numpy as np

from scenarios.clients import Clients
from scenarios.workload import Workload


def waiting_for(follows: list[int], joins: list[tuple[int, int]], think_ns: int = 0) -> Clients:
    n = len(follows)
    ones = np.ones(n, dtype=np.int64)
    chain = np.array(follows, dtype=np.int64)
    return Clients(
        Workload(
            arrival_ns=np.where(chain < 0, 0, -1),
            prompt_tokens=ones,
            output_tokens=ones,
            max_tokens=ones,
            priority=ones,
            tenant=ones - 1,
            session=ones - 1,
            follows=chain,
            think_ns=np.full(n, think_ns, dtype=np.int64),
            joins=np.array(joins, dtype=np.int64).reshape(-1, 2),
        )
    )


def test_an_agent_goes_on_when_the_last_of_its_sub_agents_is_done() -> None:
    clients = waiting_for([-1, 0, 0, 0, 1], [(4, 2), (4, 3)], think_ns=7)
    assert clients.answered(0, 100) == [(1, 107), (2, 107), (3, 107)]
    assert clients.answered(2, 200) == []
    assert clients.answered(1, 300) == []
    assert clients.answered(3, 250) == [(4, 257)]


def test_an_agent_one_of_whose_sub_agents_gives_no_answer_stays_silent() -> None:
    clients = waiting_for([-1, 0, 0, 1], [(3, 2)])
    clients.answered(0, 1)
    assert clients.answered(1, 2) == []
    assert clients.gave_up(3) == []


def test_a_turn_that_waits_for_one_answer_is_sent_with_it() -> None:
    assert waiting_for([-1, 0, 0], []).answered(0, 5) == [(1, 5), (2, 5)]
