"""No policy result changes when true output lengths are poisoned for policies."""

from __future__ import annotations

import sys
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from serving.request import Request
from tests.laws.worlds import World, content, law, worlds


class Poisoned(Request):
    """A request whose true answer length kills whoever reads it but the stop rule."""

    __slots__ = ("secret",)

    @property
    def _output_tokens(self) -> int:
        caller = sys._getframe(1).f_code
        assert caller is Request.stops_after.__code__, f"{caller.co_qualname} read the true answer length"
        return self.secret

    @_output_tokens.setter
    def _output_tokens(self, tokens: int) -> None:
        self.secret = tokens


def test_poison_works() -> None:
    request = Poisoned(0, (("a", 5),), 7, 9)
    assert request.stops_after(100) == 7
    with pytest.raises(AssertionError, match="read the true answer length"):
        print(request._output_tokens)


@law(40)
@given(worlds(horizons=True))
def test_only_the_stop_rule_reads_true_answer_lengths(world: World) -> None:
    clean = content(world.run())
    with patch("scenarios.workload.Request", Poisoned):
        assert content(world.run()) == clean
        assert content(world.run(fast=False)) == clean


@law(40)
@given(worlds())
def test_nothing_before_its_end_depends_on_how_long_an_answer_will_be(world: World) -> None:
    """Two futures that differ only in how long one client's answer goes on have the same past."""
    w = world.workload
    declared = w.max_tokens + 40
    short = replace(world, workload=replace(w, max_tokens=declared))
    first = short.run()
    finished = np.flatnonzero(first.finished)
    if len(finished) == 0:
        return
    chosen = int(finished[len(finished) // 2])
    longer = w.output_tokens.copy()
    longer[chosen] += 40
    other = replace(world, workload=replace(w, max_tokens=declared, output_tokens=longer)).run()
    until = int(first.requests["finish_ns"][chosen])
    for replica in range(world.replicas):
        before, after = (
            {
                name: column[(steps["replica"] == replica) & (steps["start_ns"] < until)].tolist()
                for name, column in steps.items()
            }
            for steps in (first.steps, other.steps)
        )
        assert before == after
