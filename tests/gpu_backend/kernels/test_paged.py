"""Bytes of a quantised cache become float16 exactly, by what the interpreter runs and by what a GPU runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_backend.kernels import paged
from gpu_backend.kernels.paged import halves, slots_of_sequences

EVERY = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
"""Every pair of bytes."""


def numbers(format_: str) -> torch.Tensor:
    """`(pairs, 2)` float32, the number that each byte stands for; the two NaN of e4m3 are left to the test."""
    raw = EVERY.view(torch.uint8).view(-1, 2)
    return raw.view(torch.int8).float() if format_ == "int8" else raw.view(torch.float8_e4m3fn).float() / 256.0


@triton.jit
def _all_halves(pairs, low, high, COUNT: tl.constexpr, FORMAT: tl.constexpr):  # noqa: N803
    at = tl.arange(0, COUNT)
    a, b = halves(tl.load(pairs + at), FORMAT, False)
    tl.store(low + at, a)
    tl.store(high + at, b)


class Assembly:
    """Runs the few PTX instructions of `halves`, each of which works on numpy vectors of registers."""

    def __init__(self, source: torch.Tensor) -> None:
        self.registers: dict[str, np.ndarray] = {"$2": source.numpy().view(np.uint32)}

    def value(self, name: str) -> np.ndarray:
        return np.uint32(int(name, 0)) if name[0].isdigit() else self.registers[name]

    def run(self, code: str) -> tuple[torch.Tensor, torch.Tensor]:
        for line in re.findall(r"[^;{}]+", code):
            if line.strip() and not line.strip().startswith(".reg"):
                operation, arguments = line.strip().split(" ", 1)
                target, *sources = [part.strip() for part in arguments.split(",")]
                self.registers[target] = getattr(self, operation.split(".")[0])(*map(self.value, sources))
        low, high = (torch.from_numpy(self.registers[name].view(np.float16)) for name in ("$0", "$1"))
        return low, high

    def mov(self, a: np.ndarray) -> np.ndarray:
        return a

    def xor(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a ^ b

    def shl(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a << b

    def shr(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a >> b

    def prmt(self, a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
        """Each byte of the result is one of the eight of b:a, by the selector's nibbles."""
        sources = [(x >> np.uint32(8 * i)) & np.uint32(0xFF) for x in (a, b) for i in range(4)]
        parts = [sources[(int(selector) >> 4 * i) & 7] << np.uint32(8 * i) for i in range(4)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    def lop3(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
        """Any function of three bits: bit 4a + 2b + c of the table."""
        result = np.zeros_like(self.registers["$2"])
        for i in (i for i in range(8) if int(table) >> i & 1):
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return result

    def sub(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a.view(np.float16) - np.atleast_1d(b).view(np.float16)[0]).view(np.uint32)


setattr(Assembly, "and", lambda self, a, b: a & b)


@pytest.mark.parametrize("format_", ["int8", "fp8"])
def test_every_byte_is_exact_interpreted(format_: str) -> None:
    low, high = (torch.empty(len(EVERY), dtype=torch.float16) for _ in range(2))
    _all_halves[(1,)](EVERY, low, high, COUNT=len(EVERY), FORMAT=format_)
    check(format_, low, high)


@pytest.mark.parametrize("format_", ["int8", "fp8"])
def test_every_byte_is_exact_in_assembly(format_: str) -> None:
    code = paged._INT8_HALVES if format_ == "int8" else paged._FP8_HALVES
    check(format_, *Assembly(EVERY).run(code.value))


def check(format_: str, low: torch.Tensor, high: torch.Tensor) -> None:
    wanted = numbers(format_)
    for found, exact in zip((low, high), wanted.unbind(1), strict=True):
        known = exact.isfinite()
        assert known.sum() >= len(EVERY) * 254 // 256
        assert torch.equal(found.float()[known], exact[known])
        assert found.isfinite().all()


def test_kernels_look_through_few_numbers_of_sequences() -> None:
    assert [slots_of_sequences(n) for n in (1, 128, 129, 512, 513)] == [128, 128, 512, 512, 2048]
