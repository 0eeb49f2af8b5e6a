"""Is every kernel right? Each against its float64 reference, on fresh random inputs, with poison in and around all memory.

A check allocates what the kernel is given in poisoned memory (`gpu_backend.checks.poison`), so that an element that was not written, a read
beside a buffer and a read of KV that no token has written come out as NaN or as a changed neighbour. `gpu_backend.checks.kernel_cases` lists
the checks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

from gpu_backend.checks.poison import Poisoned

LAUNCHERS = {
    "rms_norm": "add_rms_norm",
    "rope": "qk_norm_rope_write",
    "silu_mul": "silu_mul",
    "decode_attention": "decode_attention",
    "prefill_attention": "prefill_attention",
    "linear": "linear",
    "quantized_linear": "quantized_linear",
    "moe": "moe",
    "sampling": "sample",
    "speculative_verify": "verify",
}
"""Kernel files and the function that each of them is for; its reference is called the same with `_reference` behind."""

LIMITS = {
    "rounding": {"bfloat16": 4e-3, "float16": 6e-4, "float32": 1e-5},
    "products": {"bfloat16": 1e-2, "float16": 2e-3, "float32": 2e-3},
}
"""Largest relative error ||out - reference|| / ||reference|| that passes: of what is only rounded, and of sums of products, whose
operands may be rounded to the dtype in between (float32: to tf32, which the matrix units take)."""

WORST = 10.0
"""A single element may be off by so many times the limit, relative to itself plus the root mean square of all: an error in one
element of a million does not show in a norm."""


def kernel(name: str, kernels: str) -> Callable[..., Any]:
    """The launcher of a kernel file, or its torch reference. kernels: triton or torch."""
    module = import_module(f"gpu_backend.kernels.{name}")
    found: Callable[..., Any] = getattr(module, LAUNCHERS[name] + ("" if kernels == "triton" else "_reference"))
    return found


def reference(name: str) -> Callable[..., Any]:
    """The torch reference of a kernel file; on float64 arguments it computes in float64."""
    return kernel(name, "torch")


@dataclass
class Bench:
    """One check under way: what is run, the memory it is run in, and what came of it.

    Args:
        kernels: what is checked, triton or torch (then the references in `dtype` against themselves in float64).
        dtype: of activations, weights and KV, by name.
    """

    kernel: str
    device: torch.device
    kernels: str
    dtype: str
    seed: int
    error: float = 0.0
    worst: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.torch_dtype: torch.dtype = getattr(torch, self.dtype)
        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        self.memory = Poisoned(self.device)
        self.run = kernel(self.kernel, self.kernels)
        self.reference = reference(self.kernel)

    @property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter runs the kernels."""
        return self.kernels == "triton" and self.device.type == "cpu"

    def random(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Normal numbers in the dtype of the check, in poisoned memory."""
        drawn = torch.empty(shape, device=self.device).normal_(0.0, scale, generator=self.generator)
        return self.memory.place(drawn.to(self.torch_dtype))

    def uniform(self, *shape: int) -> torch.Tensor:
        """float32 in [0, 1)."""
        return torch.rand(shape, generator=self.generator, device=self.device)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """In [low, high), in poisoned memory."""
        drawn = torch.randint(low, high, shape, generator=self.generator, device=self.device, dtype=torch.int64)
        return self.memory.place(drawn.to(dtype))

    def place(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """The given values in poisoned memory."""
        return self.memory.place(torch.as_tensor(values, device=self.device).to(dtype))

    def output(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Poisoned: what is not written shows."""
        return self.memory.empty(shape, self.torch_dtype if dtype is None else dtype)

    def close(self, what: str, got: torch.Tensor, wanted: torch.Tensor, kind: str = "products") -> None:
        """`got` is as near to the float64 `wanted` as its precision allows."""
        limit = LIMITS[kind][self.dtype]
        off = (got.double() - wanted).abs()
        size = wanted.square().mean().sqrt()
        error = float(off.square().mean().sqrt() / size)
        worst = float((off / (wanted.abs() + size)).max())
        self.error = _larger(self.error, error)
        self.worst = _larger(self.worst, worst)
        # Written so that NaN does not pass.
        if not (error <= limit and worst <= WORST * limit):
            self.problems.append(
                f"{what}: relative error {error:.1e} (at most {limit:.0e}), worst element {worst:.1e} (at most {WORST * limit:.0e})"
            )

    def require(self, holds: bool | torch.Tensor, what: str) -> None:
        """Notes the problem `what` unless it holds."""
        if not bool(holds):
            self.problems.append(what)

    def improbable(self, what: str, counts: torch.Tensor, probabilities: torch.Tensor) -> None:
        """Counts by token are such as these float64 probabilities give: chi-square at one in a million, bins with fewer than
        five expected merged. A token of probability zero never comes."""
        counts, expected = counts.double().cpu(), probabilities.double().cpu() * float(counts.sum())
        self.require((counts[expected == 0] == 0).all(), f"{what}: tokens of probability zero were drawn")
        small = expected < 5
        if small.any():
            counts = torch.cat([counts[~small], counts[small].sum()[None]])
            expected = torch.cat([expected[~small], expected[small].sum()[None]])
        kept = expected > 0
        statistic = float(((counts - expected)[kept].square() / expected[kept]).sum())
        degrees = int(kept.sum()) - 1
        if degrees < 1:
            return
        part = 2.0 / (9.0 * degrees)  # Wilson and Hilferty: the cube root of chi-square / degrees is about normal
        limit = degrees * (1.0 - part + 4.75 * math.sqrt(part)) ** 3
        self.require(
            statistic <= limit, f"{what}: chi-square {statistic:.0f} with {degrees} degrees (at most {limit:.0f})"
        )


def _larger(a: float, b: float) -> float:
    """The larger, NaN if one is."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


@dataclass(frozen=True)
class Check:
    """A kernel on one kind of input.

    seconds: what it takes on a GPU, mostly to compile. body: runs the kernel on a bench and says there what is wrong.
    """

    kernel: str
    case: str
    dtype: str
    seconds: float
    body: Callable[[Bench], None]

    @property
    def name(self) -> str:
        return f"{self.kernel}: {self.case}, {self.dtype}"

    def run(self, device: str, kernels: str, seed: int) -> dict[str, object]:
        """A row of the report; `correct` says whether it passed, `problems` what was wrong, `seed` draws the same inputs again.

        Raises:
            Exception: whatever the kernel raises.
        """
        begin = time.perf_counter()
        bench = Bench(self.kernel, torch.device(device), kernels, self.dtype, seed)
        self.body(bench)
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        bench.require(bench.memory.intact(), "something was written beside a buffer")
        return {
            "kernel": self.kernel, "case": self.case, "dtype": self.dtype, "implementation": kernels, "seed": seed,
            "correct": not bench.problems, "problems": bench.problems,
            "error": _finite(bench.error), "worst": _finite(bench.worst), "seconds": time.perf_counter() - begin,
        }  # fmt: skip


def _finite(value: float) -> float | None:
    """None for what JSON cannot say."""
    return value if math.isfinite(value) else None
