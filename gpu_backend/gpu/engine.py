"""The engine on a GPU: an executor whose steps are Triton kernels, most of them in CUDA graphs.

It also runs on a CPU, with the torch references or with Triton's interpreter: slowly, to check what a GPU would compute.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.device import device_name, free_memory
from gpu_backend.engine import Engine
from gpu_backend.gpu.block_tables import BlockTables
from gpu_backend.gpu.dense import DTYPES, QUANTIZED, check_precision
from gpu_backend.gpu.inputs import Filled
from gpu_backend.gpu.kernel_set import kernel_set
from gpu_backend.gpu.kv_cache import KV_DTYPES, SCALED, KVCache
from gpu_backend.gpu.model import Decoder
from gpu_backend.gpu.runner import Runner
from gpu_backend.speculation import one_further
from gpu_backend.weights import Weights, check_supported, random_weights
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import Scheduled, StepPlan, StepResult, StepShape
from sim.acceptance import Acceptance

CLOCKS = ("device", "wall")

_SIZES = (1, 2, 15, 16, 17, 48, 65, 128, 129, 500, 512, 2000, 2048, 8192)
"""Tokens of steps that are run before serving: all kinds of integers, and all regimes of the dense kernels."""


class _Moment:
    """A moment of a step on a device: when its stream gets there, or on a CPU now. host: the host's time of it, ns."""

    def __init__(self, device: torch.device, clock: str) -> None:
        self.host = time.thread_time_ns() if clock == "device" else time.perf_counter_ns()
        self.event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """Until the device has come so far: steps that were launched after it may still run."""
        if self.event is not None:
            self.event.synchronize()


