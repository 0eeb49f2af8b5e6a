"""How many drafts stand: measured with a real model on a real text, and put into numbers that a simulation draws from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.config import EngineConfig
from serving.plan import Executor
from serving.request import Request
from serving.scheduler import Scheduler

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Verifications:
    """What a run says of drafts; one row a step of a request that gave it tokens after its prompt.

    request: who. drafts: verified, 0 where none were found. accepted: of them, those that stood.
    """

    request: Ints
    drafts: Ints
    accepted: Ints

    @property
    def steps_per_token(self) -> float:
        """Steps of the target model for each answer token behind the first: 1 without speculation."""
        return len(self.request) / float(len(self.request) + self.accepted.sum())


@dataclass(frozen=True)
class Fitted:
    """The figures of `sim.measured_acceptance.MeasuredAcceptance` that follow from verifications alone."""

    per_position: tuple[float | None, ...]
    mean: float
    concentration: float
    found: float
    steps_per_token: float
    requests: int
    verifications: int


def watch(
    config: EngineConfig,
    executor: Executor,
    requests: Sequence[Request],
    progress: Callable[[int], None] | None = None,
) -> Verifications:
    """Serves requests to their end on a real engine whose answers are what the model says, and notes every verification.

    progress: told the answer tokens so far.
    """
    scheduler = Scheduler(config)
    rows: list[tuple[int, int, int]] = []
    for request in requests:
        scheduler.add(request)
    while scheduler.has_work:
        plan = scheduler.schedule()
        if not plan.scheduled:
            scheduler.update(plan)
            continue
        executor.submit(plan)
        result = executor.collect()
        stood = result.accepted or {}
        for row in plan.scheduled:
            if row.samples and row.request.num_outputs > 0 and not row.padded:
                rows.append((row.request.index, row.drafts, stood.get(row.request.index, 0)))
        scheduler.update(plan, result.accepted, result.proposed)
        if progress is not None:
            progress(sum(request.num_outputs for request in requests))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Verifications(table[:, 0], table[:, 1], table[:, 2])


def fit(k: int, seen: Verifications) -> Fitted:
    """Acceptance in numbers.

    A draft behind a rejected one says nothing, so a row of d drafts of which a stood counts as a successes and, if a < d, one
    failure. The beta distribution is that of greatest likelihood over requests (beta-binomial).

    Raises:
        ValueError: no draft was ever verified.
    """
    if not seen.drafts.sum():
        raise ValueError(
            f"no draft was proposed in {len(seen.drafts)} steps: nothing can be said about their acceptance"
        )
    who = np.unique(seen.request, return_inverse=True)[1]
    successes = np.bincount(who, weights=seen.accepted).astype(np.float64)
    trials = successes + np.bincount(who, weights=seen.accepted < seen.drafts)
    mean, concentration = beta_binomial(successes, trials)
    return Fitted(
        per_position(k, seen.drafts, seen.accepted),
        mean,
        concentration,
        float((seen.drafts > 0).mean()),
        seen.steps_per_token,
        len(successes),
        int((seen.drafts > 0).sum()),
    )


def per_position(k: int, drafts: Ints, accepted: Ints) -> tuple[float | None, ...]:
    """Share of drafts that stand where all before them in their row do, by position `(k,)`; None where none was verified.

    drafts, accepted: of each row `(n,)`.
    """
    shares: list[float | None] = []
    for i in range(k):
        tried = (drafts > i) & (accepted >= i)
        shares.append(float((accepted[tried] > i).mean()) if tried.any() else None)
    return tuple(shares)


_CONCENTRATION = (0.5, 1000.0)  # below, requests are all or nothing; above, they are alike


def beta_binomial(successes: NDArray[np.float64], trials: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and concentration `a + b` of the beta distribution under which so many successes of so many trials are likeliest."""
    from scipy.optimize import minimize
    from scipy.special import betaln, expit, logit

    kept = trials > 0
    s, n = successes[kept], trials[kept]

    def surprise(at: NDArray[np.float64]) -> float:
        mean, total = expit(at[0]), np.exp(at[1])
        a, b = mean * total, (1 - mean) * total
        return -float((betaln(s + a, n - s + b) - betaln(a, b)).sum())

    start = np.clip(s.sum() / n.sum(), 0.01, 0.99)
    bounds = [(logit(0.001), logit(0.999)), tuple(np.log(_CONCENTRATION))]
    best = minimize(surprise, [logit(start), np.log(10.0)], bounds=bounds, method="L-BFGS-B")
    return float(expit(best.x[0])), float(np.exp(best.x[1]))
