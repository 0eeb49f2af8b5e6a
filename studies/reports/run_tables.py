"""The tables of a run's report, and the lines above them: the terminal and the HTML file show the same ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from scenarios.presets import DEFAULT, PRESETS
from serving.request import Status
from sim.quality import UNQUANTISED
from studies.aspects import binding, computed, conversations, economics, given_up, senders, step_costs
from studies.explaining import explain
from studies.reports import pool_tables
from studies.reports.tables import DASH, LABELS, Table, between, milliseconds, number, percent
from studies.results import Run
from studies.statistics import steady_state


def capacity(run: Run) -> Table:
    """KV memory in tokens and in conversations: the headline."""
    s = run.summary
    engine = run.info.get("engine", {})
    note = ""
    if engine:
        note = f"{engine['num_gpu_blocks'] - 1:,} usable blocks of {engine['block_size']} tokens"
        replicas = run.info.get("replicas", 1)
        note += f", on each of {replicas} replicas" if replicas > 1 else ""
        if range_ := between(s):
            note += f"; tokens{range_}: {run.info.get('kv_capacity', 'derived')}"
    rows = [
        ("tokens", number(s["kv_capacity_tokens"])),
        ("mean conversations", number(s["kv_capacity_requests"])),
    ]
    return Table("KV capacity", ("", "fits"), rows, note)


def latency(summary: dict[str, Any], percentiles: Sequence[float] = (50, 90, 95, 99)) -> Table:
    """Latencies, with every refusal explained below."""
    names = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2el"), ("queue", "queue"))
    stats = ("mean", *(f"p{p:g}" for p in percentiles))
    rows = []
    reasons: dict[str, list[str]] = {}  # by metric
    for title, key in names:
        cells = [f"{title} (ms)"]
        for stat in stats:
            name = f"{stat}_{key}_ms"
            cells.append(number(summary.get(name)))
            if name in summary["refused"]:
                why = summary["refused"][name]
                if why not in reasons.setdefault(title, []):
                    reasons[title].append(why)
        rows.append(tuple(cells))
    notes = "\n".join(f"{DASH} {title}: {_why(whys)}" for title, whys in reasons.items())
    return Table("Latency", ("", *stats), rows, notes)


def _why(reasons: Sequence[str]) -> str:
    """Why figures are withheld, in few words: neighbours in time are alike, and count as fewer requests."""
    said, tails = [], []
    for reason in reasons:
        found = re.fullmatch(r"([\d,]+) effective samples of [\d,]+; (p[\d.]+) needs ([\d,]+)", reason)
        if found:
            tails.append("{1}: {0} of {2}".format(*found.groups()))
        else:
            said.append(reason)
    if tails:
        said.append(f"too few independent requests ({', '.join(tails)})")
    return "; ".join(said)


def throughput(run: Run) -> Table:
    s = run.summary
    rows = [
        ("duration", f"{number(s['duration'], 4)} s" if s["duration"] is not None else DASH),
        ("requests", f"{number(s['request_throughput'])} /s"),
        ("output tokens", f"{number(s['output_throughput'])} /s"),
        ("all tokens", f"{number(s['total_token_throughput'])} /s"),
        ("per user", f"{number(s['output_token_throughput_per_user'])} tok/s"),
    ]
    if s["good_request_fraction"] is not None:
        rows += [
            ("goodput", f"{number(s['request_goodput'])} /s"),
            ("good fraction", percent(s["good_request_fraction"])),
        ]
    for key in ("kv_internal_fragmentation_percent", "kv_external_fragmentation_percent"):
        if s.get(key) is not None:
            rows.append((LABELS[key].removesuffix(" (%)"), f"{s[key]:.1f} %"))
    if s["kv_cache_hit_percent"] is not None:
        rows.append(("prefix cache hits", f"{s['kv_cache_hit_percent']:.1f} %"))
    return Table("Throughput", ("", "value"), rows)


def quality(run: Run) -> Table:
    """What the precision costs beside what it gains: measured, or said not to be."""
    found = run.info["quality"]
    loss = found["loss"]
    parts = [
        f"{found[key]} {name}" for key, name in (("weights", "weights"), ("kv", "KV")) if found[key] != UNQUANTISED
    ]
    rows = [("precision", ", ".join(parts))]
    if loss is None:
        note = "servetwin quality measures it, where the model's weights are at hand"
        return Table("Quality", ("", "value"), [*rows, ("loss", "not measured")], note)
    rows += [
        ("perplexity", number(loss["perplexity"])),
        ("perplexity, unquantised", number(found["reference_perplexity"])),
        ("mean KL divergence", f"{number(loss['mean_kl'])} nats"),
        ("p99 KL divergence", f"{number(loss['p99_kl'])} nats"),
        ("same likeliest token", percent(loss["top1_agreement"])),
    ]
    note = f"measured against {found['reference']} on {number(found['tokens'])} tokens of {found['text']}"
    return Table("Quality", ("", "value"), rows, note)


def speculation(run: Run) -> Table:
    """What became of drafts, and whether they pay."""
    found = run.info["speculation"]
    shares = ", ".join(DASH if share is None else percent(share) for share in found["per_position"])
    rows = [
        ("proposed by", f"{found['method']}, {found['k']} at a time"),
        ("drafts verified", number(found["drafts"])),
        ("drafts that stood", number(found["accepted"])),
        ("stood, by position", shares),
        ("target steps per output token", number(run.summary["target_steps_per_output_token"])),
        ("steps with drafts", percent(found["found"])),
    ]
    note = "a position counts where all drafts before it stood"
    even = found["break_even"]
    if even is not None:
        at = f"batch {even['batch']:,}, context {even['context']:,}"
        needed = "none does" if even["acceptance"] is None else percent(even["acceptance"])
        rows += [
            (f"a verifying step ({at})", f"{even['slowdown']:.2f} plain ones"),
            ("break-even acceptance", needed),
        ]
        note += "; above the break-even acceptance a token takes less time than without drafts"
    return Table("Speculation", ("", "value"), rows, note)


def objectives(run: Run) -> Table:
    """What the run as a whole was held to; a dash where the sample cannot carry the figure."""
    rows = []
    for stated in run.info.get("objectives", ()):
        value = run.summary[stated["key"]]
        found = milliseconds(value) if stated["key"].endswith("_ms") else number(value)
        rows.append((stated["objective"], found, {True: "met", False: "missed", None: DASH}[stated["met"]]))
    return Table("Objectives", ("", "found", "verdict"), rows)


def outcomes(run: Run) -> Table:
    """How requests ended; rejected ones by reason."""
    s = run.summary
    names = ("submitted", "completed", "rejected", "timed_out", "aborted", "in_flight", "never_sent")
    rows = [(name.replace("_", " "), number(s[name])) for name in names if s[name] or name in names[:2]]
    rows += [("preemptions", number(s["preemptions"])), ("most at once", number(s["max_concurrent_requests"]))]
    for what, there, back in (("swapped", "swap_out", "swap_in"), ("offloaded", "offload", "fetch")):
        if s.get(f"kv_{there}_blocks"):
            both = f"{number(s[f'kv_{there}_blocks'])} out, {number(s[f'kv_{back}_blocks'])} in"
            rows.append((f"KV blocks {what} to the host", both))
    return Table("Requests", ("", "count"), rows, "\n".join(rejections(run)))


def rejections(run: Run, show: int = 3) -> list[str]:
    """Rejected requests, counted and named with the reason."""
    r = run.records.requests
    rows = np.flatnonzero(r["status"] == Status.REJECTED)
    if not len(rows):
        return []
    lines = [f"Rejected: {len(rows):,}, {binding.why_rejected(run.records)}"]
    named = run.records.info.get("rejected")
    reasons = {entry["request"]: entry["reason"] for entry in named} if isinstance(named, list) else {}
    for i in rows[:show].tolist():
        lines.append(f"  request {i}: {reasons.get(i, 'prompt of ' + number(r['prompt_tokens'][i]) + ' tokens')}")
    if len(rows) > show:
        lines.append(f"  and {len(rows) - show} more")
    return lines


def binds(run: Run) -> Table:
    found = run.info.get("binding", {})
    rows = [("engine busy", percent(found.get("busy"))), ("of that with a queue", percent(found.get("waiting")))]
    rows += [(name, percent(share)) for name, share in found.get("terms", {}).items() if share >= 0.005]
    note = ""
    if found.get("extrapolation"):
        note = f"{percent(found['extrapolated'])} of busy time is outside what was measured ({found['extrapolation']})"
        if found.get("outside"):
            note = found["extrapolation"]
        if str(run.info.get("cost", "")).startswith("roofline"):
            note = "Step costs are a roofline of data sheets: nothing here was measured."
    return Table("What binds", ("", "share of time"), rows, note)


def every(run: Run) -> list[Table]:
    """All tables of a run, KV capacity first."""
    percentiles = run.info.get("percentiles", (50, 90, 95, 99))
    held = [objectives(run)] if run.info.get("objectives") else []
    drafts = [speculation(run)] if run.info.get("speculation") else []
    lost = [quality(run)] if run.info.get("quality") else []
    pools = run.info.get("pools")
    return [
        pool_tables.capacity(pools) if pools else capacity(run),
        latency(run.summary, percentiles),
        *steady_state.tables_of(run),
        *explain.tables_of(run),
        throughput(run),
        *pool_tables.tables_of(run),
        *senders.tables_of(run),
        *given_up.tables_of(run),
        *drafts,
        *lost,
        *conversations.tables_of(run),
        *economics.tables_of(run),
        *held,
        pool_tables.binds(pools) if pools else binds(run),
        outcomes(run),
    ]


def heading(run: Run) -> str:
    """One line: what was run, how, on which clock."""
    i = run.info
    way = "simulated" if i.get("way") == "simulate" else f"executed on {i.get('device', '?')}, {i.get('clock')} clock"
    devices = i.get("engine", {}).get("tensor_parallel_size", 1)
    hardware = f"{devices} x {i['hardware']}" if devices > 1 and i.get("hardware") else i.get("hardware")
    parts = [i.get("model"), hardware, i.get("cost") and f"cost: {i['cost']}", f"seed {i.get('seed')}"]
    return f"{run.name}: {way}; " + ", ".join(str(part) for part in parts if part)


def about(run: Run) -> list[str]:
    """What a reader must know beside the heading: what was sent (a trace rewritten, or requests drawn), what is set otherwise
    than the scenario says, what was overridden."""
    lines = [f"workload: {run.info['workload']}"] if run.info.get("workload") else []
    preset = PRESETS.get(str(run.info.get("preset")))
    if preset is not None and run.info["preset"] != DEFAULT:
        lines.append(f"engine {run.info['preset']}: {preset.about}")
    lines += run.info.get("resolved", ())
    lines += [said] if (said := senders.sentence(run)) else []
    costs = step_costs.sentence(run.info.get("profile"))
    lines += [costs] if costs else []
    lines += computed.sentences(run.info)
    if run.info.get("set"):
        lines.append("set: " + ", ".join(run.info["set"]))
    return lines
