"""The gate of a feed-forward layer: SiLU of one half of each row times the other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation


@triton.jit
def _silu_mul(gate_up, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    gate = tl.load(gate_up + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    small = tl.exp(-tl.abs(gate))  # Never overflows.
    value = gate * tl.where(gate < 0, small, 1.0) / (1.0 + small) * up
    tl.store(out + row * width + at, value.to(out.dtype.element_ty), mask=inside)


def _config(width: int) -> tuple[int, int]:
    """Elements and warps of a program: 8 elements of 16 bits are one 16-byte access of a thread."""
    block = min(1024, max(16, triton.next_power_of_2(width)))
    return block, max(1, block // 256)


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """SiLU of the first half of each row times the second: contiguous `(T, 2I)` to `(T, I)`, of the same dtype."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device) if out is None else out
    assert gate_up.is_contiguous()
    assert out.is_contiguous()
    if rows:
        block, warps = _config(width)
        _silu_mul[(rows, triton.cdiv(width, block))](gate_up, out, width, BLOCK=block, num_warps=warps)
    return out


def silu_mul_reference(gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """What `silu_mul` computes, in float32 at least."""
    gate, up = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32)).chunk(2, dim=-1)
    value = (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)
    return value if out is None else out.copy_(value)


def _launch(name: str, rows: int, width: int) -> Specialisation:
    block, warps = _config(width)
    return Specialisation(
        name=f"{name}, {rows} rows of {width}",
        kernel=_silu_mul,
        args=(torch.bfloat16, torch.bfloat16, width),
        constexprs={"BLOCK": block},
        num_warps=warps,
        bytes=3.0 * rows * width * 2,
        expects={"ld.128", "st.128"},
    )


SPECIALISATIONS = [_launch("Llama-3.1-8B", 64, 14336), _launch("Qwen3-0.6B", 64, 3072)]
