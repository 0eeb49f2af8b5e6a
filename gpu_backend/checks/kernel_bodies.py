"""Bodies of the checks: each draws inputs, runs a kernel and compares, see `gpu_backend.checks.kernel_checks`."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import NamedTuple

import torch

from gpu_backend.checks.kernel_checks import LIMITS, Bench
from gpu_backend.quantization import FP8_MOST, INT8_MOST, dequantize, quantize

_EPS = 1e-6
_MOST = {torch.int8: INT8_MOST, torch.float8_e4m3fn: FP8_MOST}


class Heads(NamedTuple):
    """Attention's shape: query heads, KV heads, size of a head."""

    queries: int
    kv: int
    size: int

    def __str__(self) -> str:
        return f"{self.queries} heads on {self.kv} of {self.size}"


# --- row by row ---


def rms_norm(bench: Bench, rows: int, width: int, residual: bool) -> None:
    x, weight = bench.random(rows, width), bench.random(width)
    kept = bench.random(rows, width) if residual else None
    wide = x.double() + (0.0 if kept is None else kept.double())
    wanted = bench.reference(wide, None, weight.double(), _EPS)
    out = bench.output(rows, width)
    bench.run(x, kept, weight, _EPS, out)
    bench.close("norm", out, wanted, "rounding")
    if kept is not None:
        bench.close("residual", kept, wide, "rounding")


def silu_mul(bench: Bench, rows: int, width: int) -> None:
    gate_up, out = bench.random(rows, 2 * width), bench.output(rows, width)
    bench.run(gate_up, out)
    bench.close("out", out, bench.reference(gate_up.double()), "rounding")


