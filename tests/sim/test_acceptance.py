"""Which drafts stand is decided for every position of every answer, whoever asks when."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from serving.request import Request
from sim.acceptance import Acceptance


def request(index: int, outputs: int) -> Request:
    found = Request(index, ((f"p{index}", 10),), 1000)
    found.num_outputs = outputs
    return found


def test_a_cut_list_of_drafts_changes_nothing_of_the_rest() -> None:
    acceptance = Acceptance(3, [(0.7,)] * 20, k=5)
    for index, outputs in product(range(20), range(50)):
        stand = [acceptance.accepted(request(index, outputs), drafts) for drafts in range(6)]
        assert stand == [min(drafts, stand[5]) for drafts in range(6)]


def test_neither_does_the_order_in_which_requests_are_asked_for() -> None:
    acceptance = Acceptance(3, [(0.7,)] * 20, k=5)
    forwards = {i: acceptance.accepted(request(i, 7), 5) for i in range(20)}
    backwards = {i: acceptance.accepted(request(i, 7), 5) for i in reversed(range(20))}
    assert forwards == backwards
    assert len(set(forwards.values())) > 2


def test_a_position_that_stood_stands_when_it_is_verified_from_further_back() -> None:
    """Drafts that were lost and are proposed again come out the same: it is the position that decides."""
    acceptance = Acceptance(3, [(0.6,)] * 200, k=4)
    for index in range(200):
        stand = acceptance.accepted(request(index, 10), 4)
        for ahead in range(1, stand):
            assert acceptance.accepted(request(index, 10 + ahead), 4) >= stand - ahead


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_the_share_that_stands_is_the_rate(rate: float) -> None:
    acceptance = Acceptance(1, [(rate,)] * 400, k=1)
    stood = [acceptance.accepted(request(i, p), 1) for i in range(400) for p in range(50)]
    assert np.mean(stood) == pytest.approx(rate, abs=4 * (rate * (1 - rate) / 20_000) ** 0.5 + 1e-9)


def test_rates_are_those_of_positions_whose_predecessors_stood() -> None:
    acceptance = Acceptance(1, [(0.9, 0.5, 0.2)] * 1000, k=4)
    stood = np.array([acceptance.accepted(request(i, p), 4) for i in range(1000) for p in range(0, 200, 10)])
    shares = [float((stood[stood >= d] > d).mean()) for d in range(4)]
    assert shares == pytest.approx([0.9, 0.5, 0.2, 0.2], abs=0.02)  # the last one holds behind it too


def test_drafts_are_found_as_often_as_said() -> None:
    acceptance = Acceptance(1, [(0.7,)] * 300, k=3, found=0.4)
    found = [acceptance.proposed(request(i, 0), p) for i in range(300) for p in range(50)]
    assert set(found) == {0, 3}
    assert np.mean(found) / 3 == pytest.approx(0.4, abs=0.015)


def test_what_is_found_and_what_stands_are_independent() -> None:
    acceptance = Acceptance(1, [(0.5,)] * 300, k=1, found=0.5)
    pairs = [
        (acceptance.proposed(request(i, p), p), acceptance.accepted(request(i, p), 1))
        for i in range(300)
        for p in range(50)
    ]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.03


def test_neighbouring_requests_and_positions_are_independent() -> None:
    acceptance = Acceptance(0, [(0.5,)] * 200, k=1)
    table = np.array([[acceptance.accepted(request(i, p), 1) for p in range(200)] for i in range(200)])
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.02


def test_another_seed_is_another_chance() -> None:
    one, two = (Acceptance(seed, [(0.5,)] * 100, k=1) for seed in (1, 2))
    assert [one.accepted(request(i, 0), 1) for i in range(100)] != [two.accepted(request(i, 0), 1) for i in range(100)]
