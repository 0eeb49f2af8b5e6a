"""Tables of what was measured: step costs, precisions, drafts, and an execution beside its simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.measured_acceptance import MeasuredAcceptance
from sim.profile import Profile
from sim.quality import UNQUANTISED, Quality
from studies.reports.tables import DASH, Table, label, number, percent


def quality_table(found: Quality) -> Table:
    """Each measured precision against the unquantised model."""
    first = (UNQUANTISED, UNQUANTISED, number(found.reference_perplexity), DASH, DASH, DASH)
    rows = [
        (
            loss.weights, loss.kv, number(loss.perplexity), number(loss.mean_kl), number(loss.p99_kl),
            percent(loss.top1_agreement),
        )
        for loss in found.losses
    ]  # fmt: skip
    note = (
        f"{number(found.tokens)} predicted tokens of {found.text}, windows of {number(found.window)}; KL divergence in nats "
        f"against {found.reference} as it is"
    )
    head = ("weights", "KV", "perplexity", "mean KL", "p99 KL", "same top token")
    return Table(f"Quality of {found.model}", head, [first, *rows], note)


def acceptance_table(found: MeasuredAcceptance) -> Table:
    """How many drafts stood for a real model."""
    rows = [
        (f"drafts at position {i + 1} that stand", DASH if share is None else percent(share))
        for i, share in enumerate(found.per_position)
    ]
    rows += [
        ("acceptance over requests, mean", percent(found.mean)),
        ("concentration of its beta distribution", number(found.concentration)),
        ("steps that had drafts", percent(found.found)),
        ("target steps per output token", number(found.steps_per_token)),
    ]
    by = found.method if found.draft_model is None else f"draft model {found.draft_model}"
    note = (
        f"{number(found.verifications)} verified rows of {number(found.requests)} answers, which continue {found.text}"
    )
    return Table(f"Drafts for {found.model}: {by}, {found.k} at a time", ("", "value"), rows, note)


def side_by_side(rows: Sequence[dict[str, Any]], repeats: int) -> Table:
    """Executed (mean of the repeats) against simulated, from `outcome` rows of a validation."""
    cells = [
        (
            label(str(row["metric"])),
            number(row["live"]),
            number(row["simulated"]),
            percent(row["error"], signed=True),
            percent(row["noise"]),
        )
        for row in rows
    ]
    note = "noise of the machine needs --repeats 2 or more"
    if repeats > 1:
        note = f"executed: mean of {repeats} repeats; noise: largest difference between two of them"
    return Table("Simulated against executed", ("", "executed", "simulated", "error", "noise"), cells, note)


def profile_table(profile: Profile) -> Table:
    """How good a fit is: errors of shapes that the fit did not see."""
    rows = [
        (
            kind,
            f"{e.observations:,}",
            percent(e.mape),
            percent(e.signed_mean, signed=True),
            percent(e.worst, signed=True),
        )
        for kind, e in profile.cv_error.items()
    ]
    domain, shapes = profile.domain, f"{len(profile.measurements):,} shapes: " if profile.measurements else ""
    note = (
        f"{profile.model} in {profile.dtype} on {profile.source.device}, {profile.source.clock} clock; "
        f"{shapes}1 to {domain.tokens.max:,} tokens, up to {domain.decode_sequences.max:,} decodes with "
        f"{domain.decode_context.max:,} tokens of context together"
    )
    if shapes:
        note += f"; {len(profile.outliers)} outlying repeats"
    for jump in profile.jumps:
        note += (
            f"\n{jump.kind} of {abs(jump.ns) / 1e6:.2g} ms between {jump.tokens_from:,} and {jump.tokens_to:,} tokens"
        )
    head = ("steps", "shapes" if shapes else "logged", "MAPE", "mean error", "worst")
    return Table(f"Profile {profile.name}", head, rows, note)
