"""The decoder: one forward pass over a flat batch in which prefill chunks and decodes of a step go together."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_backend.cpu.batch import Batch, Chunk
from gpu_backend.cpu.kernels import Kernels, best_kernels
from gpu_backend.cpu.kv_cache import KVCache, LayerCache, written
from gpu_backend.cpu.linear import PACKED, TILE, Linear, make_linear, padded_rows, row_counts
from gpu_backend.cpu.quantized_linear import BITS, make_quantized_linear
from gpu_backend.cpu.quantized_linear import kind as quantized_kind
from gpu_backend.rope import rope_table
from gpu_backend.weights import Weights, check_supported
from scenarios.models import ModelSpec

_QUERY_TILE = 128  # queries of a chunk that attend together: the causal half behind them is not computed


@dataclass
class _Layer:
    input_norm: torch.Tensor
    qkv: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear


@dataclass
class _Tile:
    """Queries [begin, end) of a chunk and the mask `(end - begin, keys)` that is added to their scores."""

    begin: int
    end: int
    keys: int
    mask: torch.Tensor


def _tiled(linear: Linear, x: torch.Tensor) -> torch.Tensor:
    """A dense layer, a tile of rows at a time."""
    if len(x) <= TILE:
        return linear(x)
    return torch.cat([linear(tile) for tile in x.split(TILE)])


class Model:
    """A Llama or Qwen class decoder on the CPU; residual stream and accumulation in float32, weights in `dtype`.

    Args:
        precision: int8 or int4 rounds the dense layers; embeddings, norms and output head stay in `dtype`. auto rounds nothing.
        weights: used up: layer by layer they are packed and dropped, so that memory holds one copy.
        window: positions that the rotary table covers.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Weights,
        *,
        window: int,
        dtype: torch.dtype = torch.float32,
        precision: str = "auto",
        kernels: Kernels | None = None,
    ) -> None:
        check_supported(spec)
        self.spec = spec
        self.dtype, self.precision = dtype, precision
        self.kernels = best_kernels() if kernels is None else kernels
        self.rope = rope_table(spec, window)
        self.scale = spec.head_dim**-0.5
        self.layers: list[_Layer] = []
        weights.layers.reverse()
        while weights.layers:
            w = weights.layers.pop()
            self.layers.append(
                _Layer(
                    w.input_norm,
                    self._dense("qkv", w.qkv, w.qkv_bias),
                    w.q_norm,
                    w.k_norm,
                    self._dense("o", w.o, w.o_bias),
                    w.post_norm,
                    self._dense("gate_up", w.gate_up),
                    self._dense("down", w.down),
                )
            )
        self.final_norm = weights.final_norm
        self.embedding = weights.embedding.to(dtype)
        self.head, self.linear_kind = make_linear(weights.head, None, dtype, self.kernels)

    def _dense(self, name: str, weight: torch.Tensor | None, bias: torch.Tensor | None = None) -> Linear:
        assert weight is not None  # there are no experts
        if self.precision in BITS:
            return make_quantized_linear(weight, bias, BITS[self.precision], self.kernels, name=name)
        return make_linear(weight, bias, self.dtype, self.kernels)[0]

    @property
    def layer_kind(self) -> str:
        """What computes the dense layers; the output head is `linear_kind`."""
        return quantized_kind(BITS[self.precision]) if self.precision in BITS else self.linear_kind

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KVCache) -> torch.Tensor:
        """Computes a step and writes its keys and values; float32 logits `(sampled, vocabulary)`."""
        spec, eps, kernels = self.spec, self.spec.rms_norm_eps, self.kernels
        tiles = [self._tiles(chunk) for chunk in batch.chunks]
        ids = torch.zeros(self._rows(len(batch.token_ids)), dtype=torch.int64)
        ids[: len(batch.token_ids)] = torch.from_numpy(batch.token_ids)
        x = self.embedding.index_select(0, ids).float()
        residual = torch.zeros_like(x)
        for i, layer in enumerate(self.layers):
            keys, values, key_scales, value_scales = cache.layer(i)
            h = kernels.add_rms_norm(x, residual, layer.input_norm, eps)
            qkv = _tiled(layer.qkv, h)
            # All of the step's KV is written before any of it is read: a sequence may share blocks that another one
            # of the same step computes.
            kernels.qk_norm_rope_write(
                qkv,
                layer.q_norm,
                layer.k_norm,
                eps,
                self.rope,
                batch.positions,
                batch.blocks,
                batch.offsets,
                keys,
                values,
                spec.num_heads,
                key_scales,
                value_scales,
            )
            attended = self._attend(qkv, batch, tiles, cache.layer(i))
            h = kernels.add_rms_norm(_tiled(layer.o, attended), residual, layer.post_norm, eps)
            x = _tiled(lambda tile, layer=layer: layer.down(kernels.silu_mul(layer.gate_up(tile))), h)
        rows = torch.zeros(self._rows(len(batch.sampled)), dtype=torch.int64)
        rows[: len(batch.sampled)] = torch.from_numpy(batch.sampled)
        last = residual.index_select(0, rows)
        h = kernels.add_rms_norm(x.index_select(0, rows), last, self.final_norm, eps)
        return _tiled(self.head, h)[: len(batch.sampled)]

    def _rows(self, n: int) -> int:
        return padded_rows(n) if self.linear_kind == PACKED else n

    @torch.inference_mode()
    def warm_up(self, most_tokens: int, most_sampled: int) -> None:
        """Has oneDNN build its code for every size of batch; a layer is like the next, so one is enough."""
        if self.linear_kind != PACKED:
            return
        spec, layer = self.spec, self.layers[0]
        for rows in row_counts(most_tokens) if self.precision not in BITS else ():
            layer.qkv(torch.zeros(rows, spec.hidden_size))
            layer.o(torch.zeros(rows, spec.q_size))
            layer.gate_up(torch.zeros(rows, spec.hidden_size))
            layer.down(torch.zeros(rows, spec.intermediate_size))
        for rows in row_counts(most_sampled):
            self.head(torch.zeros(rows, spec.hidden_size))

    def _attend(self, qkv: torch.Tensor, batch: Batch, tiles: list[list[_Tile]], cache: LayerCache) -> torch.Tensor:
        """(T, q_size): decodes in one call of the paged kernel, each chunk by itself."""
        out = torch.zeros(len(qkv), self.spec.q_size)
        if batch.decodes:
            keys, values, *scales = cache
            owned = (batch.tables, batch.starts, batch.lengths)
            self.kernels.decode_attention(qkv, keys, values, *owned, self.scale, out, *scales)
        for chunk, parts in zip(batch.chunks, tiles, strict=True):
            self._attend_chunk(qkv, chunk, parts, cache, out)
        return out

    def _attend_chunk(
        self,
        qkv: torch.Tensor,
        chunk: Chunk,
        tiles: list[_Tile],
        cache: LayerCache,
        out: torch.Tensor,
    ) -> None:
        """Queries of a chunk over all keys so far, read back from their blocks, so that a prompt in pieces sees the same
        (possibly rounded) keys as one in a single piece."""
        spec = self.spec
        end = chunk.context + chunk.tokens
        ids = torch.from_numpy(chunk.blocks)
        keys, values, key_scales, value_scales = cache
        k, v = (
            written(*part, ids).transpose(0, 1).reshape(1, spec.num_kv_heads, -1, spec.head_dim)[:, :, :end]
            for part in ((keys, key_scales), (values, value_scales))
        )
        rows = qkv[chunk.start : chunk.start + chunk.tokens, : spec.q_size]
        q = rows.view(1, chunk.tokens, spec.num_heads, spec.head_dim).transpose(1, 2)
        into = out[chunk.start : chunk.start + chunk.tokens].view(chunk.tokens, spec.num_heads, spec.head_dim)
        for tile in tiles:
            attended = torch.nn.functional.scaled_dot_product_attention(
                q[:, :, tile.begin : tile.end],
                k[:, :, : tile.keys],
                v[:, :, : tile.keys],
                attn_mask=tile.mask,
                scale=self.scale,
                enable_gqa=spec.num_heads != spec.num_kv_heads,
            )
            into[tile.begin : tile.end] = attended[0].transpose(0, 1)

    @staticmethod
    def _tiles(chunk: Chunk) -> list[_Tile]:
        tiles = []
        for begin in range(0, chunk.tokens, _QUERY_TILE):
            end = min(begin + _QUERY_TILE, chunk.tokens)
            keys = chunk.context + end
            # Only the last (end - begin) keys can lie ahead of a query.
            ahead = torch.full((end - begin, end - begin), float("-inf")).triu_(1)
            tiles.append(_Tile(begin, end, keys, torch.nn.functional.pad(ahead, (keys - (end - begin), 0))))
        return tiles