@dataclass
class _Launched:
    filled: Filled
    picks: torch.Tensor  # pinned: valid once `done`
    submitted: _Moment
    start: _Moment  # of the device's work
    done: _Moment


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
        acceptance: see `Engine`. draft: the model that proposes, where `speculation` is draft; draft_weights: its own.
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
        acceptance: Acceptance | None = None,
        draft: ModelSpec | None = None,
        weights: Weights | None = None,
        draft_weights: Weights | None = None,
        decoder: Decoder | None = None,
        draft_decoder: Decoder | None = None,
    ) -> None:
        super().__init__(model_spec, engine_config, seed=seed, answers=answers, acceptance=acceptance, draft=draft)
        check_supported(model_spec, experts=True)
        if kernels == "triton" and (model_spec.head_dim < 32 or model_spec.head_dim & (model_spec.head_dim - 1)):
            found = f"found {model_spec.head_dim} in {model_spec.name}"
            raise InputError(f"head_dim: {found}, but the attention kernels take powers of two from 32 on")
        check_precision("dtype", dtype, ("auto", *DTYPES, *QUANTIZED))
        check_precision("kv_dtype", kv_dtype, ("auto", *KV_DTYPES))
        if clock not in CLOCKS:
            raise InputError(f"clock: found {clock!r}, allowed: {', '.join(CLOCKS)}")
        self._options = {
            "device": device, "dtype": dtype, "kv_dtype": kv_dtype, "seed": seed, "clock": clock, "answers": answers,
            "kernels": kernels, "dense": dense, "graphs": graphs, "temperature": temperature, "acceptance": acceptance, "draft": draft,
        }  # fmt: skip
        self.device = torch.device(device)
        self.clock, self.kernels, self.dense = clock, kernels, dense
        automatic = "bfloat16" if self.device.type == "cuda" else "float32"
        self.dtype = dtype if dtype in DTYPES else automatic
        self.precision = dtype if dtype in QUANTIZED else "auto"
        self.kv_dtype = self.dtype if kv_dtype == "auto" else kv_dtype
        self.temperature = temperature
        self._check_memory(draft, loaded=decoder is not None)
        self.decoder = self._decoder(model_spec, weights) if decoder is None else decoder
        config = engine_config
        self.tables = BlockTables(config.max_num_seqs, -(-config.max_model_len // config.block_size), self.device)
        k = config.num_speculative_tokens
        feeds = answers == "sampled" and config.async_scheduling
        self.runner = self._runner(self.decoder, [1, 1 + k] if k else [1], graphs, temperature, feeds)
        self.cache = self.runner.cache
        self.draft: Runner | None = None
        if draft is not None:
            draft_decoder = self._decoder(draft, draft_weights) if draft_decoder is None else draft_decoder
            self.draft = self._runner(draft_decoder, [1], graphs, 0.0, feeds=True)
        self._generator = torch.Generator(self.device).manual_seed(seed)
        caches = [self.cache] if self.draft is None else [self.cache, self.draft.cache]
        self._keep_on_host(*caches)
        self._warm_up()

    def replica(self) -> GpuEngine:
        """Another engine with KV memory of its own and the same weights."""
        shared = {"decoder": self.decoder, "draft_decoder": None if self.draft is None else self.draft.decoder}
        return GpuEngine(self.spec, self.config, **self._options, **shared)  # type: ignore[arg-type]

    def _decoder(self, spec: ModelSpec, weights: Weights | None) -> Decoder:
        if weights is None:
            weights = random_weights(spec, self.seed, device=self.device, dtype=DTYPES[self.dtype])
        return Decoder(
            spec,
            weights,
            window=self.config.max_model_len,
            dtype=DTYPES[self.dtype],
            precision=self.precision,
            kernels=kernel_set(self.kernels, self.dense),
            device=self.device,
        )

    def _runner(self, decoder: Decoder, queries: list[int], graphs: bool, temperature: float, feeds: bool) -> Runner:
        config = self.config
        kv_dtype = KV_DTYPES[self.kv_dtype]
        return Runner(
            decoder,
            KVCache(decoder.spec, config.num_gpu_blocks, config.block_size, kv_dtype, self.device),
            self.tables,
            # A draft model may be a token a request behind.
            most_tokens=config.max_num_batched_tokens + config.max_num_seqs,
            most_sequences=config.max_num_seqs,
            block_size=config.block_size,
            queries=queries,
            graphs=graphs,
            temperature=temperature,
            feeds=feeds,
            device=self.device,
        )

    # --- what `Engine` asks for ---

    def _launch(self, plan: StepPlan) -> _Launched:
        submitted = start = self._now()

        def begins() -> None:
            nonlocal start
            start = self._now()
            self._move(plan)

        filled = self.runner.run(plan.scheduled, self._texts, self._unknown(), begins)
        if self.temperature and any(row.drafts for row, _ in filled.sampled):
            self._verify(filled)
        picks = torch.empty(filled.sampled_rows, dtype=torch.int64, pin_memory=self._cuda)
        picks.copy_(self.runner.sampled[: len(picks)], non_blocking=True)
        return _Launched(filled, picks, submitted, start, self._now())

    def _unknown(self) -> dict[int, int]:
        """Where on the device the tokens are that the step in flight samples: by request index."""
        if not self._in_flight or self.answers == "forced":
            return {}
        launched: _Launched = self._in_flight[-1][1]
        return {row.request.index: at for row, at in launched.filled.sampled}

    @torch.inference_mode()
    def _verify(self, filled: Filled) -> None:
        """Rejection sampling of the drafts, all on the device: what stands and the token after it replace what was sampled
        row by row, so that the first row at which they differ from the drafts is where the drafts end."""
        rows = [(row, at) for row, at in filled.sampled if row.drafts]
        k = max(row.drafts for row, _ in rows)
        drafts = np.zeros((len(rows), k), dtype=np.int64)
        at = np.zeros((len(rows), k + 1), dtype=np.int64)
        lengths = np.zeros(len(rows), dtype=np.int32)
        for i, (row, first) in enumerate(rows):
            proposed = self._texts[row.request.index].drafts[: row.drafts]
            lengths[i] = len(proposed)
            drafts[i, : len(proposed)] = proposed
            at[i] = first + np.minimum(np.arange(k + 1), row.drafts)
        where = torch.from_numpy(at).to(self.device, non_blocking=True)
        logits = self.runner.logits
        assert logits is not None
        target = torch.softmax(logits[where].float() / self.temperature, dim=-1)
        said = torch.zeros_like(where)
        stand = torch.zeros(len(rows), dtype=torch.int32, device=self.device)
        seeds = self.runner.inputs.on_device["seeds"][where[:, 0]]
        placed = torch.from_numpy(drafts).to(self.device), torch.from_numpy(lengths).to(self.device)
        self.decoder.kernels.verify(placed[0], placed[1], None, target, seeds, said, stand)
        # Rows behind the last token that stands keep what was sampled there: what is written for them goes to the spare place.
        behind = torch.arange(k + 1, device=self.device) > stand.unsqueeze(1)
        where = where.masked_fill(behind, len(self.runner.sampled) - 1)
        self.runner.sampled.index_copy_(0, where.view(-1), said.view(-1))

    def _finish(self, plan: StepPlan, launched: _Launched) -> StepResult:
        launched.done.wait()
        result = self._settle(plan, launched.filled.sampled, launched.picks.numpy())
        if self.draft is not None:
            launched.done = self._now()
            launched.done.wait()
        return replace(result, duration_ns=self._duration(launched))

    def logits(self, plan: StepPlan) -> dict[int, torch.Tensor]:
        """Computes a plan like a step and returns float32 logits `(vocabulary,)` by request index instead of tokens."""
        self._take_texts(plan)
        self._move(plan)
        filled = self.runner.run(plan.scheduled, self._texts)
        logits = self.runner.logits
        assert logits is not None
        return {row.request.index: logits[at].float().cpu() for row, at in filled.sampled}

    def _draft_tokens(self, rows: list[Scheduled], k: int) -> dict[int, list[int]]:
        """The passes feed each other on the device; the host waits once, for all of their tokens."""
        assert self.draft is not None
        passes: list[tuple[list[tuple[Scheduled, int]], torch.Tensor]] = []
        unknown: dict[int, int] = {}
        while rows and k:
            filled = self.draft.run(rows, self._texts, unknown)
            passes.append((filled.sampled, self.draft.sampled[: filled.sampled_rows].clone()))
            unknown = {row.request.index: at for row, at in filled.sampled}
            rows, k = one_further(rows, self.config), k - 1
        drafts: dict[int, list[int]] = {}
        said = torch.cat([picks for _, picks in passes]).cpu().numpy() if passes else np.empty(0, dtype=np.int64)
        first = 0
        for sampled, picks in passes:
            for row, at in sampled:
                drafts.setdefault(row.request.index, []).append(int(said[first + at]))
            first += len(picks)
        return drafts

    def _fill(self, blocks: NDArray[np.int64]) -> None:
        self.cache.fill(torch.from_numpy(blocks).to(self.device), self._generator)

    # --- clocks ---

    @property
    def _cuda(self) -> bool:
        return self.device.type == "cuda"

    def _now(self) -> _Moment:
        return _Moment(self.device, self.clock)

    def _duration(self, launched: _Launched) -> int:
        """ns that the clock counts for a step that has been waited for. The device is not seen waiting for the host."""
        if self.clock == "wall":
            return time.perf_counter_ns() - launched.submitted.host
        if launched.start.event is not None and launched.done.event is not None:
            return round(launched.start.event.elapsed_time(launched.done.event) * 1e6)
        return launched.done.host - launched.submitted.host

    # --- before serving ---

    def _warm_up(self) -> None:
        """Compiles every kernel for every kind of size before anything is measured or captured: Triton compiles anew for
        integers that are 1, multiples of 16, and all others."""
        config = self.config
        most = min(config.max_num_batched_tokens, config.usable_blocks * config.block_size)
        sizes = sorted({min(size, most) for size in _SIZES}) if self._cuda else []
        for tokens in sizes:
            for decodes in (0, 1, 3, 16):
                chunk = min(tokens - decodes, config.max_model_len)
                if chunk >= 1 and decodes < config.max_num_seqs:
                    self.measure(StepShape(((chunk, 0),), decodes, decodes, int(decodes > 0), decodes + 1))
        self.runner.warm_up()
        if self.draft is not None:
            self.draft.warm_up()

    def _check_memory(self, draft: ModelSpec | None, loaded: bool) -> None:
        """Weights, KV and what a step needs must fit into the device before anything is allocated."""
        from gpu_backend.kernels.decode_attention import scratch_size

        spec, config = self.spec, self.config
        kv = spec.kv_bytes_per_token(self.kv_dtype) * config.num_gpu_blocks * config.block_size
        if KV_DTYPES[self.kv_dtype] in SCALED:
            kv *= 1 + 4 / spec.head_dim
        weights = 0.0 if loaded else spec.weight_bytes(self.precision if self.precision != "auto" else self.dtype)
        if draft is not None:
            kv += draft.kv_bytes_per_token(self.kv_dtype) * config.num_gpu_blocks * config.block_size
            weights += 0.0 if loaded else draft.weight_bytes(self.dtype)
        size = torch.empty(0, dtype=DTYPES[self.dtype]).element_size()
        widest = spec.hidden_size * 3 + 2 * max(spec.intermediate_size, 1) + spec.q_size * 2 + 2 * spec.kv_size
        logits = config.max_num_seqs * spec.vocab_size * (size + 4)
        k = config.num_speculative_tokens
        splits = scratch_size(config.max_num_seqs * (k + 1), spec.num_heads, spec.head_dim, config.max_model_len) * 4
        work = config.max_num_batched_tokens * widest * size + logits * (k + 1) + splits
        have = free_memory(self.device)
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
            "device_name": device_name(self.device),
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
