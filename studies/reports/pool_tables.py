"""The tables of a run of several pools: what each is, what it did, and how good its answers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.reports.tables import DASH, Table, between, number, percent
from studies.results import Run


def capacity(pools: Sequence[Mapping[str, Any]]) -> Table:
    """KV memory of a replica of each pool."""
    rows, notes = [], []
    for pool in pools:
        rows.append((pool["name"], number(pool["kv_capacity_tokens"]), number(pool["kv_capacity_requests"])))
        engine = pool["engine"]
        note = f"{pool['name']}: {engine['num_gpu_blocks'] - 1:,} usable blocks of {engine['block_size']} tokens"
        note += f" on each of {pool['replicas']} replicas" if pool["replicas"] > 1 else ""
        if range_ := between(pool):
            note += f"; tokens{range_}: {pool['kv_capacity']}"
        notes.append(note)
    return Table("KV capacity", ("pool", "tokens", "mean conversations"), rows, "\n".join(notes))


def pools_table(run: Run) -> Table:
    """What each pool did; below, what it is."""
    duration = run.summary["duration"]
    rows, notes = [], []
    for pool in run.info["pools"]:
        cached = pool["kv_cache_hit_percent"]
        rows.append(
            (
                pool["name"],
                number(pool["requests"]),
                f"{number(pool['output_tokens'] / duration if duration else None)} /s",
                percent(pool["binding"].get("busy")),
                percent(None if cached is None else cached / 100),
                number(pool["usd_per_hour"] * pool["replicas"]),
                percent(pool.get("expected_quality")),
            )
        )
        devices = pool["engine"]["tensor_parallel_size"]
        hardware = pool["hardware"] or run.info.get("device") or DASH
        hardware = f"{devices} x {hardware}" if devices > 1 else hardware
        replicas = (
            f"{pool['replicas']} replicas, each on {hardware}" if pool["replicas"] > 1 else f"one replica on {hardware}"
        )
        quality = f"; quality {pool['curve_source']}" if pool["curve_source"] is not None else ""
        notes.append(f"{pool['name']}: {pool['model']}, {replicas}{quality}")
    head = ("pool", "requests", "tokens", "busy", "cached", "USD/h", "quality")
    return Table("Pools", head, rows, "\n".join(notes))


def answers(run: Run) -> Table:
    """How good answers are, and what a judge did."""
    s = run.summary
    rows = [("expected quality", percent(s["expected_quality"]))]
    if "judged" in s:
        rows += [
            ("answers judged", number(s["judged"])),
            ("sent on to a larger model", number(s["escalated"])),
            ("USD for judging", number(s["usd_judging"])),
        ]
    note = "the mean chance that an answer is right; unanswered requests do not count"
    judge = run.info.get("judge")
    if s["expected_quality"] is None:
        note = s["refused"]["expected_quality"]
    elif judge is not None and (judge["recall"], judge["false_positive_rate"]) == (1.0, 0.0):
        note += "; the judge is taken to be always right"
    return Table("Quality of answers", ("", "value"), rows, note)


def binds(pools: Sequence[Mapping[str, Any]]) -> Table:
    """What busy time of each pool goes to."""
    rows = []
    for pool in pools:
        found = pool["binding"]
        rows += [
            (f"{pool['name']}: engine busy", percent(found.get("busy"))),
            (f"{pool['name']}: of that with a queue", percent(found.get("waiting"))),
        ]
        rows += [
            (f"{pool['name']}: {name}", percent(share)) for name, share in found["terms"].items() if share >= 0.005
        ]
    roofline = any(str(pool["cost"]).startswith("roofline") for pool in pools)
    note = "Step costs of data sheets are a roofline: nothing there was measured." if roofline else ""
    return Table("What binds", ("", "share of time"), rows, note)


def tables_of(run: Run) -> list[Table]:
    """What a run of several pools has beside other runs."""
    return [pools_table(run), answers(run)] if run.info.get("pools") else []
