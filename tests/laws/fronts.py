"""What may stand before the replicas of a drawn deployment: impatient clients, a front end, a ladder, limits."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from scenarios.client_behaviour import Patience
from serving.admission import WHEN_FULL, Allowance, Limits
from serving.degradation import Rung
from serving.front_end import FrontEndCost
from sim.front import NOTHING, Front

MILLISECOND = 1_000_000


@st.composite
def patiences(draw: st.DrawFn, n: int) -> Patience:
    retries = draw(st.integers(0, 2))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    return Patience(
        first_token_ns=draw(st.sampled_from((None, 2 * MILLISECOND, 20 * MILLISECOND))),
        answer_ns=draw(st.sampled_from((None, 5 * MILLISECOND, 60 * MILLISECOND))),
        waits_ns=rng.integers(0, 8, (n, retries)) * MILLISECOND,
        retries_refused=draw(st.booleans()),
    )


@st.composite
def ladders(draw: st.DrawFn) -> tuple[Rung, ...]:
    signal, levels = draw(
        st.sampled_from(
            (
                ("queue_requests", (1, 2, 3, 5, 6)),
                ("queue_tokens", (40, 80, 160, 240, 320)),
                ("kv_use", (0.3, 0.5, 0.7, 0.9, 0.95)),
                ("oldest_wait", (0.001, 0.003, 0.005, 0.008, 0.01)),
            )
        )
    )
    hold = draw(st.sampled_from((0, 4 * MILLISECOND)))
    what = (
        {"does": "cap_output", "cap": 5},
        {"does": "cap_output", "cap": 1},
        {"does": "drop_stale_turns", "keep_turns": 0},
        {"does": "shed_class", "service_class": draw(st.sampled_from((0, 1)))},
        {"does": "reject"},
    )
    chosen = [k for k in range(len(what)) if draw(st.booleans())]
    return tuple(
        Rung(signal=signal, on=on, off=on / 2, hold_ns=hold, **what[k])  # type: ignore[arg-type]
        for k, on in zip(chosen, levels, strict=False)
    )


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    return Limits(
        max_queue_requests=draw(st.sampled_from((None, 0, 1, 4))),
        max_queue_tokens=draw(st.sampled_from((None, None, 50, 200))),
        queue_timeout_ns=draw(st.sampled_from((None, None, 2 * MILLISECOND, 10 * MILLISECOND))),
        when_full=draw(st.sampled_from(WHEN_FULL)),
        allowance=draw(st.sampled_from((None, None, Allowance(requests=800.0, burst_s=0.005)))),
        tenants=draw(st.sampled_from(({}, {}, {0: Allowance(tokens=50_000.0, burst_s=0.01)}))),
    )


@st.composite
def fronts(draw: st.DrawFn, n: int) -> Front:
    """Of n requests. About a third of deployments have nothing of the kind."""
    if draw(st.sampled_from((True, False, False))):
        return NOTHING
    return Front(
        patience=draw(st.one_of(st.none(), patiences(n))),
        front_end=draw(
            st.sampled_from(
                (None, None, FrontEndCost(1, 2e5, 1e3), FrontEndCost(3, 1e6, 0.0), FrontEndCost(2, 0.0, 0.0))
            )
        ),
        rungs=draw(st.one_of(st.just(()), ladders())),
        limits=draw(st.one_of(st.none(), limits())),
    )
