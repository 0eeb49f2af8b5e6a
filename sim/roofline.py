"""Step costs from an architecture and a hardware sheet, without any measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError
from scenarios.hardware import HardwareSpec
from scenarios.models import BYTES, ModelSpec
from serving.plan import StepShape
from sim.tabled_cost import TabledCost


@dataclass(frozen=True)
class _Matrix:
    """One GEMM: `(rows, k) x (k, n)`, bytes of a weight, ns of a FLOP. `active` of `experts` copies run for each row."""

    k: int
    n: int
    weight_bytes: float
    flop_ns: float
    experts: int = 1
    active: int = 1


def distinct_experts(experts: int, active: int, tokens: int) -> float:
    """Expected experts of a layer that `tokens` tokens read under even routing: E (1 - (1 - k/E)^T)."""
    return float(experts * (1.0 - (1.0 - active / experts) ** tokens))


class Roofline(TabledCost):
    """A GEMM takes the longer of its arithmetic and its memory traffic, summed over GEMMs, layers and steps.

    Args:
        model: the architecture.
        hardware: the sheet, with its assumed efficiencies and host times.
        dtype: precision of weights and arithmetic (int8 and int4: of weights only), a key of `scenarios.models.BYTES`.
            Activations, embeddings and the output head take two bytes a value at least.
        kv_dtype: precision of the KV cache; that of the activations if not given.
        tensor_parallel_size: devices that share every layer: GEMMs are split by columns or rows, attention by heads, and
            each layer sums its partial results over the group twice (Megatron-LM).
    """

    def __init__(
        self,
        model: ModelSpec,
        hardware: HardwareSpec,
        *,
        dtype: str = "bfloat16",
        kv_dtype: str | None = None,
        tensor_parallel_size: int = 1,
    ) -> None:
        tp = tensor_parallel_size
        if tp not in model.tensor_parallel_sizes():
            allowed = ", ".join(map(str, model.tensor_parallel_sizes()))
            raise ValueError(f"tensor_parallel_size of {model.name}: found {tp}, allowed: {allowed}")
        layers, hidden = model.num_layers, model.hidden_size
        q, kv = model.q_size // tp, model.kv_heads_of_rank(tp) * model.head_dim
        self._layers = layers
        self._activation_bytes = max(2.0, BYTES[dtype])
        self._byte_ns = 1e9 / (hardware.memory_bandwidth * hardware.memory_efficiency)
        self._step_ns = (hardware.step_overhead + hardware.layer_overhead * layers) * 1e9
        self._scheduled_ns = hardware.sequence_overhead * 1e9
        weight = BYTES[dtype]
        flop_ns = 1e9 / (_peak(hardware, dtype) * hardware.compute_efficiency)
        self._gemms = (
            _Matrix(hidden, q + 2 * kv, weight, flop_ns),
            _Matrix(q, hidden, weight, flop_ns),
            *_feed_forward(model, weight, flop_ns, tp),
        )
        wide = "float32" if BYTES[dtype] > 2 else "bfloat16"
        head_flop_ns = 1e9 / (_peak(hardware, wide) * hardware.compute_efficiency)
        self._lm_head = _Matrix(hidden, -(-model.vocab_size // tp), BYTES[wide], head_flop_ns)
        # Two norms with the residual, rotary embedding, gate: each value read and written about so often a layer.
        self._elementwise_ns = self._activation_bytes * layers * (8 * hidden + 2 * (q + 2 * kv)) * self._byte_ns
        self._pair_ns = model.attention_flops(1.0) / tp * 1e9 / (_peak(hardware, wide) * hardware.attention_efficiency)
        self._kv_ns = model.kv_bytes_per_token(kv_dtype or wide, tp) * self._byte_ns
        self._reduce_ns, self._reduce_token_ns = _all_reduces(model, hardware, tp, self._activation_bytes)
        context_ns = max(self._kv_ns, self._pair_ns)
        # A decode also attends to the token that it writes.
        devices = f"{tp} x {hardware.name}" if tp > 1 else hardware.name
        super().__init__(f"roofline {model.name} on {devices}", self._scheduled_ns + context_ns, context_ns)

    def _gemm(self, matrix: _Matrix, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Nanoseconds of arithmetic and of traffic of one GEMM, by rows."""
        k, n, per_row = matrix.k, matrix.n, matrix.active
        if matrix.experts == 1:
            copies = np.minimum(rows, 1.0)
        else:
            read = [distinct_experts(matrix.experts, per_row, int(t)) for t in rows.tolist()]
            copies = np.maximum.accumulate(np.array(read))
        weights = copies * (k * n * matrix.weight_bytes)
        compute = rows * (2.0 * k * n * per_row * matrix.flop_ns)
        traffic = (weights + rows * ((k + n) * per_row * self._activation_bytes)) * self._byte_ns
        return compute, traffic

    def _token_table(self, tokens: int) -> NDArray[np.float64]:
        rows = np.arange(tokens, dtype=np.float64)
        total = self._step_ns + rows * self._elementwise_ns
        if self._reduce_ns or self._reduce_token_ns:
            total = total + (self._reduce_ns + rows * self._reduce_token_ns)
        for matrix in self._gemms:
            total = total + self._layers * np.maximum(*self._gemm(matrix, rows))
        return total

    def _head_table(self, rows: int) -> NDArray[np.float64]:
        return np.maximum(*self._gemm(self._lm_head, np.arange(rows, dtype=np.float64)))

    def _chunk(self, query: int, context: int) -> float:
        compute = (query * context + query * (query + 1) // 2) * self._pair_ns
        traffic = (context + query) * self._kv_ns
        return self._scheduled_ns + (compute if compute > traffic else traffic)

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Nanoseconds by term; linears are split by what binds them."""
        tokens = shape.tokens
        row = np.array([float(tokens)])
        linears = {"linears, compute": 0.0, "linears, bandwidth": 0.0}
        for matrix in self._gemms:
            compute, traffic = (self._layers * float(ns[0]) for ns in self._gemm(matrix, row))
            linears["linears, compute" if compute > traffic else "linears, bandwidth"] += max(compute, traffic)
        rows = shape.sampled if shape.prefill else shape.decode_sequences
        chunks = [self._chunk(q, c) - self._scheduled_ns for q, c in shape.prefill]
        scheduled = shape.decode_sequences + len(chunks)
        reduced = self._reduce_ns + tokens * self._reduce_token_ns
        return {
            **linears,
            "elementwise": tokens * self._elementwise_ns,
            **({"all-reduce": reduced} if reduced else {}),
            "prefill attention": sum(chunks),
            "decode attention": (shape.decode_context + shape.decode_sequences) * self._context_ns,
            "output head": self._head_ns(rows),
            "host": self._step_ns + scheduled * self._scheduled_ns,
        }

    def extrapolation(self, shape: StepShape) -> str | None:
        return "roofline: no measurement"


def _all_reduces(model: ModelSpec, hardware: HardwareSpec, size: int, value_bytes: float) -> tuple[float, float]:
    """Nanoseconds of a step's all-reduces, two a layer: fixed, and of each token's activations. Every device sends and receives
    2 (n - 1) / n of them, at the share of the link's rate that kernels reach of memory."""
    if size == 1:
        return 0.0, 0.0
    if hardware.link_bandwidth is None:
        raise InputError(
            f"hardware.link_bandwidth: missing in the sheet of {hardware.name}, but {size} devices share a layer; give what one "
            "sends to the others, in bytes/s"
        )
    sums = 2 * model.num_layers
    sent = 2.0 * (size - 1) / size * model.hidden_size * value_bytes
    rate = hardware.link_bandwidth * hardware.memory_efficiency
    return sums * hardware.link_latency * 1e9, sums * sent / rate * 1e9


def _feed_forward(model: ModelSpec, weight: float, flop_ns: float, size: int) -> tuple[_Matrix, ...]:
    """GEMMs of one of `size` devices; experts are split like dense layers, each over all devices."""
    hidden, width = model.hidden_size, -(-model.intermediate_size // size)
    if not model.num_experts:
        return _Matrix(hidden, 2 * width, weight, flop_ns), _Matrix(width, hidden, weight, flop_ns)
    experts, active = model.num_experts, model.num_experts_per_tok
    width = -(-model.moe_intermediate_size // size)
    return (
        _Matrix(hidden, experts, weight, flop_ns),
        _Matrix(hidden, 2 * width, weight, flop_ns, experts, active),
        _Matrix(width, hidden, weight, flop_ns, experts, active),
    )


def _peak(hardware: HardwareSpec, dtype: str) -> float:
    """FLOP/s for a precision; int8 and int4 are those of weights alone, which are widened and multiplied in bfloat16."""
    flops = hardware.flops
    return float(flops[dtype] if dtype in flops and dtype not in ("int8", "int4") else flops["bfloat16"])
