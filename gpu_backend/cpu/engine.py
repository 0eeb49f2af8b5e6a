"""The engine on a CPU: an executor that really computes every step of a plan, and says how long it took."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gpu_backend.batch import prepare
from gpu_backend.cpu.kernels import Kernels
from gpu_backend.cpu.linear import DTYPES, choose_dtype
from gpu_backend.cpu.model import KVCache, Model
from gpu_backend.scratch import scratch_plan
from gpu_backend.tokens import Text
from gpu_backend.weights import Weights, check_supported, random_weights
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import StepPlan, StepResult, StepShape

# "cpu": what the computing thread consumed, so that neighbours on a shared machine count little. The process's own time
# would add what other threads do meanwhile, e.g. redrawing a progress bar.
CLOCKS: dict[str, Callable[[], int]] = {"cpu": time.thread_time_ns, "wall": time.perf_counter_ns}


class CpuEngine:
    """A decoder with paged KV, driven by the scheduler's plans; answers are forced to the workload's text.

    Every sampled token is computed and then discarded: what a request is fed next is the text of its `output_key`, so that
    later prompts which quote the answer hit the prefix cache as they do in the simulation.

    Args:
        dtype: weights: float32, bfloat16, or auto (bfloat16 where the CPU multiplies it).
        kv_dtype: KV cache: float32, bfloat16, or auto (bfloat16: half the memory traffic of decode attention).
        seed: of the random weights.
        threads: of torch (dense layers of many rows, prefill attention); our own kernels use one.
        clock: cpu (default) or wall.
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
        model: Model | None = None,
        weights: Weights | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        check_supported(model_spec)
        if clock not in CLOCKS:
            raise InputError(f"clock: found {clock!r}, allowed: {', '.join(CLOCKS)}")
        if threads < 1 or (threads > 1 and clock == "cpu"):
            raise InputError(f"threads: found {threads}; 1 for the cpu clock, 1 or more for the wall clock")
        self.spec, self.config = model_spec, engine_config
        self.seed, self.threads, self.clock = seed, threads, clock
        self.dtype = choose_dtype(dtype) if model is None else model.dtype
        self.kv_dtype = torch.bfloat16 if kv_dtype == "auto" else choose_dtype(kv_dtype)
        self._check_memory(loaded=model is not None or weights is not None)
        torch.set_num_threads(threads)
        if model is None:
            weights = random_weights(model_spec, seed) if weights is None else weights
            window = engine_config.max_model_len
            model = Model(model_spec, weights, window=window, dtype=self.dtype, kernels=kernels)
        self.model = model
        self.cache = KVCache(model_spec, engine_config.num_gpu_blocks, engine_config.block_size, self.kv_dtype)
        self._texts: dict[int, Text] = {}
        self._plan: StepPlan | None = None
        self._filled = np.zeros(engine_config.num_gpu_blocks, dtype=bool)
        self._draws = np.random.default_rng(seed)
        self._warm_up()

    def replica(self) -> CpuEngine:
        """Another engine with KV memory of its own and the same weights."""
        return CpuEngine(
            self.spec,
            self.config,
            kv_dtype=_name(self.kv_dtype),
            seed=self.seed,
            threads=self.threads,
            clock=self.clock,
            model=self.model,
        )

    # --- serving.plan.Executor ---

    def submit(self, plan: StepPlan) -> None:
        """Takes a plan; it is computed by `collect`."""
        if self._plan is not None:
            raise RuntimeError("a plan is in flight: collect it first")
        self._plan = plan

    def collect(self) -> StepResult:
        """Computes the plan in flight: duration in ns, and the token that the model would say by request index."""
        plan, self._plan = self._plan, None
        if plan is None:
            raise RuntimeError("no plan is in flight: submit one first")
        self._take_texts(plan)
        now = CLOCKS[self.clock]
        start = now()
        batch = prepare(plan.scheduled, self._texts, self.config.block_size)
        # numpy's argmax: torch's is several times slower on wide rows.
        tokens = self.model.forward(batch, self.cache).numpy().argmax(axis=1)
        result = dict(zip(batch.sampled_requests, tokens.tolist(), strict=True))
        return StepResult(now() - start, result)

    def logits(self, plan: StepPlan) -> dict[int, torch.Tensor]:
        """Computes a plan like a step and returns the logits `(vocabulary,)` by request index instead of tokens."""
        self._take_texts(plan)
        batch = prepare(plan.scheduled, self._texts, self.config.block_size)
        return dict(zip(batch.sampled_requests, self.model.forward(batch, self.cache), strict=True))

    def _take_texts(self, plan: StepPlan) -> None:
        """Has the text of everyone in the plan; done before the clock starts, as a client sends text, not keys."""
        if len(self._texts) > 2 * len(plan.scheduled) + 64:  # who comes back after long is drawn again, the same
            present = {row.request.index for row in plan.scheduled}
            self._texts = {index: text for index, text in self._texts.items() if index in present}
        for row in plan.scheduled:
            text = self._texts.get(row.request.index)
            if text is None or text.request is not row.request:
                text = self._texts[row.request.index] = Text(row.request, self.spec.vocab_size)
            text.first(row.context + row.tokens)

    # --- calibration ---

    def measure(self, shape: StepShape, repeats: int = 1) -> int:
        """Runs one step of that shape on scratch KV, exactly as a plan is run; its duration in ns (the shortest of
        `repeats`). Only while no request is being served: blocks of the pool are overwritten.

        Raises:
            InputError: the shape contradicts itself or leaves the window or the KV memory of the engine.
        """
        plan = self._scratch_plan(shape)
        durations = []
        for _ in range(repeats):
            self.submit(plan)
            durations.append(self.collect().duration_ns)
        for row in plan.scheduled:
            self._texts.pop(row.request.index, None)
        return min(durations)

    def _scratch_plan(self, shape: StepShape) -> StepPlan:
        """A plan of that shape on random blocks, all of which hold finite numbers."""
        plan = scratch_plan(shape, self.config, self._draws)
        ids = np.unique(np.concatenate([row.request.blocks for row in plan.scheduled]))
        fresh = ids[~self._filled[ids]]  # fresh memory may hold anything, and its first touch is slow
        for part in (self.cache.keys, self.cache.values):
            one = torch.from_numpy(self._draws.standard_normal(part[:, :1].shape, dtype=np.float32))
            part[:, torch.from_numpy(fresh)] = one.to(part.dtype).expand(-1, len(fresh), -1, -1, -1)
        self._filled[fresh] = True
        return plan

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
        kv = self.spec.kv_bytes_per_token(_name(self.kv_dtype)) * self.config.num_gpu_blocks * self.config.block_size
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
            "device_name": _cpu_name(),
            "clock": self.clock,
            "threads": self.threads,
            "model": self.spec.name,
            "dtype": _name(self.dtype),
            "kv_dtype": _name(self.kv_dtype),
            "kernels": self.model.kernels.name,
            "linear": self.model.linear_kind,
            "torch": torch.__version__,
            "weights_seed": self.seed,
        }


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def _cpu_name() -> str:
    """The model name that the system gives its CPU, else the architecture."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
