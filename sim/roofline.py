"""Step costs from an architecture and a hardware sheet, without any measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.plan import StepShape
from sim.tables import TabledCost

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of one value, by the names that scenarios use for precisions."""


class Architecture(Protocol):
    """What the roofline reads of a model; `scenarios.models.ModelSpec` has it."""

    @property
    def name(self) -> str: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_experts(self) -> int: ...
    @property
    def num_experts_per_tok(self) -> int: ...
    @property
    def moe_intermediate_size(self) -> int: ...


class Sheet(Protocol):
    """What the roofline reads of a device; `scenarios.hardware.HardwareSpec` has it. SI units: bytes/s, FLOP/s."""

    @property
    def name(self) -> str: ...
    @property
    def memory_bandwidth(self) -> float: ...
    @property
    def flops(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class _Matrix:
    """One GEMM of a layer: `(rows, k) x (k, n)`. `active` of `experts` copies run for each row."""

    k: int
    n: int
    experts: int = 1
    active: int = 1


def distinct_experts(experts: int, active: int, tokens: int) -> float:
    """Expected experts of a layer that `tokens` tokens read under even routing: E (1 - (1 - k/E)^T)."""
    return float(experts * (1.0 - (1.0 - active / experts) ** tokens))


class Roofline(TabledCost):
    """A GEMM takes the longer of its arithmetic and its memory traffic, summed over GEMMs, layers and steps.

    Args:
        model: the architecture.
        hardware: the sheet.
        dtype: precision of weights and arithmetic, a key of `BYTES`; activations take two bytes at least.
        kv_dtype: precision of the KV cache; that of the activations if not given.
        compute_efficiency: share of the peak FLOP/s that GEMMs reach (dense bf16 on an H200: 790 of 989 TFLOP/s measured).
        attention_efficiency: the same for prefill attention.
        memory_efficiency: share of the sheet's bandwidth that kernels reach.
        step_overhead: host time of a step that kernels do not hide, seconds.
        sequence_overhead: the same for each scheduled sequence, seconds.
        layer_overhead: launches of one layer, seconds.
    """

    def __init__(
        self,
        model: Architecture,
        hardware: Sheet,
        *,
        dtype: str = "bfloat16",
        kv_dtype: str | None = None,
        compute_efficiency: float = 0.75,
        attention_efficiency: float = 0.5,
        memory_efficiency: float = 0.8,
        step_overhead: float = 0.95e-3,
        sequence_overhead: float = 0.041e-3,
        layer_overhead: float = 15e-6,
    ) -> None:
        layers, hidden = model.num_layers, model.hidden_size
        self._layers = layers
        self._weight_bytes = BYTES[dtype]
        self._activation_bytes = max(2.0, BYTES[dtype])
        kv_bytes = self._activation_bytes if kv_dtype is None else BYTES[kv_dtype]
        peak = _peak(hardware, dtype)
        self._flop_ns = 1e9 / (peak * compute_efficiency)
        self._byte_ns = 1e9 / (hardware.memory_bandwidth * memory_efficiency)
        self._step_ns = step_overhead * 1e9 + layer_overhead * 1e9 * layers
        q, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
        self._gemms = (_Matrix(hidden, q + 2 * kv), _Matrix(q, hidden), *_feed_forward(model))
        self._lm_head = _Matrix(hidden, model.vocab_size)
        # Two norms with the residual, rotary embedding, gate: each value read and written about so often a layer.
        self._elementwise_bytes = self._activation_bytes * layers * (8 * hidden + 2 * (q + 2 * kv))
        # Scores and values: 2 x 2 FLOP for each pair of tokens and each value of a query head.
        attention_flop_ns = 1e9 / (_peak(hardware, "bfloat16") * attention_efficiency)
        self._pair_ns = 4.0 * q * layers * attention_flop_ns
        self._kv_ns = 2.0 * kv * kv_bytes * layers * self._byte_ns
        context_ns = max(self._kv_ns, self._pair_ns)
        self._chunk_overhead_ns = sequence_overhead * 1e9
        # A decode also reads the token that it writes.
        super().__init__(f"roofline {model.name} on {hardware.name}", sequence_overhead * 1e9 + context_ns, context_ns)

    def _gemm(self, matrix: _Matrix, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Nanoseconds of arithmetic and of traffic of one GEMM, by rows."""
        k, n, per_row = matrix.k, matrix.n, matrix.active
        if matrix.experts == 1:
            copies = np.minimum(rows, 1.0)
        else:
            idle = 1.0 - matrix.active / matrix.experts
            copies = np.maximum.accumulate([matrix.experts * (1.0 - idle**t) for t in rows.tolist()])
        weights = copies * (k * n * self._weight_bytes)
        compute = rows * (2.0 * k * n * per_row * self._flop_ns)
        traffic = (weights + rows * ((k + n) * per_row * self._activation_bytes)) * self._byte_ns
        return compute, traffic

    def _token_table(self, tokens: int) -> NDArray[np.float64]:
        rows = np.arange(tokens, dtype=np.float64)
        total = self._step_ns + rows * (self._elementwise_bytes * self._byte_ns)
        for matrix in self._gemms:
            total = total + self._layers * np.maximum(*self._gemm(matrix, rows))
        return total

    def _head_table(self, rows: int) -> NDArray[np.float64]:
        return np.maximum(*self._gemm(self._lm_head, np.arange(rows, dtype=np.float64)))

    def _chunk(self, query: int, context: int) -> float:
        compute = (query * context + query * (query + 1) // 2) * self._pair_ns
        traffic = (context + query) * self._kv_ns
        return self._chunk_overhead_ns + (compute if compute > traffic else traffic)

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Nanoseconds by term; linears are split by what binds them."""
        tokens = shape.tokens
        row = np.array([float(tokens)])
        linears = {"linears, compute": 0.0, "linears, bandwidth": 0.0}
        for matrix in self._gemms:
            compute, traffic = (self._layers * float(ns[0]) for ns in self._gemm(matrix, row))
            linears["linears, compute" if compute > traffic else "linears, bandwidth"] += max(compute, traffic)
        rows = shape.sampled if shape.prefill else shape.decode_sequences
        chunks = [self._chunk(q, c) - self._chunk_overhead_ns for q, c in shape.prefill]
        scheduled = shape.decode_sequences + len(chunks)
        return {
            **linears,
            "elementwise": tokens * self._elementwise_bytes * self._byte_ns,
            "prefill attention": sum(chunks),
            "decode attention": (shape.decode_context + shape.decode_sequences) * self._context_ns,
            "output head": self._head_ns(rows),
            "host": self._step_ns + scheduled * self._chunk_overhead_ns,
        }

    def extrapolation(self, shape: StepShape) -> str | None:
        return "roofline: no measurement"


def _feed_forward(model: Architecture) -> tuple[_Matrix, ...]:
    hidden = model.hidden_size
    if not model.num_experts:
        return _Matrix(hidden, 2 * model.intermediate_size), _Matrix(model.intermediate_size, hidden)
    experts, active, width = model.num_experts, model.num_experts_per_tok, model.moe_intermediate_size
    return (
        _Matrix(hidden, experts),
        _Matrix(hidden, 2 * width, experts, active),
        _Matrix(width, hidden, experts, active),
    )


def _peak(hardware: Sheet, dtype: str) -> float:
    """FLOP/s for a precision; weight-only formats compute in bfloat16."""
    flops = hardware.flops
    return float(flops[dtype] if dtype in flops else flops["bfloat16"])
