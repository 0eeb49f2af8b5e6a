"""Which draft tokens of a step stand, and the token after them: exact rejection sampling.

Draft token d at a position stands with probability min(1, p(d) / q(d)), where p is the target model's distribution there and q the draft
model's. The first that does not is replaced by a draw from max(p - q, 0), normalised; after drafts that all stand comes a draw from
p. Tokens then have the distribution p at every position, whatever q is (Leviathan et al. 2023; Chen et al. 2023). A greedy target is a
distribution with a single one: drafts stand as long as they are its tokens.

Acceptance and the draw have streams of Philox noise of their own, see `sampling`: the same seed may have drawn the drafts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.sampling import (
    ACCEPT,
    RESIDUAL,
    first_of_best,
    log_exponential,
    log_exponential_reference,
    philox,
    tiling,
)

BEHIND = tl.constexpr(200.0)
"""More than the logarithms of float32 and of noise span together."""


@triton.jit
def _accept(
    drafts, lengths, draft_probs, target_probs, seeds, forced, out_tokens, out_accepted, k, vocabulary,
    K: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """Counts the drafts of one sequence that stand and writes them; K is a power of two that holds k + 1."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, K)
    drafted = at < tl.minimum(tl.load(lengths + row), k)
    token = tl.load(drafts + row * k + at, mask=drafted, other=0).to(tl.int64)
    p = tl.load(target_probs + (row * (k + 1) + at) * vocabulary + token, mask=drafted, other=0.0)
    q = tl.where(drafted, 1.0, 0.0)
    if draft_probs is not None:
        q = tl.load(draft_probs + (row * k + at) * vocabulary + token, mask=drafted, other=0.0)
    counter = at.to(tl.uint32)
    bits, _, _, _ = tl.philox(tl.load(seeds + row), counter, counter * 0 + STREAM, counter * 0, counter * 0)
    # 24 bits: below 1 in float32, so that p = q always stands; never less than 0, so that p = 0 never does.
    u = (bits >> 8).to(tl.float32) * (1.0 / 16777216.0)
    stands = drafted & (u * q < p)
    count = tl.min(tl.where(stands, K, at), axis=0)
    if forced is not None:
        asked = tl.load(forced + row)
        count = tl.where(asked >= 0, tl.minimum(asked, tl.sum(drafted.to(tl.int32), axis=0)), count)
    tl.store(out_accepted + row, count.to(out_accepted.dtype.element_ty))
    kept = tl.where(at < count, token, -1).to(out_tokens.dtype.element_ty)
    tl.store(out_tokens + row * (k + 1) + at, kept, mask=at <= k)


@triton.jit
def _race(
    drafts, lengths, draft_probs, target_probs, seeds, forced, accepted, scores, indices, k, vocabulary, tiles,
    LANE: tl.constexpr, LANES: tl.constexpr, STREAM: tl.constexpr,
):  # fmt: skip
    """One tile of the draw after the drafts that stand: the winner by max(p - q, 0)."""
    row, tile = tl.program_id(1).to(tl.int64), tl.program_id(0)
    count = tl.load(accepted + row).to(tl.int64)
    rejected = count < tl.minimum(tl.load(lengths + row), k)
    if forced is not None:
        rejected = rejected & (tl.load(forced + row) < 0)
    token = tl.load(drafts + row * k + count, mask=rejected, other=-1).to(tl.int64)
    lane = tl.arange(0, LANE)
    counter = (tile * LANE + lane).to(tl.uint32)
    noise = tl.philox(tl.load(seeds + row), counter, counter * 0 + STREAM, counter * 0, counter * 0)
    best, where_best = tl.full((LANE,), float("-inf"), tl.float32), tile * 4 * LANE + lane
    for i in tl.static_range(LANES):
        at = (tile * 4 + i) * LANE + lane
        inside = at < vocabulary
        p = tl.load(target_probs + (row * (k + 1) + count) * vocabulary + at, mask=inside, other=0.0)
        q = tl.where(at == token, 1.0, 0.0)
        if draft_probs is not None:
            q = tl.load(draft_probs + (row * k + count) * vocabulary + at, mask=inside & rejected, other=0.0)
        # Where rounding leaves no p > q at all, the draw is from p: its scores are below those of any p - q, however small.
        weight = tl.where(p > q, p - q, tl.where(p > 0, p, 1.0))
        score = tl.log(weight) - tl.where(p > q, 0.0, BEHIND) - log_exponential(noise[i])
        score = tl.where(p > 0, score, float("-inf"))
        where_best = tl.where(score > best, at, where_best)
        best = tl.maximum(score, best)
    top, index = first_of_best(best, where_best)
    tl.store(scores + row * tiles + tile, top)
    tl.store(indices + row * tiles + tile, index)


