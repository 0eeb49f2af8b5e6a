"""A feed-forward of routed experts (Qwen3-MoE): each token through its `top_k` best experts, weighted among each other.

Two grouped products, each one launch for all experts: gate and up with the SiLU between them, and down. A tile holds tokens of one expert
and is computed as `weights @ tokens.T`, as `linear` does. What the experts of a token say is added in the order of its choices.

Tiles are 16 tokens wide where an expert has up to 16 on average, 64 beyond (`regime`); within either, the numbers of a token do not
depend on what else is in the batch, nor on how it is routed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.linear import linear, linear_reference
from gpu_backend.kernels.moe_routing import route, route_reference
from scenarios.errors import InputError


@triton.jit
def _tile(tiles, starts, order, num_experts, BM: tl.constexpr, WIDTH: tl.constexpr):
    """Of this program's tile: its expert, sorted positions, slots, and which of them are there."""
    at = tl.arange(0, WIDTH)
    number = tl.program_id(1)
    ends = tl.load(tiles + 1 + at, mask=at < num_experts, other=2147483647)
    expert = tl.sum((ends <= number).to(tl.int32), 0)
    first = tl.load(starts + expert) + (number - tl.load(tiles + expert)) * BM
    position = first + tl.arange(0, BM)
    present = position < tl.load(starts + expert + 1)
    return expert.to(tl.int64), position, tl.load(order + position, mask=present, other=0), present


