"""The engine section: vLLM's field names, and the defaults that a preset fills in as that engine would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from scenarios.errors import check_name, misplaced
from scenarios.fields import Section, ShortForm, TokenCount
from scenarios.hardware import HardwareSpec
from scenarios.host_memory import check_together, host_blocks, pinned
from scenarios.kv_memory import KvCapacity, check_tensor_parallel, kv_blocks
from scenarios.models import BYTES, ModelSpec
from scenarios.presets import ALIASES, DEFAULT, PRESETS, preset_name
from scenarios.speculation import Speculation
from serving.batching import BATCHINGS
from serving.capacity import CAPACITIES
from serving.config import EngineConfig
from serving.policies import ORDERS
from serving.speculation import METHODS

Dtype = Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8", "int4"]
KvDtype = Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8"]


class Engine(Section):
    """One engine replica. A field that is not given is taken from the preset, which may look at model and hardware. The preset's name
    alone is a short form: `engine: sglang`.

    Args:
        preset: an engine and its version, a name of `scenarios.presets`; the engine alone is its newest there.
        policy: who is served next: `fcfs`, `priority`, `shortest_first` (the shortest predicted answer), `deadline` (the least slack to
            its limit of TTFT), `longest_prefix` (most in the cache, SGLang's lpm), `fair` (the tenant served the fewest tokens, VTC).
        batching: `chunked` (prompts and decodes share a step), `decode_first` (a prompt takes neither budget nor blocks from a decode),
            `prefill_first` (prompts alone, vLLM V0, SGLang), `static` (a batch runs until its slowest ends).
        max_model_len: window; if not given, the model's own, or what the KV memory holds where that is less.
        num_gpu_blocks: KV blocks as engines report them, null block included; if not given, what memory holds.
        gpu_memory_utilization: share of the device's memory that the engine takes.
        dtype: precision of weights (below two bytes, activations stay in bfloat16); `auto` is bfloat16. An execution on a CPU has
            float32, bfloat16, int8 and int4, and of kv_cache_dtype float32, bfloat16, int8 and fp8.
        kv_cache_dtype: `auto` is that of the activations.
        async_scheduling: a step is decided while the one before it runs. Off on CPUs and with n-gram speculation whatever is
            said here, as in vLLM.
        capacity_scheduler_policy: `max_utilization` (vLLM: preempt when memory is full), `guaranteed_no_evict` (TensorRT-LLM:
            admit only what fits with its longest answer), `new_token_ratio` (SGLang: admit by estimated answers, retract).
        schedule_conservativeness: SGLang's factor on those estimates.
        batch_wait_timeout_iters: TensorRT-LLM: steps that prompts wait beside decodes so that more of them run together.
        batch_wait_max_tokens_ratio: the share of the budget from which they wait no longer.
        kv_allocation: `paged`, or `contiguous`: before a request starts it reserves consecutive blocks for prompt and `max_tokens`, as
            engines did before PagedAttention. Nothing is cached then, and nothing preempted.
        speculation: drafts that are verified several at a time; none if not given.
        tensor_parallel_size: devices that one replica is split over, each with its share of the heads, weights and KV.
        preemption: `recompute` (vLLM V1: a victim's KV is dropped and computed again) or `swap` (vLLM V0: copied to the host and
            back; those swapped out return before anybody new is admitted).
        swap_space: GiB of host memory a device for that, 4 if not given.
        kv_offloading_size: GiB of host memory, of all devices together, for cached blocks that the device evicts; they are copied
            back when a prompt hits them. None if not given.
        pinned_prefixes: texts at the start of prompts that the prefix cache never evicts: `{"sys:0": 2000}` is the first 2000 tokens
            of the first shared prefix, in whole blocks.
    """

    later: ClassVar[tuple[str, ...]] = (
        "tensor_parallel_size",
        "capacity_scheduler_policy",
        "schedule_conservativeness",
        "batch_wait_timeout_iters",
        "batch_wait_max_tokens_ratio",
        "kv_allocation",
        "preemption",
        "swap_space",
        "kv_offloading_size",
        "pinned_prefixes",
    )

    preset: str = DEFAULT
    max_model_len: int | None = Field(default=None, ge=2)
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    block_size: int | None = Field(default=None, ge=1, le=512)
    num_gpu_blocks: int | None = Field(default=None, ge=2)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = Field(default=0, ge=0)
    policy: str = "fcfs"
    batching: str = "chunked"
    scheduler_reserve_full_isl: bool | None = None
    watermark: float = Field(default=0.0, ge=0, lt=1)
    dtype: Dtype = "auto"
    kv_cache_dtype: KvDtype = "auto"
    async_scheduling: bool = False
    speculation: Speculation | None = None
    tensor_parallel_size: int = Field(default=1, ge=1)
    capacity_scheduler_policy: str = "max_utilization"
    schedule_conservativeness: float = Field(default=1.0, gt=0, le=10)
    batch_wait_timeout_iters: int = Field(default=0, ge=0)
    batch_wait_max_tokens_ratio: float = Field(default=0.0, ge=0, le=1)
    kv_allocation: Literal["paged", "contiguous"] = "paged"
    preemption: Literal["recompute", "swap"] = "recompute"
    swap_space: float | None = Field(default=None, gt=0, le=1e6)
    kv_offloading_size: float | None = Field(default=None, gt=0, le=1e6)
    pinned_prefixes: Mapping[str, TokenCount] = {}

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        return {"preset": data} if isinstance(data, str) else data

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str) -> str:
        return preset_name(name)

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        return check_name("policy", name, ORDERS)

    @field_validator("batching")
    @classmethod
    def _known_batching(cls, name: str) -> str:
        return check_name("batching", name, BATCHINGS)

    @field_validator("capacity_scheduler_policy")
    @classmethod
    def _known_capacity(cls, name: str) -> str:
        return check_name("capacity_scheduler_policy", name, CAPACITIES)

    @model_validator(mode="after")
    def _as_the_preset_has_it(self) -> Engine:
        for name, value in PRESETS[self.preset].fields.items():
            if name not in self.model_fields_set:
                # Not marked as set: written out again, the field still follows its preset.
                self.__dict__[name] = value
        if self.kv_allocation == "contiguous" and "enable_prefix_caching" not in self.model_fields_set:
            self.__dict__["enable_prefix_caching"] = False
        return self

    @model_validator(mode="after")
    def _known_together(self) -> Engine:
        check_together(self)
        for name, others in (
            ("async_scheduling", ("chunked", "decode_first", "prefill_first")),
            ("speculation", ("chunked", "decode_first")),
        ):
            if getattr(self, name) and self.batching not in others:
                known = ", ".join(others)
                raise misplaced(f"found with batching {self.batching}; it is modelled for batching {known}", name)
        if self.speculation is not None and self.capacity_scheduler_policy != "max_utilization":
            raise misplaced(
                f"found with capacity_scheduler_policy {self.capacity_scheduler_policy}; drafts are modelled for max_utilization",
                "speculation",
            )
        if self.kv_allocation == "contiguous":
            for name, needed, why in (
                ("enable_prefix_caching", False, "texts that are shared are not in one piece"),
                ("capacity_scheduler_policy", "max_utilization", "memory for the longest answer is reserved already"),
                ("preemption", "recompute", "nothing is ever preempted"),
            ):
                if (found := getattr(self, name)) != needed:
                    raise misplaced(f"found {str(found).lower()} with kv_allocation contiguous; {why}", name)
        waits = self.batch_wait_timeout_iters > 0
        if waits != (self.batch_wait_max_tokens_ratio > 0):
            name = "batch_wait_max_tokens_ratio" if waits else "batch_wait_timeout_iters"
            raise misplaced("is required and missing; prompts wait only where both batch_wait fields are above 0", name)
        if waits and self.batching != "chunked":
            raise misplaced(
                f"found with batching {self.batching}; prompts beside decodes are batching chunked",
                "batch_wait_timeout_iters",
            )
        return self

    @property
    def weight_dtype(self) -> str:
        return "bfloat16" if self.dtype == "auto" else self.dtype

    @property
    def kv_dtype(self) -> str:
        if self.kv_cache_dtype != "auto":
            return self.kv_cache_dtype
        return self.weight_dtype if BYTES[self.weight_dtype] >= 2 else "bfloat16"

    @property
    def uses_host_memory(self) -> bool:
        """Whether KV is copied to the host and back."""
        return self.preemption == "swap" or self.kv_offloading_size is not None

    def resolve(self, model: ModelSpec, hardware: HardwareSpec) -> EngineConfig:
        """The settings that the scheduler runs with.

        Raises:
            PydanticCustomError: heads that cannot be split that way, weights that do not fit, a window beyond the model's or beyond the KV memory, a draft model of
                another vocabulary, a budget that cannot hold a row with its drafts.
        """
        preset = PRESETS[self.preset]
        block_size, defaults = self.block_size or preset.block_size, preset.batch_of(hardware)
        window = self.max_model_len or model.max_position_embeddings
        if window > model.max_position_embeddings:
            raise misplaced(
                f"found {window}, but {model.name} has positions for {model.max_position_embeddings} tokens",
                "engine", "max_model_len",
            )  # fmt: skip
        blocks, draft = self.num_gpu_blocks, self._draft_of(model)
        tp = self.tensor_parallel_size
        check_tensor_parallel(tp, *((model,) if draft is None else (model, draft)))
        if blocks is None:
            blocks = self.blocks_beside(model, hardware, preset.reserves_on(hardware)[1])
            capacity = (blocks - 1) * block_size - sum(n for _, n in pinned(self, block_size, blocks - 1))
            if self.max_model_len is not None and capacity < window:
                raise misplaced(
                    f"found {window}, but the KV memory of {hardware.name} beside {model.name} holds {capacity} tokens; "
                    f"lower it, raise gpu_memory_utilization ({self.utilization_on(hardware):g}) or use a smaller kv_cache_dtype",
                    "engine", "max_model_len",
                )  # fmt: skip
            window = min(window, capacity)
        elif model.weight_bytes(self.weight_dtype) / tp > hardware.memory_bytes:
            raise misplaced(
                f"{model.name} in {self.weight_dtype} has {model.weight_bytes(self.weight_dtype) / tp / 1e9:.1f} GB of weights"
                f"{f' on each of {tp} devices' if tp > 1 else ''}, {hardware.name} has {hardware.memory_bytes / 1e9:.1f} GB of memory",
                "model",
            )
        pins = pinned(self, block_size, blocks - 1)
        host = host_blocks(self, model, hardware, block_size, window)
        reserve, given = self.scheduler_reserve_full_isl, self.speculation
        slots = METHODS[given.method].input_slots if given else 0
        budget = self.max_num_batched_tokens
        if budget is None:
            # vLLM raises it where prompts are not chunked; where they never are, longer ones are rejected.
            raised = not self.enable_chunked_prefill and preset.fields.get("enable_chunked_prefill", True)
            budget = max(defaults[1], window + slots) if raised else defaults[1]
        if given and budget < 1 + given.k + slots:
            row = f"{1 + given.k} tokens" + (" and one of the draft model's" if slots else "")
            raise misplaced(
                f"found {budget}, but a row with its {given.k} drafts takes {row}", "engine", "max_num_batched_tokens"
            )
        return EngineConfig(
            num_gpu_blocks=blocks,
            block_size=block_size,
            max_model_len=window,
            max_num_seqs=self.max_num_seqs or min(defaults[0], budget),
            max_num_batched_tokens=budget,
            enable_prefix_caching=self.enable_prefix_caching,
            enable_chunked_prefill=self.enable_chunked_prefill,
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            policy=self.policy,
            batching=self.batching,
            scheduler_reserve_full_isl=preset.scheduler_reserve_full_isl if reserve is None else reserve,
            watermark=self.watermark,
            async_scheduling=self.async_scheduling and self.why_synchronous(hardware) is None,
            speculation="none" if given is None else given.method,
            num_speculative_tokens=0 if given is None else given.k,
            speculation_off_above=0 if given is None else given.off_above,
            tensor_parallel_size=tp,
            capacity_scheduler_policy=self.capacity_scheduler_policy,
            schedule_conservativeness=self.schedule_conservativeness,
            batch_wait_timeout_iters=self.batch_wait_timeout_iters,
            batch_wait_max_tokens_ratio=self.batch_wait_max_tokens_ratio,
            kv_allocation=self.kv_allocation,
            preemption=self.preemption,
            swap_blocks=host.swap,
            offload_blocks=host.offload,
            pinned_prefixes=pins,
        )

    def utilization_on(self, hardware: HardwareSpec) -> float:
        """The share of the device's memory that the engine takes."""
        preset = PRESETS[self.preset]
        budget = self.max_num_batched_tokens or preset.batch_of(hardware)[1]
        return self.gpu_memory_utilization or preset.utilization_of(hardware, budget)

    def blocks_beside(self, model: ModelSpec, hardware: HardwareSpec, reserve_bytes: float) -> int:
        """KV blocks, null block included, that memory holds beside such a reserve."""
        preset = PRESETS[self.preset]
        return kv_blocks(
            model,
            replace(hardware, reserve_bytes=reserve_bytes),
            self.weight_dtype,
            self.kv_dtype,
            self.utilization_on(hardware),
            self.block_size or preset.block_size,
            self._draft_of(model),
            self.tensor_parallel_size,
            preset.free_share,
        )

    def kv_capacity(self, model: ModelSpec, hardware: HardwareSpec) -> KvCapacity:
        """Tokens whose KV the engine holds, as far as that is known."""
        config = self.resolve(model, hardware)
        tokens = config.usable_blocks * config.block_size
        if self.num_gpu_blocks is not None:
            return KvCapacity(tokens, tokens, tokens, "as stated")
        least, _, most = PRESETS[self.preset].reserves_on(hardware)
        ends = []
        for reserve in (most, least):
            try:
                ends.append((self.blocks_beside(model, hardware, reserve) - 1) * config.block_size)
            except PydanticCustomError:  # nothing would be left
                ends.append(0)
        if ends[0] == ends[1]:
            return KvCapacity(tokens, tokens, tokens, f"of fixed size on {hardware.name}")
        what = "activations, graphs and runtime" if PRESETS[self.preset].reserve_bytes is None else "the runtime"
        basis = f"no log states it; {what} may take {least / 1e9:.1f} to {most / 1e9:.1f} GB"
        return KvCapacity(tokens, ends[0], ends[1], basis)

    def why_synchronous(self, hardware: HardwareSpec) -> str | None:
        """Why scheduling is synchronous whatever the scenario says, as in vLLM; None if it may be either."""
        if hardware.is_cpu:
            return f"{hardware.name} is a CPU"
        if self.speculation is not None and self.speculation.method == "ngram":
            return "n-gram drafts are looked up in text that is known"
        return None

    def _draft_of(self, model: ModelSpec) -> ModelSpec | None:
        """The draft model, if there is one beside `model`."""
        draft = None if self.speculation is None else self.speculation.draft_model
        if draft is not None and draft.vocab_size != model.vocab_size:
            raise misplaced(
                f"found {draft.name} with {draft.vocab_size} tokens in its vocabulary, but {model.name} has {model.vocab_size}; "
                "drafts are tokens of both",
                "engine", "speculation", "draft_model",
            )  # fmt: skip
        return draft


NamedEngine = Annotated[Engine, ShortForm({"enum": [*PRESETS, *ALIASES]})]
"""An engine section, or a preset's name alone."""
