"""What a run was worth to each class and tenant, and what is not known of how long they let answers get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scenarios.fields import format_duration
from scenarios.models import BYTES
from serving.group_metrics import MOST_GROUPS, by_class, by_tenant
from serving.metrics import SLO
from serving.records import Records
from studies.reports.tables import Table, number, percent
from studies.results import Run

SHOWN = 20
_LIMITS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def figures(records: Records, slo: SLO, percentiles: Sequence[float]) -> dict[str, dict[str, Any]]:
    """`by_class` and `by_tenant`, each where there are several; figures under the export keys."""
    found = {"by_class": by_class(records, slo, percentiles), "by_tenant": by_tenant(records, slo, percentiles)}
    return {name: groups for name, groups in found.items() if groups}


def tables_of(run: Run) -> list[Table]:
    """A row for each class, and for each tenant."""
    found = []
    if "by_class" in run.summary:
        found.append(_table("Classes", run.summary["by_class"], _promises(run)))
    if "by_tenant" in run.summary:
        found.append(_table("Tenants", run.summary["by_tenant"], _left_out(run)))
    return found


def _table(title: str, groups: Mapping[str, Mapping[str, Any]], note: str) -> Table:
    """How many were sent and kept their limits, and latencies up to p90, which no sample is too small for; what ended otherwise,
    tries and hits only where there are any."""
    columns = {
        "sent": lambda group: number(group["submitted"]),
        "tries": lambda group: number(group.get("tries")),
        "failed": lambda group: number(group["rejected"] + group["timed_out"] + group["aborted"]),
        "good": lambda group: percent(group["good_request_fraction"]),
        "hits": lambda group: percent((group["kv_cache_hit_percent"] or 0) / 100),
        "TTFT ms": lambda group: number(group["mean_ttft_ms"]),
        "p90": lambda group: number(group.get("p90_ttft_ms")),
        "TPOT ms": lambda group: number(group["mean_tpot_ms"]),
        "E2E ms": lambda group: number(group["mean_e2el_ms"]),
    }
    told = {
        "tries": any(group.get("tries", 0) > group["submitted"] for group in groups.values()),
        "failed": any(group["completed"] + group["in_flight"] < group["submitted"] for group in groups.values()),
        "hits": any(group["kv_cache_hit_percent"] for group in groups.values()),
    }
    shown = [name for name in columns if told.get(name, True)]
    rows = [(name, *(columns[key](group) for key in shown)) for name, group in list(groups.items())[:SHOWN]]
    return Table(title, ("", *shown), rows, note)


def _promises(run: Run) -> str:
    """What each class is promised, where that is its own."""
    said = []
    for name, limits in zip(run.records.classes, run.records.class_slo, strict=False):
        if limits is not None:
            parts = [f"{_LIMITS[key]} {format_duration(value)}" for key, value in limits.items() if value is not None]
            said.append(f"{name}: {', '.join(parts) or 'nothing'}")
    rest = "; to all others what the scenario promises" if len(said) < len(run.records.classes) else ""
    return f"Promised by class: {'; '.join(said)}{rest}." if said else ""


def _left_out(run: Run) -> str:
    count = len(run.records.tenants)
    return f"The {SHOWN} of {count:,} that sent most; result.json has up to {MOST_GROUPS}." if count > SHOWN else ""


def sentence(run: Run) -> str:
    """What answers were multiplied by, and what nobody knows of it; nothing where answers are those of the plain model."""
    parts: Sequence[Mapping[str, Any]] = run.info.get("answer_lengths") or ()
    stated = [f"{p['what']} {p['name']} x {p['factor']:g}" for p in parts if p["known"]]
    models = sum(p["what"] == "model" for p in parts)
    if not (stated or models > 1 or any(_changes(p) for p in parts)):
        return ""
    unknown = [f"{p['what']} {p['name']}" for p in parts if not p["known"]]
    said = ["answer lengths: " + (", ".join(stated) if stated else "as stated")]
    said += [f"unknown, taken as 1: {', '.join(unknown)}"] if unknown else []
    return "; ".join(said)


def _changes(part: Mapping[str, Any]) -> bool:
    """Whether it is something that answers may well depend on: fewer bits, or a transform."""
    return part["what"] == "transform" or (part["what"] == "precision" and BYTES.get(part["name"], 2) < 2)
