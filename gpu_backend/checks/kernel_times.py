"""How fast every kernel is: its time, the floor that the device's measured ceilings set, and what torch takes for the same.

Inputs are random, and calls take several sets of buffers in turn, more than the L2 holds, so that what is timed reads memory as an
engine does, whose weights and KV do not stay in the cache from one call to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from gpu_backend.checks.ceilings import Call, l2_bytes, seconds_per_call, sets_beyond_l2
from gpu_backend.checks.kernel_checks import kernel
from gpu_backend.quantization import quantize

_EPS = 1e-6
_BLOCK = 16
_KV_DTYPES = {"bfloat16": torch.bfloat16, "int8": torch.int8, "fp8": torch.float8_e4m3fn}


class Calls(NamedTuple):
    """The kernel on one set of buffers, and torch doing the same, if it can."""

    ours: Call
    torchs: Call | None = None


class Shape(NamedTuple):
    """Of one layer: query and KV heads, size of a head, hidden and feed-forward width, and the vocabulary."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    width: int
    vocabulary: int


@dataclass(frozen=True)
class Timing:
    """One kernel on one size.

    nbytes: that it must move, each input read once and each output written once. flop: that it must compute.
    make: buffers of its own on a device, for one of the implementations (triton or torch).
    against: what torch runs.
    """

    kernel: str
    case: str
    nbytes: float
    flop: float
    make: Callable[[torch.device, str], Calls]
    against: str = ""

    @property
    def name(self) -> str:
        return f"{self.kernel}: {self.case}"

    def floor(self, bandwidth: float, rate: float) -> float:
        """Seconds that it takes at least, where copies reach `bandwidth` bytes/s and matrix products `rate` FLOP/s."""
        return max(self.nbytes / bandwidth, self.flop / rate)

    def run(self, device: str, kernels: str, bandwidth: float, rate: float) -> dict[str, object]:
        """A row of the report; seconds. `of_floor`: the share of what the device could do."""
        where = torch.device(device)
        sets = sets_beyond_l2(where, self.nbytes)
        made = [self.make(where, kernels) for _ in range(sets)]
        ours = seconds_per_call([calls.ours for calls in made], where)
        theirs = [calls.torchs for calls in made if calls.torchs is not None]
        floor = self.floor(bandwidth, rate)
        row = {
            "kernel": self.kernel, "case": self.case, "implementation": kernels, "seconds": ours, "floor": floor,
            "of_floor": floor / ours, "bound": "memory" if self.nbytes / bandwidth >= self.flop / rate else "compute",
            "bytes": self.nbytes, "flop": self.flop, "sets": sets, "beyond_l2": sets * self.nbytes >= 2 * l2_bytes(where),
        }  # fmt: skip
        if not theirs:
            return row
        try:
            taken = seconds_per_call(theirs, where)
        except Exception as error:  # What torch cannot do here says nothing about the kernel.
            return row | {"against": self.against, "torch_fails": f"{type(error).__name__}: {str(error)[:200]}"}
        return row | {"against": self.against, "torch_seconds": taken, "speedup": taken / ours}


def _random(*shape: int, device: torch.device, scale: float = 1.0) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0.0, scale)


# --- row by row ---


def _rms_norm(device: torch.device, kernels: str, rows: int, shape: Shape) -> Calls:
    x, residual = (_random(rows, shape.hidden, device=device) for _ in range(2))
    weight, out = _random(shape.hidden, device=device), torch.empty_like(x)
    run = kernel("rms_norm", kernels)

    def torchs() -> object:
        residual.add_(x)
        return rms_norm(residual, (shape.hidden,), weight, _EPS)

    return Calls(lambda: run(x, residual, weight, _EPS, out), torchs)


def _silu_mul(device: torch.device, kernels: str, rows: int, shape: Shape) -> Calls:
    gate_up = _random(rows, 2 * shape.width, device=device)
    out = torch.empty(rows, shape.width, dtype=gate_up.dtype, device=device)
    run = kernel("silu_mul", kernels)
    return Calls(lambda: run(gate_up, out), lambda: silu(gate_up[:, : shape.width]) * gate_up[:, shape.width :])


