"""Small models and a driver that runs requests through the real scheduler and keeps every row of logits."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from gpu_backend.cpu.engine import CpuEngine
from scenarios.models import ModelSpec
from serving.plan import StepPlan
from serving.request import Request
from serving.scheduler import Scheduler

QWEN3 = ModelSpec(
    "qwen3-test", 64, 96, 2, 4, 2, 16, 211, qk_norm=True, architecture="Qwen3ForCausalLM", max_position_embeddings=512
)
LLAMA = ModelSpec("llama-test", 48, 80, 2, 6, 2, 8, 97, tie_embeddings=True, rope_theta=500.0, rms_norm_eps=1e-5)
LLAMA31 = ModelSpec(
    "llama31-test", 48, 80, 2, 4, 4, 12, 97,
    rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
)  # fmt: skip
QWEN2 = ModelSpec("qwen2-test", 64, 96, 2, 4, 1, 16, 211, attention_bias=True, architecture="Qwen2ForCausalLM")


@dataclass
class Served:
    """Logits by (request index, answer tokens before), and the plans that led to them."""

    logits: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)


def serve(engine: CpuEngine, requests: list[Request], one_by_one: bool = False) -> Served:
    """Runs requests to their end, all at once or each after the one before."""
    scheduler, served = Scheduler(engine.config), Served()
    waiting = list(requests)
    while waiting or scheduler.has_work:
        if waiting and not (one_by_one and scheduler.has_work):
            scheduler.add(waiting.pop(0))
            if not one_by_one:
                continue
        plan = scheduler.schedule()
        assert plan.scheduled or plan.preempted
        if plan.scheduled:
            outputs = {row.request.index: row.request.num_outputs for row in plan.scheduled}
            for index, row in engine.logits(plan).items():
                served.logits[index, outputs[index]] = row
        served.plans.append(plan)
        scheduler.update(plan)
    return served
