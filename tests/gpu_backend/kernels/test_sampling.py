"""Tokens are drawn from exactly the distribution that temperature, top-k and top-p leave, reproducibly, whoever else is in the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpu_backend.kernels import sampling
from gpu_backend.kernels.sampling import TILE, philox, probabilities_reference, sample, sample_reference
from tests.gpu_backend.kernels.conftest import Guards

few = settings(max_examples=12, deadline=None)


def rows(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, first_seed: int = 0
) -> tuple[torch.Tensor, ...]:
    """Arguments of `sample` for logits (R, V) under one setting; seeds follow each other."""
    n = len(logits)
    return (
        logits,
        torch.full((n,), temperature),
        torch.full((n,), top_k, dtype=torch.int32),
        torch.full((n,), top_p),
        torch.arange(first_seed, first_seed + n),
    )


def chi_square(tokens: torch.Tensor, probabilities: torch.Tensor) -> float:
    """The p-value of the counts, bins of fewer than 5 expected merged. A token of probability 0 must not occur."""
    counts = np.bincount(tokens.numpy(), minlength=len(probabilities)).astype(float)
    wanted = probabilities.double().numpy() * len(tokens)
    assert counts[wanted == 0].sum() == 0
    small = wanted < 5
    counts, wanted = (np.append(x[~small], x[small].sum()) for x in (counts, wanted))
    counts, wanted = counts[wanted > 0], wanted[wanted > 0]
    return float(stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue) if len(counts) > 1 else 1.0


def spread(vocabulary: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed))


SETTINGS = [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 6, 1.0), (1.0, 0, 0.7), (1.5, 20, 0.8)]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
def test_reference_draws_the_exact_distribution(temperature: float, top_k: int, top_p: float) -> None:
    arguments = rows(spread(60).expand(20_000, 60), temperature, top_k, top_p)
    wanted = probabilities_reference(*(a[:1].double() if a.is_floating_point() else a[:1] for a in arguments[:4]))
    assert chi_square(sample_reference(*arguments), wanted[0]) > 1e-3


@pytest.mark.parametrize(("temperature", "top_k", "top_p", "draws"), [(0.8, 0, 1.0, 120), (1.5, 3, 0.9, 15)])
def test_kernel_draws_the_exact_distribution(temperature: float, top_k: int, top_p: float, draws: int) -> None:
    arguments = rows(spread(30).bfloat16().expand(draws, 30), temperature, top_k, top_p)
    tokens = sample(*arguments)
    assert chi_square(tokens, probabilities_reference(*(a[:1] for a in arguments[:4]))[0]) > 1e-3
    assert torch.equal(tokens, sample_reference(*arguments)), "the same noise makes the same tokens"


def test_distance_to_the_distribution_shrinks_with_the_number_of_samples() -> None:
    arguments = rows(spread(60).expand(40_000, 60), 1.0, 30, 0.9)
    tokens, wanted = sample_reference(*arguments), probabilities_reference(*(a[:1] for a in arguments[:4]))[0]
    other = torch.softmax(spread(60, seed=1), -1)

    def distance(n: int, to: torch.Tensor) -> float:
        return float((torch.bincount(tokens[:n], minlength=60) / n - to).abs().sum() / 2)

    assert distance(40_000, wanted) < distance(400, wanted) / 5
    assert distance(40_000, other) > distance(400, other) * 0.9


@few
@given(
    vocabulary=st.sampled_from([1, 7, 100, 300]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    seed=st.integers(0, 2**62),
    apart=st.sampled_from([0, 5]),
    data=st.data(),
)
def test_rows_with_settings_of_their_own_say_what_the_reference_says(
    vocabulary: int, dtype: torch.dtype, seed: int, apart: int, data: st.DataObject
) -> None:
    def draw(values: st.SearchStrategy[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(data.draw(st.lists(values, min_size=3, max_size=3)), dtype=dtype)

    generator = torch.Generator().manual_seed(seed % 1000)
    logits = (3 * torch.randn(3, vocabulary, generator=generator)).to(dtype)
    temperature = draw(st.sampled_from([0.0, 0.3, 1.0, 5.0]), torch.float32)
    top_k = draw(st.sampled_from([0, 1, 4, 1000]), torch.int32)
    top_p = draw(st.sampled_from([1e-6, 0.5, 0.95, 1.0]), torch.float32)
    seeds = seed + torch.arange(3)
    with Guards() as guards:
        whole = guards.empty((3, vocabulary + apart), dtype)
        placed = whole[:, :vocabulary]
        placed.copy_(logits)
        out = guards.empty((3,), torch.int64)
        given_ = [guards.place(t) for t in (temperature, top_k, top_p, seeds)]
        assert sample(placed, *given_, out) is out
    assert torch.equal(out, sample_reference(logits, temperature, top_k, top_p, seeds))
    likely = probabilities_reference(logits, temperature, top_k, top_p)
    assert (likely.gather(1, out.unsqueeze(1)) > 0).all()


def test_winner_may_come_from_any_tile() -> None:
    """Three tiles, the last of them partial: greedy and drawn tokens are the reference's, seeds 64 bits wide."""
    vocabulary = 2 * TILE + 77
    logits = torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(3))
    for row, token in enumerate((0, TILE - 1, TILE, 2 * TILE, vocabulary - 1)):
        logits[row, token] = 9.0
    _, temperature, top_k, top_p, seeds = rows(logits)
    temperature[:5] = 0
    seeds[5] = 2**61 + 12345
    tokens = sample(logits, temperature, top_k, top_p, seeds)
    assert tokens[:5].tolist() == [0, TILE - 1, TILE, 2 * TILE, vocabulary - 1]
    assert torch.equal(tokens, sample_reference(logits, temperature, top_k, top_p, seeds))


