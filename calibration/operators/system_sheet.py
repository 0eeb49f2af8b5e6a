"""A device's sheet as aiconfigurator-core writes it: `systems/<system>.yaml`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios import documents
from scenarios.errors import InputError


@dataclass(frozen=True)
class SystemSheet:
    """memory: bytes. bandwidth, link (one direction between devices, 0 if the sheet has none): bytes/s. flops: FLOP/s by precision."""

    memory: float
    bandwidth: float
    link: float
    flops: Mapping[str, float]


def read_sheet(path: Path) -> SystemSheet:
    """Reads a sheet.

    Raises:
        InputError: not YAML, or a number that is missing, not a number, or not above 0.
    """
    whole = documents.read_mapping(path)
    gpu, node = _section(whole, "gpu", path), _section(whole, "node", path) if whole.get("node") is not None else {}
    flops = {
        name.removesuffix("_tc_flops"): _number(gpu, name, "gpu", path)
        for name in gpu
        if isinstance(name, str) and name.endswith("_tc_flops")
    }
    if "bfloat16" not in flops:
        raise InputError(f"{path}: gpu.bfloat16_tc_flops is missing; give the device's peak in FLOP/s")
    return SystemSheet(
        _number(gpu, "mem_capacity", "gpu", path) if "mem_capacity" in gpu else 0.0,
        _number(gpu, "mem_bw", "gpu", path),
        _number(node, "intra_node_bw", "node", path) if node.get("intra_node_bw") else 0.0,
        flops,
    )


def _section(whole: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    found = whole.get(name)
    if not isinstance(found, Mapping):
        raise InputError(f"{path}: {name} is missing or no mapping; it holds what the device can do")
    return found


def _number(section: Mapping[str, Any], name: str, of: str, path: Path) -> float:
    value = section.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        found = "nothing" if value is None else repr(value)
        raise InputError(f"{path}: {of}.{name}: found {found}, but a number above 0 is needed")
    return float(value)
