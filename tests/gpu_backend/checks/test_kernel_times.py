"""Times are held against floors that follow from the shapes alone."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.checks.ceilings import copy_bandwidth, environment, matmul_rate, seconds_per_call, sets_beyond_l2
from gpu_backend.checks.kernel_checks import LAUNCHERS
from gpu_backend.checks.kernel_times import Timing, timings


def timing(kernel: str, part: str, small: bool = False) -> Timing:
    return next(t for t in timings(small) if t.kernel == kernel and part in t.case)


def test_every_kernel_is_timed_under_a_name_of_its_own() -> None:
    for small in (False, True):
        found = list(timings(small))
        assert {t.kernel for t in found} == set(LAUNCHERS)
        assert len({t.name for t in found}) == len(found)


@pytest.mark.parametrize(
    ("kernel", "part", "nbytes", "flop"),
    [
        # 8,192 rows of 4,096 in bf16: two read, two written.
        ("rms_norm", "8192 rows", 4 * 8192 * 4096 * 2, 0),
        # 64 x 4,096 tokens, keys and values of 8 heads of 128 in bf16; queries and outputs of 32.
        ("decode_attention", "64 x 4096, bfloat16", 64 * 4096 * 2 * 8 * 128 * 2 + 2 * 64 * 32 * 128 * 2, 4 * 64 * 4096 * 32 * 128),
        # In int8 one byte, and a float32 scale a token and head.
        ("decode_attention", "64 x 4096, int8", 64 * 4096 * 2 * 8 * (128 + 4) + 2 * 64 * 32 * 128 * 2, 4 * 64 * 4096 * 32 * 128),
        # 2,048 queries after 6,144 tokens see 6,145 to 8,192 keys.
        ("prefill_attention", "1 x 2048 of 8192, bf", 8192 * 2 * 8 * 128 * 2 + 2 * 2048 * 32 * 128 * 2, 4 * 32 * 128 * sum(range(6145, 8193))),
        ("linear", "16 rows", 2 * (4096 * 28672 + 16 * (4096 + 28672)), 2 * 16 * 4096 * 28672),
        # Four bits a weight, and two bytes of scale for 128.
        ("quantized_linear", "int4, 1 rows", 4096 * 28672 * (0.5 + 2 / 128) + 2 * (4096 + 28672), 2 * 4096 * 28672),
    ],
)  # fmt: skip
def test_bytes_and_flop_follow_from_the_shape(kernel: str, part: str, nbytes: float, flop: float) -> None:
    found = timing(kernel, part)
    assert (found.nbytes, found.flop) == (nbytes, flop)
    assert found.floor(4e12, 8e14) == max(nbytes / 4e12, flop / 8e14)


@pytest.mark.parametrize("kernel", list(LAUNCHERS))
def test_a_row_tells_time_floor_and_what_torch_takes(kernel: str) -> None:
    found = timing(kernel, "", small=True)
    row = found.run("cpu", "torch", 1e10, 1e11)
    assert row["seconds"] > 0
    assert row["of_floor"] == pytest.approx(found.floor(1e10, 1e11) / row["seconds"])
    assert "torch_fails" not in row
    if found.against:
        assert row["speedup"] == pytest.approx(row["torch_seconds"] / row["seconds"])


def test_what_torch_cannot_do_is_told_beside_the_kernels_time() -> None:
    def fails() -> None:
        raise RuntimeError("not on this device")

    found = timing("silu_mul", "", small=True)
    broken = Timing(
        "silu_mul", "x", 1.0, 0.0, lambda device, kernels: found.make(device, kernels)._replace(torchs=fails), "torch"
    )
    row = broken.run("cpu", "torch", 1e10, 1e11)
    assert row["torch_fails"] == "RuntimeError: not on this device"
    assert row["seconds"] > 0


def test_buffers_of_one_call_are_enough_where_they_exceed_the_cache() -> None:
    assert sets_beyond_l2(torch.device("cpu"), 1e9) == 1


def test_calls_are_made_in_turn() -> None:
    made: list[int] = []
    seconds = seconds_per_call([lambda i=i: made.append(i) for i in range(3)], torch.device("cpu"), 0.0)  # type: ignore[misc]
    assert seconds > 0
    assert set(made) == {0, 1, 2}


def test_ceilings_are_what_was_moved_and_computed_by_time() -> None:
    copied = copy_bandwidth("cpu", 1 << 20)
    assert copied["bytes_per_s"] == pytest.approx(2 * (1 << 20) / copied["seconds"])
    product = matmul_rate("cpu", 64)
    assert product["flop_per_s"] == pytest.approx(2 * 64**3 / product["seconds"])


def test_the_environment_names_versions_and_the_device() -> None:
    found = environment("cpu")
    assert found["torch"] == torch.__version__
    assert {"python", "numpy", "triton", "device", "name"} <= found.keys()
