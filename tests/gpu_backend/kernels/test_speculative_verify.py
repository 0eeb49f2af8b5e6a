"""Verified drafts keep the target's distribution exactly, whatever proposes them.

Claims about distributions are shown on the reference with many seeds; the kernel draws the same noise and says the same tokens.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_backend.kernels.sampling import TILE, probabilities_reference, sample_reference
from gpu_backend.kernels.speculative_verify import verify, verify_reference
from tests.gpu_backend.kernels.conftest import Guards
from tests.gpu_backend.kernels.test_sampling import chi_square, rows

Verified = tuple[torch.Tensor, torch.Tensor]


def distributions(*shape: int, seed: int = 0, sharpness: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharpness * torch.randn(*shape, generator=generator), dim=-1)


def run(
    verifier: object,
    drafts: torch.Tensor,
    q: torch.Tensor | None,
    p: torch.Tensor,
    lengths: torch.Tensor | None = None,
    seeds: torch.Tensor | None = None,
    forced: torch.Tensor | None = None,
) -> Verified:
    """Tokens and how many drafts stand. Every buffer stands in poison."""
    n, k = drafts.shape
    lengths = torch.full((n,), k, dtype=torch.int32) if lengths is None else lengths
    seeds = torch.arange(n) if seeds is None else seeds
    with Guards() as guards:
        inputs = [None if t is None else guards.place(t) for t in (drafts, lengths, q, p, seeds)]
        tokens, accepted = guards.empty((n, k + 1), torch.int64), guards.empty((n,), torch.int32)
        verifier(*inputs, tokens, accepted, None if forced is None else guards.place(forced))  # type: ignore[operator]
    return tokens, accepted


def drawn(q: torch.Tensor, first_seed: int) -> torch.Tensor:
    """(S, k) drafts of distributions (S, k, V)."""
    n, k, vocabulary = q.shape
    logits = q.log().reshape(n * k, vocabulary)
    return sample_reference(*rows(logits, first_seed=first_seed)).view(n, k)


@pytest.mark.parametrize("proposer", ["model", "n-gram", "opposite"])
def test_every_position_has_the_targets_distribution(proposer: str) -> None:
    """Position j counts the runs that get there: given that, its token is from row j of the target, as if it were sampled alone."""
    n, k, vocabulary = 20_000, 3, 12
    p = distributions(k + 1, vocabulary, sharpness=1.5)
    q = distributions(k, vocabulary, seed=1)
    if proposer == "opposite":  # Likes best what the target likes least, and never says what it likes best.
        q = (1 / p[:k]).clamp(max=1e3)
        q = q.masked_fill(p[:k] == p[:k].amax(-1, keepdim=True), 0.0)
        q = q / q.sum(-1, keepdim=True)
    probs = None if proposer == "n-gram" else q.expand(n, k, vocabulary).contiguous()
    drafts = p[:k].argmax(-1).expand(n, k) if probs is None else drawn(probs, 10**6)
    tokens, accepted = run(verify_reference, drafts, probs, p.expand(n, k + 1, vocabulary))
    assert 0 < int(accepted.sum()) < n * k
    for j in range(k + 1):
        reached = tokens[accepted >= j, j]
        assert len(reached) > 50
        assert chi_square(reached, p[j]) > 1e-3
        if proposer == "model" and j == 0:
            expected = float(torch.minimum(p[0], q[0]).sum())
            assert abs(float((accepted > 0).float().mean()) - expected) < 4 * (expected * (1 - expected) / n) ** 0.5


def test_distance_to_the_target_shrinks_with_samples_and_to_others_it_does_not() -> None:
    n, vocabulary = 40_000, 20
    p, q = distributions(2, vocabulary), distributions(1, vocabulary, seed=1)
    probs = q.expand(n, 1, vocabulary).contiguous()
    tokens, _ = run(verify_reference, drawn(probs, 10**6), probs, p.expand(n, 2, vocabulary))

    def distance(count: int, to: torch.Tensor) -> float:
        return float((torch.bincount(tokens[:count, 0], minlength=vocabulary) / count - to).abs().sum() / 2)

    assert distance(n, p[0]) < distance(400, p[0]) / 5
    for other in (q[0], p[1], distributions(vocabulary, seed=2)):
        assert distance(n, other) > distance(400, other) * 0.7


@settings(max_examples=20, deadline=None)
@given(
    k=st.integers(0, 4),
    vocabulary=st.sampled_from([2, 9, 40]),
    q_given=st.booleans(),
    sharpness=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
def test_kernel_says_what_the_reference_says(
    k: int, vocabulary: int, q_given: bool, sharpness: float, seed: int, data: st.DataObject
) -> None:
    n = 2
    p = distributions(n, k + 1, vocabulary, seed=seed % 997, sharpness=sharpness)
    q = distributions(n, k, vocabulary, seed=seed % 991, sharpness=sharpness) if q_given else None
    drafts = torch.randint(0, vocabulary, (n, k), generator=torch.Generator().manual_seed(seed % 983))
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, k), min_size=n, max_size=n)), dtype=torch.int32)
    forced = torch.tensor(data.draw(st.lists(st.integers(-1, k + 1), min_size=n, max_size=n)), dtype=torch.int32)
    seeds = seed + torch.arange(n)
    for force in (None, forced):
        found, wanted = (run(v, drafts, q, p, lengths, seeds, force) for v in (verify, verify_reference))
        assert torch.equal(found[0], wanted[0])
        assert torch.equal(found[1], wanted[1])
        tokens, accepted = found
        assert (accepted <= lengths).all()
        for row, count in enumerate(accepted.tolist()):
            assert torch.equal(tokens[row, :count], drafts[row, :count])
            assert p[row, count, tokens[row, count]] > 0
            assert (tokens[row, count + 1 :] == -1).all()


@pytest.mark.parametrize("q_given", [False, True])
def test_greedy_drafts_stand_as_long_as_they_are_the_targets_tokens(q_given: bool) -> None:
    """A greedy target is one-hot, ties included: its first largest logit."""
    n, k, vocabulary = 4, 3, 10
    logits = torch.randn(n, k + 1, vocabulary, generator=torch.Generator().manual_seed(4))
    logits[0, 0, 3:5] = 9.0
    zeros = torch.zeros(n * (k + 1))
    target = probabilities_reference(
        logits.view(-1, vocabulary), zeros, zeros.to(torch.int32), torch.ones_like(zeros)
    ).view_as(logits)
    best = logits.argmax(-1)
    drafts = best[:, :k].clone()
    for row in range(1, n):
        drafts[row, row - 1] = (drafts[row, row - 1] + 1) % vocabulary
    q = distributions(n, k, vocabulary, seed=5) if q_given else None
    tokens, accepted = run(verify, drafts, q, target)
    assert accepted.tolist() == [3, 0, 1, 2]
    for row, count in enumerate(accepted.tolist()):
        assert torch.equal(tokens[row, : count + 1], best[row, : count + 1])


@pytest.mark.parametrize("verifier", [verify, verify_reference])
def test_drafts_of_the_target_itself_all_stand(verifier: object) -> None:
    p = distributions(20, 4, 30, seed=6)
    q = p[:, :3].contiguous()
    _, accepted = run(verifier, drawn(q, 77), q, p)
    assert (accepted == 3).all()


@pytest.mark.parametrize("verifier", [verify, verify_reference])
def test_where_nothing_is_left_to_draw_from_the_target_is_drawn_from(verifier: object) -> None:
    """A draft that its model gave no probability is rejected with p = q everywhere, so that max(p - q, 0) is all zeros."""
    p = torch.tensor([0.0, 0.5, 0.5]).expand(12, 2, 3).contiguous()
    tokens, accepted = run(verifier, torch.zeros(12, 1, dtype=torch.int64), p[:, :1].contiguous(), p)
    assert (accepted == 0).all()
    assert set(tokens[:, 0].tolist()) == {1, 2}


@pytest.mark.parametrize("verifier", [verify, verify_reference])
def test_impossible_drafts_are_rejected_and_certain_ones_stand(verifier: object) -> None:
    p = torch.zeros(6, 3, 5)
    p[:, 0, 2] = p[:, 1, 1] = p[:, 2, 4] = 1.0
    drafts = torch.tensor([[2, 1], [2, 0], [3, 1]]).repeat(2, 1)
    tokens, accepted = run(verifier, drafts, None, p)
    assert accepted.tolist() == [2, 1, 0] * 2
    assert tokens.tolist() == [[2, 1, 4], [2, 1, -1], [2, -1, -1]] * 2


@pytest.mark.parametrize("verifier", [verify, verify_reference])
def test_forced_acceptance_ignores_the_drafts_and_ends_with_a_token_of_the_target(verifier: object) -> None:
    p = torch.zeros(5, 3, 8)
    p[:, :, 6] = 1.0
    drafts = torch.zeros(5, 2, dtype=torch.int64)
    forced = torch.tensor([0, 1, 2, 9, -1], dtype=torch.int32)
    lengths = torch.tensor([2, 2, 2, 1, 2], dtype=torch.int32)
    tokens, accepted = run(verifier, drafts, None, p, lengths, forced=forced)
    assert accepted.tolist() == [0, 1, 2, 1, 0]
    assert tokens.tolist() == [[6, -1, -1], [0, 6, -1], [0, 0, 6], [0, 6, -1], [6, -1, -1]]


def test_sequence_is_verified_alike_alone_and_in_any_batch() -> None:
    p, q = distributions(4, 3, 25, seed=8), distributions(4, 2, 25, seed=9)
    drafts, seeds = drawn(q, 5), torch.arange(4) + 2**40
    together = run(verify, drafts, q, p, seeds=seeds)
    for row in range(4):
        one = slice(row, row + 1)
        alone = run(verify, drafts[one], q[one].contiguous(), p[one].contiguous(), seeds=seeds[one])
        assert torch.equal(alone[0], together[0][one])
        assert torch.equal(alone[1], together[1][one])


def test_token_after_the_drafts_may_come_from_any_tile() -> None:
    vocabulary = 2 * TILE + 30
    p = torch.full((3, 1, vocabulary), 1e-9)
    for row, token in enumerate((5, TILE, vocabulary - 1)):
        p[row, 0, token] = 1 - 1e-9 * (vocabulary - 1)
    none = torch.empty(3, 0, dtype=torch.int64)
    tokens, accepted = run(verify, none, None, p)
    assert torch.equal(tokens, run(verify_reference, none, None, p)[0])
    assert accepted.tolist() == [0, 0, 0]
    assert tokens[:, 0].tolist() == [5, TILE, vocabulary - 1]


def test_kernel_draws_the_target_from_rejected_and_accepted_drafts() -> None:
    n, vocabulary = 120, 5
    p, q = distributions(2, vocabulary, seed=1), distributions(1, vocabulary, seed=2)
    probs = q.expand(n, 1, vocabulary).contiguous()
    tokens, accepted = run(verify, drawn(probs, 10**6), probs, p.expand(n, 2, vocabulary).contiguous())
    assert 0.2 < float(np.mean(accepted.numpy())) < 0.95
    assert chi_square(tokens[:, 0], p[0]) > 1e-3
