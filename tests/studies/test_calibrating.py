"""Measuring this machine: one call, which tells how far it is and can be ended."""

from __future__ import annotations

import pytest

from scenarios.errors import InputError
from studies import calibrating

TINY = [
    "engine.max_num_seqs=2",
    "engine.max_num_batched_tokens=8",
    "engine.max_model_len=64",
    "engine.num_gpu_blocks=17",
]


def test_this_machine_is_measured_with_progress():
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    told: list[tuple[str, float]] = []
    found = calibrating.measure_here(
        "qwen3-tiny", overrides=TINY, grid="quick", repeats=1, progress=lambda what, part: told.append((what, part))
    )
    assert (found.name, found.model, found.source.device) == ("qwen3-tiny-cpu", "qwen3-tiny", "cpu")
    assert {what for what, _ in told} == {"calibrating"}
    assert [part for _, part in told] == sorted(part for _, part in told)
    assert told[-1][1] == 1.0
    assert len(told) == 2 * len(found.measurements)


def test_what_the_callback_raises_ends_the_measurement():
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")

    class CancelledError(Exception):
        pass

    def tell(what: str, part: float) -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        calibrating.measure_here("qwen3-tiny", overrides=TINY, grid="quick", repeats=1, progress=tell)


def test_an_unknown_model_is_refused_before_anything_is_measured():
    with pytest.raises(InputError, match=r"unknown model 'qwen-tiny'"):
        calibrating.measure_here("qwen-tiny")
