"""The engine on a GPU: an executor whose steps are Triton kernels, most of them in CUDA graphs.

It also runs on a CPU, with the torch references or with Triton's interpreter: slowly, to check what a GPU would compute.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.engine import Engine
from gpu_backend.gpu.block_tables import BlockTables
from gpu_backend.gpu.dense import DTYPES, QUANTIZED, check_precision
from gpu_backend.gpu.inputs import Filled
from gpu_backend.gpu.kernel_set import kernel_set
from gpu_backend.gpu.kv_cache import KV_DTYPES, SCALED, KVCache
from gpu_backend.gpu.model import Decoder
from gpu_backend.gpu.runner import Runner
from gpu_backend.weights import Weights, random_weights
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import StepPlan, StepResult, StepShape

CLOCKS = ("device", "wall")

_SIZES = (1, 2, 15, 16, 17, 48, 65, 128, 129, 500, 512, 2000, 2048, 8192)
"""Tokens of steps that are run before serving: all kinds of integers, and all regimes of the dense kernels."""


@dataclass
class _Launched:
    filled: Filled
    picks: torch.Tensor  # pinned: valid once `done`
    start: Any
    done: Any


class GpuEngine(Engine):
    """A decoder with paged KV on one device, driven by the scheduler's plans.

    Args:
        dtype: of activations and plain weights: bfloat16, float16, float32, or auto (bfloat16 on a GPU, float32 on a CPU); int8 and
            int4 quantise the dense layers' weights and leave activations at auto.
        kv_dtype: KV cache: auto (that of the activations), bfloat16, float16, float32, int8, fp8.
        clock: device (default): the time that the device works on a step; wall: from submit to collect.
        kernels: triton, or torch for the references. dense: torch (cuBLAS) or triton, who multiplies plain matrices.
        graphs: capture steps whose sequences all have equally many tokens.
        temperature: of sampling, 0 (default) for the most likely token.
        decoder: another engine's of the same model, to share its weights.

    Raises:
        InputError: unknown precision, clock or kernels; a model that does not fit in memory.
    """

    def __init__(
        self,
        model_spec: ModelSpec,
        engine_config: EngineConfig,
        *,
        device: str = "cuda",
        dtype: str = "auto",
        kv_dtype: str = "auto",
        seed: int = 0,
        clock: str = "device",
        answers: str = "forced",
        kernels: str = "triton",
        dense: str = "torch",
        graphs: bool = True,
        temperature: float = 0.0,
        weights: Weights | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(model_spec, engine_config, seed=seed, answers=answers)
        check_precision("dtype", dtype, ("auto", *DTYPES, *QUANTIZED))
        check_precision("kv_dtype", kv_dtype, ("auto", *KV_DTYPES))
        if clock not in CLOCKS:
            raise InputError(f"clock: found {clock!r}, allowed: {', '.join(CLOCKS)}")
        self._options = {
            "device": device, "dtype": dtype, "kv_dtype": kv_dtype, "seed": seed, "clock": clock, "answers": answers,
            "kernels": kernels, "dense": dense, "graphs": graphs, "temperature": temperature,
        }  # fmt: skip
        self.device = torch.device(device)
        self.clock, self.kernels, self.dense = clock, kernels, dense
        automatic = "bfloat16" if self.device.type == "cuda" else "float32"
        self.dtype = dtype if dtype in DTYPES else automatic
        self.precision = dtype if dtype in QUANTIZED else "auto"
        self.kv_dtype = self.dtype if kv_dtype == "auto" else kv_dtype
        self._check_memory(loaded=decoder is not None)
        if decoder is None:
            if weights is None:
                weights = random_weights(model_spec, seed, device=self.device, dtype=DTYPES[self.dtype])
            decoder = Decoder(
                model_spec,
                weights,
                window=engine_config.max_model_len,
                dtype=DTYPES[self.dtype],
                precision=self.precision,
                kernels=kernel_set(kernels, dense),
                device=self.device,
            )
        self.decoder = decoder
        config = engine_config
        self.cache = KVCache(
            model_spec, config.num_gpu_blocks, config.block_size, KV_DTYPES[self.kv_dtype], self.device
        )
        self.tables = BlockTables(config.max_num_seqs, -(-config.max_model_len // config.block_size), self.device)
        self.runner = Runner(
            decoder,
            self.cache,
            self.tables,
            most_tokens=config.max_num_batched_tokens,
            most_sequences=config.max_num_seqs,
            block_size=config.block_size,
            queries=[1],
            graphs=graphs,
            temperature=temperature,
            feeds=answers == "sampled" and config.async_scheduling,
            device=self.device,
        )
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._warm_up()

    def replica(self) -> GpuEngine:
        """Another engine with KV memory of its own and the same weights."""
        return GpuEngine(self.spec, self.config, decoder=self.decoder, **self._options)  # type: ignore[arg-type]

    # --- what `Engine` asks for ---

    def _launch(self, plan: StepPlan) -> _Launched:
        start = self._now()
        filled = self.runner.run(plan.scheduled, self._texts)
        picks = torch.empty(len(self.runner.sampled), dtype=torch.int64, pin_memory=self._cuda)[: self._sampled(filled)]
        picks.copy_(self.runner.sampled[: len(picks)], non_blocking=True)
        return _Launched(filled, picks, start, self._now())

    def _finish(self, plan: StepPlan, launched: _Launched) -> StepResult:
        self._wait(launched.done)
        picks = launched.picks.numpy()
        tokens = {row.request.index: int(picks[at]) for row, at in launched.filled.sampled}
        return StepResult(self._between(launched.start, launched.done), tokens)

    def logits(self, plan: StepPlan) -> dict[int, torch.Tensor]:
        """Computes a plan like a step and returns float32 logits `(vocabulary,)` by request index instead of tokens."""
        self._take_texts(plan)
        filled = self.runner.run(plan.scheduled, self._texts)
        logits = self.runner.logits
        assert logits is not None
        return {row.request.index: logits[at].float().cpu() for row, at in filled.sampled}

    def _fill(self, blocks: NDArray[np.int64]) -> None:
        self.cache.fill(torch.from_numpy(blocks).to(self.device), self._generator)

    @staticmethod
    def _sampled(filled: Filled) -> int:
        return filled.sampled_rows

    # --- clocks ---

    @property
    def _cuda(self) -> bool:
        return self.device.type == "cuda"

    def _now(self) -> Any:
        if self._cuda and self.clock == "device":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        return time.perf_counter_ns() if self.clock == "wall" else time.thread_time_ns()

    def _wait(self, moment: Any) -> None:
        if self._cuda:
            if self.clock == "device":
                moment.synchronize()
            else:
                torch.cuda.current_stream().synchronize()

    def _between(self, start: Any, end: Any) -> int:
        """ns that the clock counts for a step that has been waited for."""
        if self._cuda and self.clock == "device":
            return round(start.elapsed_time(end) * 1e6)
        if self.clock == "wall" and self._cuda:
            end = time.perf_counter_ns()
        return int(end - start)

    # --- before serving ---

    def _warm_up(self) -> None:
        """Compiles every kernel for every kind of size before anything is measured or captured: Triton compiles anew for
        integers that are 1, multiples of 16, and all others."""
        config = self.config
        most = min(config.max_num_batched_tokens, config.usable_blocks * config.block_size)
        sizes = _SIZES if self._cuda else (most,)
        for tokens in sorted({min(size, most) for size in sizes}):
            for decodes in (0, 1, 3, 16):
                chunk = min(tokens - decodes, config.max_model_len)
                if chunk >= 1 and decodes < config.max_num_seqs:
                    self.measure(StepShape(((chunk, 0),), decodes, decodes, int(decodes > 0), decodes + 1))
        self.runner.warm_up()

    def _check_memory(self, loaded: bool) -> None:
        """Weights, KV and what a step needs must fit into the device before anything is allocated."""
        spec, config = self.spec, self.config
        kv = spec.kv_bytes_per_token(self.kv_dtype) * config.num_gpu_blocks * config.block_size
        if KV_DTYPES[self.kv_dtype] in SCALED:
            kv *= 1 + 4 / spec.head_dim
        weights = 0.0 if loaded else spec.weight_bytes(self.precision if self.precision != "auto" else self.dtype)
        size = torch.empty(0, dtype=DTYPES[self.dtype]).element_size()
        widest = spec.hidden_size * 3 + 2 * max(spec.intermediate_size, 1) + spec.q_size * 2 + 2 * spec.kv_size
        logits = config.max_num_seqs * spec.vocab_size * (size + 4)
        work = config.max_num_batched_tokens * widest * size + logits
        have = _free_memory(self.device)
        if kv + weights + work > have:
            raise InputError(
                f"model {spec.name} in {self.dtype if self.precision == 'auto' else self.precision}: {weights / 1e9:.1f} GB of "
                f"weights, {kv / 1e9:.1f} GB of KV ({config.num_gpu_blocks} blocks of {config.block_size}) and {work / 1e9:.1f} GB "
                f"of workspace exceed the {have / 1e9:.1f} GB that are free on {self.device}"
            )

    def info(self) -> dict[str, object]:
        """What ran, for records and profiles. JSON-able."""
        info: dict[str, object] = {
            "device": self.device.type,
            "device_name": torch.cuda.get_device_name(self.device) if self._cuda else platform.machine(),
            "clock": self.clock,
            "threads": 1,
            "model": self.spec.name,
            "dtype": self.dtype if self.precision == "auto" else self.precision,
            "kv_dtype": self.kv_dtype,
            "kernels": self.kernels,
            "linear": "own" if self.dense == "triton" else "cuBLAS" if self._cuda else "torch",
            "graphs": bool(self.runner.graphs.queries),
            "torch": torch.__version__,
            "weights_seed": self.seed,
        }
        return info


def _free_memory(device: torch.device) -> float:
    """Bytes that can still be allocated."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    listing = Path("/proc/meminfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return float(line.split()[1]) * 1024
    return float("inf")
