"""Next tokens from logits: greedy, or drawn at a temperature from the tokens that top-k and top-p leave.

Drawing is a race: token i of weight w_i arrives after e_i / w_i, e_i exponential, and is the first with probability w_i / sum(w)
(Gumbel's trick; scores here are logarithms). It needs neither a normalised distribution nor an order, so that parts of the
vocabulary run on their own. The noise is Philox's, keyed by the row's seed and counted by token: a row's token depends on its
logits, settings and seed, never on the batch.

Top-k and top-p leave the tokens whose logit reaches a threshold; ties at the threshold all stay. The threshold is found by
bisection over bit patterns: at most 16 passes over a bf16 row for each of the two, without sorting, and none in rows that ask for
neither. Nothing waits for the device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation

# One Philox call gives noise for four tokens that are LANE apart.
LANE = 1024
TILE = 4 * LANE
SAMPLE, ACCEPT, RESIDUAL = 0, 1, 2
"""Streams of one seed: a sampled token, acceptance of drafts, the token after the drafts that stand."""

_UNUSED_BITS = {torch.bfloat16: 16, torch.float16: 13}
"""Of a float32 that was one of these."""


@triton.jit
def log_exponential(bits):
    """Uniform uint32 to the logarithm of a standard exponential, exact for early arrivals: they decide a race. With a
    uniform number of 24 bits, a tie in one of 100 races over 150,000 tokens would go to the token with the lower index."""
    u = tl.minimum((bits.to(tl.float32) + 0.5) * (1.0 / 4294967296.0), 1.0 - 1.0 / 16777216.0)
    series = u * (1.0 + u * (0.5 + u * (1.0 / 3.0 + u * 0.25)))
    return tl.log(tl.where(u < 0.01, series, -tl.log(1.0 - u)))


@triton.jit
def sortable(x, SHIFT: tl.constexpr):
    """float32 to an int32 of the same order, without the SHIFT bits that its 16-bit origin has no use for; both zeros are one."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> SHIFT


@triton.jit
def first_of_best(best, where_best):
    """The best candidate of a tile and the lowest index that reaches it."""
    top = tl.max(best, axis=0)
    return top, tl.min(tl.where(best == top, where_best, 0x7FFFFFFF), axis=0)


@triton.jit
def _threshold(
    logits, temperature, top_k, top_p, thresholds, vocabulary, row_stride, BLOCK: tl.constexpr, SHIFT: tl.constexpr
):
    """The least `sortable` logit that a row may sample."""
    row = tl.program_id(0).to(tl.int64)
    heat, k, p = tl.load(temperature + row), tl.load(top_k + row), tl.load(top_p + row)
    logits += row * row_stride
    at = tl.arange(0, BLOCK)
    least = tl.full((), -2147483648, tl.int64)
    by_k = (k > 0) & (k < vocabulary)
    if (heat > 0) & (by_k | (p < 1.0)):
        most = tl.full((BLOCK,), float("-inf"), tl.float32)
        for start in range(0, vocabulary, BLOCK):
            inside = start + at < vocabulary
            most = tl.maximum(most, tl.load(logits + start + at, mask=inside, other=float("-inf")).to(tl.float32))
        top = tl.max(most, axis=0)
        over = sortable(top, SHIFT).to(tl.int64) + 1  # No token reaches this.
        if by_k:
            least = sortable(float("-inf"), SHIFT).to(tl.int64)
            above = over
            count = tl.full((), 0x7FFFFFFF, tl.int32)  # Of tokens that reach `least`.
            while (above - least > 1) & (count != k):
                middle = (least + above) >> 1
                found = tl.zeros((BLOCK,), tl.int32)
                for start in range(0, vocabulary, BLOCK):
                    inside = start + at < vocabulary
                    x = tl.load(logits + start + at, mask=inside, other=float("-inf")).to(tl.float32)
                    found += (inside & (sortable(x, SHIFT) >= middle)).to(tl.int32)
                total = tl.sum(found, axis=0)
                enough = total >= k
                count = tl.where(enough, total, count)
                least = tl.where(enough, middle, least)
                above = tl.where(enough, above, middle)
        if p < 1.0:
            # The mass that top-k leaves, then the highest threshold above which p of it lies.
            mass = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, vocabulary, BLOCK):
                inside = start + at < vocabulary
                x = tl.load(logits + start + at, mask=inside, other=float("-inf")).to(tl.float32)
                mass += tl.where(inside & (sortable(x, SHIFT) >= least), tl.exp((x - top) / heat), 0.0)
            asked = p * tl.sum(mass, axis=0)
            above = over
            # Below this the whole vocabulary weighs less than what may be missing: 1 - p of no less than the top token.
            floor = top - heat * (tl.log(vocabulary / (1.0 - p)) + 1.0)
            least = tl.maximum(least, sortable(floor, SHIFT).to(tl.int64))
            while above - least > 1:
                middle = (least + above) >> 1
                mass = tl.zeros((BLOCK,), tl.float32)
                for start in range(0, vocabulary, BLOCK):
                    inside = start + at < vocabulary
                    x = tl.load(logits + start + at, mask=inside, other=float("-inf")).to(tl.float32)
                    mass += tl.where(inside & (sortable(x, SHIFT) >= middle), tl.exp((x - top) / heat), 0.0)
                enough = tl.sum(mass, axis=0) >= asked
                least = tl.where(enough, middle, least)
                above = tl.where(enough, above, middle)
    tl.store(thresholds + row, least.to(tl.int32))