@triton.jit
def _pick(scores, indices, accepted, out_tokens, k, tiles, BLOCK: tl.constexpr):
    """The winner of the tiles of a row goes behind its drafts."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    score = tl.load(scores + row * tiles + at, mask=at < tiles, other=float("-inf"))
    index = tl.load(indices + row * tiles + at, mask=at < tiles, other=0x7FFFFFFF)
    _, winner = first_of_best(score, index)
    to = out_tokens + row * (k + 1) + tl.load(accepted + row).to(tl.int64)
    tl.store(to, winner.to(out_tokens.dtype.element_ty))


def verify(
    draft_tokens: torch.Tensor,
    draft_lengths: torch.Tensor,
    draft_probs: torch.Tensor | None,
    target_probs: torch.Tensor,
    seeds: torch.Tensor,
    out_tokens: torch.Tensor,
    out_accepted: torch.Tensor,
    forced_accept: torch.Tensor | None = None,
) -> None:
    """Tokens that a verification pass yields: `out_accepted + 1` of them a sequence.

    Args:
        draft_tokens: integer `(S, k)`, k from 0.
        draft_lengths: integer `(S,)`, how many of a row count, 0 to k.
        draft_probs: float32 `(S, k, V)`, the distributions that the drafts were drawn from; None where they were not drawn but proposed
            (n-gram), which is a one at the draft.
        target_probs: float32 `(S, k + 1, V)`: row j is the target's distribution after j drafts.
        seeds: int64 `(S,)`. A new one for every pass.
        out_tokens: integer `(S, k + 1)`: the drafts that stand, one token more, then -1.
        out_accepted: integer `(S,)`: how many drafts stand.
        forced_accept: int32 `(S,)`: so many drafts (at most those there are) stand whatever they are, and a draw from the target
            follows, so that cost can be measured at any acceptance; negative: as usual.
    """
    sequences, k = draft_tokens.shape
    vocabulary = target_probs.shape[2]
    assert target_probs.shape[1] == k + 1
    for tensor in (
        draft_tokens,
        draft_lengths,
        draft_probs,
        target_probs,
        seeds,
        out_tokens,
        out_accepted,
        forced_accept,
    ):
        assert tensor is None or tensor.is_contiguous()
    if not sequences:
        return
    lanes, tiles, padded = tiling(vocabulary)
    device = target_probs.device
    scores = torch.empty(sequences, tiles, dtype=torch.float32, device=device)
    indices = torch.empty(sequences, tiles, dtype=torch.int32, device=device)
    inputs = (draft_tokens, draft_lengths, draft_probs, target_probs, seeds, forced_accept)
    _accept[(sequences,)](*inputs, out_tokens, out_accepted, k, vocabulary, K=_positions(k), STREAM=ACCEPT, num_warps=1)
    _race[(tiles, sequences)](
        *inputs, out_accepted, scores, indices, k, vocabulary, tiles, **lanes, STREAM=RESIDUAL, num_warps=8
    )
    _pick[(sequences,)](scores, indices, out_accepted, out_tokens, k, tiles, BLOCK=padded, num_warps=1)


def _positions(k: int) -> int:
    return triton.next_power_of_2(k + 1)


def verify_reference(
    draft_tokens: torch.Tensor,
    draft_lengths: torch.Tensor,
    draft_probs: torch.Tensor | None,
    target_probs: torch.Tensor,
    seeds: torch.Tensor,
    out_tokens: torch.Tensor,
    out_accepted: torch.Tensor,
    forced_accept: torch.Tensor | None = None,
) -> None:
    """What `verify` says, with the same noise; the two part where a race is closer than rounding."""
    sequences, k = draft_tokens.shape
    p = target_probs.to(torch.promote_types(target_probs.dtype, torch.float32))
    tokens = draft_tokens.long()
    q = torch.zeros_like(p)  # Of the bonus token there is no draft.
    if draft_probs is None:
        q[:, :k].scatter_(2, tokens.clamp(min=0).unsqueeze(2), 1.0)
    else:
        q[:, :k] = draft_probs
    positions = torch.arange(k, device=p.device)
    drafted = positions < draft_lengths.unsqueeze(1)
    u = (philox(seeds, positions, ACCEPT)[..., 0] >> 8).to(p.dtype) * 2.0**-24
    at = tokens.where(drafted, 0).unsqueeze(2)
    stands = drafted & (u * q[:, :k].gather(2, at).squeeze(2) < p[:, :k].gather(2, at).squeeze(2))
    accepted = stands.long().cumprod(1).sum(1)
    rejected = accepted < drafted.sum(1)
    if forced_accept is not None:
        forced = forced_accept >= 0
        accepted = torch.where(forced, torch.minimum(forced_accept, drafted.sum(1)), accepted).long()
        rejected &= ~forced

    rows = torch.arange(sequences, device=p.device)
    target = p[rows, accepted]
    rest = (target - q[rows, accepted]).clamp(min=0)
    weights = torch.where((rejected & (rest.sum(-1) > 0)).unsqueeze(1), rest, target)
    said = (weights.log() - log_exponential_reference(seeds, p.shape[2], RESIDUAL)).argmax(-1)
    kept = torch.nn.functional.pad(tokens, (0, 1))
    places = torch.arange(k + 1, device=p.device)
    kept = torch.where(places == accepted.unsqueeze(1), said.unsqueeze(1), kept)
    out_tokens.copy_(torch.where(places > accepted.unsqueeze(1), -1, kept))
    out_accepted.copy_(accepted)


def _launches(name: str, sequences: int, k: int, vocabulary: int, drawn: bool) -> list[Specialisation]:
    lanes, tiles, padded = tiling(vocabulary)
    f32, i32, i64 = torch.float32, torch.int32, torch.int64
    probs = f32 if drawn else None
    inputs = (i64, i32, probs, f32, i64, None)
    label = f"{name}, {sequences} sequences, {'draft model' if drawn else 'n-gram'}, k {k}"
    rows = 1 + drawn
    return [
        Specialisation(
            name=f"{label}: accept",
            kernel=_accept,
            args=(*inputs, i64, i32, k, vocabulary),
            constexprs={"K": _positions(k), "STREAM": ACCEPT},
            num_warps=1,
            bytes=sequences * (k * (12.0 + 4 * rows) + 8 * (k + 1)),
        ),
        Specialisation(
            name=f"{label}: race",
            kernel=_race,
            args=(*inputs, i32, f32, i32, k, vocabulary, tiles),
            constexprs={**lanes, "STREAM": RESIDUAL},
            num_warps=8,
            bytes=4.0 * sequences * vocabulary * rows,
            expects={"ld.128"},
        ),
        Specialisation(
            name=f"{label}: pick",
            kernel=_pick,
            args=(f32, i32, i32, i64, k, tiles),
            constexprs={"BLOCK": padded},
            num_warps=1,
            bytes=sequences * tiles * 8.0,
        ),
    ]


SPECIALISATIONS = [
    launch
    for name, vocabulary in (("Llama-3.1", 128256), ("Qwen3", 151936))
    for drawn in (False, True)
    for launch in _launches(name, 16, 4, vocabulary, drawn)
]
