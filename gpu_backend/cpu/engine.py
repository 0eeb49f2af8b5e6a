"""The engine on a CPU: an executor that really computes every step of a plan, and says how long it took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.cpu.batch import prepare
from gpu_backend.cpu.kernels import Kernels
from gpu_backend.cpu.kv_cache import KV_DTYPES, KVCache, choose_kv_dtype, kv_bytes
from gpu_backend.cpu.linear import DTYPES
from gpu_backend.cpu.model import Model
from gpu_backend.cpu.quantized_linear import choose_precision
from gpu_backend.device import device_name
from gpu_backend.engine import Engine
from gpu_backend.speculation import NextToken, one_further
from gpu_backend.weights import Weights, check_supported, random_weights
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import Scheduled, StepPlan, StepResult, StepShape
from sim.acceptance import Acceptance

# "cpu": what the computing thread consumed, so that neighbours on a shared machine count little. The process's own time
# would add what other threads do meanwhile, e.g. redrawing a progress bar.
CLOCKS: dict[str, Callable[[], int]] = {"cpu": time.thread_time_ns, "wall": time.perf_counter_ns}


class CpuEngine(Engine):
    """A decoder with paged KV, driven by the scheduler's plans.

    Args:
        dtype: weights: float32, bfloat16, or auto (bfloat16 where the CPU multiplies it); int8 and int4 are of the dense layers, all
            else is then as in auto.
        kv_dtype: KV cache: float32, bfloat16, int8, fp8, or auto (bfloat16: half the memory traffic of decode attention).
        seed: of the random weights.
        threads: of torch (dense layers of many rows, prefill attention); our own kernels use one.
        clock: cpu (default) or wall.
        answers: forced (default) or sampled; acceptance: of drafts, see `Engine`.
        draft: the model that proposes drafts, where `speculation` is draft; draft_model: the same, built; draft_weights: its own.
        model: a model of the same spec whose weights are shared.
        weights: instead of random ones; used up.

    Raises:
        InputError: unknown precision or clock, a model that does not fit, more threads than the clock can count.
    """

    def __init__(
        self,
        model_spec: ModelSpec,
        engine_config: EngineConfig,
        *,
        dtype: str = "auto",
        kv_dtype: str = "auto",
        seed: int = 0,
        threads: int = 1,
        clock: str = "cpu",
        answers: str = "forced",
        acceptance: Acceptance | None = None,
        draft: ModelSpec | None = None,
        draft_weights: Weights | None = None,
        draft_model: Model | None = None,
        model: Model | None = None,
        weights: Weights | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        super().__init__(model_spec, engine_config, seed=seed, answers=answers, acceptance=acceptance, draft=draft)
        check_supported(model_spec)
        if clock not in CLOCKS:
            raise InputError(f"clock: found {clock!r}, allowed: {', '.join(CLOCKS)}")
        if threads < 1 or (threads > 1 and clock == "cpu"):
            raise InputError(f"threads: found {threads}; 1 for the cpu clock, 1 or more for the wall clock")
        self.threads, self.clock = threads, clock
        self.dtype, self.precision = choose_precision(dtype) if model is None else (model.dtype, model.precision)
        self.kv_dtype = choose_kv_dtype(kv_dtype)
        self._check_memory(loaded=model is not None or weights is not None)
        torch.set_num_threads(threads)
        self.model = self._build(model_spec, weights, kernels, self.precision) if model is None else model
        self.cache = self._memory(model_spec)
        self.draft: Model | None = None
        if draft is not None:
            self.draft = self._build(draft, draft_weights, kernels) if draft_model is None else draft_model
            self.draft_cache = self._memory(draft)
        caches = [self.cache] if self.draft is None else [self.cache, self.draft_cache]
        self._keep_on_host(*caches)
        self._warm_up()

    def replica(self) -> CpuEngine:
        """Another engine with KV memory of its own and the same weights."""
        return CpuEngine(
            self.spec,
            self.config,
            kv_dtype=self.kv_dtype,
            seed=self.seed,
            threads=self.threads,
            clock=self.clock,
            answers=self.answers,
            acceptance=self.acceptance,
            draft=None if self.draft is None else self.draft.spec,
            draft_model=self.draft,
            model=self.model,
        )

    def _build(
        self, spec: ModelSpec, weights: Weights | None, kernels: Kernels | None, precision: str = "auto"
    ) -> Model:
        weights = random_weights(spec, self.seed) if weights is None else weights
        window = self.config.max_model_len
        return Model(spec, weights, window=window, dtype=self.dtype, precision=precision, kernels=kernels)

    def _memory(self, spec: ModelSpec) -> KVCache:
        return KVCache(spec, self.config.num_gpu_blocks, self.config.block_size, KV_DTYPES[self.kv_dtype])

    # --- what `Engine` asks for ---

    def _launch(self, plan: StepPlan) -> StepResult:
        """Computes the plan: there is nothing that could go on beside the host."""
        now = CLOCKS[self.clock]
        start = now()
        self._move(plan)
        batch = prepare(plan.scheduled, self._texts, self.config.block_size)
        # numpy's argmax: torch's is several times slower on wide rows.
        picks = self.model.forward(batch, self.cache).numpy().argmax(axis=1)
        result = self._settle(plan, batch.samplers, picks)
        return replace(result, duration_ns=now() - start)

    def _finish(self, plan: StepPlan, launched: StepResult) -> StepResult:
        return launched

    def logits(self, plan: StepPlan) -> dict[int, torch.Tensor]:
        """Computes a plan like a step and returns the logits `(vocabulary,)` by request index instead of tokens."""
        self._take_texts(plan)
        self._move(plan)
        batch = prepare(plan.scheduled, self._texts, self.config.block_size)
        logits = self.model.forward(batch, self.cache)
        return {row.request.index: logits[at] for row, at in batch.samplers}

    def _draft_tokens(self, rows: list[Scheduled], k: int) -> dict[int, list[int]]:
        assert self.draft is not None
        drafts: dict[int, list[int]] = {}
        size, texts = self.config.block_size, self._texts
        while rows and k:
            batch = prepare(rows, texts, size)
            picks = self.draft.forward(batch, self.draft_cache).numpy().argmax(axis=1)
            for row, at in batch.samplers:
                drafts.setdefault(row.request.index, []).append(int(picks[at]))
            rows, k = one_further(rows, self.config), k - 1
            texts = {row.request.index: NextToken(drafts[row.request.index][-1]) for row in rows}
        return drafts

    def _fill(self, blocks: NDArray[np.int64]) -> None:
        self.cache.fill(blocks, self._draws)

    def _warm_up(self) -> None:
        """Compiles the kernels and lets oneDNN build its code before anything is measured."""
        config = self.config
        # A head for more rows than that is so much work that building its code does not show.
        self.model.warm_up(config.max_num_batched_tokens, min(config.max_num_seqs, 64))
        tokens = min(2, self.config.max_model_len, self.config.usable_blocks * self.config.block_size)
        shape = StepShape(((tokens, 0),), 1, 0, 0, 2)
        self.measure(shape, repeats=2)

    def _check_memory(self, loaded: bool) -> None:
        """Weights and KV must fit into this machine before they are allocated."""
        kv = kv_bytes(self.spec, self.kv_dtype) * self.config.num_gpu_blocks * self.config.block_size
        weights = 0.0 if loaded else self.spec.parameters() * 4.0
        have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if kv + weights > have:
            raise InputError(
                f"model {self.spec.name}: {weights / 1e9:.1f} GB of weights and {kv / 1e9:.1f} GB of KV "
                f"({self.config.num_gpu_blocks} blocks of {self.config.block_size}) exceed this machine's {have / 1e9:.1f} GB"
            )

    def info(self) -> dict[str, object]:
        """What ran, for records and profiles. JSON-able."""
        return {
            "device": "cpu",
            "device_name": device_name("cpu"),
            "clock": self.clock,
            "threads": self.threads,
            "model": self.spec.name,
            "dtype": _name(self.dtype) if self.precision == "auto" else self.precision,
            "kv_dtype": self.kv_dtype,
            "kernels": self.model.kernels.name,
            "linear": self.model.layer_kind,
            "torch": torch.__version__,
            "weights_seed": self.seed,
            **self._what_small_numbers_are(),
        }

    def _what_small_numbers_are(self) -> dict[str, object]:
        """What really computes where weights or KV take a byte or less."""
        told: dict[str, object] = {}
        if self.precision != "auto":
            told["output_head"] = f"{self.model.linear_kind}, {_name(self.dtype)}"
        if self.cache.key_scales is not None:
            told["kv"] = (
                f"a byte a value and a float32 scale for each token and head, read by {self.model.kernels.name}"
            )
        return told


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)