@triton.jit
def _race(
    logits, temperature, seeds, thresholds, scores, indices, vocabulary, row_stride, tiles,
    LANE: tl.constexpr, LANES: tl.constexpr, STREAM: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The winner of one tile of one row: its score and index."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    heat, least = tl.load(temperature + row), tl.load(thresholds + row)
    lane = tl.arange(0, LANE)
    counter = (tile * LANE + lane).to(tl.uint32)
    noise = tl.philox(tl.load(seeds + row), counter, counter * 0 + STREAM, counter * 0, counter * 0)
    heat_or_one = tl.where(heat > 0, heat, 1.0)
    best = tl.full((LANE,), float("-inf"), tl.float32)
    where_best = tile * 4 * LANE + lane
    for i in tl.static_range(LANES):
        at = (tile * 4 + i) * LANE + lane
        inside = at < vocabulary
        x = tl.load(logits + row * row_stride + at, mask=inside, other=float("-inf")).to(tl.float32)
        drawn = tl.where(sortable(x, SHIFT) >= least, x / heat_or_one - log_exponential(noise[i]), float("-inf"))
        score = tl.where(heat > 0, drawn, x)
        where_best = tl.where(score > best, at, where_best)  # Of equals the first.
        best = tl.maximum(score, best)
    top, index = first_of_best(best, where_best)
    tl.store(scores + row * tiles + tile, top)
    tl.store(indices + row * tiles + tile, index)


@triton.jit
def _pick(scores, indices, out, tiles, BLOCK: tl.constexpr):
    """The winner of the tiles of a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    score = tl.load(scores + row * tiles + at, mask=at < tiles, other=float("-inf"))
    index = tl.load(indices + row * tiles + at, mask=at < tiles, other=0x7FFFFFFF)
    _, winner = first_of_best(score, index)
    tl.store(out + row, winner.to(tl.int64))


def tiling(vocabulary: int) -> tuple[dict[str, int], int, int]:
    """Lanes of a tile, tiles of a row, and their number rounded up to a power of two. A vocabulary within one lane has the same
    noise in a shorter one."""
    tiles = triton.cdiv(vocabulary, TILE)
    lane = min(LANE, max(16, triton.next_power_of_2(vocabulary)))
    return {"LANE": lane, "LANES": min(4, triton.cdiv(vocabulary, lane))}, tiles, triton.next_power_of_2(tiles)


def _config(vocabulary: int) -> tuple[int, int]:
    """Elements and warps of a pass of the threshold's search: one program reads a row over and over."""
    block = min(16384, max(16, triton.next_power_of_2(vocabulary)))
    return block, max(1, min(16, block // 256))


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    seeds: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """One token a row.

    Args:
        logits: `(R, V)`, rows may be apart.
        temperature: `(R,)` float32; 0 takes the largest logit, the first of equals.
        top_k: `(R,)` int32, 0 for all tokens. Ties with the k-th stay.
        top_p: `(R,)` float32, 1 for all: of what top-k leaves, the most likely tokens that together reach this share of it.
        seeds: `(R,)` int64. Equal seeds draw equal noise: a row needs a new one for every token.
        out: int64 `(R,)`.
    """
    rows, vocabulary = logits.shape
    device = logits.device
    out = torch.empty(rows, dtype=torch.int64, device=device) if out is None else out
    assert logits.stride(1) == 1
    for tensor in (temperature, top_k, top_p, seeds, out):
        assert tensor.is_contiguous()
    if not rows:
        return out
    (lanes, tiles, padded), (block, warps) = tiling(vocabulary), _config(vocabulary)
    thresholds = torch.empty(rows, dtype=torch.int32, device=device)
    scores = torch.empty(rows, tiles, dtype=torch.float32, device=device)
    indices = torch.empty(rows, tiles, dtype=torch.int32, device=device)
    stride, shift = logits.stride(0), _UNUSED_BITS.get(logits.dtype, 0)
    _threshold[(rows,)](
        logits, temperature, top_k, top_p, thresholds, vocabulary, stride,
        BLOCK=block, SHIFT=shift, num_warps=warps,
    )  # fmt: skip
    _race[(tiles, rows)](
        logits, temperature, seeds, thresholds, scores, indices, vocabulary, stride, tiles,
        **lanes, STREAM=SAMPLE, SHIFT=shift, num_warps=4,
    )  # fmt: skip
    _pick[(rows,)](scores, indices, out, tiles, BLOCK=padded, num_warps=1)
    return out


# --- the same in torch ---


def philox(seeds: torch.Tensor, counters: torch.Tensor, stream: int) -> torch.Tensor:
    """Philox4x32-10 as Triton counts it: int64 `(R, n, 4)` of 32 random bits each, for seeds `(R,)` and counters `(n,)`."""
    low = 0xFFFFFFFF

    def product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Upper and lower half of 32 x 32 bits; int64 has a sign, so a is taken in two halves."""
        upper, lower = (a >> 16) * b, (a & 0xFFFF) * b
        return (upper + (lower >> 16)) >> 16, ((upper << 16) + lower) & low

    shape = (len(seeds), len(counters))
    k0, k1 = (seeds & low).unsqueeze(1), ((seeds >> 32) & low).unsqueeze(1)
    c0 = counters.to(torch.int64).expand(shape)
    c1, c2, c3 = torch.full_like(c0, stream), torch.zeros_like(c0), torch.zeros_like(c0)
    for _ in range(10):
        (high_b, low_b), (high_a, low_a) = product(0xCD9E8D57, c2), product(0xD2511F53, c0)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack([c0, c1, c2, c3], dim=-1)


def log_exponential_reference(seeds: torch.Tensor, vocabulary: int, stream: int) -> torch.Tensor:
    """float32 `(R, V)`: logarithms of the exponential noise of every token."""
    lanes, tiles, _ = tiling(vocabulary)
    lane = lanes["LANE"]
    bits = philox(seeds, torch.arange(tiles * lane, device=seeds.device), stream)
    bits = bits.view(len(seeds), tiles, lane, 4).transpose(2, 3).reshape(len(seeds), -1)[:, :vocabulary]
    # As the kernel rounds: to float32 first.
    u = ((bits.to(torch.float32) + 0.5) * 2.0**-32).clamp(max=1.0 - 2.0**-24)
    return (-torch.log1p(-u)).log()


def _left(logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Bool `(R, V)`: what top-k and top-p leave; rows of temperature 0 are meaningless."""
    order = logits.sort(dim=-1, descending=True).values
    k = torch.where(top_k > 0, top_k, logits.shape[1]).clamp(max=logits.shape[1]).long()
    left = logits >= order.gather(1, k.unsqueeze(1) - 1)
    mass = torch.softmax(logits.masked_fill(~left, float("-inf")) / _heat(temperature, logits), dim=-1)
    # A token stays while those before it fall short of p, and so do the ones that are as likely as the last to stay.
    heavy, at = mass.sort(dim=-1, descending=True)
    before = heavy.cumsum(-1) - heavy
    stays = (before < top_p.unsqueeze(1)) | (top_p.unsqueeze(1) >= 1)
    stays[:, 0] = True
    last = torch.where(stays, logits.gather(1, at), float("inf")).amin(-1, keepdim=True)
    return left & (logits >= last)


def _heat(temperature: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.where(temperature > 0, temperature, 1.0).to(logits.dtype).unsqueeze(1)


def probabilities_reference(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """`(R, V)` in float32 at least: how likely `sample` is to say each token; a one in greedy rows."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    left = _left(logits, temperature, top_k, top_p)
    drawn = torch.softmax(logits.masked_fill(~left, float("-inf")) / _heat(temperature, logits), dim=-1)
    greedy = torch.zeros_like(drawn).scatter_(1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.where((temperature > 0).unsqueeze(1), drawn, greedy)


def sample_reference(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    seeds: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """What `sample` says, with the same noise; the two part where a threshold or a race is closer than rounding."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    drawn = logits / _heat(temperature, logits) - log_exponential_reference(seeds, logits.shape[1], SAMPLE)
    drawn = drawn.masked_fill(~_left(logits, temperature, top_k, top_p), float("-inf"))
    tokens = torch.where((temperature > 0).unsqueeze(1), drawn, logits).argmax(-1)
    return tokens if out is None else out.copy_(tokens)


def _launches(name: str, rows: int, vocabulary: int) -> list[Specialisation]:
    (lanes, tiles, padded), (block, warps) = tiling(vocabulary), _config(vocabulary)
    f32, i32, i64, logits = torch.float32, torch.int32, torch.int64, torch.bfloat16
    label, row_bytes = f"{name}, {rows} rows of {vocabulary}", 2.0 * vocabulary
    return [
        Specialisation(
            name=f"{label}: threshold",
            kernel=_threshold,
            args=(logits, f32, i32, f32, i32, vocabulary, vocabulary),
            constexprs={"BLOCK": block, "SHIFT": _UNUSED_BITS[logits]},
            num_warps=warps,
            bytes=rows * row_bytes,
            expects={"ld.128"},
        ),
        Specialisation(
            name=f"{label}: race",
            kernel=_race,
            args=(logits, f32, i64, i32, f32, i32, vocabulary, vocabulary, tiles),
            constexprs={**lanes, "STREAM": SAMPLE, "SHIFT": _UNUSED_BITS[logits]},
            bytes=rows * row_bytes,
            expects={"ld.128"},
        ),
        Specialisation(
            name=f"{label}: pick",
            kernel=_pick,
            args=(f32, i32, i64, tiles),
            constexprs={"BLOCK": padded},
            num_warps=1,
            bytes=rows * tiles * 8.0,
        ),
    ]


SPECIALISATIONS = [*_launches("Llama-3.1", 64, 128256), *_launches("Qwen3", 64, 151936)]
