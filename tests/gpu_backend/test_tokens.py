"""Text drawn from content keys."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from gpu_backend.tokens import Text, draw_tokens
from serving.request import Request


def test_fewer_tokens_of_a_text_are_a_prefix_of_more() -> None:
    long = draw_tokens(("system", 3), 1001, 32000)
    for n in (0, 1, 2, 7, 1000):
        assert (draw_tokens(("system", 3), n, 32000) == long[:n]).all()


def test_equal_keys_are_equal_text_and_other_keys_are_not() -> None:
    assert (draw_tokens("a", 64, 32000) == draw_tokens("a", 64, 32000)).all()
    assert (draw_tokens("a", 64, 32000) != draw_tokens("b", 64, 32000)).mean() > 0.9


def test_text_does_not_depend_on_the_hash_seed() -> None:
    code = "from gpu_backend.tokens import draw_tokens; print(draw_tokens(('k', 1), 8, 1000).tolist())"
    out = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert out == {f"{draw_tokens(('k', 1), 8, 1000).tolist()}\n"}


@pytest.mark.parametrize("vocab_size", [1, 2, 97, 151936])
def test_tokens_cover_the_vocabulary_and_stay_inside(vocab_size: int) -> None:
    tokens = draw_tokens("k", 20000, vocab_size)
    assert tokens.min() >= 0
    assert tokens.max() < vocab_size
    assert abs(tokens.mean() / max(vocab_size - 1, 1) - 0.5) < 0.02 or vocab_size == 1


def test_a_prompt_that_quotes_an_answer_repeats_its_tokens() -> None:
    first = Request(0, (("user", 5),), 40, output_key="out:0")
    second = Request(1, (("user", 5), ("out:0", 40), ("more", 3)), 1, output_key="out:1")
    assert (Text(first, 500).first(45) == Text(second, 500).first(48)[:45]).all()


def test_an_answer_grows_without_changing() -> None:
    text = Text(Request(0, (("user", 5),), 400, output_key="out:0"), 500)
    seen = [text.first(n).copy() for n in range(4, 300)]
    assert all((a == b[: len(a)]).all() for a, b in pairwise(seen))


def test_answers_without_a_key_are_texts_of_their_own() -> None:
    texts = [Text(Request(i, (("user", 5),), 40), 500).first(45) for i in (0, 1)]
    assert np.array_equal(texts[0][:5], texts[1][:5])
    assert not np.array_equal(texts[0], texts[1])
