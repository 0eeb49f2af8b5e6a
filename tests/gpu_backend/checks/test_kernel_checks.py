"""The device check finds kernels that are wrong, and passes those that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpu_backend.checks import kernel_checks
from gpu_backend.checks.kernel_cases import SIZES, checks
from gpu_backend.checks.kernel_checks import LAUNCHERS, Bench, Check
from gpu_backend.checks.poison import Poisoned, is_poison
from gpu_backend.kernels.silu_mul import silu_mul_reference


def check_of(kernel: str, dtype: str = "float32", part: str = "") -> Check:
    return next(c for c in checks("small") if c.kernel == kernel and c.dtype == dtype and part in c.case)


def run_with(monkeypatch: pytest.MonkeyPatch, check: Check, launcher: Callable[..., Any]) -> list[str]:
    """What a check says of some function in the place of its kernel."""
    made = kernel_checks.kernel
    monkeypatch.setattr(
        kernel_checks, "kernel", lambda name, kernels: launcher if kernels == "triton" else made(name, kernels)
    )
    row = check.run("cpu", "triton", 3)
    assert row["correct"] == (not row["problems"])
    return row["problems"]  # type: ignore[return-value]


def _leaves_one_out(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    out.view(-1)[:-1] = silu_mul_reference(gate_up).view(-1)[:-1]


def _one_is_off(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    silu_mul_reference(gate_up, out)
    out[1, 5] += 0.5 * out.std()


def _all_are_off(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(1.001 * silu_mul_reference(gate_up))


def _writes_beside(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    silu_mul_reference(gate_up, out)
    out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(0.0)


def _reads_beside(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    rows, width = gate_up.shape
    silu_mul_reference(gate_up.as_strided((rows, width), (width, 1), gate_up.storage_offset() + 1), out)


@pytest.mark.parametrize(
    ("launcher", "problem"),
    [
        (_leaves_one_out, "out: relative error nan"),
        (_one_is_off, "worst element"),
        (_all_are_off, "out: relative error 1.0e-03 (at most 1e-05)"),
        (_writes_beside, "something was written beside a buffer"),
        (_reads_beside, "out: relative error"),
    ],
)
def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch, launcher: Callable[..., Any], problem: str) -> None:
    problems = run_with(monkeypatch, check_of("silu_mul"), launcher)
    assert len(problems) == 1
    assert problem in problems[0]


def test_a_kernel_that_cannot_run_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(gate_up: torch.Tensor, out: torch.Tensor) -> None:
        raise RuntimeError("illegal memory access")

    with pytest.raises(RuntimeError, match="illegal"):
        run_with(monkeypatch, check_of("silu_mul"), breaks)


def test_a_right_function_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_with(monkeypatch, check_of("silu_mul"), silu_mul_reference) == []


def test_one_wrong_element_of_many_hides_in_the_norm_and_is_found_all_the_same() -> None:
    bench = Bench("silu_mul", torch.device("cpu"), "torch", "bfloat16", 0)
    wanted = torch.randn(1000, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = wanted.clone()
    got[3, 4] += 1.0
    bench.close("out", got, wanted)
    assert bench.error < 1e-2
    assert len(bench.problems) == 1


def test_attention_that_reads_keys_nobody_wrote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_backend.kernels.decode_attention import decode_attention_reference

    def one_too_far(q: Any, k: Any, v: Any, tables: Any, lens: Any, *rest: Any, **named: Any) -> None:
        decode_attention_reference(q, k, v, tables, torch.where(lens > 0, lens + 1, 0), *rest, **named)

    problems = run_with(monkeypatch, check_of("decode_attention"), one_too_far)
    assert any("out: relative error nan" in problem for problem in problems)


def test_a_sampler_with_a_slight_bias_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_backend.kernels.sampling import sample_reference

    def warmer(logits: Any, temperature: Any, *rest: Any) -> Any:
        return sample_reference(logits, temperature * 1.5, *rest)

    problems = run_with(monkeypatch, check_of("sampling", part="temperature"), warmer)
    assert any("chi-square" in problem for problem in problems)


def test_every_kernel_is_checked_first_once_and_then_again() -> None:
    for size in SIZES:
        found = list(checks(size))
        assert [check.kernel for check in found[: len(LAUNCHERS)]] == list(LAUNCHERS)
        assert len({check.name for check in found}) == len(found)


@pytest.mark.filterwarnings("ignore:divide by zero encountered in log")
@pytest.mark.parametrize("kernel", list(LAUNCHERS))
def test_the_interpreted_kernels_pass(kernel: str) -> None:
    check = next(check for check in checks("interpreted") if check.kernel == kernel)
    assert check.run("cpu", "triton", 7)["problems"] == [], check.name


def test_poison_is_nan_in_every_format_and_seen_where_it_stands() -> None:
    memory = Poisoned(torch.device("cpu"))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        made = memory.empty((3, 5), dtype)
        assert made.float().isnan().all()
        assert is_poison(made).all()
        assert made.data_ptr() % 16 == 0
    assert (memory.empty((4,), torch.int32) == -1).all()
    placed = memory.place(torch.arange(6.0).view(2, 3))
    assert placed.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert memory.intact()
    placed.as_strided((1,), (1,), placed.storage_offset() - 1).fill_(0.0)
    assert not memory.intact()
