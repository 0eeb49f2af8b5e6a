"""Runs rows of a plan through a decoder on a device: buffers that stay, graphs where they fit, and nothing that waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gpu_backend.gpu.block_tables import BlockTables
from gpu_backend.gpu.graphs import StepGraphs
from gpu_backend.gpu.inputs import Bucket, Filled, StepInputs, StepTensors
from gpu_backend.gpu.kv_cache import KVCache
from gpu_backend.gpu.model import Decoder
from gpu_backend.tokens import Text
from serving.plan import Scheduled


class Runner:
    """One decoder with its KV memory.

    Args:
        tables: block tables, shared with other runners of the same requests (a draft model).
        most_tokens, most_sequences: of a step.
        queries: tokens a sequence for which steps are captured: [1], or [1, 1 + k] where k drafts are verified.
        graphs: capture at all; where the device has none, steps are padded as if they were.
        temperature: of sampling, 0 for the most likely token.
        feeds: a step may start before the tokens of the last one are known to the host.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        tables: BlockTables,
        *,
        most_tokens: int,
        most_sequences: int,
        block_size: int,
        queries: list[int],
        graphs: bool,
        temperature: float,
        feeds: bool,
        device: torch.device,
    ) -> None:
        self.decoder, self.cache, self.device, self.feeds = decoder, cache, device, feeds
        rows = max(most_tokens, most_sequences * max(queries))
        self.inputs = StepInputs(rows, most_sequences, tables, block_size, device)
        self.sampled = torch.zeros(rows + 1, dtype=torch.int64, device=device)  # the last place is spare
        self._temperature = torch.full((rows,), temperature, device=device)
        self._top_k = torch.zeros(rows, dtype=torch.int32, device=device)
        self._top_p = torch.ones(rows, device=device)
        self.logits: torch.Tensor | None = None  # of the last step; rows as `Filled.sampled` counts them
        captured = queries if graphs else []
        self.graphs = StepGraphs(self._run_padded, most_sequences, captured, device)
        self._padded_logits: dict[Bucket, torch.Tensor] = {}

    def warm_up(self) -> None:
        """Captures the graphs. Rows of zeros: nothing is read but the null block, and nothing is written."""
        self.graphs.capture()

    def run(
        self,
        rows: list[Scheduled],
        texts: Mapping[int, Text],
        unknown: Mapping[int, int] | None = None,
        begins: Callable[[], None] = lambda: None,
    ) -> Filled:
        """Launches a step; its tokens are in `sampled` once the device has come so far.

        Args:
            begins: called when the host has done its part and the device's begins.
            unknown: by request index, where in `sampled` its newest token is, which the host does not know yet.
        """
        queries = rows[0].tokens
        uniform = all(row.tokens == queries for row in rows) and (queries == 1 or all(row.samples for row in rows))
        bucket = self.graphs.bucket(len(rows), queries) if uniform else None
        filled = self.inputs.fill(rows, texts, bucket, unknown or {})
        begins()
        self.inputs.upload(filled)
        if bucket is not None:
            self.graphs.replay(bucket)
            self.logits = self._padded_logits[bucket]
        else:
            self.logits = self._step(self.inputs.tensors(filled))
        return filled

    def _run_padded(self, bucket: Bucket) -> None:
        self._padded_logits[bucket] = self._step(self.inputs.padded(bucket))

    @torch.inference_mode()
    def _step(self, step: StepTensors) -> torch.Tensor:
        """The whole step on the device: fed tokens, the decoder, sampling."""
        if self.feeds:
            feed = self.inputs.on_device["feed"][: len(step.token_ids)]
            before = self.sampled.index_select(0, feed.clamp(min=0)).to(torch.int32)
            step.token_ids.copy_(torch.where(feed >= 0, before, step.token_ids))
        logits = self.decoder.forward(step, self.cache)
        n = len(logits)
        if n:
            sample = self.decoder.kernels.sample
            sample(logits, self._temperature[:n], self._top_k[:n], self._top_p[:n], step.seeds[:n], self.sampled[:n])
        return logits
