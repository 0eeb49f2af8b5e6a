"""The decoder on a device: one pass over a step's rows, the same for a captured graph and a step of any shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_backend.gpu.dense import Dense, make_dense
from gpu_backend.gpu.inputs import StepTensors
from gpu_backend.gpu.kernel_set import KernelSet
from gpu_backend.gpu.kv_cache import KVCache
from gpu_backend.rope import rope_table
from gpu_backend.weights import LayerWeights, Weights
from scenarios.models import ModelSpec


@dataclass
class _Layer:
    input_norm: torch.Tensor
    qkv: Dense
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: Dense
    post_norm: torch.Tensor
    feed_forward: Callable[[torch.Tensor], torch.Tensor]


class Decoder:
    """A Llama, Qwen2, Qwen3 or Qwen3-MoE decoder; the residual stream is in the dtype of the activations.

    Args:
        weights: used up: layer by layer they are converted and dropped, so that memory holds one copy.
        window: positions that the rotary table covers, and the bound that sets the split of decode attention.
        dtype: of activations, and of weights unless `precision` says int8 or int4 (of the dense layers; embeddings, norms,
            experts and the output head keep the dtype).
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Weights,
        *,
        window: int,
        dtype: torch.dtype,
        precision: str,
        kernels: KernelSet,
        device: torch.device,
    ) -> None:
        self.spec, self.window, self.dtype, self.precision, self.kernels = spec, window, dtype, precision, kernels
        self.rope = rope_table(spec, window).to(device)
        self.scale = spec.head_dim**-0.5
        self.layers: list[_Layer] = []
        weights.layers.reverse()
        while weights.layers:
            self.layers.append(self._layer(weights.layers.pop(), f"layer {len(self.layers)}", device))
        self.final_norm = weights.final_norm.to(device, dtype)
        self.embedding = weights.embedding.to(device, dtype)
        tied = weights.head is weights.embedding
        head = self.embedding if tied else weights.head.to(device, dtype)
        self.head = make_dense(head, None, dtype, "auto", kernels)

    def _layer(self, w: LayerWeights, at: str, device: torch.device) -> _Layer:
        def dense(part: str, weight: torch.Tensor, bias: torch.Tensor | None) -> Dense:
            placed = None if bias is None else bias.to(device)
            return make_dense(weight.to(device), placed, self.dtype, self.precision, self.kernels, f"{at}: {part}")

        def vector(v: torch.Tensor | None) -> torch.Tensor | None:
            return None if v is None else v.to(device, self.dtype)

        kernels = self.kernels
        if self.spec.num_experts:
            router, gate_up, down = (t.to(device, self.dtype) for t in (w.router, w.expert_gate_up, w.expert_down))
            top_k = self.spec.num_experts_per_tok

            def feed_forward(x: torch.Tensor) -> torch.Tensor:
                return kernels.moe(x, router, gate_up, down, top_k)

        else:
            up, down_ = dense("gate_up", w.gate_up, None), dense("down", w.down, None)

            def feed_forward(x: torch.Tensor) -> torch.Tensor:
                return down_(kernels.silu_mul(up(x)))

        return _Layer(
            w.input_norm.to(device, self.dtype),
            dense("qkv", w.qkv, w.qkv_bias),
            vector(w.q_norm),
            vector(w.k_norm),
            dense("o", w.o, w.o_bias),
            w.post_norm.to(device, self.dtype),
            feed_forward,
        )

    @torch.inference_mode()
    def forward(self, step: StepTensors, cache: KVCache) -> torch.Tensor:
        """Computes a step and writes its keys and values; logits `(sampled, vocabulary)`."""
        spec, kernels, eps = self.spec, self.kernels, self.spec.rms_norm_eps
        residual = self.embedding.index_select(0, step.token_ids)
        h = kernels.add_rms_norm(residual, None, self.layers[0].input_norm, eps)
        for i, layer in enumerate(self.layers):
            keys, values, key_scales, value_scales = cache.layer(i)
            qkv = layer.qkv(h)
            # All of the step's KV is written before any of it is read: a sequence may share blocks that another one of the
            # same step computes.
            kernels.qk_norm_rope_write(
                qkv, layer.q_norm, layer.k_norm, eps, self.rope, step.positions, step.slots,
                keys, values, spec.num_heads, key_scales, value_scales,
            )  # fmt: skip
            h = kernels.add_rms_norm(layer.o(self._attend(qkv, step, cache, i)), residual, layer.post_norm, eps)
            after = self.layers[i + 1].input_norm if i + 1 < len(self.layers) else self.final_norm
            out = layer.feed_forward(h)
            if i + 1 == len(self.layers) and step.samples is not None:
                out, residual = out.index_select(0, step.samples), residual.index_select(0, step.samples)
            h = kernels.add_rms_norm(out, residual, after, eps)
        return self.head(h)

    def _attend(self, qkv: torch.Tensor, step: StepTensors, cache: KVCache, i: int) -> torch.Tensor:
        """`(T, q_size)`: decodes first, then chunks, each by its own kernel."""
        spec, d = self.spec, step.decodes
        keys, values, key_scales, value_scales = cache.layer(i)
        out = torch.empty(len(qkv), spec.q_size, dtype=qkv.dtype, device=qkv.device)
        if d:
            self.kernels.decode_attention(
                qkv[:d], keys, values, step.tables[:d], step.seq_lens[:d], self.scale, out[:d], spec.num_heads,
                key_scales, value_scales, self.window,
            )  # fmt: skip
        if step.most_queries:
            self.kernels.prefill_attention(
                qkv[d:], keys, values, step.tables[d:], step.chunk_starts, step.seq_lens[d:], self.scale, out[d:],
                spec.num_heads, step.most_queries, key_scales, value_scales, self.window,
            )  # fmt: skip
        return out
