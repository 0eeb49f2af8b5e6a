"""What a turn of a knob means for the settings, and what else has to change with it. Nothing here needs Streamlit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dashboard.knobs as known
from dashboard.knobs.controls import Choice, Knob
from dashboard.settings import Settings
from scenarios import InputError, Scenario
from scenarios import hardware as hardware_catalog

MOST = 5
"""Ways out that are offered."""


@dataclass(frozen=True)
class Change:
    """More changes, by path, and in a few words what they do: a label of a button, or the end of a sentence."""

    says: str
    texts: tuple[tuple[str, str], ...]

    def on(self, settings: Settings) -> Settings:
        """Settings with them."""
        for path, text in self.texts:
            settings = settings.changed(path, text)
        return settings


_TENANTS = "[{name: heavy, weight: 4}, {name: light}]"
_NEEDS = {
    "shortest_first": Change("an oracle predicts how long answers are", (("workload.predictor", "oracle"),)),
    "fair": Change("a heavy tenant sends four times what a light one does", (("workload.tenants", _TENANTS),)),
    "deadline": Change("a first token is promised within 1 s", (("slo.ttft", "1s"),)),
    "longest_prefix": Change("the prefix cache is on", (("{engine}enable_prefix_caching", "true"),)),
}
"""What an order goes by and a scenario may lack. What it brought into the workload goes with it again."""


def turned(settings: Settings, knob: Knob, value: Any) -> tuple[Settings, str]:
    """Settings with another value of a knob, and a sentence on what else was set; empty where nothing was.

    A value that the scenario would have anyway is no difference.
    """
    text = knob.text(value)
    if settings.changes.get(knob.path) == text:
        return settings, ""
    if knob.path.endswith("engine.policy") and (brought := _NEEDS.get(str(knob.value))) is not None:
        settings = _left(settings, brought)
    without = settings.changed(knob.path, None)
    if sheet := knob.path.rpartition(".")[2] in ("model", "hardware"):
        without = _blocks_from_memory(without, knob.path)
    usual = _value_at(without, knob.path)
    if usual is not None and usual == text:
        return (_blocks_as_stated(without, knob.path) if sheet else without), ""
    found = without.changed(knob.path, text)
    if loads(found):
        return found, ""
    if text == "null" and loads(other := _parent_gone(settings, knob.path)):
        return other, ""
    if knob.path.endswith("engine.policy") and (needed := _NEEDS.get(text)) is not None:
        engine = knob.path.removesuffix("policy")
        change = Change(needed.says, tuple((path.format(engine=engine), given) for path, given in needed.texts))
        if loads(other := change.on(found)):
            return other, f"{_called(knob, text)}: set with it, so that it has something to go by: {change.says}."
    return found, ""


def _left(settings: Settings, brought: Change) -> Settings:
    for path, text in brought.texts:
        if path.startswith("workload.") and settings.changes.get(path) == text:
            settings = settings.changed(path, None)
    return settings


def _called(knob: Knob, text: str) -> str:
    return knob.control.options.get(text, text) if isinstance(knob.control, Choice) else text


def _value_at(settings: Settings, path: str) -> str | None:
    try:
        found = next((knob for knob in known.of(settings.scenario()) if knob.path == path), None)
    except InputError:
        return None
    return None if found is None else found.text(found.shown())


def _blocks_from_memory(settings: Settings, path: str) -> Settings:
    """Blocks that the base states are those of its own device: another one has what its memory holds."""
    engine = f"{path.rpartition('.')[0]}.engine" if "." in path else "engine"
    field = f"{engine}.num_gpu_blocks"
    if field in settings.changes:
        return settings
    try:
        scenario = settings.scenario()
    except InputError:
        return settings
    stated = _engine_at(scenario, path)
    return settings.changed(field, "null") if stated is not None else settings


def _blocks_as_stated(settings: Settings, path: str) -> Settings:
    """On its own device with its own model again, a base has the blocks that it states."""
    beside = path.rpartition(".")[0]
    at = f"{beside}." if beside else ""
    if {f"{at}model", f"{at}hardware"} & settings.changes.keys():
        return settings
    field = f"{at}engine.num_gpu_blocks"
    return settings.changed(field, None) if settings.changes.get(field) == "null" else settings


def _engine_at(scenario: Scenario, path: str) -> int | None:
    if not path.startswith("pools["):
        return scenario.engine.num_gpu_blocks
    pool = scenario.pools[int(path[6 : path.index("]")])]
    return None if pool.engine is None else pool.engine.num_gpu_blocks


def _parent_gone(settings: Settings, path: str) -> Settings:
    """Without what encloses a field: `admission`, where it limits nothing any more."""
    parent = path.rpartition(".")[0]
    for other in [p for p in settings.changes if p.startswith(f"{parent}.")]:
        settings = settings.changed(other, None)
    return (
        settings.changed(parent, None)
        if loads(settings) and _is_none(settings, parent)
        else settings.changed(parent, "null")
    )


def _is_none(settings: Settings, path: str) -> bool:
    return getattr(settings.scenario(), path, object()) is None


def loads(settings: Settings) -> bool:
    """Whether settings fit together."""
    try:
        settings.scenario()
    except InputError:
        return False
    return True


def ways_out(settings: Settings) -> list[Change]:
    """What would make settings fit together that do not, the smallest change first: each of them does."""
    try:
        settings.scenario()
    except InputError as error:
        problem = str(error)
    else:
        return []
    found: list[Change] = []
    for change in _candidates(settings, problem):
        if len(found) < MOST and loads(change.on(settings)):
            found.append(change)
    return found


def _candidates(settings: Settings, problem: str) -> Iterator[Change]:
    prefix = (
        problem[problem.index("pools[") : problem.index("]", problem.index("pools[")) + 1] + "."
        if "pools[" in problem
        else ""
    )
    engine = f"{prefix}engine"
    for order in _NEEDS.values():
        yield Change(
            order.says[0].upper() + order.says[1:],
            tuple((path.format(engine=f"{engine}."), text) for path, text in order.texts),
        )
    blocks = (f"{engine}.num_gpu_blocks", "null")
    window = (f"{engine}.max_model_len", "null")
    yield Change("KV blocks from memory", (blocks,))
    yield Change("The longest request that memory allows", (window,))
    yield Change("fp8 KV cache", ((f"{engine}.kv_cache_dtype", "fp8"),))
    yield Change("fp8 weights", ((f"{engine}.dtype", "fp8"), blocks))
    for size in ("2", "4", "8"):
        change = Change(f"{size} devices a replica", ((f"{engine}.tensor_parallel_size", size), blocks))
        if loads(change.on(settings)):
            yield change
            break
    for name in sorted(hardware_catalog.CATALOG, key=lambda name: hardware_catalog.CATALOG[name].memory_bytes):
        change = Change(f"On {name}", ((f"{prefix}hardware", name), blocks, window))
        if loads(change.on(settings)):
            yield change
            break
    for path, text, says in (
        ("batching", "chunked", "Chunked batching"),
        ("async_scheduling", "false", "Synchronous scheduling"),
        ("speculation", "null", "Without speculation"),
        ("kv_allocation", "paged", "KV memory in blocks"),
        ("enable_prefix_caching", "false", "Without the prefix cache"),
        ("capacity_scheduler_policy", "max_utilization", "Admission while there is room"),
        ("preemption", "recompute", "Preempted requests computed again"),
        ("policy", "fcfs", "First come, first served"),
        ("tensor_parallel_size", "1", "One device a replica"),
    ):
        yield Change(says, ((f"{engine}.{path}", text),))
    for path, says in (
        ("admission", "Without admission"),
        ("degradation", "Nothing given up"),
        ("client_behaviour", "Patient clients"),
    ):
        yield Change(says, ((path, "null"),))
