"""Knobs of what is sent: when requests come, how long they are, what they share, and who sends them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dashboard.knobs.controls import Choice, Knob, Number, Scale, given
from scenarios import Scenario
from scenarios.agents import Agents
from scenarios.arrivals import Arrivals, ClosedLoop, ExponentialPause, FixedPause
from scenarios.prompts import Prompts, Sessions
from scenarios.workload_spec import WorkloadSpec

_RATES = (*tuple(float(f"{m}e{e}") for e in (-1, 0, 1, 2) for m in (1, 1.5, 2, 3, 4, 5, 6, 8)), 1000.0)
_REQUESTS = (50, 100, 200, 300, 500, 1000, 2000, 3000, 6000, 10_000, 20_000, 50_000, 100_000)
_PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_LENGTHS = {
    "{distribution: lognormal, median: 60, sigma: 0.8, max: 1000}": "short, about 60 tokens",
    "{distribution: lognormal, median: 250, sigma: 0.8, max: 4000}": "medium, about 250 tokens",
    "{distribution: lognormal, median: 1000, sigma: 0.8, max: 16000}": "long, about 1,000 tokens",
    "{distribution: lognormal, median: 6000, sigma: 0.8, max: 60000}": "very long, about 6,000 tokens",
}
_COUNTS = {
    "{distribution: fixed, tokens: 1}": "one",
    "{distribution: uniform, min: 1, max: 3}": "1 to 3",
    "{distribution: uniform, min: 2, max: 8}": "2 to 8",
    "{distribution: uniform, min: 3, max: 15}": "3 to 15",
    "{distribution: uniform, min: 10, max: 40}": "10 to 40",
}
_TENANTS = {
    "[]": "one tenant",
    "[{name: a}, {name: b}]": "two, alike",
    "[{name: heavy, weight: 4}, {name: light}]": "two, one sends four times as much",
    "[{name: first, priority: 0}, {name: last, priority: 1, weight: 3}]": "two, the smaller one with priority",
}


def knobs(scenario: Scenario) -> Iterator[Knob]:
    """Of all of a workload, or of every part of a mix."""
    spec = scenario.workload
    parts = (
        {"workload": spec} if spec.mix is None else {f"workload.mix.{name}": part for name, part in spec.mix.items()}
    )
    for path, part in parts.items():
        suffix = "" if spec.mix is None else f", {path.removeprefix('workload.mix.')}"
        yield from _of_workload(path, part, suffix)


def _of_workload(path: str, spec: WorkloadSpec, suffix: str) -> Iterator[Knob]:
    if spec.replays:
        assert spec.trace is not None
        yield Knob(
            f"{path}.trace.speedup", "Workload", f"Replay speed{suffix}",
            "2 sends the trace's requests twice as fast. Think time after an answer is not shortened.",
            Scale((0.1, 0.2, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0), "×"), spec.trace.speedup,
        )  # fmt: skip
        yield Knob(
            f"{path}.trace.limit", "Workload", f"First requests only{suffix}",
            "A shorter trace answers sooner; percentiles in the tail need more requests.",
            Number(1, 10_000_000, 1000, whole=True, optional=True), spec.trace.limit,
        )  # fmt: skip
        return
    if spec.arrivals is not None:
        talks = isinstance(spec.prompts, Sessions | Agents)
        yield from _arrivals(f"{path}.arrivals", spec.arrivals, suffix, talks)
    if spec.requests is not None:
        yield Knob(
            f"{path}.requests", "Workload", f"Requests{suffix}",
            "How long the run is. A p99 needs 299 requests at least, and thousands to be steady.",
            Scale(_REQUESTS), spec.requests,
        )  # fmt: skip
    for name, label in (("input", "New prompt tokens"), ("output", "Answer tokens")):
        if (value := getattr(spec, name)) is not None:
            yield Knob(
                f"{path}.{name}", "Workload", f"{label}{suffix}",
                "Prompts cost compute once; answers cost a step a token and hold KV memory all the while.",
                *given(value, _LENGTHS),
            )  # fmt: skip
    yield from _prompts(f"{path}.prompts", spec.prompts, suffix)
    if not spec.classes:
        yield Knob(
            f"{path}.tenants", "Workload", f"Tenants{suffix}",
            "Customers who share the engines: whoever sends most is served most, unless the queue order is fair or has priorities.",
            *given(list(spec.tenants), _TENANTS),
        )  # fmt: skip
    share = getattr(spec.difficulty, "share", None)
    if share is not None:
        yield Knob(
            f"{path}.difficulty.share", "Workload", f"Hard requests{suffix}",
            "Share of the requests that a small model often gets wrong: they decide whether a cascade pays.",
            Scale((0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)), share,
        )  # fmt: skip


def _arrivals(path: str, arrivals: Arrivals, suffix: str, talks: bool) -> Iterator[Knob]:
    knob = partial(Knob, group="Workload")
    if isinstance(arrivals, ClosedLoop):
        yield knob(
            f"{path}.concurrency", label=f"Clients{suffix}",
            help="Each waits for its answer before it asks again: load falls when the system slows, so queues look shorter than they "
            "would be with real users.",
            control=Scale((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)), value=arrivals.concurrency,
        )  # fmt: skip
        yield _pause(
            f"{path}.think_time", arrivals.think_time, f"Think time{suffix}",
            "From an answer to the client's next request: people who read load the engine far less than programs do.",
        )  # fmt: skip
        return
    for field, label, help in (
        ("rate", "Conversations a second" if talks else "Requests a second",
         "More load fills batches, which is cheap, until queues or KV memory fill, which is not."),
        ("peak_rate", "Peak, requests a second", "How high the spike is: whether it is survived depends on what the queue may hold."),
    ):  # fmt: skip
        if (rate := getattr(arrivals, field, None)) is not None:
            yield knob(
                f"{path}.{field}", label=f"{label}{suffix}", help=help, control=Scale(_RATES, "/s"), value=float(rate)
            )
    if arrivals.process in ("poisson", "gamma", "constant", "vllm"):
        words = {
            "poisson": "Poisson",
            "constant": "evenly spaced",
            "gamma": "gamma (bursts)",
            "vllm": "as vLLM's benchmark",
        }
        spread = getattr(arrivals, "burstiness", None)
        if spread is not None:  # which the other processes do not have
            words = {name: text for name, text in words.items() if name in ("gamma", "vllm")}
        yield knob(
            f"{path}.process", label=f"Arrivals{suffix}",
            help="How evenly requests come. Real traffic is rarely smoother than Poisson.",
            control=Choice(words), value=arrivals.process,
        )  # fmt: skip
    if hasattr(arrivals, "burstiness"):
        yield knob(
            f"{path}.burstiness", label=f"Burstiness{suffix}",
            help="1 is Poisson; below it requests come in bursts, and tails grow though the mean rate stays.",
            control=Scale((0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0)), value=arrivals.burstiness,
        )  # fmt: skip


def _prompts(path: str, prompts: Prompts, suffix: str) -> Iterator[Knob]:
    shared = getattr(prompts, "prefix_tokens", None)
    at = f"{path}.prefix_tokens"
    if (system := getattr(prompts, "system", None)) is not None:
        shared, at = system.prefix_tokens, f"{path}.system.prefix_tokens"
    if (tokens := getattr(shared, "tokens", shared)) is not None and isinstance(tokens, int):
        yield Knob(
            at, "Workload", f"Shared prefix, tokens{suffix}",
            "A system prompt that requests have in common: with the prefix cache it is computed once.",
            Scale((1, 32, 96, 256, 512, 1000, 2000, 4000, 8000, 16_000)), tokens,
        )  # fmt: skip
    if not isinstance(prompts, Sessions | Agents):
        return
    yield Knob(
        f"{path}.turns", "Workload", f"Turns of a conversation{suffix}",
        "Every turn repeats all before it: prompts grow, and the prefix cache decides what they cost.",
        *given(prompts.turns, _COUNTS),
    )  # fmt: skip
    yield _pause(
        f"{path}.think_time", prompts.think_time, f"Think time{suffix}",
        "From an answer to the person's next turn: the longer, the more of the conversation's KV has been evicted by then.",
    )  # fmt: skip
    if isinstance(prompts, Agents):
        yield Knob(
            f"{path}.steps", "Workload", f"Steps of an agent{suffix}",
            "Requests that an agent sends for one question, a tool's call between two of them.",
            *given(prompts.steps, _COUNTS),
        )  # fmt: skip
        yield _pause(
            f"{path}.tool_time", prompts.tool_time, f"Tool time{suffix}",
            "How long a tool runs: meanwhile the agent's KV is cached, not owned, and may be evicted.",
        )  # fmt: skip
        if prompts.sub_agents is not None:
            yield Knob(
                f"{path}.sub_agents.share", "Workload", f"Calls that start sub-agents{suffix}",
                "Sub-agents work at the same time: a burst of requests that share a beginning.",
                Scale((0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)), prompts.sub_agents.share,
            )  # fmt: skip
    yield Knob(
        f"{path}.history", "Workload", f"Answers in later prompts{suffix}",
        "How much of an answer comes back unchanged, so that its KV can be hit: reasoning that is left out, or text that is tokenised "
        "again, is computed again.",
        *given(prompts.history, {"{kind: exact}": "exact", "{kind: retokenised}": "tokenised again", "{kind: reasoning_stripped}": "without reasoning"}),
    )  # fmt: skip


def _pause(path: str, pause: FixedPause | ExponentialPause, label: str, help: str) -> Knob:
    if isinstance(pause, ExponentialPause):
        form, value = "{distribution: exponential, mean: %ss}", pause.mean
        return Knob(path, "Workload", f"{label}, mean", help, Scale(_PAUSES[1:], " s"), value, form)
    return Knob(path, "Workload", label, help, Scale(_PAUSES, " s"), pause.duration, "%ss")
