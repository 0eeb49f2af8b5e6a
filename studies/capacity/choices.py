"""A small space of deployments that may carry a load: devices x precisions x tensor parallel, each with the replicas that it may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import scenarios
from scenarios.errors import InputError
from scenarios.hardware import CATALOG
from scenarios.load import Override
from scenarios.schema import Scenario
from studies.capacity.load import load_of
from studies.capacity.outline import bound

if TYPE_CHECKING:
    from studies.progress import Progress

DEVICES = tuple(name for name, sheet in CATALOG.items() if not sheet.is_cpu and sheet.usd_per_hour)
PRECISIONS = ("auto", "fp8", "int8", "int4")
PARALLEL = (1, 2, 4, 8)
MORE = (1.0, 1.3, 1.7, 2.5)
"""Replicas that are tried, as multiples of those that could carry the load if their queues were never empty."""
MOST = 256
"""Replicas beyond which a device is too small."""


def choices(
    scenario: Scenario,
    devices: Sequence[str] = DEVICES,
    precisions: Sequence[str] = ("auto", "fp8"),
    parallel: Sequence[int] = (1, 2, 4),
    over: str | None = None,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The space as `studies.capacity.space.space` reads it, around a scenario at the load that is to be carried.

    What cannot be (weights that do not fit, precisions that a device does not have) stays in with one replica: the search refuses it,
    and says why.

    Raises:
        InputError: the scenario has pools, each of which has a device of its own; nothing was chosen; the load is wrong.
    """
    if scenario.pools:
        raise InputError(
            f"{scenario.name}: its pools have devices of their own, so there is no one device to choose; state the combinations in a "
            "file and give it to servetwin capacity --cheapest SPACE.yaml"
        )
    every = [(d, p, tp) for d in devices for p in precisions for tp in parallel]
    if not every:
        raise InputError("choose one device, one precision and one tensor parallel size at least")
    variants: dict[str, list[str]] = {}
    for k, (device, precision, size) in enumerate(every):
        if progress is not None:
            progress(f"{named(device, precision, size)}: how much it could carry", k / len(every))
        settings = overrides(scenario, device, precision, size)
        for count in counts(scenario, settings, over):
            variants[f"{count} x {named(device, precision, size)}"] = [*settings, f"replicas={count}"]
    return {"axes": [{"variants": variants}]}


def named(device: str, precision: str, size: int) -> str:
    """`L40S fp8 TP2`."""
    return " ".join(
        part for part in (device, "" if precision == "auto" else precision, f"TP{size}" if size > 1 else "") if part
    )


def overrides(scenario: Scenario, device: str, precision: str, size: int) -> list[str]:
    """What makes a scenario one of that device, as of `--set`."""
    found = [f"hardware={device}", f"engine.dtype={precision}", f"engine.tensor_parallel_size={size}"]
    if scenario.engine.num_gpu_blocks is not None:  # as many as the memory of another device holds
        found.append("engine.num_gpu_blocks=null")
    return found


def counts(scenario: Scenario, settings: Sequence[str], over: str | None = None) -> list[int]:
    """Numbers of replicas worth a try: from what could carry the load if their queues were never empty."""
    try:
        one = scenarios.changed(scenario, [Override.parse(text) for text in (*settings, "replicas=1")])
        load = load_of(one, over)
        carries = bound(load)
    except InputError:
        return [1]
    if not carries > 0:
        return [1]
    least = load.start / carries
    found = dict.fromkeys(max(1, math.ceil(more * least)) for more in MORE)
    return [count for count in found if count <= MOST] or [MOST]
