"""The settings of a scenario that a page offers: where they stand in it, what they are called, and what they trade.

To add one: write a `Knob` into one of the functions below. Everything else of a scenario can be changed as a line of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.settings import as_text
from scenarios import Scenario
from scenarios import hardware as hardware_catalog
from scenarios import models as model_catalog
from scenarios.arrivals import ClosedLoop
from scenarios.presets import PRESETS
from scenarios.workload_spec import WorkloadSpec
from serving.batching import BATCHINGS
from serving.policies import ORDERS
from serving.routing import ROUTERS

GROUPS = ("Workload", "Model", "Hardware", "Engine", "Policies", "SLO", "Prices", "Run")


@dataclass(frozen=True)
class Choice:
    """One of several. options: YAML text of each, and what it is called."""

    options: dict[str, str]


@dataclass(frozen=True)
class Switch:
    """On or off."""


@dataclass(frozen=True)
class Number:
    """Typed or stepped; with `optional`, empty means none. duration: in `unit`, s or ms, while the scenario has seconds."""

    least: float
    most: float
    step: float
    whole: bool = False
    optional: bool = False
    unit: str = ""
    duration: bool = False


@dataclass(frozen=True)
class Scale:
    """A slider over these values, and the present one wherever it lies."""

    values: tuple[float, ...]
    unit: str = ""


Control = Choice | Switch | Number | Scale


@dataclass(frozen=True)
class Knob:
    """One setting.

    path: in the scenario. value: what stands there now, in the scenario's units (a text of YAML for a choice).
    """

    path: str
    group: str
    label: str
    help: str
    control: Control
    value: Any

    def text(self, value: Any) -> str:
        """A value of the widget as YAML for the scenario."""
        if isinstance(self.control, Choice):
            return str(value)
        if value is None:
            return "null"
        if isinstance(self.control, Number) and self.control.duration:
            return f"{value:.10g}{self.control.unit}"
        if isinstance(value, float):
            return f"{value:.10g}"
        return as_text(value)

    def shown(self) -> Any:
        """The present value as the widget has it."""
        if isinstance(self.control, Number) and self.value is not None:
            factor = 1e3 if self.control.duration and self.control.unit == "ms" else 1.0
            scaled = float(f"{self.value * factor:.10g}")
            return round(scaled) if self.control.whole else scaled
        return self.value


def of(scenario: Scenario) -> list[Knob]:
    """The knobs that mean something for a scenario, group by group."""
    found = [
        *_workload(scenario),
        *_deployment(scenario),
        *_policies(scenario),
        *_promises(scenario),
        *_prices(scenario),
        *_run(scenario),
    ]
    return sorted(found, key=lambda knob: GROUPS.index(knob.group))


def options(control: Choice, value: str) -> dict[str, str]:
    """What a choice has on offer, the present value among it."""
    return control.options if value in control.options else {value: "as given"} | control.options


def values(control: Scale, value: float) -> list[float]:
    """What a scale has on offer, the present value among it."""
    return sorted({*control.values, value})


_RATES = (*tuple(float(f"{m}e{e}") for e in (-1, 0, 1, 2) for m in (1, 1.5, 2, 3, 4, 5, 6, 8)), 1000.0)
_REQUESTS = (50, 100, 200, 300, 500, 1000, 2000, 3000, 6000, 10_000, 20_000, 50_000, 100_000)
_LENGTHS = {
    "{distribution: lognormal, median: 60, sigma: 0.8, max: 1000}": "short, about 60 tokens",
    "{distribution: lognormal, median: 250, sigma: 0.8, max: 4000}": "medium, about 250 tokens",
    "{distribution: lognormal, median: 1000, sigma: 0.8, max: 16000}": "long, about 1,000 tokens",
    "{distribution: lognormal, median: 6000, sigma: 0.8, max: 60000}": "very long, about 6,000 tokens",
}


def _workload(scenario: Scenario) -> Iterator[Knob]:
    spec = scenario.workload
    parts = (
        {"workload": spec} if spec.mix is None else {f"workload.mix.{name}": part for name, part in spec.mix.items()}
    )
    for path, part in parts.items():
        suffix = "" if spec.mix is None else f", {path.rpartition('.')[2]}"
        yield from _of_workload(path, part, suffix)


def _of_workload(path: str, spec: WorkloadSpec, suffix: str) -> Iterator[Knob]:
    group = "Workload"
    if spec.replays:
        assert spec.trace is not None
        yield Knob(
            f"{path}.trace.speedup",
            group,
            f"Replay speed{suffix}",
            "2 sends the trace's requests twice as fast. Think time after an answer is not shortened.",
            Scale((0.1, 0.2, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0), "×"),
            spec.trace.speedup,
        )
        yield Knob(
            f"{path}.trace.limit",
            group,
            f"First requests only{suffix}",
            "A shorter trace answers sooner; percentiles in the tail need more requests.",
            Number(1, 10_000_000, 1000, whole=True, optional=True),
            spec.trace.limit,
        )
        return
    arrivals = spec.arrivals
    if isinstance(arrivals, ClosedLoop):
        yield Knob(
            f"{path}.arrivals.concurrency",
            group,
            f"Clients{suffix}",
            "Each waits for its answer before it asks again: load falls when the system slows, so queues look shorter than they "
            "would be with real users.",
            Scale((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)),
            arrivals.concurrency,
        )
    elif hasattr(arrivals, "rate"):
        assert arrivals is not None
        name = (
            "Conversations a second"
            if getattr(spec.prompts, "kind", "") in ("sessions", "agents")
            else "Requests a second"
        )
        yield Knob(
            f"{path}.arrivals.rate",
            group,
            f"{name}{suffix}",
            "More load fills batches, which is cheap, until queues or KV memory fill, which is not.",
            Scale(_RATES, "/s"),
            float(arrivals.rate),
        )
        process = arrivals.process
        if process in ("poisson", "gamma", "constant", "vllm"):
            yield Knob(
                f"{path}.arrivals.process",
                group,
                f"Arrivals{suffix}",
                "How evenly requests come. Real traffic is rarely smoother than Poisson.",
                Choice(
                    {
                        "poisson": "Poisson",
                        "constant": "evenly spaced",
                        "gamma": "gamma (bursts)",
                        "vllm": "as vLLM's benchmark",
                    }
                ),
                process,
            )
        if hasattr(arrivals, "burstiness"):
            yield Knob(
                f"{path}.arrivals.burstiness",
                group,
                f"Burstiness{suffix}",
                "1 is Poisson; below it requests come in bursts, and tails grow though the mean rate stays.",
                Scale((0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0)),
                arrivals.burstiness,
            )
    if spec.requests is not None:
        yield Knob(
            f"{path}.requests",
            group,
            f"Requests{suffix}",
            "How long the run is. A p99 needs 299 requests at least, and thousands to be steady.",
            Scale(_REQUESTS),
            spec.requests,
        )
    for name, label in (("input", "New prompt tokens"), ("output", "Answer tokens")):
        value = getattr(spec, name)
        if value is not None:
            given = as_text(value.model_dump(mode="json", exclude_unset=True))
            yield Knob(
                f"{path}.{name}",
                group,
                f"{label}{suffix}",
                "Prompts cost compute once; answers cost a step a token and hold KV memory all the while.",
                Choice({given: "as in the scenario"} | _LENGTHS),
                given,
            )
    prompts = spec.prompts
    if (prefix := getattr(prompts, "prefix_tokens", None)) is not None and isinstance(prefix, int):
        yield Knob(
            f"{path}.prompts.prefix_tokens",
            group,
            f"Shared prefix, tokens{suffix}",
            "A system prompt that requests have in common: with the prefix cache it is computed once.",
            Scale((0, 32, 96, 256, 512, 1000, 2000, 4000, 8000)),
            prefix,
        )


def _deployment(scenario: Scenario) -> Iterator[Knob]:
    if not scenario.pools:
        yield from _of_engine("", scenario, "")
        yield _replicas("replicas", scenario.replicas, "")
        return
    views = scenario.of_pools()
    if any(pool.engine is None for pool in scenario.pools):
        yield from _of_engine(
            "", next(v for v, p in zip(views, scenario.pools, strict=True) if p.engine is None), "", False
        )
    for i, (pool, view) in enumerate(zip(scenario.pools, views, strict=True)):
        suffix = f", {pool.name}"
        yield _model(f"pools[{i}].model", view, suffix)
        yield _hardware(f"pools[{i}].hardware", view, suffix)
        yield _replicas(f"pools[{i}].replicas", pool.replicas, suffix)
        if pool.engine is not None:
            yield from _of_engine(f"pools[{i}].", view, suffix, False)


def _model(path: str, view: Scenario, suffix: str) -> Knob:
    names = {name: name for name in model_catalog.CATALOG}
    known = model_catalog.CATALOG.get(view.model.name) == view.model
    value = view.model.name if known else as_text(view.model_dump(mode="json", include={"model"})["model"])
    return Knob(
        path, "Model", f"Model{suffix}", "A larger model answers better, streams more weights a step and leaves less room for KV.",
        Choice(names), value,
    )  # fmt: skip


def _hardware(path: str, view: Scenario, suffix: str) -> Knob:
    names = {
        name: f"{name}, {sheet.memory_bytes / 1e9:.0f} GB" if name != "cpu" else "cpu"
        for name, sheet in hardware_catalog.CATALOG.items()
    }
    known = hardware_catalog.CATALOG.get(view.hardware.name) == view.hardware
    value = view.hardware.name if known else as_text(view.model_dump(mode="json", include={"hardware"})["hardware"])
    return Knob(
        path, "Hardware", f"Device{suffix}", "Decode follows memory bandwidth, prefill follows FLOP/s, KV follows memory; so does the price.",
        Choice(names), value,
    )  # fmt: skip


def _replicas(path: str, count: int, suffix: str) -> Knob:
    return Knob(
        path, "Hardware", f"Replicas{suffix}", "Equal engines behind the router: capacity and cost grow alike, latency of a lone request does not.",
        Number(1, 256, 1, whole=True), count,
    )  # fmt: skip


def _of_engine(prefix: str, view: Scenario, suffix: str, sheets: bool = True) -> Iterator[Knob]:
    """The engine section at `prefix`, and with `sheets` the model and device beside it."""
    engine, config = view.engine, view.engine_config()
    if sheets:
        yield _model(f"{prefix}model", view, suffix)
        yield _hardware(f"{prefix}hardware", view, suffix)

    def knob(field: str, group: str, label: str, help: str, control: Control, value: Any) -> Knob:
        return Knob(f"{prefix}engine.{field}", group, f"{label}{suffix}", help, control, value)

    yield knob(
        "dtype", "Model", "Weights", "Fewer bytes a weight: decode is faster and more KV fits; answers may be worse, which the quality table "
        "of a profile tells where it was measured.",
        Choice({"auto": "bfloat16", "fp8": "fp8", "int8": "int8", "int4": "int4", "float32": "float32"}), engine.dtype,
    )  # fmt: skip
    yield knob(
        "kv_cache_dtype", "Model", "KV cache", "Half the bytes hold twice the tokens: more requests run at once before preemption.",
        Choice({"auto": "as activations", "bfloat16": "bfloat16", "fp8": "fp8", "int8": "int8"}), engine.kv_cache_dtype,
    )  # fmt: skip
    yield knob(
        "tensor_parallel_size", "Hardware", "Devices a replica", "Tensor parallel: lower latency and more KV a replica, paid in "
        "communication every layer. Two replicas often carry more than one of twice the size.",
        Choice({"1": "1", "2": "2", "4": "4", "8": "8"}), str(engine.tensor_parallel_size),
    )  # fmt: skip
    yield knob(
        "gpu_memory_utilization", "Hardware", "Memory the engine takes", "What weights leave of it is KV memory; too high and "
        "activations or other processes run out.",
        Scale((0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.98)),
        engine.gpu_memory_utilization if engine.gpu_memory_utilization is not None else 0.9,
    )  # fmt: skip
    yield knob(
        "preset",
        "Engine",
        "Engine",
        "Whose defaults fill in what is not stated.",
        Choice({name: name for name in PRESETS}),
        engine.preset,
    )
    yield knob(
        "max_num_seqs", "Engine", "max_num_seqs", "Requests that run at once. More: higher throughput, slower tokens; fewer: a queue.",
        Scale(tuple(2**k for k in range(13))), config.max_num_seqs,
    )  # fmt: skip
    yield knob(
        "max_num_batched_tokens", "Engine", "max_num_batched_tokens", "Tokens of one step. Large: prompts finish sooner, running answers "
        "stutter; small: smooth tokens, later first ones.",
        Scale(tuple(2**k for k in range(6, 16))), config.max_num_batched_tokens,
    )  # fmt: skip
    yield knob(
        "enable_prefix_caching", "Engine", "Prefix cache", "Keeps KV of earlier prompts: shared beginnings are not computed again.",
        Switch(), config.enable_prefix_caching,
    )  # fmt: skip
    yield knob(
        "block_size", "Engine", "KV block, tokens", "Small blocks waste less of the last one and hit finer prefixes; they are more to manage.",
        Choice({str(k): str(k) for k in (8, 16, 32, 64, 128, 256)}), str(config.block_size),
    )  # fmt: skip
    yield knob(
        "async_scheduling", "Engine", "Asynchronous scheduling", "The next step is decided while this one runs: less idle time between steps.",
        Switch(), engine.async_scheduling,
    )  # fmt: skip
    yield knob(
        "speculation", "Engine", "Speculation", "Drafts verified several at a time: faster tokens for few users, lost work in full batches.",
        Choice({
            "null": "none",
            "{method: ngram, k: 4, acceptance: 0.6, found: 0.5}": "n-gram, 4 drafts, half found, 60 % stand",
            "{method: draft, k: 4, acceptance: 0.7, draft_cost: 0.1}": "draft model, 4 drafts, 70 % stand, a tenth of a step each",
        }),
        "null" if engine.speculation is None else as_text(engine.speculation.model_dump(mode="json", exclude_unset=True)),
    )  # fmt: skip
    yield knob(
        "batching", "Policies", "Batching", "Whether prompts and answers share steps.",
        _strategies(BATCHINGS, {
            "chunked": "chunked (vLLM V1, Sarathi)", "prefill_first": "prefill first (Orca, vLLM V0)",
            "decode_first": "decode first", "static": "static (wait for the slowest)",
        }),
        engine.batching,
    )  # fmt: skip
    yield knob(
        "policy", "Policies", "Queue order", "Who is served next. Short answers first lowers the mean and starves long ones.",
        _strategies(ORDERS, {
            "fcfs": "first come, first served", "priority": "by priority", "shortest_first": "shortest predicted answer first",
            "deadline": "least slack to its TTFT", "longest_prefix": "longest cached prefix", "fair": "fair by tokens of tenants",
        }),
        engine.policy,
    )  # fmt: skip
    yield knob(
        "preemption", "Policies", "Preemption", "What becomes of a victim's KV when memory is full.",
        Choice({"recompute": "computed again", "swap": "swapped to the host"}), engine.preemption,
    )  # fmt: skip


def _strategies(registry: Sequence[str] | Any, words: dict[str, str]) -> Choice:
    """Every strategy that `serving` has on offer; those whose names say too little in words."""
    return Choice({name: words.get(name, name.replace("_", " ")) for name in registry})


def _policies(scenario: Scenario) -> Iterator[Knob]:
    if not scenario.pools:
        router = (
            scenario.router
            if isinstance(scenario.router, str)
            else as_text(scenario.router.model_dump(mode="json", exclude_unset=True))
        )
        yield Knob(
            "router", "Policies", "Router", "Which replica takes a request. By prefix keeps caches warm, by load keeps queues short.",
            _strategies(ROUTERS, {}), router,
        )  # fmt: skip
    limits = scenario.admission
    yield Knob(
        "admission.max_queue_requests", "Policies", "Longest queue a replica", "Beyond it requests are refused at once instead of late.",
        Number(0, 1_000_000, 10, whole=True, optional=True), None if limits is None else limits.max_queue_requests,
    )  # fmt: skip
    yield Knob(
        "admission.queue_timeout", "Policies", "Longest wait", "Who was not begun by then is sent away: what would miss anyway costs nothing.",
        Number(0.1, 3600, 1, optional=True, unit="s", duration=True), None if limits is None else limits.queue_timeout,
    )  # fmt: skip


def _promises(scenario: Scenario) -> Iterator[Knob]:
    slo = scenario.slo
    for field, label, unit, step, help in (
        ("ttft", "First token within", "ms", 50.0, "TTFT, queue included."),
        ("tpot", "Each further token within", "ms", 5.0, "TPOT, the mean of a request."),
        ("e2e", "Whole answer within", "s", 1.0, "End to end."),
    ):
        yield Knob(
            f"slo.{field}", "SLO", label, f"{help} A request that misses any promise is not counted as good; empty: not promised.",
            Number(0.001, 1e7, step, optional=True, unit=unit, duration=True), getattr(slo, field),
        )  # fmt: skip


def _prices(scenario: Scenario) -> Iterator[Knob]:
    if not scenario.pools:
        yield Knob(
            "prices.gpu_hour", "Prices", "USD a device-hour", "What a token costs is this, over what the devices get done; idle time is paid too.",
            Number(0, 1000, 0.1, unit="USD"), scenario.prices.gpu_hour,
        )  # fmt: skip
    sheet = scenario.prices.sheet
    yield Knob(
        "prices.sheet", "Prices", "Token prices", "What customers pay; with it the report has revenue and margin.",
        Choice({
            "null": "not sold by token", "{input: 0.1, output: 0.4}": "0.10 in, 0.40 out (USD per 1M)",
            "{input: 0.5, output: 1.5, cached_discount: 0.5}": "0.50 in, 1.50 out, cached half", "{input: 3, output: 15, cached_discount: 0.9}":
            "3 in, 15 out, cached a tenth",
        }),
        "null" if sheet is None else as_text(sheet.model_dump(mode="json", exclude_unset=True)),
    )  # fmt: skip


def _run(scenario: Scenario) -> Iterator[Knob]:
    if not scenario.pools:
        profile = scenario.cost.profile
        value = "{source: roofline}" if profile is None else as_text({"profile": profile})
        yield Knob(
            "cost", "Run", "Step costs", "From the data sheet, or from measurements where a profile of this model and device is shipped.",
            Choice({"{source: roofline}": "data sheet (roofline)", "{profile: auto}": "measured, shipped profile"}), value,
        )  # fmt: skip
    yield Knob("seed", "Run", "Seed", "Of everything that is drawn; another seed is another day of the same traffic.",
               Number(0, 2**31, 1, whole=True), scenario.seed)  # fmt: skip