@triton.jit
def _gate_up_kernel(
    x, weight, hidden, order, starts, tiles, num_experts, inputs, n, top_k, x_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """hidden `(slots, n)` by sorted position: `silu(gate) * up` of the experts' `(2 n, inputs)`."""
    if tl.program_id(1) < tl.load(tiles + num_experts):
        expert, position, slot, present = _tile(tiles, starts, order, num_experts, BM, WIDTH)
        rn = tl.program_id(0) * BN + tl.arange(0, BN)
        row = tl.minimum(rn, n - 1)
        rk = tl.arange(0, BK)
        gate_at = weight + (expert * (2 * n) + row)[:, None] * inputs + rk[None, :]
        up_at = weight + (expert * (2 * n) + n + row)[:, None] * inputs + rk[None, :]
        x_at = x + (slot // top_k)[None, :] * x_stride + rk[:, None]
        gate = tl.zeros((BN, BM), tl.float32)
        up = tl.zeros((BN, BM), tl.float32)
        for k in range(0, inputs, BK):
            if EVEN:
                tokens = tl.load(x_at + k, mask=present[None, :], other=0.0)
                gates, ups = tl.load(gate_at + k), tl.load(up_at + k)
            else:
                inside = k + rk < inputs
                tokens = tl.load(x_at + k, mask=present[None, :] & inside[:, None], other=0.0)
                gates = tl.load(gate_at + k, mask=inside[None, :], other=0.0)
                ups = tl.load(up_at + k, mask=inside[None, :], other=0.0)
            gate = tl.dot(gates, tokens, gate, input_precision="ieee")
            up = tl.dot(ups, tokens, up, input_precision="ieee")
        value = gate / (1.0 + tl.exp(-gate)) * up
        at = hidden + position[None, :].to(tl.int64) * n + rn[:, None]
        tl.store(at, value.to(hidden.dtype.element_ty), mask=(rn < n)[:, None] & present[None, :])


@triton.jit
def _down_kernel(
    hidden, weight, weights, said, order, starts, tiles, num_experts, inputs, n,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """said `(slots, n)` by slot: the experts' `(n, inputs)` times what they hold, times the weight of the choice."""
    if tl.program_id(1) < tl.load(tiles + num_experts):
        expert, position, slot, present = _tile(tiles, starts, order, num_experts, BM, WIDTH)
        rn = tl.program_id(0) * BN + tl.arange(0, BN)
        row = tl.minimum(rn, n - 1)
        rk = tl.arange(0, BK)
        weight_at = weight + (expert * n + row)[:, None] * inputs + rk[None, :]
        hidden_at = hidden + position[None, :].to(tl.int64) * inputs + rk[:, None]
        acc = tl.zeros((BN, BM), tl.float32)
        for k in range(0, inputs, BK):
            if EVEN:
                downs, tokens = tl.load(weight_at + k), tl.load(hidden_at + k, mask=present[None, :], other=0.0)
            else:
                inside = k + rk < inputs
                downs = tl.load(weight_at + k, mask=inside[None, :], other=0.0)
                tokens = tl.load(hidden_at + k, mask=present[None, :] & inside[:, None], other=0.0)
            acc = tl.dot(downs, tokens, acc, input_precision="ieee")
        acc *= tl.load(weights + slot, mask=present, other=0.0)[None, :]
        at = said + slot[None, :] * n + rn[:, None]
        tl.store(at, acc.to(said.dtype.element_ty), mask=(rn < n)[:, None] & present[None, :])


@triton.jit
def _combine_kernel(said, out, n, top_k, out_stride, BLOCK: tl.constexpr):
    token = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.zeros((BLOCK,), tl.float32)
    for choice in range(top_k):
        total += tl.load(said + (token * top_k + choice) * n + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * out_stride + at, total.to(out.dtype.element_ty), mask=inside)


def regime(tokens: int, top_k: int, experts: int) -> str:
    """How so many tokens are computed: `few` or `many` an expert."""
    return "few" if tokens * top_k <= 16 * experts else "many"


def _config(how: str, dtype: torch.dtype) -> tuple[dict[str, int], dict[str, int]]:
    """Tile and launch; float32 (exact, for checks) has small tiles."""
    if dtype == torch.float32:
        return {"BM": 16 if how == "few" else 32, "BN": 32, "BK": 32}, {"num_warps": 4, "num_stages": 2}
    bm, stages = (16, 4) if how == "few" else (64, 3)
    return {"BM": bm, "BN": 64, "BK": 64}, {"num_warps": 4, "num_stages": stages}


def _block(width: int) -> int:
    return min(1024, triton.next_power_of_2(width))


def moe(
    x: torch.Tensor,
    router_weight: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    top_k: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`(T, H)` -> `(T, H)`.

    Args:
        x: rows contiguous; all in one of bfloat16, float16, float32.
        router_weight: `(E, H)`.
        gate_up, down: `(E, 2 I, H)` with the gates first, and `(E, H, I)`, contiguous.

    Raises:
        InputError: shapes that do not fit together.
    """
    (tokens, width), experts, inner = x.shape, len(router_weight), gate_up.shape[1] // 2
    if (
        gate_up.shape != (experts, 2 * inner, width)
        or down.shape != (experts, width, inner)
        or not 0 < top_k <= experts
    ):
        raise InputError(
            f"moe: found tokens {tuple(x.shape)}, router {tuple(router_weight.shape)}, gate_up {tuple(gate_up.shape)}, "
            f"down {tuple(down.shape)}, top_k {top_k}; need (T, H), (E, H), (E, 2 I, H), (E, H, I), top_k 1 to E"
        )
    if not (gate_up.is_contiguous() and down.is_contiguous()):
        raise InputError(
            "moe: weights of experts must be contiguous; a copy at every step would cost more than the product"
        )
    out = torch.empty_like(x) if out is None else out
    if tokens == 0:
        return out
    logits = torch.empty(tokens, experts, dtype=torch.float32, device=x.device)
    linear(x, router_weight, out=logits)
    tile, launch = _config(regime(tokens, top_k, experts), x.dtype)
    routing = route(logits, top_k, tile["BM"])
    lanes = triton.next_power_of_2(experts)
    hidden = torch.empty(tokens * top_k, inner, dtype=x.dtype, device=x.device)
    said = torch.empty(tokens * top_k, width, dtype=x.dtype, device=x.device)
    _, order, starts, tiles, most = routing
    _gate_up_kernel[(triton.cdiv(inner, tile["BN"]), most)](
        x, gate_up, hidden, order, starts, tiles, experts, width, inner, top_k, x.stride(0),
        WIDTH=lanes, EVEN=width % tile["BK"] == 0, **tile, **launch,
    )  # fmt: skip
    _down_kernel[(triton.cdiv(width, tile["BN"]), most)](
        hidden, down, routing.weights, said, order, starts, tiles, experts, inner, width,
        WIDTH=lanes, EVEN=inner % tile["BK"] == 0, **tile, **launch,
    )  # fmt: skip
    block = _block(width)
    _combine_kernel[(triton.cdiv(width, block), tokens)](said, out, width, top_k, out.stride(0), BLOCK=block)
    return out


def moe_reference(
    x: torch.Tensor,
    router_weight: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    top_k: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same, expert after expert, in float32, in float64 for float64 inputs."""
    compute = torch.promote_types(x.dtype, torch.float32)
    tokens = x.to(compute)
    weights, chosen = route_reference(linear_reference(tokens, router_weight.to(compute)), top_k)
    total = torch.zeros_like(tokens)
    for expert in range(len(router_weight)):
        at, choice = (chosen == expert).nonzero(as_tuple=True)
        gate, up = (tokens[at] @ gate_up[expert].to(compute).T).chunk(2, dim=-1)
        said = (gate * torch.sigmoid(gate) * up) @ down[expert].to(compute).T
        total.index_add_(0, at, said * weights[at, choice, None])
    result = total.to(x.dtype)
    return result if out is None else out.copy_(result)


def _specialisations(tokens: int, experts: int, width: int, inner: int, top_k: int) -> list[Specialisation]:
    how, bf16, i32, i64 = regime(tokens, top_k, experts), torch.bfloat16, torch.int32, torch.int64
    tile, launch = _config(how, bf16)
    slots, read = tokens * top_k, min(experts, tokens * top_k)
    name = f"Qwen3-30B-A3B, {tokens} tokens ({how})"
    up_args = (bf16, bf16, bf16, i64, i32, i32, experts, width, inner, top_k, width)
    down_args = (bf16, bf16, torch.float32, bf16, i64, i32, i32, experts, inner, width)
    lanes = triton.next_power_of_2(experts)
    return [
        Specialisation(
            name=f"{name}, {part}",
            kernel=kernel,
            args=args,
            constexprs={**tile, "WIDTH": lanes, "EVEN": True},
            num_warps=launch["num_warps"],
            num_stages=launch["num_stages"],
            flops=2.0 * slots * matrices * width * inner,
            bytes=2.0 * (read * matrices * width * inner + slots * (width + inner)),
            expects={"wgmma", "cp.async"},
        )
        for part, kernel, args, matrices in (
            ("gate and up", _gate_up_kernel, up_args, 2),
            ("down", _down_kernel, down_args, 1),
        )
    ]


_COMBINE = Specialisation(
    name="Qwen3-30B-A3B, 64 tokens, sum of choices",
    kernel=_combine_kernel,
    args=(torch.bfloat16, torch.bfloat16, 2048, 8, 2048),
    constexprs={"BLOCK": _block(2048)},
    bytes=2.0 * 64 * 2048 * 9,
    expects={"ld.128", "st.128"},
)

SPECIALISATIONS = [_COMBINE, *_specialisations(16, 128, 2048, 768, 8), *_specialisations(2048, 128, 2048, 768, 8)]