def rope(bench: Bench, rows: int, heads: Heads, norms: bool, cache: torch.dtype | None) -> None:
    """Every third row is padding, which writes nowhere; slots of the cache that no row owns keep their poison."""
    n, k, d = heads
    blocks, size, window = rows // 8 + 2, 16, 512
    qkv = bench.random(rows, (n + 2 * k) * d)
    q_weight, k_weight = (bench.random(d) if norms else None for _ in range(2))
    angles = 6.3 * bench.uniform(window, d // 2)
    table = bench.place(torch.cat([angles.cos(), angles.sin()], -1), torch.float32)
    positions = bench.integers(0, window, rows)
    slots = torch.randperm(blocks * size, generator=bench.generator, device=bench.device)[:rows]
    slots[2::3] = -1
    placed = bench.place(slots, torch.int64)
    kind = bench.torch_dtype if cache is None else cache
    caches = [bench.output(blocks, k, size, d, dtype=kind) for _ in range(2)]
    scales = [None if cache is None else bench.output(blocks, k, size, dtype=torch.float32) for _ in range(2)]
    wide = [torch.zeros(blocks, k, size, d, dtype=torch.float64, device=bench.device) for _ in range(2)]
    wanted = qkv.double()
    weights = [None if w is None else w.double() for w in (q_weight, k_weight)]
    bench.reference(wanted, *weights, _EPS, table.double(), positions, placed, *wide, n)
    bench.run(qkv, q_weight, k_weight, _EPS, table, positions, placed, *caches, n, *scales)

    live = slots >= 0
    bench.close("queries", qkv[live, : n * d], wanted[live, : n * d], "products")
    written = slots[live]
    at = (written // size, slice(None), written % size)
    nobodys = torch.ones(blocks, size, dtype=torch.bool, device=bench.device)
    nobodys[written // size, written % size] = False
    for what, found, scale, exact in zip(("keys", "values"), caches, scales, wide, strict=True):
        mine = found.view(torch.int8)[at].view(found.dtype).double()
        _close_in_cache(bench, what, mine, None if scale is None else scale[at].double(), exact[at], kind)
        untouched = found.view(torch.uint8).permute(0, 2, 1, 3)[nobodys]
        bench.require((untouched == 0xFF).all(), f"{what}: something was written where no row owns a slot")


def _close_in_cache(
    bench: Bench, what: str, found: torch.Tensor, scale: torch.Tensor | None, exact: torch.Tensor, kind: torch.dtype
) -> None:
    """Keys or values `(T, K, D)` as written; where the cache has scales, one a token and head, half a step off at most."""
    if scale is None:
        bench.close(what, found, exact, "products")
        return
    peak = exact.abs().amax(-1) / _MOST[kind]
    bench.require(((scale - peak).abs() <= 0.01 * peak).all(), f"{what}: a scale is not the largest value's")
    scaled = exact / scale[..., None]
    # Scale and value are rounded to the dtype before one is divided by the other.
    half = 0.5 + 100.0 * LIMITS["rounding"][bench.dtype]
    if kind == torch.float8_e4m3fn:  # 3 bits of mantissa; below 2^-6 steps are equal
        half = half * (scaled.abs() / 8.0).clamp(min=2.0**-9)
        if bench.interpreted:  # its own casts forget to carry: what is just below a power of two is halved
            half = half + 0.5 * scaled.abs()
    off = float(((found - scaled).abs() / half).max())
    bench.require(off <= 1.0, f"{what}: off by {off:.2f} times what the cache's precision allows")


# --- attention over paged KV ---


class _Paged(NamedTuple):
    """KV of sequences in blocks of 16 in random order. Nothing but their tokens is there: the rest of the last blocks is poison,
    and so is the block that unused entries of the tables name. exact: keys and values in float64, finite everywhere."""

    caches: list[torch.Tensor]
    scales: list[torch.Tensor | None]
    tables: torch.Tensor
    exact: list[torch.Tensor]


def _paged(bench: Bench, lengths: list[int], heads: Heads, cache: torch.dtype | None) -> _Paged:
    size = 16
    needs = [-(-n // size) for n in lengths]
    blocks = sum(needs) + 1
    order = (torch.randperm(blocks - 1, generator=bench.generator, device=bench.device) + 1).tolist()
    tables = torch.zeros(len(lengths), max(needs) + 2, dtype=torch.int64)
    for row, need in enumerate(needs):
        tables[row, :need] = torch.tensor([order.pop() for _ in range(need)])
    tables = tables.to(bench.device)
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(bench.device)
    position = torch.cat([torch.arange(n) for n in lengths]).to(bench.device)
    at = (tables[sequence, position // size], slice(None), position % size)
    kind = bench.torch_dtype if cache is None else cache
    caches, scales, exact = [], [], []
    for _ in range(2):
        drawn = torch.empty(len(position), heads.kv, heads.size, device=bench.device).normal_(generator=bench.generator)
        memory = bench.output(blocks, heads.kv, size, heads.size, dtype=kind)
        scale = None
        if cache is not None:
            peak = drawn.abs().amax(-1) / _MOST[cache]
            drawn = drawn / peak[..., None]
            drawn = drawn.round() if cache == torch.int8 else drawn
            scale = bench.output(blocks, heads.kv, size, dtype=torch.float32)
            scale[at] = peak
        values = drawn.to(kind)
        memory.view(torch.uint8)[at] = values.view(torch.uint8)
        wide = torch.zeros(blocks, heads.kv, size, heads.size, dtype=torch.float64, device=bench.device)
        wide[at] = values.double() * (1.0 if scale is None else scale[at].double()[..., None])
        caches.append(memory)
        scales.append(scale)
        exact.append(wide)
    return _Paged(caches, scales, bench.place(tables), exact)


def _queries(bench: Bench, rows: int, heads: Heads) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries at the front of wider rows whose rest (keys and values of the step) must not be read: poison there, zeros in the
    float64 copy."""
    width = heads.queries * heads.size
    wide = bench.output(rows, width + 2 * heads.kv * heads.size)
    wide[:, :width] = bench.random(rows, width)
    exact = torch.zeros(wide.shape, dtype=torch.float64, device=bench.device)
    exact[:, :width] = wide[:, :width].double()
    return wide, exact


def decode(bench: Bench, lengths: list[int], heads: Heads, cache: torch.dtype | None = None) -> None:
    n, _, d = heads
    kv = _paged(bench, lengths, heads, cache)
    q, exact = _queries(bench, len(lengths), heads)
    lens, scale, most = bench.place(lengths), d**-0.5, max(lengths) + 100
    wanted = torch.zeros(len(lengths), n * d, dtype=torch.float64, device=bench.device)
    bench.reference(exact, *kv.exact, kv.tables, lens, scale, wanted, n, max_seq_len=most)
    out = bench.output(len(lengths), n * d)
    bench.run(q, *kv.caches, kv.tables, lens, scale, out, n, *kv.scales, max_seq_len=most)
    bench.close("out", out, wanted)
    bench.require((out[lens == 0] == 0).all(), "a padding row is not zero")
    if bench.kernels == "triton":
        longest = lengths.index(max(lengths))
        one = slice(longest, longest + 1)
        alone = bench.output(1, n * d)
        bench.run(q[one], *kv.caches, kv.tables[one], lens[one], scale, alone, n, *kv.scales, max_seq_len=most)
        bench.require(torch.equal(alone, out[one]), "a sequence alone gives other bits than in a batch")


def prefill(bench: Bench, chunks: list[tuple[int, int]], heads: Heads, cache: torch.dtype | None = None) -> None:
    """chunks: `(queries, context)` of each sequence."""
    n, _, d = heads
    lengths = [queries + context for queries, context in chunks]
    kv = _paged(bench, lengths, heads, cache)
    counts = torch.tensor([0] + [queries for queries, _ in chunks])
    rows, most = int(counts.sum()), int(counts.max())
    q, exact = _queries(bench, rows, heads)
    where = (kv.tables, bench.place(counts.cumsum(0)), bench.place(lengths), d**-0.5)
    wanted = torch.zeros(rows, n * d, dtype=torch.float64, device=bench.device)
    bench.reference(exact, *kv.exact, *where, wanted, n, most)
    out = bench.output(rows, n * d)
    bench.run(q, *kv.caches, *where, out, n, most, *kv.scales)
    bench.close("out", out, wanted)


# --- matrices ---


def linear(bench: Bench, rows: int, inside: int, outside: int, bias: bool) -> None:
    x, weight = bench.random(rows, inside), bench.random(outside, inside, scale=inside**-0.5)
    added = bench.random(outside) if bias else None
    wanted = x.double() @ weight.double().T + (0.0 if added is None else added.double())
    out = bench.output(rows, outside)
    bench.run(x, weight, added, out)
    bench.close("out", out, wanted)


def quantized_linear(bench: Bench, rows: int, inside: int, outside: int, bits: int, symmetric: bool) -> None:
    """Against the weights as quantised: how far those are from the plain ones is not the kernel's doing."""
    x = bench.random(rows, inside)
    added = bench.random(outside)
    packed = quantize(bench.random(outside, inside, scale=inside**-0.5), bits, symmetric=symmetric)
    wanted = x.double() @ dequantize(packed, torch.float64).T + added.double()
    parts = {f.name: getattr(packed, f.name) for f in dataclasses.fields(packed)}
    moved = {name: bench.memory.place(part) for name, part in parts.items() if isinstance(part, torch.Tensor)}
    out = bench.output(rows, outside)
    bench.run(x, dataclasses.replace(packed, **moved), added, out)
    bench.close("out", out, wanted)


def moe(bench: Bench, rows: int, width: int, experts: int, inside: int, top_k: int) -> None:
    """Rows whose choice of experts hangs on rounding are left out: there both choices are right. Where that is too many of them,
    others are drawn."""
    for _ in range(20):
        x, router = bench.random(rows, width), bench.random(experts, width, scale=2.0 * width**-0.5)
        ranked = (x.double() @ router.double().T).sort(-1, descending=True).values
        clear = ranked[:, top_k - 1] - ranked[:, top_k] > 5e-3
        if clear.float().mean() > 0.8:
            break
    gate_up = bench.random(experts, 2 * inside, width, scale=width**-0.5)
    down = bench.random(experts, width, inside, scale=inside**-0.5)
    exact = [t.double() for t in (x, router, gate_up, down)]
    wanted = bench.reference(*exact, top_k)
    bench.require(clear.float().mean() > 0.8, "too few rows are left to compare")
    out = bench.output(rows, width)
    bench.run(x, router, gate_up, down, top_k, out)
    bench.close("out", out[clear], wanted[clear])
    bench.require(torch.isfinite(out).all(), "an element was not written")


# --- drawing ---


def sample(bench: Bench, rows: int, vocabulary: int, temperature: float, top_k: int, top_p: float) -> None:
    """Many draws from one row of logits are distributed as the float64 probabilities say, and a seed always draws the same."""
    one = 2.0 * torch.randn(1, vocabulary, generator=bench.generator, device=bench.device)
    logits = bench.memory.place(one.to(bench.torch_dtype).expand(rows, -1))
    knobs = [
        bench.place(torch.full((rows,), temperature), torch.float32),
        bench.place(torch.full((rows,), top_k)),
        bench.place(torch.full((rows,), top_p), torch.float32),
        bench.integers(0, 2**62, rows, dtype=torch.int64),
    ]
    out = bench.output(rows, dtype=torch.int64)
    bench.run(logits, *knobs, out)
    again = bench.run(logits, *knobs)
    bench.require(torch.equal(out, again), "the same seeds draw other tokens")
    bench.require((out >= 0).all() and (out < vocabulary).all(), "a token is not of the vocabulary")
    if temperature == 0:
        bench.require((logits.gather(1, out[:, None]) == logits.max()).all(), "greedy is not the largest logit")
        return
    probabilities = import_module("gpu_backend.kernels.sampling").probabilities_reference
    # Logits on the edge of top-p may fall either side of it by rounding.
    kept = [k[:1].double() if k.is_floating_point() else k[:1] for k in knobs[:3]]
    exact = probabilities(logits[:1].double(), *kept)[0]
    bench.improbable("tokens", torch.bincount(out, minlength=vocabulary), exact)


def verify(bench: Bench, rows: int, vocabulary: int, k: int, drafts: str) -> None:
    """Whatever the drafts, tokens are distributed as the target says: the first of every row, and the second where there is one."""
    s, v = rows, vocabulary
    target = torch.rand(1, k + 1, v, generator=bench.generator, device=bench.device).pow(3) + 1e-3
    target /= target.sum(-1, keepdim=True)
    draft = torch.rand(1, k, v, generator=bench.generator, device=bench.device).pow(2) + 1e-3
    draft /= draft.sum(-1, keepdim=True)
    if drafts == "model":
        tokens = torch.multinomial(draft[0].expand(k, v), s, replacement=True, generator=bench.generator).T.contiguous()
    else:  # n-grams: no probabilities, the same guess for all
        tokens = torch.randint(0, v, (1, k), generator=bench.generator, device=bench.device).expand(s, k)
    lengths = torch.full((s,), k, device=bench.device)
    lengths[::7] = 0
    given = [
        bench.place(tokens), bench.place(lengths),
        bench.place(draft.expand(s, k, v), torch.float32) if drafts == "model" else None,
        bench.place(target.expand(s, k + 1, v), torch.float32),
        bench.integers(0, 2**62, s, dtype=torch.int64),
    ]  # fmt: skip
    out = bench.output(s, k + 1, dtype=torch.int64)
    accepted = bench.output(s, dtype=torch.int32)
    bench.run(*given, out, accepted)
    bench.require((accepted >= 0).all() and (accepted <= lengths).all(), "more drafts were accepted than there were")
    taken = torch.arange(k, device=bench.device)[None] < accepted[:, None]
    bench.require((out[:, :k][taken] == tokens[taken]).all(), "a token before the rejection is not the draft")
    exact = target[0].double()
    bench.improbable("first token", torch.bincount(out[:, 0], minlength=v), exact[0])
    more = accepted >= 1
    bench.improbable("second token", torch.bincount(out[more, 1], minlength=v), exact[1])


def verify_greedy(bench: Bench, rows: int, vocabulary: int, k: int) -> None:
    """With a target that is certain, drafts stand exactly as far as they say the same; a forced number always."""
    s, v = rows, vocabulary
    said = torch.randint(0, v, (s, k + 1), generator=bench.generator, device=bench.device)
    right = torch.rand(s, k, generator=bench.generator, device=bench.device) < 0.7
    tokens = torch.where(right, said[:, :k], (said[:, :k] + 1) % v)
    wanted = right.long().cumprod(-1).sum(-1)
    target = torch.nn.functional.one_hot(said, v)
    given = [
        bench.place(tokens), bench.place(torch.full((s,), k)), None, bench.place(target, torch.float32),
        bench.integers(0, 2**62, s, dtype=torch.int64),
    ]  # fmt: skip
    out, accepted = bench.output(s, k + 1, dtype=torch.int64), bench.output(s, dtype=torch.int32)
    bench.run(*given, out, accepted)
    bench.require(torch.equal(accepted.long(), wanted), "drafts are not accepted as far as they agree")
    here = torch.arange(k + 1, device=bench.device)[None] <= wanted[:, None]
    bench.require((out[here] == said[here]).all(), "a token is not the one that the target is certain of")
    forced = bench.integers(0, k + 1, s)
    bench.run(*given, out, accepted, forced_accept=forced)
    bench.require(torch.equal(accepted, forced), "a forced number of drafts was not accepted")
