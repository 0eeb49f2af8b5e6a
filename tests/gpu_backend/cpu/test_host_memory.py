"""KV that was in the host's memory is the KV that was computed (law 14), on the CPU engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.host_blocks import HostBlocks
from scenarios.errors import InputError
from serving.config import EngineConfig
from serving.host_memory import Move, MoveKind
from tests.gpu_backend.host_memory import (
    OFFLOADING,
    ROOMY,
    SWAPPING,
    equal_logits,
    fetches_without_a_trace,
    growing,
    swaps_without_a_trace,
)
from tests.gpu_backend.shapes import QWEN3, serve


def engine(settings: dict[str, Any], kv_dtype: str = "float32") -> CpuEngine:
    return CpuEngine(QWEN3, EngineConfig(**settings), dtype="float32", kv_dtype=kv_dtype)


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "int8", "fp8"])
def test_swapping_out_and_in_changes_no_logits(kv_dtype: str) -> None:
    swaps_without_a_trace(engine(SWAPPING, kv_dtype), engine(ROOMY, kv_dtype))


def test_fetching_from_the_host_changes_no_logits() -> None:
    fetches_without_a_trace(engine(OFFLOADING), engine(ROOMY))


def test_without_the_copies_logits_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = serve(engine(ROOMY), growing())
    monkeypatch.setattr(HostBlocks, "move", lambda self, moves: None)
    assert not equal_logits(serve(engine(SWAPPING), growing()), plain, 1e-4)


def test_copies_of_a_run_that_use_a_slot_twice_happen_in_order() -> None:
    keys = torch.arange(24, dtype=torch.float32).reshape(2, 4, 3).clone()
    scales = torch.arange(8, dtype=torch.float32).reshape(2, 4, 1).clone()
    host = HostBlocks([keys, scales], 2)
    before = keys.clone(), scales.clone()
    out, back = MoveKind.OFFLOAD, MoveKind.FETCH
    host.move([Move(out, 1, 0), Move(out, 2, 1), Move(out, 3, 0), Move(back, 1, 0), Move(back, 0, 1)])
    for part, was in zip((keys, scales), before, strict=True):
        torch.testing.assert_close(part[:, 1], was[:, 3])
        torch.testing.assert_close(part[:, 0], was[:, 2])
        torch.testing.assert_close(part[:, 2:], was[:, 2:])


def test_more_host_memory_than_there_is_is_refused() -> None:
    with pytest.raises(InputError, match=r"lower swap_space or kv_offloading_size"):
        HostBlocks([torch.zeros(2, 4, 1 << 20)], 1 << 30)
