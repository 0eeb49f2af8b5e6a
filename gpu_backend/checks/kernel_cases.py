"""What every kernel is checked on: kinds of input, and the shapes that they are given.

Shapes cover what goes wrong: one row, sizes that no tile divides, ragged batches, padding, groups of 1, 2, 4 and 8 query heads, head
sizes 64 and 128, partial blocks, precisions of the KV cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest

import torch

from gpu_backend.checks import kernel_bodies as bodies
from gpu_backend.checks.kernel_bodies import Heads
from gpu_backend.checks.kernel_checks import LAUNCHERS, Bench, Check

SIZES = {"full": 20_000, "small": 400, "interpreted": 6}
"""Sizes of the checks, and tokens that each samples to see how they are distributed."""

_LLAMA, _QWEN = Heads(32, 8, 128), Heads(16, 8, 128)
_GROUP1, _GROUP8, _SMALL = Heads(4, 4, 64), Heads(16, 2, 64), Heads(4, 2, 64)
Case = tuple[str, str, float, Callable[[Bench], None]]
_B, _BH, _ALL, _F = "bfloat16", "bfloat16 float16", "bfloat16 float16 float32", "float32"


def _of_kernels(of: str) -> dict[str, list[Case]]:
    """`(what, dtypes, seconds, body)` by kernel, at one of the sizes."""
    small, draws = of != "full", SIZES[of]
    width, llama = (96, Heads(8, 2, 64)) if small else (4096, _LLAMA)
    rows = 6 if small else 300
    long = 70 if small else 3000
    ragged = [1, 15, 16, 17, 0, long, long // 3]
    chunks = [(1, 0), (17, 0), (5, 33), (long // 2, long // 4), (3, long)]
    return {
        "rms_norm": [
            (f"{rows} rows of {width} and a residual", _ALL, 0.6, partial(bodies.rms_norm, rows=rows, width=width, residual=True)),
            ("1 row of 576", _BH, 0.6, partial(bodies.rms_norm, rows=1, width=576, residual=False)),
        ],
        "rope": [
            (f"{llama}", _ALL, 0.8, partial(bodies.rope, rows=rows, heads=llama, norms=False, cache=None)),
            (f"{_SMALL}, norms", _BH, 0.8, partial(bodies.rope, rows=7, heads=_SMALL, norms=True, cache=None)),
            ("int8 cache", _BH, 0.8, partial(bodies.rope, rows=rows, heads=llama, norms=True, cache=torch.int8)),
            ("fp8 cache", _BH, 0.8, partial(bodies.rope, rows=rows, heads=llama, norms=True, cache=torch.float8_e4m3fn)),
        ],
        "silu_mul": [
            (f"{rows} rows of {3 * width}", _ALL, 0.5, partial(bodies.silu_mul, rows=rows, width=3 * width)),
            ("1 row of 1000", _BH, 0.5, partial(bodies.silu_mul, rows=1, width=1000)),
        ],
        "decode_attention": [
            (f"{llama}, ragged", _ALL, 2.5, partial(bodies.decode, lengths=ragged, heads=llama)),
            (f"{_GROUP1}, ragged", _BH, 2.0, partial(bodies.decode, lengths=ragged, heads=_GROUP1)),
            (f"{_GROUP8}, ragged", _BH, 2.0, partial(bodies.decode, lengths=ragged, heads=_GROUP8)),
            ("int8 KV", _BH, 2.0, partial(bodies.decode, lengths=ragged, heads=llama, cache=torch.int8)),
            ("fp8 KV", _B, 2.0, partial(bodies.decode, lengths=ragged, heads=llama, cache=torch.float8_e4m3fn)),
        ],
        "prefill_attention": [
            (f"{llama}, ragged", _ALL, 4.0, partial(bodies.prefill, chunks=chunks, heads=llama)),
            (f"{llama}, verification", _BH, 3.0, partial(bodies.prefill, chunks=[(5, 40), (5, long), (2, 0)], heads=llama)),
            (f"{_GROUP1}, ragged", _BH, 3.0, partial(bodies.prefill, chunks=chunks, heads=_GROUP1)),
            (f"{_GROUP8}, ragged", _B, 3.0, partial(bodies.prefill, chunks=chunks, heads=_GROUP8)),
            ("int8 KV", _BH, 3.0, partial(bodies.prefill, chunks=chunks, heads=llama, cache=torch.int8)),
            ("fp8 KV", _B, 3.0, partial(bodies.prefill, chunks=chunks, heads=llama, cache=torch.float8_e4m3fn)),
        ],
        "linear": [
            (f"{m} rows, {width} to {2 * width + 40}", dtypes, 2.0, partial(bodies.linear, rows=m, inside=width, outside=2 * width + 40, bias=m == 5))
            for m, dtypes in ((rows, _ALL), (5, _BH), (1, _BH))
        ],
        "quantized_linear": [
            (
                f"int{bits}{'' if symmetric else ' with zero points'}, {m} rows", dtypes, 2.0,
                partial(bodies.quantized_linear, rows=m, inside=256 if small else width, outside=200, bits=bits, symmetric=symmetric),
            )
            for bits, symmetric in ((8, True), (4, True), (4, False))
            for m, dtypes in ((1, _BH), (5, _BH), (40, _BH), *(() if small else ((300, _BH),)))
        ],
        "moe": [
            (f"{m} rows, 4 of 16 experts", dtypes, 3.0, partial(bodies.moe, rows=m, width=128, experts=16, inside=96, top_k=4))
            for m, dtypes in ((rows, _ALL), (1, _BH))
        ],
        "sampling": [
            ("greedy, 999 tokens", _ALL, 1.0, partial(bodies.sample, rows=8, vocabulary=999, temperature=0.0, top_k=0, top_p=1.0)),
            ("temperature", _ALL, 1.0, partial(bodies.sample, rows=draws, vocabulary=40, temperature=0.8, top_k=0, top_p=1.0)),
            ("top-k", _F, 1.0, partial(bodies.sample, rows=draws, vocabulary=300, temperature=1.0, top_k=7, top_p=1.0)),
            ("top-p", _F, 1.0, partial(bodies.sample, rows=draws, vocabulary=300, temperature=1.3, top_k=0, top_p=0.7)),
        ],
        "speculative_verify": [
            ("drafts of a model", _F, 2.0, partial(bodies.verify, rows=draws, vocabulary=24, k=3, drafts="model")),
            ("n-gram drafts", _F, 2.0, partial(bodies.verify, rows=draws, vocabulary=24, k=2, drafts="ngram")),
            ("certain target", _F, 2.0, partial(bodies.verify_greedy, rows=rows, vocabulary=500, k=4)),
        ],
    }  # fmt: skip


def checks(size: str = "full") -> Iterator[Check]:
    """All checks, in turns of one a kernel, so that a run that ends early has seen every kernel.

    size: full; small, for a CPU; or interpreted: small, without bf16, which Triton's interpreter computes wrongly, and with so few
    draws that samplers are only held to their support and their seeds.
    """
    if size not in SIZES:
        raise ValueError(f"size: found {size!r}, allowed: {', '.join(SIZES)}")
    found = {
        name: [
            Check(name, what, dtype, seconds, body)
            for what, dtypes, seconds, body in cases
            for dtype in dtypes.split()
            if size != "interpreted" or dtype != "bfloat16"
        ]
        for name, cases in _of_kernels(size).items()
    }
    assert found.keys() == LAUNCHERS.keys()
    for turn in zip_longest(*found.values()):
        yield from (check for check in turn if check is not None)
