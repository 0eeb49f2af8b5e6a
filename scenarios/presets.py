"""Engine versions by name: what each chooses where a scenario says nothing, and how its scheduling differs.

| preset | prompts | memory | admission looks at | decided |
|---|---|---|---|---|
| `vllm@0.10.2`, `vllm@0.12` | chunked, beside decodes | 0.90 of the device | the first chunk | after the last step |
| `vllm@0.19` | as before | 0.90 | the whole prompt | a step ahead |
| `vllm@0.32` | as before | 0.92 | the whole prompt | after the last step (*) |
| `sglang@0.5` | chunked, alone | what activations and graphs leave | the prompt and expected answers of all that run | a step ahead |
| `trtllm@1.0` | whole, beside decodes | 0.90 of what weights leave | prompt and longest answer of all that run | a step ahead |

(*) That version works a step ahead on GPUs as well; here it does so where a scenario says `async_scheduling: true`.

SGLang's order is `fcfs` unless it is launched with `--schedule-policy lpm`, which is `policy: longest_prefix`, look-ahead at prompts
that share text included; `--enable-mixed-chunk` is `batching: chunked`.

Not modelled: SGLang's and TensorRT-LLM's one wasted step of a request that has just ended, and that an answer's text can be hit
only once it is complete, and a prompt's once its chunk has run (SGLang).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scenarios.errors import check_name
from scenarios.hardware import GIB, HardwareSpec


@dataclass(frozen=True)
class Preset:
    """Defaults of one engine version.

    Args:
        about: how its scheduling differs, one sentence.
        batches: (max_num_seqs, max_num_batched_tokens) of its server by device: `large` where the device takes large batches,
            `cpu` on CPUs, `small` elsewhere.
        huge_budget: max_num_batched_tokens of devices of 160 GiB or more, where it differs.
        gpu_memory_utilization: share of the device's memory that the engine takes; with `free_share`, the share of what
            weights and reserve leave that becomes KV.
        activation_bytes: of each token of the budget. If not 0, the share that is taken follows from it: all but the
            activations, and 1 GiB for graphs.
        reserve_bytes: instead of the sheet's reserve, where the engine leaves other things out of its share.
        fields: other fields of the engine section, and their values.
    """

    about: str
    batches: Mapping[str, tuple[int, int]]
    gpu_memory_utilization: float
    block_size: int
    scheduler_reserve_full_isl: bool
    huge_budget: int | None = None
    free_share: bool = False
    activation_bytes: float = 0.0
    reserve_bytes: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def batch_of(self, hardware: HardwareSpec) -> tuple[int, int]:
        """(max_num_seqs, max_num_batched_tokens) on this device."""
        if hardware.is_cpu:
            return self.batches["cpu"]
        seqs, budget = self.batches["large" if hardware.takes_large_batches else "small"]
        return seqs, self.huge_budget if self.huge_budget and hardware.memory_bytes >= 160 * GIB else budget

    def reserves_on(self, hardware: HardwareSpec) -> tuple[float, float, float]:
        """Bytes that neither weights nor KV get: least, assumed, most."""
        if self.reserve_bytes is not None:  # the runtime alone: half of it, to that of a large group
            return 0.5 * self.reserve_bytes, self.reserve_bytes, 2.5 * self.reserve_bytes
        assumed = hardware.reserve_bytes
        most = min(MOST_RESERVE, MOST_SHARE * hardware.memory_bytes)
        return min(assumed, LEAST_RESERVE), assumed, max(assumed, most)

    def utilization_of(self, hardware: HardwareSpec, budget: int) -> float:
        """The default share of the memory where so many tokens may run in a step."""
        if not self.activation_bytes:
            return self.gpu_memory_utilization
        return round(1 - (GIB + self.activation_bytes * budget) / hardware.memory_bytes, 3)


LEAST_RESERVE, MOST_RESERVE = 1.2e9, 6e9
"""Bytes that neither weights nor KV get, where no log says. The least is what a server with 2,048 tokens a step left on one RTX
4090; the most adds up what larger ones take: activations of 8,192 tokens and logits of 1,024 rows in float32, captured graphs,
buffers of a tensor-parallel group and of attention, the runtime. Of a small device at most `MOST_SHARE`."""
MOST_SHARE = 0.075

_VLLM = {"large": (1024, 8192), "small": (256, 2048), "cpu": (128, 2048)}
_AHEAD = {"async_scheduling": True}

PRESETS: dict[str, Preset] = {
    "vllm@0.10.2": Preset(
        "admission asks for blocks of the first chunk only, so that long prompts may be admitted and preempted in turn",
        _VLLM, 0.9, 16, scheduler_reserve_full_isl=False,
    ),
    "vllm@0.12": Preset(
        "as vllm@0.10.2; a step may be decided while the one before it runs, but is not unless asked for",
        _VLLM, 0.9, 16, scheduler_reserve_full_isl=False,
    ),
    "vllm@0.19": Preset(
        "a step is decided while the one before it runs; admission asks for blocks of the whole prompt",
        _VLLM, 0.9, 16, scheduler_reserve_full_isl=True, fields=_AHEAD,
    ),
    "vllm@0.32": Preset(
        "admission asks for blocks of the whole prompt; more of the memory is taken, since graphs are counted",
        _VLLM, 0.92, 16, scheduler_reserve_full_isl=True,
    ),
    # chunked_prefill_size is the budget: prompts run alone, up to it. mem_fraction_static is what is left beside 1.5 MiB for
    # each token of a chunk and the graphs; only the runtime itself is outside of it.
    "sglang@0.5": Preset(
        "prompts run alone, one chunked at a time; admission estimates the answers of all that run, and the requests with the "
        "shortest answers so far go to the end of the queue where the estimate was too low",
        {"large": (2048, 8192), "small": (2048, 2048), "cpu": (2048, 2048)},
        0.9, 1, scheduler_reserve_full_isl=True, huge_budget=16384, activation_bytes=1.5 * 2**20, reserve_bytes=1e9,
        fields={"batching": "prefill_first", "capacity_scheduler_policy": "new_token_ratio"} | _AHEAD,
    ),
    "trtllm@1.0": Preset(
        "a request is admitted only if it and all that run fit with their longest answers, so nothing is ever preempted; "
        "prompts are not chunked unless asked for",
        {"large": (2048, 8192), "small": (2048, 8192), "cpu": (2048, 8192)},
        0.9, 32, scheduler_reserve_full_isl=True, free_share=True,
        fields={"enable_chunked_prefill": False, "capacity_scheduler_policy": "guaranteed_no_evict"} | _AHEAD,
    ),
}  # fmt: skip

DEFAULT = "vllm@0.32"
ALIASES = {"vllm": "vllm@0.32", "sglang": "sglang@0.5", "trtllm": "trtllm@1.0"}
"""Engines without a version: the newest that is described here."""


def preset_name(name: str) -> str:
    """The full name of a preset, with its version.

    Raises:
        ValueError: there is none; names the nearest.
    """
    name = ALIASES.get(name, name)
    return check_name("preset", name, PRESETS)