def test_greedy_takes_the_first_of_equals_and_ignores_seeds() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0, 0.0], [-0.0, 0.0, -1.0, 0.0]])
    for seed in (0, 7):
        assert sample(*rows(logits, 0.0, 1, 0.1, seed)).tolist() == [1, 0]


def test_row_says_the_same_alone_and_in_any_batch() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    arguments = rows(logits, 0.9, 10, 0.9)
    together = sample(*arguments)
    order = torch.tensor([2, 0, 1])
    assert torch.equal(sample(*(a[order].contiguous() for a in arguments)), together[order])
    for row in range(3):
        assert sample(*(a[row : row + 1] for a in arguments)).item() == together[row]


@pytest.mark.parametrize(
    ("top_k", "top_p", "stay"),
    [
        (1, 1.0, {1, 2}),  # Ties with the k-th stay,
        (3, 1.0, {0, 1, 2, 5}),
        (0, 0.3, {1, 2}),  # and so do ties with the last that top-p needs.
        (0, 1e-9, {1, 2}),
        (0, 0.8, {0, 1, 2, 5}),
        (3, 0.99, {0, 1, 2, 5}),
        (5, 0.999, {0, 1, 2, 4, 5}),
        (0, 0.0, {1, 2}),
    ],
)
def test_ties_at_a_threshold_all_stay(top_k: int, top_p: float, stay: set[int]) -> None:
    """Of probabilities 0.16 (twice), 0.32 (twice), 0.03 and tokens without any, zeros of both signs among the logits.

    Each token that has a probability gets a seed with which it is drawn where nothing is left out: it still is if it stays.
    """
    logits = torch.tensor([0.0, 0.6875, 0.6875, -torch.inf, -1.75, -0.0]).bfloat16()
    drawn = sample_reference(*rows(logits.expand(500, 6)))
    tokens = torch.tensor([0, 1, 2, 4, 5])
    seeds = torch.stack([(drawn == token).nonzero()[0, 0] for token in tokens])
    arguments = (*rows(logits.repeat(5, 1), 1.0, top_k, top_p)[:4], seeds)
    assert set(probabilities_reference(*arguments[:4])[0].nonzero().flatten().tolist()) == stay
    said = sample(*arguments)
    assert set(tokens[said == tokens].tolist()) == stay
    assert set(said.tolist()) == stay
    assert torch.equal(said, sample_reference(*arguments))


def test_noise_is_philox() -> None:
    """The published vectors of Philox4x32-10 at counter 0 (Random123), and streams that differ."""
    first = philox(torch.tensor([0]), torch.tensor([0]), 0)[0, 0]
    assert [f"{x:08x}" for x in first.tolist()] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    streams = [philox(torch.tensor([5]), torch.arange(100), stream) for stream in range(3)]
    assert all((streams[a] != streams[b]).float().mean() > 0.99 for a, b in ((0, 1), (0, 2), (1, 2)))


def test_log_of_noise_is_that_of_an_exponential() -> None:
    noise = sampling.log_exponential_reference(torch.arange(50), 4000, sampling.SAMPLE).double().exp().flatten()
    assert stats.kstest(noise.numpy(), "expon").pvalue > 1e-3
    # What decides a race over a large vocabulary is the early end: it is as fine there as elsewhere.
    assert len(noise[noise < 1e-3].unique()) == (noise < 1e-3).sum()
