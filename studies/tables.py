"""The tables of a report as plain text cells: the terminal and the HTML file show the same ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scenarios.presets import DEFAULT, PRESETS
from serving.request import Status
from sim.measured_acceptance import MeasuredAcceptance
from sim.profile import Profile
from sim.quality import UNQUANTISED, Quality
from studies import step_costs
from studies.results import Run

DASH = "–"


@dataclass(frozen=True)
class Table:
    """title, column heads, rows of cells; the first column is text, the others are numbers. `note` stands below."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def number(value: float | int | None, digits: int = 3) -> str:
    """A figure for people: significant digits, thousands apart, a dash for None."""
    if value is None:
        return DASH
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.2e}"


def milliseconds(value: float | None) -> str:
    """Milliseconds, as seconds from 10 s on."""
    if value is None:
        return DASH
    return f"{number(value / 1e3)} s" if value >= 10_000 else f"{number(value)} ms"


def percent(share: float | None, signed: bool = False) -> str:
    if share is None:
        return DASH
    digits = 1 if abs(share) < 0.1 else 0
    return f"{share * 100:{'+' if signed else ''}.{digits}f} %"


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


def between(summary: Mapping[str, Any]) -> str:
    """The interval of a KV capacity that nobody stated, in brackets; nothing for one that is known."""
    low, high = summary.get("kv_capacity_tokens_low"), summary.get("kv_capacity_tokens_high")
    return f" ({number(low)} to {number(high)})" if low is not None and low != high else ""


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
    lines = [f"Rejected: {len(rows)} that no empty engine could hold"]
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
    from studies import conversations, economics, given_up, pool_tables, senders  # which are made of this file's tables

    percentiles = run.info.get("percentiles", (50, 90, 95, 99))
    held = [objectives(run)] if run.info.get("objectives") else []
    drafts = [speculation(run)] if run.info.get("speculation") else []
    lost = [quality(run)] if run.info.get("quality") else []
    pools = run.info.get("pools")
    return [
        pool_tables.capacity(pools) if pools else capacity(run),
        latency(run.summary, percentiles),
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
    from studies import computed, senders

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


NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E", "queue": "queue time"}
LABELS = {
    "kv_capacity_tokens": "KV capacity (tokens)",
    "kv_capacity_requests": "KV capacity (mean conversations)",
    "kv_cache_hit_percent": "prefix cache hits (%)",
    "kv_internal_fragmentation_percent": "owned KV slots without a token (%)",
    "kv_external_fragmentation_percent": "free KV blocks outside the widest hole (%)",
    "request_goodput": "goodput (1/s)",
    "good_request_fraction": "good fraction",
    "usd_per_1m_output_tokens": "USD per 1M output tokens",
}


def label(key: str) -> str:
    """An export key for people: `p95_ttft_ms` reads "p95 TTFT (ms)"."""
    if key in LABELS:
        return LABELS[key]
    stat, _, rest = key.partition("_")
    metric = rest.removesuffix("_ms")
    if key.endswith("_ms") and metric in NAMES:
        return f"{stat} {NAMES[metric]} (ms)"
    if key.endswith("_throughput"):
        return key.replace("_", " ") + (" (1/s)" if key.startswith("request") else " (tok/s)")
    return key.replace("_", " ")


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


def conformance_table(found: dict[str, Any]) -> Table:
    """Scenarios by group: passed, failed, skipped."""
    names = ("passed", "failed", "skipped")
    rows = [(group, *(str(tally[name]) for name in names)) for group, tally in found["groups"].items()]
    rows.append(("all", *(str(found[name]) for name in names)))
    rows += [(f"{name} scheduler", *(str(t[n]) for n in names)) for name, t in found["schedulers"].items()]
    reasons = Counter(found["skips"].values())
    notes = [*found["failures"][:10], *(f"skipped {count}: {reason}" for reason, count in reasons.most_common())]
    return Table(f"Conformance: {found['steps']:,} steps compared", ("group", *names), rows, "\n".join(notes))
