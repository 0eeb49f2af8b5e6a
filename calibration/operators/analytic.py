"""What nobody measured: the roofline of one operator, with the efficiencies that the hardware sheet assumes."""

from __future__ import annotations

import numpy as np

from calibration.operators.tables import ExpertShape, Floats, Grid, Ints, Origin
from scenarios.hardware import HardwareSpec
from scenarios.models import BYTES
from sim.roofline import distinct_experts

LAUNCH_NS = 3000.0
"""Least time of a kernel: its launch inside a graph and its tail."""

TOKENS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768], dtype=np.int64)


def byte_ns(hardware: HardwareSpec) -> float:
    """Nanoseconds of a byte at the bandwidth that kernels are assumed to reach."""
    return 1e9 / (hardware.memory_bandwidth * hardware.memory_efficiency)


def _flop_ns(hardware: HardwareSpec, dtype: str, share: float) -> float:
    return 1e9 / (float(hardware.flops.get(dtype, hardware.flops["bfloat16"])) * share)


def gemm(hardware: HardwareSpec, dtype: str, n: int, k: int) -> tuple[Ints, Floats]:
    """Nanoseconds by rows."""
    m = TOKENS.astype(np.float64)
    compute = 2.0 * m * n * k * _flop_ns(hardware, dtype, hardware.compute_efficiency)
    traffic = (n * k * BYTES.get(dtype, 1.0) + m * (n + k) * 2.0) * byte_ns(hardware)
    return TOKENS, np.maximum(np.maximum(compute, traffic), LAUNCH_NS)


def experts(hardware: HardwareSpec, shape: ExpertShape, dtype: str) -> tuple[Ints, Floats]:
    """Nanoseconds of a layer's routed experts by tokens, under even routing."""
    hidden, width, count, active, *_ = shape
    m = TOKENS.astype(np.float64)
    read = np.array([distinct_experts(count, active, int(t)) for t in TOKENS.tolist()])
    total = np.zeros(len(m))
    for n, k in ((2 * width, hidden), (hidden, width)):
        compute = 2.0 * m * active * n * k * _flop_ns(hardware, dtype, hardware.compute_efficiency)
        traffic = (read * n * k * BYTES.get(dtype, 1.0) + m * active * (n + k) * 2.0) * byte_ns(hardware)
        total += np.maximum(np.maximum(compute, traffic), LAUNCH_NS)
    return TOKENS, total


def prefill(hardware: HardwareSpec, heads: int, kv_heads: int, head_dim: int, kv_dtype: str, file: str) -> Grid:
    """Batch x tokens of a prompt, like a measured grid."""
    down, across = np.array([1, 2, 8, 32]), np.array([1, 16, 64, 256, 1024, 2048, 4096, 8192, 16384])
    batch, length = np.meshgrid(down.astype(float), across.astype(float), indexing="ij")
    flops = 4.0 * heads * head_dim * batch * length * (length + 1) / 2
    moved = batch * length * head_dim * (2 * kv_heads * BYTES[kv_dtype] + 4 * heads)
    compute = flops * _flop_ns(hardware, "bfloat16", hardware.attention_efficiency)
    return _grid(down, across, np.maximum(compute, moved * byte_ns(hardware)), "prefill attention", file)


def decode(hardware: HardwareSpec, heads: int, kv_heads: int, head_dim: int, kv_dtype: str, file: str) -> Grid:
    """Batch x cached context of each."""
    down = 2 ** np.arange(12)
    across = 2 ** np.arange(1, 18) - 1
    batch, context = np.meshgrid(down.astype(float), across.astype(float), indexing="ij")
    flops = 4.0 * heads * head_dim * batch * (context + 1)
    moved = batch * (context + 1) * 2 * kv_heads * head_dim * BYTES[kv_dtype]
    compute = flops * _flop_ns(hardware, "bfloat16", hardware.attention_efficiency)
    return _grid(down, across, np.maximum(compute, moved * byte_ns(hardware)), "decode attention", file)


def all_reduce(hardware: HardwareSpec, ranks: int) -> tuple[Ints, Floats]:
    """Nanoseconds by bfloat16 elements: every rank sends 2 (n - 1) / n of them over its link, and waits for its latency."""
    elements = 2 ** np.arange(7, 30)
    sent = 2.0 * (ranks - 1) / ranks * 2.0 * elements.astype(np.float64)
    rate = (hardware.link_bandwidth or 32e9) * hardware.memory_efficiency
    return elements.astype(np.int64), hardware.link_latency * 1e9 + sent * 1e9 / rate


def _grid(down: Ints, across: Ints, ns: Floats, operator: str, file: str) -> Grid:
    origin = Origin(operator, file, "roofline", "")
    return Grid(
        origin, down.astype(np.int64), across.astype(np.int64), np.maximum(ns, LAUNCH_NS), np.zeros(ns.shape, np.int64)
    )
