"""Which functions compute a step: Triton's kernels, or the torch references beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from scenarios.errors import InputError


class KernelSet(NamedTuple):
    """One implementation of every operation of the decoder; `gpu_backend.kernels` says what each of them does."""

    name: str
    add_rms_norm: Callable[..., torch.Tensor]
    qk_norm_rope_write: Callable[..., None]
    silu_mul: Callable[..., torch.Tensor]
    decode_attention: Callable[..., torch.Tensor]
    prefill_attention: Callable[..., torch.Tensor]
    linear: Callable[..., torch.Tensor]
    quantized_linear: Callable[..., torch.Tensor]
    moe: Callable[..., torch.Tensor]
    sample: Callable[..., torch.Tensor]
    verify: Callable[..., None]


KERNELS = ("triton", "torch")
DENSE = ("torch", "triton")


def kernel_set(name: str, dense: str = "torch") -> KernelSet:
    """The functions by name. `dense` says who multiplies unquantised matrices beside triton: cuBLAS (torch) or our own kernel.

    Raises:
        InputError: no such set.
    """
    if name not in KERNELS:
        raise InputError(f"kernels: found {name!r}, allowed: {', '.join(KERNELS)}")
    if dense not in DENSE:
        raise InputError(f"dense: found {dense!r}, allowed: {', '.join(DENSE)}")
    from gpu_backend.kernels import decode_attention as decode
    from gpu_backend.kernels import (
        linear,
        moe,
        prefill_attention,
        quantized_linear,
        rms_norm,
        rope,
        sampling,
        silu_mul,
        speculative_verify,
    )

    if name == "torch":
        return KernelSet(
            "torch",
            rms_norm.add_rms_norm_reference,
            rope.qk_norm_rope_write_reference,
            silu_mul.silu_mul_reference,
            decode.decode_attention_reference,
            prefill_attention.prefill_attention_reference,
            torch.nn.functional.linear,
            quantized_linear.quantized_linear_reference,
            moe.moe_reference,
            sampling.sample_reference,
            speculative_verify.verify_reference,
        )
    return KernelSet(
        "triton",
        rms_norm.add_rms_norm,
        rope.qk_norm_rope_write,
        silu_mul.silu_mul,
        decode.decode_attention,
        prefill_attention.prefill_attention,
        torch.nn.functional.linear if dense == "torch" else linear.linear,
        quantized_linear.quantized_linear,
        moe.moe,
        sampling.sample,
        speculative_verify.verify,
    )
