"""Knobs of what serves: models, devices, and the engines between them, of one deployment or of every pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dashboard.knobs.controls import Choice, Control, Knob, Number, Scale, Switch, given, strategies
from scenarios import Scenario
from scenarios import hardware as hardware_catalog
from scenarios import models as model_catalog
from scenarios.presets import PRESETS
from serving.batching import BATCHINGS
from serving.capacity import CAPACITIES
from serving.policies import ORDERS

_POWERS = tuple(2**k for k in range(14))


def knobs(scenario: Scenario) -> Iterator[Knob]:
    """Of the one engine, or of every pool and of the engine that pools without one of their own have."""
    if not scenario.pools:
        yield from _sheets("", scenario, "")
        yield from _engine("", scenario, "")
        yield _replicas("replicas", scenario.replicas, "")
        return
    views = scenario.of_pools()
    shared = next((view for view, pool in zip(views, scenario.pools, strict=True) if pool.engine is None), None)
    if shared is not None:
        yield from _engine("", shared, "")
    for i, (pool, view) in enumerate(zip(scenario.pools, views, strict=True)):
        suffix = f", {pool.name}"
        yield from _sheets(f"pools[{i}].", view, suffix)
        yield _replicas(f"pools[{i}].replicas", pool.replicas, suffix)
        if pool.engine is not None:
            yield from _engine(f"pools[{i}].", view, suffix)


def _sheets(prefix: str, view: Scenario, suffix: str) -> Iterator[Knob]:
    sizes = {
        name: f"{name}, {sheet.memory_bytes / 1e9:.0f} GB" if not sheet.is_cpu else name
        for name, sheet in hardware_catalog.CATALOG.items()
    }
    yield Knob(
        f"{prefix}model", "Model", f"Model{suffix}",
        "A larger model answers better, streams more weights a step and leaves less room for KV.",
        Choice({name: name for name in model_catalog.CATALOG}), _sheet(view, "model", model_catalog.CATALOG),
    )  # fmt: skip
    yield Knob(
        f"{prefix}hardware", "Hardware", f"Device{suffix}",
        "Decode follows memory bandwidth, prefill follows FLOP/s, KV follows memory; so does the price.",
        Choice(sizes), _sheet(view, "hardware", hardware_catalog.CATALOG),
    )  # fmt: skip


def _sheet(view: Scenario, field: str, catalog: Any) -> str:
    found = getattr(view, field)
    if catalog.get(found.name) == found:
        return str(found.name)
    from dashboard.settings import as_text

    return as_text(view.model_dump(mode="json", include={field})[field])


def _replicas(path: str, count: int, suffix: str) -> Knob:
    return Knob(
        path, "Hardware", f"Replicas{suffix}",
        "Equal engines behind the router: capacity and cost grow alike, latency of a lone request does not.",
        Number(1, 256, 1, whole=True), count,
    )  # fmt: skip


def _engine(prefix: str, view: Scenario, suffix: str) -> Iterator[Knob]:
    """The engine section at `prefix`."""

    def knob(field: str, group: str, label: str, help: str, control: Control, value: Any) -> Knob:
        return Knob(f"{prefix}engine.{field}", group, f"{label}{suffix}", help, control, value)

    for part in (_precision, _devices, _steps, _memory, _speed, _strategies):
        yield from part(knob, view)


def _precision(knob: Callable[..., Knob], view: Scenario) -> Iterator[Knob]:
    engine = view.engine
    yield knob(
        "dtype", "Model", "Weights",
        "Fewer bytes a weight: decode is faster and more KV fits; answers may be worse, which the quality table of a profile tells where "
        "it was measured.",
        Choice({"auto": "bfloat16", "fp8": "fp8", "int8": "int8", "int4": "int4", "float32": "float32"}), engine.dtype,
    )  # fmt: skip
    yield knob(
        "kv_cache_dtype", "Model", "KV cache",
        "Half the bytes hold twice the tokens: more requests run at once before preemption.",
        Choice({"auto": "as activations", "bfloat16": "bfloat16", "fp8": "fp8", "int8": "int8"}), engine.kv_cache_dtype,
    )  # fmt: skip


def _devices(knob: Callable[..., Knob], view: Scenario) -> Iterator[Knob]:
    engine = view.engine
    yield knob(
        "tensor_parallel_size", "Hardware", "Devices a replica",
        "Tensor parallel: lower latency and more KV a replica, paid in communication every layer. Two replicas often carry more than one "
        "of twice the size.",
        Choice({"1": "1", "2": "2", "4": "4", "8": "8"}), str(engine.tensor_parallel_size),
    )  # fmt: skip
    yield knob(
        "gpu_memory_utilization", "Hardware", "Memory the engine takes",
        "What weights leave of it is KV memory; too high and activations or other processes run out.",
        Scale((0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.98)), engine.utilization_on(view.hardware),
    )  # fmt: skip


def _steps(knob: Callable[..., Knob], view: Scenario) -> Iterator[Knob]:
    """What an engine puts into a step."""
    engine, config = view.engine, view.engine_config()
    yield knob(
        "preset", "Engine", "Engine", "Whose defaults fill in what is not stated, batching and admission among it.",
        Choice({name: name for name in PRESETS}), engine.preset,
    )  # fmt: skip
    yield knob(
        "max_num_seqs", "Engine", "max_num_seqs",
        "Requests that run at once. More: higher throughput, slower tokens; fewer: a queue.",
        Scale(_POWERS[:13]), config.max_num_seqs,
    )  # fmt: skip
    yield knob(
        "max_num_batched_tokens", "Engine", "max_num_batched_tokens",
        "Tokens of one step. Large: prompts finish sooner, running answers stutter; small: smooth tokens, later first ones.",
        Scale(tuple(2**k for k in range(6, 16))), config.max_num_batched_tokens,
    )  # fmt: skip
    yield knob(
        "long_prefill_token_threshold", "Engine", "Tokens a step of a long prompt",
        "Caps what one long prompt takes of a step, so that short ones run beside it; it finishes later itself. 0: no cap.",
        Scale((0, 256, 512, 1024, 2048, 4096, 8192)), engine.long_prefill_token_threshold,
    )  # fmt: skip


def _memory(knob: Callable[..., Knob], view: Scenario) -> Iterator[Knob]:
    """Of KV: what is kept, how much there is, and how it is given out."""
    engine, config = view.engine, view.engine_config()
    yield knob(
        "enable_prefix_caching", "Engine", "Prefix cache",
        "Keeps KV of earlier prompts: shared beginnings are not computed again.",
        Switch(), config.enable_prefix_caching,
    )  # fmt: skip
    yield knob(
        "kv_offloading_size", "Engine", "KV kept on the host, GiB",
        "Evicted blocks wait in host memory and are copied back when a prompt hits them: worth it where contexts are long and pauses are too.",
        Number(0.1, 10_000, 10, optional=True), engine.kv_offloading_size,
    )  # fmt: skip
    yield knob(
        "max_model_len", "Engine", "Longest request, tokens",
        "Prompt and answer together. Longer requests are refused; empty: what the model or the KV memory allows.",
        Number(2, 10_000_000, 1024, whole=True, optional=True), engine.max_model_len,
    )  # fmt: skip
    yield knob(
        "num_gpu_blocks", "Engine", "KV blocks",
        "How many blocks of KV memory there are, whatever the device holds: to see what less memory does. Empty: what memory holds.",
        Number(2, 100_000_000, 100, whole=True, optional=True), engine.num_gpu_blocks,
    )  # fmt: skip
    yield knob(
        "block_size", "Engine", "KV block, tokens",
        "Small blocks waste less of the last one and hit finer prefixes; they are more to manage.",
        Choice({str(k): str(k) for k in (1, 8, 16, 32, 64, 128, 256)}), str(config.block_size),
    )  # fmt: skip
    yield knob(
        "kv_allocation", "Engine", "KV memory is given out",
        "In blocks as tokens come, or as engines did before PagedAttention: in one piece for the longest answer, which wastes most of it.",
        Choice({"paged": "in blocks (paged)", "contiguous": "in one piece (contiguous)"}), engine.kv_allocation,
    )  # fmt: skip


def _speed(knob: Callable[..., Knob], view: Scenario) -> Iterator[Knob]:
    engine = view.engine
    yield knob(
        "async_scheduling", "Engine", "Asynchronous scheduling",
        "The next step is decided while this one runs: less idle time between steps.",
        Switch(), engine.async_scheduling,
    )  # fmt: skip
    yield knob(
        "speculation", "Engine", "Speculation",
        "Drafts verified several at a time: faster tokens for few users, lost work in full batches.",
        *given(engine.speculation, {
            "null": "none",
            "{method: ngram, k: 4, acceptance: 0.6, found: 0.5}": "n-gram, 4 drafts, half found, 60 % stand",
            "{method: draft, k: 4, acceptance: 0.7, draft_cost: 0.1}": "draft model, 4 drafts, 70 % stand, a tenth of a step each",
        }),
    )  # fmt: skip


def _strategies(knob: Callable[..., Knob], view: Scenario) -> Iterator[Knob]:
    engine = view.engine
    yield knob(
        "batching", "Policies", "Batching", "Whether prompts and answers share steps.",
        strategies(BATCHINGS, {
            "chunked": "chunked (vLLM V1, Sarathi)", "prefill_first": "prefill first (Orca, vLLM V0)",
            "decode_first": "decode first", "static": "static (wait for the slowest)",
        }),
        engine.batching,
    )  # fmt: skip
    yield knob(
        "policy", "Policies", "Queue order", "Who is served next. Short answers first lowers the mean and starves long ones.",
        strategies(ORDERS, {
            "fcfs": "first come, first served", "priority": "by priority", "shortest_first": "shortest predicted answer first",
            "deadline": "least slack to its TTFT", "longest_prefix": "longest cached prefix", "fair": "fair by tokens of tenants",
        }),
        engine.policy,
    )  # fmt: skip
    yield knob(
        "capacity_scheduler_policy", "Policies", "Admission to memory",
        "Admit while there is room and preempt when memory is full; or only what fits with its longest answer, which never preempts and runs "
        "fewer at once; or by estimated answers.",
        strategies(CAPACITIES, {
            "max_utilization": "while there is room (vLLM)", "guaranteed_no_evict": "with the longest answer (TensorRT-LLM)",
            "new_token_ratio": "with estimated answers (SGLang)",
        }),
        engine.capacity_scheduler_policy,
    )  # fmt: skip
    yield knob(
        "preemption", "Policies", "Preemption", "What becomes of a victim's KV when memory is full.",
        Choice({"recompute": "computed again", "swap": "swapped to the host"}), engine.preemption,
    )  # fmt: skip
