"""A folder as aiconfigurator-core lays it out, of a device that exists nowhere and obeys a plain law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FLOPS, BANDWIDTH, LINK = 1e15, 4e12, 4e11
M = (1, 8, 16, 17, 64, 65, 256, 1024, 4096, 16384)
N = (128, 512, 1024, 4096, 16384)
BATCH = (1, 2, 8, 32)
LENGTHS = (1, 16, 64, 256, 1024, 4096, 8192)
CONTEXTS = (1, 31, 255, 1023, 4095, 16383)
ELEMENTS = tuple(2**i for i in range(7, 28))
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384)

Rows = dict[str, list[Any]]
Change = Callable[[Rows], Rows]


def gemm_ms(m: float, n: float, k: float) -> float:
    """Twice the roofline and a launch, in milliseconds."""
    return 2e-3 + 2e3 * max(2 * m * n * k / FLOPS, 2 * (m * n + n * k) / BANDWIDTH)


def scaling_ms(m: float, k: float) -> float:
    """Finding the scales of activations (0.4 of it) and applying them (0.6), which the table's fp8 GEMMs include."""
    return 1e-3 + 4e3 * m * k / BANDWIDTH


def prefill_ms(batch: float, length: float, heads: int = 8, head_dim: int = 64) -> float:
    return 4e-3 + 2e3 * 4 * heads * head_dim * batch * length * (length + 1) / 2 / FLOPS


def decode_ms(batch: float, context: float, kv_heads: int = 4, head_dim: int = 64) -> float:
    return 4e-3 + 2e3 * 4 * kv_heads * head_dim * batch * (context + 1) / BANDWIDTH


def all_reduce_ms(ranks: int, elements: float, eager: bool) -> float:
    return (20e-3 if eager else 5e-3) + 1.5e3 * 4 * (ranks - 1) / ranks * elements / LINK


def experts_ms(tokens: float) -> float:
    return 20e-3 + tokens * 5e-6


def write(root: Path, changes: Mapping[str, Change] | None = None, version: str = "1.0") -> Path:
    """Writes the folder. changes: by operator (`gemm`, `context`, `generation`, `all_reduce`, `moe`), what is done to its rows."""
    changes = changes or {}
    sheet = (
        f"gpu: {{mem_bw: {BANDWIDTH}, mem_capacity: 8.0e10, bfloat16_tc_flops: {FLOPS}, fp8_tc_flops: {2 * FLOPS}}}\n"
    )
    (root / "data" / "toy").mkdir(parents=True, exist_ok=True)
    (root / "toy.yaml").write_text(sheet + f"node: {{intra_node_bw: {LINK}}}\n")

    def put(operator: str, name: str, rows: Rows, key: str) -> None:
        folder = root / "data" / "toy" / operator / "vllm" / version
        folder.mkdir(parents=True, exist_ok=True)
        changed = changes.get(key, lambda same: same)({**rows, "device": ["Toy"] * len(rows["latency"])})
        pq.write_table(pa.table(changed), folder / name)

    cells = [(m, n, k) for n in N for k in N for m in M]
    columns = np.array(cells).T.tolist()
    gemm: Rows = {name: column * 2 for name, column in zip("mnk", columns, strict=True)}
    gemm["gemm_dtype"] = ["bfloat16"] * len(cells) + ["fp8"] * len(cells)
    gemm["latency"] = [gemm_ms(*c) for c in cells] + [gemm_ms(*c) / 2 + scaling_ms(c[0], c[2]) for c in cells]
    put("gemm", "gemm_perf.parquet", gemm, "gemm")
    pairs = [(m, k) for m in M for k in N]
    for name, part in (("computescale", 0.4), ("scale_matrix", 0.6)):
        quantize: Rows = {"m": [m for m, _ in pairs], "k": [k for _, k in pairs]}
        quantize["latency"] = [part * scaling_ms(m, k) for m, k in pairs]
        put("quantize", f"{name}_perf.parquet", quantize, name)
    for phase, across, sizes, law in (
        ("context", "isl", LENGTHS, prefill_ms),
        ("generation", "step", CONTEXTS, decode_ms),
    ):
        pairs = [(b, s) for b in BATCH for s in sizes if b * s <= 131072]
        rows: Rows = {
            "batch_size": [b for b, _ in pairs], across: [s for _, s in pairs], "num_heads": [8] * len(pairs),
            "num_key_value_heads": [4] * len(pairs), "head_dim": [64] * len(pairs), "kv_cache_dtype": ["bfloat16"] * len(pairs),
            "latency": [law(b, s) for b, s in pairs],
        }  # fmt: skip
        put("attention", f"{phase}_attention_perf.parquet", rows, phase)
    reduces = [(n, s, mode) for n in (2, 4) for mode in ("eager", "graph") for s in ELEMENTS]
    rows = {
        "num_gpus": [n for n, _, _ in reduces], "message_size": [s for _, s, _ in reduces],
        "backend": [f"vllm_{mode}" for *_, mode in reduces],
        "latency": [all_reduce_ms(n, s, mode == "eager") for n, s, mode in reduces],
    }  # fmt: skip
    put("comm", "custom_allreduce_perf.parquet", rows, "all_reduce")
    spread = [(t, d) for d in ("balanced", "power_law_1.01") for t in TOKENS]
    rows = {
        "num_tokens": [t for t, _ in spread], "distribution": [d for _, d in spread], "moe_dtype": ["bfloat16"] * len(spread),
        "latency": [experts_ms(t) * (1.5 if d != "balanced" else 1.0) for t, d in spread],
    } | {
        name: [value] * len(spread)
        for name, value in (
            ("hidden_size", 512), ("inter_size", 256), ("num_experts", 8), ("topk", 2), ("moe_tp_size", 1), ("moe_ep_size", 1),
        )
    }  # fmt: skip
    put("moe", "moe_perf.parquet", rows, "moe")
    return root


def with_value(column: str, row: int, value: Any) -> Change:
    """One cell of a table is another."""

    def change(rows: Rows) -> Rows:
        cells = list(rows[column])
        cells[row] = value
        return rows | {column: cells}

    return change


def times(column: str, factor: float) -> Change:
    """A column in another unit."""
    return lambda rows: rows | {column: [v * factor for v in rows[column]]}


def without_column(column: str) -> Change:
    return lambda rows: {name: cells for name, cells in rows.items() if name != column}


def without_rows(gone: Callable[[dict[str, Any]], bool]) -> Change:
    """Rows that were never measured."""

    def change(rows: Rows) -> Rows:
        names = list(rows)
        kept = [r for r in zip(*rows.values(), strict=True) if not gone(dict(zip(names, r, strict=True)))]
        return {name: [r[i] for r in kept] for i, name in enumerate(names)}

    return change


def repeated(row: int, factor: float) -> Change:
    """One row stands there twice, with another time."""

    def change(rows: Rows) -> Rows:
        again = {name: [*cells, cells[row]] for name, cells in rows.items()}
        again["latency"][-1] *= factor
        return again

    return change
