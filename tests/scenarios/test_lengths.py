from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from scenarios import InputError
from scenarios.lengths import Lengths, read_values

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Lengths)
N = 200_000


def draw(n: int = N, **distribution: Any) -> np.ndarray:
    lengths = _ADAPTER.validate_python(distribution)
    drawn = lengths.draw(n, np.random.default_rng(1))
    assert drawn.dtype == np.int64
    assert drawn.shape == (n,)
    assert drawn.min() >= lengths.shortest >= 1
    return drawn


def test_a_number_alone_is_fixed() -> None:
    assert (_ADAPTER.validate_python(7).draw(5, np.random.default_rng(1)) == 7).all()


def test_uniform_includes_both_ends() -> None:
    assert np.bincount(draw(distribution="uniform", min=3, max=5))[3:] == pytest.approx(N / 3, rel=0.02)


def test_normal_is_rounded_and_clipped() -> None:
    drawn = draw(distribution="normal", mean=512, std=256, min=2, max=2048)
    assert (drawn.min(), drawn.max()) == (2, pytest.approx(1700, abs=350))
    assert np.median(drawn) == pytest.approx(512, abs=4)
    assert (draw(distribution="normal", mean=5.4, std=0) == 5).all()


@pytest.mark.parametrize(
    ("given", "figures"),
    [
        ({"mean": 1155, "p99": 4142}, {"mean": 1155, "p99": 4142}),
        ({"median": 1000, "p99": 4000}, {"median": 1000, "p99": 4000}),
        ({"mean": 1000, "sigma": 0.5}, {"mean": 1000}),
        ({"median": 1000, "sigma": 0.5}, {"median": 1000}),
    ],
)
def test_lognormal_has_the_figures_it_was_given(given: dict[str, float], figures: dict[str, float]) -> None:
    drawn = draw(distribution="lognormal", **given)
    found = {"mean": drawn.mean(), "median": np.median(drawn), "p99": np.percentile(drawn, 99)}
    for name, value in figures.items():
        assert found[name] == pytest.approx(value, rel=0.02)


def test_quantiles_are_met() -> None:
    drawn = draw(distribution="quantiles", points=[[0, 10], [0.5, 100], [0.9, 1000], [1, 5000]])
    assert np.percentile(drawn, [50, 90]) == pytest.approx([100, 1000], rel=0.03)
    assert drawn.max() <= 5000


def test_empirical_follows_weights() -> None:
    counts = np.bincount(draw(distribution="empirical", values=[1, 2, 4], weights=[1, 0, 3]))
    assert counts[2] == 0
    assert counts[4] / counts[1] == pytest.approx(3, rel=0.03)


def test_empirical_reads_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "lengths.txt", tmp_path / "lengths.csv.gz"
    plain.write_text("5\r\n\r\n9\r\n")
    packed.write_bytes(gzip.compress(b"prompt,answer\n5,50\n9,90"))
    assert set(draw(distribution="empirical", file=str(plain))) == {5, 9}
    assert set(draw(distribution="empirical", file=str(packed), column="answer")) == {50, 90}


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", None, "empty"),
        ("tokens\n", None, "not one length"),
        ("5\nfive\n", None, "line 2: found 'five'"),
        ("5\n-5\n", None, "line 2: found '-5'"),
        ("5\n0\n", None, "line 2: found '0'"),
        ("a,b\n1,2\n", None, "found 2 columns"),
        ("a,b\n1,2\n", "c", "unknown column 'c'"),
        ("a,b\n1,2\n3\n", "b", "line 3: found 'nothing'"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, text: str, column: str | None, message: str) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_values(str(file), column)


@pytest.mark.parametrize(
    "distribution",
    [
        {"distribution": "lognormal", "mean": 10},
        {"distribution": "lognormal", "sigma": 1},
        {"distribution": "lognormal", "mean": 10, "median": 9, "sigma": 1},
        {"distribution": "lognormal", "median": 10, "p99": 9},
        {"distribution": "lognormal", "mean": 10, "p99": 1000},
        {"distribution": "normal", "mean": -1, "std": 1},
        {"distribution": "normal", "mean": 10, "std": -1},
        {"distribution": "normal", "mean": 10, "std": 1, "min": 20, "max": 10},
        {"distribution": "empirical"},
        {"distribution": "empirical", "values": []},
        {"distribution": "empirical", "values": [1, 0]},
        {"distribution": "empirical", "values": [1], "weights": [0]},
        {"distribution": "empirical", "values": [1], "weights": [1, 2]},
        {"distribution": "empirical", "file": "there/is/none"},
        {"distribution": "quantiles", "points": [[0, 1]]},
        {"distribution": "quantiles", "points": [[0, 1], [0.9, 2]]},
        {"distribution": "quantiles", "points": [[0, 9], [1, 2]]},
        {"distribution": "uniform", "min": 0, "max": 4},
    ],
)
def test_impossible_distributions_are_refused(distribution: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        draw(1, **distribution)


def test_wide_lognormal_stays_an_integer() -> None:
    assert draw(distribution="lognormal", median=10, sigma=20.0, max=5000).max() == 5000
