"""Speculative decoding of a scenario: what a simulation draws, what it costs, and whether it paid."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration.acceptance import per_position
from scenarios.errors import InputError
from scenarios.generate import Streams
from scenarios.schema import Scenario
from scenarios.speculation import BetaAcceptance, Speculation, draw_rates
from scenarios.workload import Workload
from serving.plan import StepShape
from serving.records import DRAFT_COLUMNS, Records
from sim.acceptance import Acceptance
from sim.cost import CostModel
from sim.drafting import Drafting, DraftModel, DraftShare
from sim.profile import Profile
from sim.profiles import AnyProfile
from sim.roofline import Roofline


def acceptance_of(scenario: Scenario, workload: Workload, profile: AnyProfile | None = None) -> Acceptance | None:
    """Which drafts stand, for every request; None without speculation.

    Raises:
        InputError: the scenario does not say, and nothing was measured.
    """
    given = scenario.engine.speculation
    if given is None:
        return None
    fallback, found = given.acceptance, given.found
    of_method = [m for m in profile.acceptance if m.method == given.method] if isinstance(profile, Profile) else []
    # The chance of one draft hardly depends on how many are proposed: the nearest k serves.
    measured = min(of_method, key=lambda m: (abs(m.k - given.k), m.k), default=None)
    if measured is not None:
        if fallback is None:
            fallback = BetaAcceptance(mean=measured.mean, concentration=measured.concentration)
        found = measured.found if found is None else found
    if fallback is None:
        if set(workload.tenants) - set(given.by_tenant):
            raise InputError(
                "engine.speculation.acceptance: is required and missing; give it (0.7, or [0.8, 0.6], or {mean: 0.7, "
                "concentration: 10}), or a profile that holds it (servetwin acceptance ... --profile FILE)"
            )
        fallback = 0.0  # of nobody
    if given.method == "draft" or found is None:
        found = 1.0
    rates = draw_rates(given, fallback, workload.tenant, workload.tenants, Streams(scenario.seed)("acceptance"))
    return Acceptance(scenario.seed, rates, given.k, found)


def drafting_of(scenario: Scenario, cost: CostModel) -> Drafting | None:
    """What proposing costs; None where it costs nothing."""
    given = scenario.engine.speculation
    if given is None or given.method == "ngram":
        return None
    if given.draft_model is not None:
        draft = Roofline(given.draft_model, scenario.hardware, dtype=scenario.dtype, kv_dtype=scenario.kv_dtype)
        return DraftModel(draft, given.k)
    assert given.draft_cost is not None
    return DraftShare(cost, given.draft_cost, given.k)


def described(records: Records, scenario: Scenario, cost: CostModel | None) -> dict[str, Any] | None:
    """What became of drafts, JSON-able; None without speculation.

    drafts, accepted: tokens. per_position: share of drafts that stand where all before them do. found: share of the rows behind
    the first token that had drafts.
    break_even: the acceptance above which speculation pays at the run's mean batch and context; None without a cost model.
    """
    given = scenario.engine.speculation
    if given is None:
        return None
    table = {name: records.drafts[:, i] for i, name in enumerate(DRAFT_COLUMNS)}
    drafts, accepted = table["drafts"], table["accepted"]
    rows = len(drafts)
    first = len(np.unique(table["request"]))  # every request's first row has no drafts
    return {
        "method": given.method,
        "k": given.k,
        "drafts": int(drafts.sum()),
        "accepted": int(accepted.sum()),
        "per_position": list(per_position(given.k, drafts, accepted)),
        "found": float((drafts > 0).sum()) / (rows - first) if rows > first else None,
        "break_even": None if cost is None else _break_even(records, given, scenario, cost),
    }


def _break_even(records: Records, given: Speculation, scenario: Scenario, cost: CostModel) -> dict[str, float | None]:
    """batch, context: means of the run. acceptance: at which a verifying step takes as long for each token as plain decoding;
    None if none does. slowdown: what such a step takes, in plain ones."""
    steps = records.steps
    sequences = steps["decode_sequences"] + steps["verify_sequences"]
    working = sequences > 0
    batch = max(1, round(float(sequences[working].mean()))) if working.any() else 1
    requests, served = records.requests, records.requests["output_tokens"] > 0
    lengths = requests["prompt_tokens"][served] + requests["output_tokens"][served] // 2
    context = int(lengths.mean()) if served.any() else 1
    k = given.k
    plain = cost.decode_ns(batch, batch * context, context)
    verifying = StepShape(((1 + k, context),) * batch, sampled=batch * (1 + k), draft_tokens=batch * k)
    drafting = drafting_of(scenario, cost)
    slowdown = (cost.step_ns(verifying) + (drafting.ns(verifying) if drafting is not None else 0)) / plain
    return {"batch": batch, "context": context, "slowdown": slowdown, "acceptance": break_even(slowdown, k)}


def tokens_per_step(acceptance: float, k: int) -> float:
    """Expected tokens of a step that verifies k drafts, each of which stands with this probability if those before it do."""
    return float(sum(acceptance**i for i in range(k + 1)))


def break_even(slowdown: float, k: int) -> float | None:
    """The acceptance at which a step that takes `slowdown` plain ones yields as many tokens as they do; 0 where any pays, None
    where none does."""
    if slowdown <= 1:
        return 0.0
    if slowdown > k + 1:
        return None
    from scipy.optimize import brentq  # takes as long to import as a small run

    return float(brentq(lambda a: tokens_per_step(a, k) - slowdown, 0.0, 1.0))
