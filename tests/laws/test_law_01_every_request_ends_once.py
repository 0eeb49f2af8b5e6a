"""Every submitted request ends exactly once: finished, rejected, timed out, aborted, or in flight at the horizon."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
from hypothesis import given

from serving.records import RequestLog
from serving.request import Request, Status
from tests.laws.worlds import World, law, worlds

ENDS = (Status.FINISHED, Status.REJECTED, Status.TIMED_OUT, Status.ABORTED, Status.IN_FLIGHT)


def ends_and_records(world: World):  # type: ignore[no-untyped-def]
    """How often each request was closed, and the records."""
    closed: Counter[int] = Counter()
    close = RequestLog.close

    def counting(self, request: Request, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        closed[request.index] += 1
        close(self, request, *args, **kwargs)

    with patch.object(RequestLog, "close", counting):
        return closed, world.run()


@law(40)
@given(worlds(horizons=True, gated=True))
def test_every_submitted_request_ends_exactly_once(world: World) -> None:
    closed, records = ends_and_records(world)
    status = records.requests["status"]
    assert set(closed.values()) <= {1}
    assert {i for i, code in enumerate(status.tolist()) if code >= 0} == set(closed)
    assert all(code in ENDS for code in status[records.submitted].tolist())
    if world.horizon_ns is None:
        assert Status.IN_FLIGHT not in status.tolist()


@law(25)
@given(worlds())
def test_only_turns_behind_an_unfinished_one_are_never_sent(world: World) -> None:
    records = world.run()
    waits_for: dict[int, list[int]] = {}
    for i in np.flatnonzero(world.workload.follows >= 0).tolist():
        waits_for.setdefault(i, []).append(int(world.workload.follows[i]))
    for i, other in () if world.workload.joins is None else world.workload.joins.tolist():
        waits_for.setdefault(i, []).append(other)
    for i in range(len(world.workload)):
        assert records.submitted[i] == all(records.finished[before] for before in waits_for.get(i, ()))


@law(25)
@given(worlds())
def test_rejected_are_exactly_those_that_no_empty_engine_could_hold(world: World) -> None:
    records = world.run()
    rejected = records.requests["status"] == Status.REJECTED
    for i in np.flatnonzero(records.submitted).tolist():
        prompt, most = int(world.workload.prompt_tokens[i]), int(world.workload.max_tokens[i])
        assert rejected[i] == (world.engine.why_it_can_never_run(prompt, most) is not None)


@law(25)
@given(worlds())
def test_finished_requests_got_every_token_that_is_theirs(world: World) -> None:
    records = world.run()
    w = world.workload
    due = np.minimum(np.minimum(w.output_tokens, w.max_tokens), world.engine.max_model_len - w.prompt_tokens)
    assert (records.requests["output_tokens"][records.finished] == due[records.finished]).all()
    given = int(due[records.finished].sum())
    if not world.engine.async_scheduling and world.engine.speculation == "none":
        assert int(records.steps["sampled"].sum()) == given
    elif world.engine.speculation != "none":
        # Each row yields one token more than it has drafts that stand, but for the end of an answer.
        _, _, _, drafts, accepted, _ = records.drafts.T
        assert (accepted <= drafts).all()
        assert given <= len(accepted) + int(accepted.sum()) <= given + world.engine.num_speculative_tokens * len(due)


@law(25)
@given(worlds(loops=("open",), horizons=True))
def test_open_loop_sends_what_is_due_before_the_horizon(world: World) -> None:
    records = world.run()
    end = np.inf if world.horizon_ns is None else world.horizon_ns
    assert (records.submitted == (world.workload.arrival_ns <= end)).all()
