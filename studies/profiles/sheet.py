"""All that stands behind a profile, of either kind, as facts and tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sim.operator_profile import OperatorProfile
from sim.profile import Profile
from sim.profiles import AnyProfile
from studies import profile_list
from studies.reports.measurement_tables import profile_table
from studies.reports.tables import Table, number, percent

SPANS = {
    "tokens": "tokens of a step",
    "prefill_query": "tokens of a chunk",
    "prefill_context": "cached before a chunk",
    "decode_sequences": "decodes",
    "decode_context": "context of decodes",
    "sampled": "sampled rows",
}
"""Parts of a domain, in words."""

UNITS = {
    "chunk": ("a prefill chunk", "ms", 1e6),
    "pair": ("a (query, key) pair of prefill attention", "ns", 1.0),
    "prefill_context": ("a cached token before a chunk", "µs", 1e3),
    "decode_sequence": ("a decode", "µs", 1e3),
    "decode_context": ("a token of a decode's context", "µs", 1e3),
    "head": ("the output head, when anything samples", "ms", 1e6),
    "head_row": ("each sampled row", "µs", 1e3),
}
"""Coefficients of a fit: what one is for, its unit, and nanoseconds of that."""


@dataclass(frozen=True)
class Sheet:
    """facts: by name, in the order in which they are told. tables: errors first, then domain, terms, sources, gaps."""

    name: str
    kind: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]


def sheet(profile: AnyProfile) -> Sheet:
    """The sheet of a profile."""
    return _of_operators(profile) if isinstance(profile, OperatorProfile) else _of_steps(profile)


def _of_operators(profile: OperatorProfile) -> Sheet:
    errors = [e.mape for e in profile.cv_error.values() if e.observations]
    versions = sorted({p.version for p in profile.provenance if p.version})
    rows = sum(p.rows for p in profile.provenance)
    facts = [
        ("kind", "composed of operators that were measured one by one"),
        ("model", profile.model),
        ("precision", f"{profile.dtype}, KV cache in {profile.kv_dtype}"),
        ("hardware", f"{profile.tensor_parallel_size} x {profile.hardware}"),
        ("engine", profile.engine),
        ("versions", ", ".join(versions)),
        ("made", profile.created),
        ("hash", profile.hash()),
        ("coverage", f"{rows:,} measured rows of {len(profile.provenance)} operators"),
        ("cross-validated error", f"{percent(min(errors))} to {percent(max(errors))}, by operator" if errors else ""),
    ]
    said = f"{profile.model} in {profile.dtype} on {profile.tensor_parallel_size} x {profile.hardware} with {profile.engine}"
    return Sheet(profile.name, "operators", said, _known(facts), tuple(profile_list.tables(profile)))


def _of_steps(profile: Profile) -> Sheet:
    source, whole = profile.source, profile.cv_error.get("all")
    facts = [
        ("kind", "fitted to whole steps"),
        ("model", profile.model),
        ("precision", f"{profile.dtype}, KV cache in {profile.kv_dtype}"),
        ("device", source.details.get("device_name", source.device)),
        ("clock", source.clock),
        ("threads", str(source.threads or "")),
        *((name.replace("_", " "), value) for name, value in source.details.items() if name != "device_name"),
        ("made", profile.created),
        ("hash", profile.hash()),
        ("hash of the measurements", profile.data_hash),
        ("coverage", _coverage(profile)),
        ("cross-validated error", percent(whole.mape) if whole is not None else ""),
        ("noise of steps", f"standard deviation {percent(profile.noise.sd)}" if profile.noise is not None else ""),
    ]
    found = [profile_table(profile), _domain(profile), _terms(profile), _knots(profile), _outliers(profile)]
    device = source.details.get("device_name", source.device)
    said = f"{profile.model} in {profile.dtype} on {device}, fitted to whole steps"
    return Sheet(profile.name, "steps", said, _known(facts), tuple(table for table in found if table.rows))


def _known(facts: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in facts if value)


def _coverage(profile: Profile) -> str:
    """How many steps it rests on, by kind; of a log only their number is kept."""
    if not profile.measurements:
        whole = profile.cv_error.get("all")
        return f"{whole.observations:,} logged steps, which it does not carry" if whole is not None else "not carried"
    kinds = Counter(kind_of(m.prefill, m.decode_sequences) for m in profile.measurements)
    repeats = max(m.repeats for m in profile.measurements)
    return f"{', '.join(f'{n} {kind}' for kind, n in kinds.items())} shapes, {repeats} repeats of each"


def kind_of(prefill: object, decodes: int) -> str:
    """`decode`, `prefill` or `mixed`, of a step's parts."""
    return "decode" if not prefill else "mixed" if decodes else "prefill"


def _domain(profile: Profile) -> Table:
    spans = [(words, getattr(profile.domain, name)) for name, words in SPANS.items()]
    return Table("Domain", ("", "measured"), [(words, f"{r.min:,} to {r.max:,}") for words, r in spans])


def _terms(profile: Profile) -> Table:
    values = profile.coefficients.model_dump()
    rows = [(words, f"{number(values[name] / ns)} {unit}") for name, (words, unit, ns) in UNITS.items()]
    return Table(
        "Terms",
        ("for", "a step takes"),
        rows,
        "Fitted; none is below 0. What a step's tokens cost stands in the knots.",
    )


def _knots(profile: Profile) -> Table:
    rows = [(f"{tokens:,}", number(ns / 1e6)) for tokens, ns in profile.dense]
    return Table(
        "Dense layers and all that a step costs in any case", ("tokens", "ms"), rows, "Straight between the knots."
    )


def _outliers(profile: Profile) -> Table:
    rows = [
        (
            f"{kind_of(o.shape.prefill, o.shape.decode_sequences)} of {o.shape.shape.tokens:,} tokens",
            number(o.ns / 1e6),
            number(o.shape.ns / 1e6),
        )
        for o in profile.outliers
    ]
    return Table("Outlying repeats", ("step", "took (ms)", "median (ms)"), rows, "The median of a shape ignores them.")