def _rope(device: torch.device, kernels: str, rows: int, shape: Shape) -> Calls:
    n, k, d = shape.heads, shape.kv_heads, shape.head_dim
    blocks = -(-rows // _BLOCK)
    qkv = _random(rows, (n + 2 * k) * d, device=device)
    weights = [_random(d, device=device) for _ in range(2)]
    table = torch.randn(8192, d, device=device)
    positions = torch.randint(0, 8192, (rows,), dtype=torch.int32, device=device)
    slots = torch.randperm(blocks * _BLOCK, device=device)[:rows]
    caches = [torch.zeros(blocks, k, _BLOCK, d, dtype=qkv.dtype, device=device) for _ in range(2)]
    run = kernel("rope", kernels)
    return Calls(lambda: run(qkv, *weights, _EPS, table, positions, slots, *caches, n))


# --- attention ---


class _Paged(NamedTuple):
    caches: list[torch.Tensor]
    scales: list[torch.Tensor | None]
    tables: torch.Tensor
    plain: list[torch.Tensor]  # the same sequences side by side (S, K, length, D), for torch


def _paged(device: torch.device, sequences: int, length: int, shape: Shape, kv_dtype: str) -> _Paged:
    """KV of sequences of equal length, blocks in random order."""
    k, d = shape.kv_heads, shape.head_dim
    needs = -(-length // _BLOCK)
    blocks = sequences * needs + 1
    order = torch.randperm(blocks - 1, device=device) + 1
    tables = order.view(sequences, needs).to(torch.int32)
    plain = [_random(sequences, k, length, d, device=device) for _ in range(2)]
    dtype = _KV_DTYPES[kv_dtype]
    caches, scales = [], []
    for _ in range(2):
        if dtype == torch.bfloat16:
            caches.append(_random(blocks, k, _BLOCK, d, device=device))
            scales.append(None)
        else:
            # Any bytes do for int8; fp8 needs numbers.
            raw = torch.randint(-120, 120, (blocks, k, _BLOCK, d), dtype=torch.int8, device=device)
            caches.append(raw if dtype == torch.int8 else raw.to(torch.bfloat16).to(dtype))
            scales.append(torch.full((blocks, k, _BLOCK), 0.01, device=device))
    return _Paged(caches, scales, tables, plain)


def _decode(device: torch.device, kernels: str, sequences: int, length: int, shape: Shape, kv_dtype: str) -> Calls:
    n, k, d = shape.heads, shape.kv_heads, shape.head_dim
    kv = _paged(device, sequences, length, shape, kv_dtype)
    q = _random(sequences, (n + 2 * k) * d, device=device)
    lens = torch.full((sequences,), length, dtype=torch.int32, device=device)
    out = torch.empty(sequences, n * d, dtype=q.dtype, device=device)
    run, scale = kernel("decode_attention", kernels), d**-0.5
    one = q[:, : n * d].reshape(sequences, n, 1, d)
    return Calls(
        lambda: run(q, *kv.caches, kv.tables, lens, scale, out, n, *kv.scales, max_seq_len=8192),
        lambda: scaled_dot_product_attention(one, *kv.plain, scale=scale, enable_gqa=True),
    )


def _prefill(
    device: torch.device, kernels: str, sequences: int, queries: int, length: int, shape: Shape, kv_dtype: str
) -> Calls:
    """The last `queries` of `length` tokens of each sequence. Torch is given the same causal mask, aligned at the end."""
    n, k, d = shape.heads, shape.kv_heads, shape.head_dim
    kv = _paged(device, sequences, length, shape, kv_dtype)
    q = _random(sequences * queries, (n + 2 * k) * d, device=device)
    lens = torch.full((sequences,), length, dtype=torch.int32, device=device)
    starts = torch.arange(sequences + 1, dtype=torch.int32, device=device) * queries
    out = torch.empty(sequences * queries, n * d, dtype=q.dtype, device=device)
    run, scale = kernel("prefill_attention", kernels), d**-0.5
    wide = q[:, : n * d].reshape(sequences, queries, n, d).transpose(1, 2)
    mask = None if queries == length else _lower_right(queries, length, device)
    return Calls(
        lambda: run(q, *kv.caches, kv.tables, starts, lens, scale, out, n, queries, *kv.scales),
        lambda: scaled_dot_product_attention(
            wide, *kv.plain, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True
        ),
    )


def _lower_right(queries: int, length: int, device: torch.device) -> Any:
    """The causal mask of the last `queries` of `length` tokens."""
    if device.type == "cuda":  # as a mask that torch's fastest kernel knows by name; importing it takes seconds
        return import_module("torch.nn.attention.bias").causal_lower_right(queries, length)
    return torch.ones(queries, length, dtype=torch.bool, device=device).tril(length - queries)


# --- matrices ---


def _linear(device: torch.device, kernels: str, rows: int, inside: int, outside: int) -> Calls:
    x = _random(rows, inside, device=device)
    weight = _random(outside, inside, device=device, scale=inside**-0.5)
    out = torch.empty(rows, outside, dtype=x.dtype, device=device)
    run = kernel("linear", kernels)
    return Calls(lambda: run(x, weight, None, out), lambda: linear(x, weight))


def _quantized(device: torch.device, kernels: str, rows: int, inside: int, outside: int, bits: int) -> Calls:
    """Beside cuBLAS with the weights in bf16."""
    x = _random(rows, inside, device=device)
    weight = _random(outside, inside, device=device, scale=inside**-0.5)
    packed = quantize(weight, bits)
    out = torch.empty(rows, outside, dtype=x.dtype, device=device)
    run = kernel("quantized_linear", kernels)
    return Calls(lambda: run(x, packed, None, out), lambda: linear(x, weight))


def _moe(device: torch.device, kernels: str, rows: int, hidden: int, experts: int, width: int, top_k: int) -> Calls:
    x, router = _random(rows, hidden, device=device), _random(experts, hidden, device=device, scale=hidden**-0.5)
    gate_up = _random(experts, 2 * width, hidden, device=device, scale=hidden**-0.5)
    down = _random(experts, hidden, width, device=device, scale=width**-0.5)
    out = torch.empty_like(x)
    run = kernel("moe", kernels)
    return Calls(lambda: run(x, router, gate_up, down, top_k, out))


# --- drawing ---


def _sample(device: torch.device, kernels: str, rows: int, vocabulary: int, temperature: float) -> Calls:
    logits = _random(rows, vocabulary, device=device)
    knobs = [
        torch.full((rows,), temperature, device=device),
        torch.zeros(rows, dtype=torch.int32, device=device),
        torch.ones(rows, device=device),
        torch.arange(rows, device=device),
    ]
    out = torch.empty(rows, dtype=torch.int64, device=device)
    run = kernel("sampling", kernels)

    def torchs() -> object:
        if temperature == 0:
            return logits.argmax(-1)
        probabilities = torch.softmax(logits.float() / temperature, -1)
        return (probabilities / torch.empty_like(probabilities).exponential_()).argmax(-1)

    return Calls(lambda: run(logits, *knobs, out), torchs)


def _verify(device: torch.device, kernels: str, rows: int, k: int, vocabulary: int) -> Calls:
    target = torch.softmax(torch.randn(rows, k + 1, vocabulary, device=device), -1)
    tokens = torch.randint(0, vocabulary, (rows, k), dtype=torch.int32, device=device)
    lengths = torch.full((rows,), k, dtype=torch.int32, device=device)
    out = torch.empty(rows, k + 1, dtype=torch.int64, device=device)
    accepted = torch.empty(rows, dtype=torch.int32, device=device)
    seeds = torch.arange(rows, device=device)
    run = kernel("speculative_verify", kernels)
    return Calls(lambda: run(tokens, lengths, None, target, seeds, out, accepted))


# --- sizes ---

LLAMA = Shape("Llama-3.1-8B", 32, 8, 128, 4096, 14336, 128256)
QWEN = Shape("Qwen3-0.6B", 16, 8, 128, 1024, 3072, 151936)
TINY = Shape("tiny", 4, 2, 64, 128, 256, 500)


def timings(small: bool = False) -> Iterator[Timing]:
    """What is timed: shapes of Llama-3.1-8B first, then what differs in Qwen3; tiny ones where `small`."""
    llama = TINY if small else LLAMA
    n, k, d, hidden, width, vocabulary = llama[1:]
    big, some = (32, 4) if small else (8192, 64)
    for rows in (some, big):
        yield Timing(
            "rms_norm", f"{rows} rows of {hidden}", 8.0 * rows * hidden, 0.0,
            partial(_rms_norm, rows=rows, shape=llama), "add_, rms_norm",
        )  # fmt: skip
    for rows in (some, big):
        yield Timing(
            "silu_mul", f"{rows} rows of {width}", 6.0 * rows * width, 0.0,
            partial(_silu_mul, rows=rows, shape=llama), "silu, mul",
        )  # fmt: skip
    for shape, rows in ((llama, some), (llama, big), *(() if small else ((QWEN, big),))):
        moved = rows * (2.0 * shape.heads + 4.0 * shape.kv_heads) * shape.head_dim * 2
        yield Timing("rope", f"{rows} rows of {shape.name}", moved, 0.0, partial(_rope, rows=rows, shape=shape))
    batches = ((2, 40, "bfloat16"), (2, 40, "int8"))
    if not small:
        batches = (
            (1, 4096, "bfloat16"), (16, 4096, "bfloat16"), (64, 4096, "bfloat16"), (128, 1024, "bfloat16"),
            (64, 4096, "int8"), (64, 4096, "fp8"),
        )  # fmt: skip
    for sequences, length, kv_dtype in batches:
        yield Timing(
            "decode_attention", f"{sequences} x {length}, {kv_dtype} KV",
            _kv_bytes(sequences * length, k, d, kv_dtype) + 4.0 * sequences * n * d,
            4.0 * sequences * length * n * d,
            partial(_decode, sequences=sequences, length=length, shape=llama, kv_dtype=kv_dtype), "SDPA, KV unpaged",
        )  # fmt: skip
    chunks = ((1, 24, 24, "bfloat16"), (2, 3, 40, "bfloat16"))
    if not small:
        chunks = (
            (1, 2048, 2048, "bfloat16"), (1, 8192, 8192, "bfloat16"), (1, 2048, 8192, "bfloat16"),
            (16, 512, 512, "bfloat16"), (64, 5, 4096, "bfloat16"), (1, 2048, 8192, "fp8"),
        )  # fmt: skip
    for sequences, queries, length, kv_dtype in chunks:
        pairs = sequences * (queries * (length - queries) + queries * (queries + 1) / 2)
        yield Timing(
            "prefill_attention", f"{sequences} x {queries} of {length}, {kv_dtype} KV",
            _kv_bytes(sequences * length, k, d, kv_dtype) + 4.0 * sequences * queries * n * d, 4.0 * pairs * n * d,
            partial(_prefill, sequences=sequences, queries=queries, length=length, shape=llama, kv_dtype=kv_dtype),
            "SDPA, KV unpaged",
        )  # fmt: skip
    yield from _matrices(small, hidden, 2 * width)
    experts, top_k, inside, outside = (8, 2, 64, 32) if small else (128, 8, 2048, 768)
    for rows in (some,) if small else (16, 2048):
        used = experts * (1.0 - (1.0 - top_k / experts) ** rows)  # of the experts, by even routing
        weights = used * 3.0 * inside * outside * 2
        yield Timing(
            "moe", f"{rows} rows, {top_k} of {experts} experts", weights + 4.0 * rows * inside,
            6.0 * rows * top_k * inside * outside,
            partial(_moe, rows=rows, hidden=inside, experts=experts, width=outside, top_k=top_k),
        )  # fmt: skip
    for temperature, against in ((0.0, "argmax"), (1.0, "softmax, exponential_, argmax")):
        yield Timing(
            "sampling", f"{some} rows of {vocabulary}, temperature {temperature:g}", 2.0 * some * vocabulary, 0.0,
            partial(_sample, rows=some, vocabulary=vocabulary, temperature=temperature), against,
        )  # fmt: skip
    # A rejection reads the row of probabilities that it draws from, and nothing else does.
    yield Timing(
        "speculative_verify", f"{some} x 4 drafts of {vocabulary}", 4.0 * some * vocabulary, 0.0,
        partial(_verify, rows=some, k=4, vocabulary=vocabulary),
    )  # fmt: skip


def _matrices(small: bool, inside: int, outside: int) -> Iterator[Timing]:
    for rows in (1, 16, 40) if small else (1, 16, 64, 512, 4096):
        yield Timing(
            "linear", f"{rows} rows, {inside} to {outside}", 2.0 * (inside * outside + rows * (inside + outside)),
            2.0 * rows * inside * outside, partial(_linear, rows=rows, inside=inside, outside=outside), "cuBLAS bf16",
        )  # fmt: skip
    for bits in (8, 4):
        per_weight = bits / 8 + (2 / 128 if bits == 4 else 0)
        for rows in (1, 40) if small else (1, 8, 16, 64, 2048):
            yield Timing(
                "quantized_linear", f"int{bits}, {rows} rows, {inside} to {outside}",
                per_weight * inside * outside + 2.0 * rows * (inside + outside), 2.0 * rows * inside * outside,
                partial(_quantized, rows=rows, inside=inside, outside=outside, bits=bits), "cuBLAS bf16",
            )  # fmt: skip


def _kv_bytes(tokens: float, kv_heads: int, head_dim: int, kv_dtype: str) -> float:
    """Keys and values, and their scales where there are any."""
    scale = 0.0 if kv_dtype == "bfloat16" else 4.0
    return 2.0 * tokens * kv_heads * (head_dim * _KV_DTYPES[kv_dtype].itemsize + scale)


def seconds_of(timing: Timing, device: str) -> float:
    """What a row takes, as far as can be told before: buffers and repeats; compiling comes on top."""
    if torch.device(device).type != "cuda":
        return 0.1
    return 0.5 + 0.2 * math.ceil(timing.nbytes / 1e9)
