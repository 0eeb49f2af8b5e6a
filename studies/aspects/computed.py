"""What computed the steps of an execution, in words: a kernel for small numbers, or larger ones that stand for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sentences(info: Mapping[str, Any]) -> list[str]:
    """One a pool, from `Run.info` of an execution; none of a simulation."""
    pools = info.get("pools") or []
    named = [(f"pool {pool['name']} ", pool["backend"]) for pool in pools if pool.get("backend")]
    alone = [("", info["backend"])] if info.get("backend") else []
    return [f"{name}computed on {_of(backend)}" for name, backend in named or alone]


def _of(backend: Mapping[str, Any]) -> str:
    parts = [
        str(backend.get("device_name", backend.get("device", "?"))),
        f"weights {backend.get('dtype')} ({backend.get('linear')})",
    ]
    if backend.get("output_head"):
        parts.append(f"output head {backend['output_head']}")
    kept = f" ({backend['kv']})" if backend.get("kv") else ""
    return "; ".join([*parts, f"KV {backend.get('kv_dtype')}{kept}"])
