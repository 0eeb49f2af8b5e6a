"""The profiles that come with the package: a list with what each is worth, and one with all that stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from sim.profiles import AnyProfile, load_profile, shipped_profiles
from studies.reports.measurement_tables import profile_table
from studies.reports.tables import Table, number, percent


def rows(wanted: Mapping[str, str | int | None]) -> list[dict[str, Any]]:
    """One row a shipped profile that has all of the wanted values (None: any); text is compared without case.

    cv_error: mean over operators (or over steps) of the mean absolute error of rows that were predicted without themselves.
    """
    found = []
    for name in shipped_profiles():
        row = row_of(name, load_profile(name))
        if all(value is None or str(row[key]).lower() == str(value).lower() for key, value in wanted.items()):
            found.append(row)
    return found


def row_of(name: str, profile: AnyProfile) -> dict[str, Any]:
    """What the list says of one profile."""
    domain, errors = profile.domain, {k: e.mape for k, e in profile.cv_error.items() if e.observations}
    composed = isinstance(profile, OperatorProfile)
    if not composed:
        errors = {k: v for k, v in errors.items() if k == "all"} or errors
    return {
        "name": name,
        "kind": "operators" if composed else "steps",
        "model": profile.model,
        "hardware": profile.hardware if isinstance(profile, OperatorProfile) else profile.source.device,
        "dtype": profile.dtype,
        "kv_dtype": profile.kv_dtype,
        "tensor_parallel_size": profile.tensor_parallel_size if isinstance(profile, OperatorProfile) else 1,
        "engine": profile.engine if isinstance(profile, OperatorProfile) else "servetwin",
        "cv_error": sum(errors.values()) / len(errors) if errors else None,
        "cv_worst": max(errors, key=lambda k: errors[k]) if errors else None,
        "domain": domain.model_dump(),
        "jumps": len(profile.jumps),
    }


def list_tables(found: list[dict[str, Any]]) -> list[Table]:
    """For the terminal: a table a device and engine, of at most 80 characters so that names stay whole; the last has the note."""
    short = {"bfloat16": "bf16", "float32": "fp32"}
    groups: dict[str, list[tuple[str, ...]]] = {}
    widest = max((len(row["name"]) for row in found), default=0)
    for row in found:
        domain = row["domain"]
        cells = (
            row["name"].ljust(widest), short.get(row["dtype"], row["dtype"]), percent(row["cv_error"]),
            number(domain["tokens"]["max"]), number(domain["decode_sequences"]["max"]), number(domain["decode_context"]["max"]),
        )  # fmt: skip
        groups.setdefault(f"{row['hardware']}, {row['engine']}", []).append(cells)
    head = ("profile", "dtype", "CV error", "tokens", "decodes", "context")
    note = (
        f"{len(found)} profile{'' if len(found) == 1 else 's'}. CV error: of rows predicted without themselves, mean over operators. "
        "tokens, decodes, context: the most that was measured in a step, of decodes at once, and of tokens behind each (cpu: behind "
        "all). In a scenario: cost: {profile: NAME}, or cost: {profile: auto}. What stands behind one: servetwin profiles NAME."
    )
    last = len(groups) - 1
    return [
        Table(title, head, cells, note if k == last else "") for k, (title, cells) in enumerate(groups.items())
    ] or [Table("Shipped profiles", head, [], "None is of that; without filters, servetwin profiles lists all.")]


FALLS_SHOWN = 8
FALLS = (
    "The deepest. Kernels split a few long contexts worse than many short ones; a step counts the mean of its contexts, so that a short "
    "decode beside long ones may make it cheaper by so much of its attention. With contexts, and with decodes at their mean, costs never fall."
)


def tables(profile: AnyProfile) -> list[Table]:
    """All that stands behind one profile."""
    if not isinstance(profile, OperatorProfile):
        return [profile_table(profile)]
    domain = profile.domain
    errors = [
        (name, f"{e.observations:,}", percent(e.mape), percent(e.signed_mean, signed=True), percent(e.p90), percent(e.worst, signed=True))
        for name, e in profile.cv_error.items()
    ]  # fmt: skip
    spans = [
        (what, f"{r.min:,} to {r.max:,}")
        for what, r in (
            ("tokens of a step", domain.tokens), ("tokens of a chunk", domain.prefill_query),
            ("cached before it", domain.prefill_context), ("decodes", domain.decode_sequences),
            ("context of a decode", domain.decode_context), ("sampled rows", domain.sampled),
        )
    ]  # fmt: skip
    sources = [(p.operator, f"{p.rows:,}" if p.rows else "none", p.hash or "roofline") for p in profile.provenance]
    files = sorted({f"{p.source} ({p.version}{f', {p.licence}' if p.licence else ''})" for p in profile.provenance})
    constants = [(c.name, f"{c.value:g} {c.unit}".strip(), c.basis) for c in profile.constants]
    why = "\n".join(f"{c.name}: {c.why}" for c in profile.constants)
    falls = [
        (f"{j.kind} at {j.tokens_from:,} to {j.tokens_to:,} tokens", f"{j.ns / 1e6:.3g} ms") for j in profile.jumps
    ]
    batches = [
        (f"{total:,} tokens of context: {n:,} to {more:,} decodes", percent(-share, signed=True))
        for n, more, total, share in OperatorCost(profile).falls()[:FALLS_SHOWN]
    ]
    about = (
        f"{profile.model} in {profile.dtype}, KV in {profile.kv_dtype}, on {profile.tensor_parallel_size} x {profile.hardware} "
        f"with {profile.engine}{f'; composed {profile.created}' if profile.created else ''}"
    )
    found = [
        Table(f"Profile {profile.name}", ("operator, predicted without itself", "rows", "MAPE", "mean error", "p90", "worst"), errors, about),
        Table("Domain", ("", "measured"), spans),
        Table("Operators", ("", "rows", "hash"), sources, "\n".join(files)),
        Table("Constants", ("", "value", "basis"), constants, why),
        Table("Dips and leaps", ("", "by"), falls, "Where measured tables fall or leap with more tokens; nothing is ironed out."),
        Table("Falls of decode attention", ("the same contexts in more decodes", "by"), batches, FALLS),
        Table("Not modelled", ("what",), [(text,) for text in profile.not_modelled]),
    ]  # fmt: skip
    return [table for table in found if table.rows]
