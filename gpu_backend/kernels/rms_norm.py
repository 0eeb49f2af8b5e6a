"""RMSNorm, with the residual added before it where there is one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation


@triton.jit
def _add_rms_norm(x, residual, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * WIDTH
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    value = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        value += tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
        # The norm is of what the residual stream keeps, rounded as it is kept.
        kept = value.to(residual.dtype.element_ty)
        tl.store(residual + row + at, kept, mask=inside)
        value = kept.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / WIDTH + eps)
    value = value * scale * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, value.to(out.dtype.element_ty), mask=inside)


def _config(width: int) -> tuple[int, int]:
    """Elements and warps of a program, which holds a row: two 16-byte accesses of 16 bits a thread, until 16 warps."""
    block = max(16, triton.next_power_of_2(width))
    return block, min(16, max(1, block // 512))


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`residual += x` in place and RMSNorm of it; without a residual, RMSNorm of x.

    Args:
        x, residual: contiguous `(T, H)`.
        weight: `(H,)`.
        out: `(T, H)`, may be x itself.
    """
    rows, width = x.shape
    out = torch.empty_like(x) if out is None else out
    for tensor in (x, out, weight) if residual is None else (x, out, weight, residual):
        assert tensor.is_contiguous()
    if rows:
        block, warps = _config(width)
        _add_rms_norm[(rows,)](x, residual, weight, out, eps, WIDTH=width, BLOCK=block, num_warps=warps)
    return out


def add_rms_norm_reference(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """What `add_rms_norm` computes, in float32 at least."""
    wide = torch.promote_types(x.dtype, torch.float32)
    value = x.to(wide)
    if residual is not None:
        value = residual.copy_(value + residual.to(wide)).to(wide)
    normed = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps) * weight.to(wide)
    return normed.to(x.dtype) if out is None else out.copy_(normed)


def _launch(name: str, rows: int, width: int, residual: bool) -> Specialisation:
    block, warps = _config(width)
    bf16 = torch.bfloat16
    return Specialisation(
        name=f"{name}, {rows} rows of {width}" + (", with residual" if residual else ""),
        kernel=_add_rms_norm,
        args=(bf16, bf16 if residual else None, bf16, bf16, 1e-6),
        constexprs={"WIDTH": width, "BLOCK": block},
        num_warps=warps,
        bytes=2.0 * rows * width * (4 if residual else 2),
        expects={"ld.128", "st.128"},
    )


SPECIALISATIONS = [
    _launch(name, 64, width, residual)
    for name, width in (("Llama-3.1-8B", 4096), ("Qwen3-0.6B", 1024), ("Qwen3-32B", 5120))
    for residual in (False, True)
]
