"""How long prompts and answers are. To add a distribution: write a class here and put it into `Lengths`."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from scenarios.documents import read_text
from scenarios.errors import InputError, misplaced, unknown
from scenarios.fields import MOST_TOKENS, File, Section, ShortForm, TokenCount

Tokens = NDArray[np.int64]
_Z99 = NormalDist().inv_cdf(0.99)


class _Bounded(Section):
    """What all random lengths share: draws are rounded and clipped to [min, max]."""

    min: TokenCount = 1
    max: TokenCount | None = None

    @model_validator(mode="after")
    def _ordered(self) -> _Bounded:
        if self.max is not None and self.max < self.min:
            raise misplaced(f"found {self.max}, below min {self.min}", "max")
        return self

    def _clip(self, values: NDArray[Any]) -> Tokens:
        high = self.max if self.max is not None else MOST_TOKENS
        clipped: Tokens = np.clip(np.rint(values), self.min, high).astype(np.int64)
        return clipped

    @property
    def shortest(self) -> int:
        """No draw is below this."""
        return self.min


class Fixed(Section):
    """Always the same; short form: the number alone."""

    distribution: Literal["fixed"]
    tokens: TokenCount

    def draw(self, n: int, rng: Generator) -> Tokens:
        """n lengths, `(n,)`."""
        return np.full(n, self.tokens, dtype=np.int64)

    @property
    def shortest(self) -> int:
        return self.tokens


class Uniform(Section):
    """Every whole number from min to max, both included."""

    distribution: Literal["uniform"]
    min: TokenCount
    max: TokenCount

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.max < self.min:
            raise misplaced(f"found {self.max}, below min {self.min}", "max")
        return self

    def draw(self, n: int, rng: Generator) -> Tokens:
        return rng.integers(self.min, self.max, n, endpoint=True, dtype=np.int64)

    @property
    def shortest(self) -> int:
        return self.min


class Normal(_Bounded):
    distribution: Literal["normal"]
    mean: float = Field(gt=0)
    std: float = Field(ge=0)

    def draw(self, n: int, rng: Generator) -> Tokens:
        return self._clip(self.mean + self.std * rng.standard_normal(n))


class Lognormal(_Bounded):
    """Given by its mean or median, and by sigma (of the logarithm) or its 99th percentile."""

    distribution: Literal["lognormal"]
    mean: float | None = Field(default=None, gt=0)
    median: float | None = Field(default=None, gt=0)
    sigma: float | None = Field(default=None, ge=0, le=20)
    p99: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _determined(self) -> Lognormal:
        if (self.mean is None) == (self.median is None):
            raise ValueError("a lognormal needs mean or median, one of them")
        if (self.sigma is None) == (self.p99 is None):
            raise ValueError("a lognormal needs sigma or p99, one of them")
        self.parameters()
        return self

    def parameters(self) -> tuple[float, float]:
        """(mu, sigma) of the logarithm."""
        if self.sigma is not None:
            sigma = self.sigma
        elif self.p99 is not None and self.median is not None:
            sigma = float(np.log(self.p99 / self.median)) / _Z99
        else:
            assert self.p99 is not None
            assert self.mean is not None
            # ln p99 - ln mean = z sigma - sigma^2 / 2; the smaller root is the one that data has.
            inside = _Z99**2 - 2 * float(np.log(self.p99 / self.mean))
            if inside < 0:
                most = self.mean * float(np.exp(_Z99**2 / 2))
                raise misplaced(f"found {self.p99:g}, but no lognormal of this mean exceeds {most:.0f}", "p99")
            sigma = _Z99 - float(np.sqrt(inside))
        if sigma < 0:
            raise misplaced(f"found {self.p99:g}, below the {'median' if self.median else 'mean'}", "p99")
        if self.median is not None:
            return float(np.log(self.median)), sigma
        assert self.mean is not None
        return float(np.log(self.mean)) - sigma**2 / 2, sigma

    def draw(self, n: int, rng: Generator) -> Tokens:
        mu, sigma = self.parameters()
        # Clipped before rounding: a wide sigma may leave the range of integers.
        return self._clip(np.minimum(np.exp(mu + sigma * rng.standard_normal(n)), float(MOST_TOKENS)))


class Quantiles(_Bounded):
    """A shape given by points of its distribution, straight lines between: `[[0, 16], [0.5, 129], [1, 1000]]` reads
    'none below 16, half below 129, all below 1000'."""

    distribution: Literal["quantiles"]
    points: Annotated[
        tuple[Annotated[tuple[float, float], Field(strict=False)], ...], Field(strict=False, min_length=2)
    ]

    @model_validator(mode="after")
    def _a_distribution(self) -> Quantiles:
        shares, tokens = (np.array(column) for column in zip(*self.points, strict=True))
        if shares[0] != 0 or shares[-1] != 1 or np.any(np.diff(shares) <= 0):
            raise misplaced("shares must start at 0, rise, and end at 1", "points")
        if tokens[0] < 0 or np.any(np.diff(tokens) < 0):
            raise misplaced("tokens must not be negative and not fall", "points")
        return self

    def draw(self, n: int, rng: Generator) -> Tokens:
        shares, tokens = zip(*self.points, strict=True)
        return self._clip(np.interp(rng.random(n), shares, tokens))


class Empirical(_Bounded):
    """Drawn from a list, each value as likely as its weight; the list may stand in a file, one value a line."""

    distribution: Literal["empirical"]
    values: Annotated[tuple[TokenCount, ...] | None, Field(strict=False, min_length=1)] = None
    weights: Annotated[tuple[Annotated[float, Field(ge=0)], ...] | None, Field(strict=False)] = None
    file: File | None = None
    column: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Empirical:
        if (self.values is None) == (self.file is None):
            raise ValueError("an empirical distribution needs values or file, one of them")
        if self.column is not None and self.file is None:
            raise misplaced("names a column, but there is no file", "column")
        if self.weights is not None:
            if self.values is None or len(self.weights) != len(self.values):
                raise misplaced(f"found {len(self.weights)} weights for {len(self.values or ())} values", "weights")
            if not 0 < sum(self.weights) < math.inf:
                raise misplaced(f"the weights sum to {sum(self.weights):g}", "weights")
        if self.file is not None:
            read_values(self.file, self.column)
        return self

    def draw(self, n: int, rng: Generator) -> Tokens:
        values = np.array(self.values) if self.file is None else read_values(self.file, self.column)
        weights = None if self.weights is None else np.array(self.weights) / sum(self.weights)
        return self._clip(rng.choice(values, size=n, p=weights))

    @property
    def shortest(self) -> int:
        values = np.array(self.values) if self.file is None else read_values(self.file, self.column)
        return int(self._clip(values).min())


def read_values(file: str, column: str | None) -> Tokens:
    """Lengths from a text or CSV file (gzip or plain): the named column, or the only one.

    Raises:
        InputError: names file and line.
    """
    text = read_text(Path(file))
    try:
        rows = [(number, row) for number, row in enumerate(csv.reader(io.StringIO(text)), 1) if row]
    except csv.Error as error:
        raise InputError(f"{file}: broken CSV: {error}") from None
    if not rows:
        raise InputError(f"{file}: the file is empty; one length a line is needed")
    place = 0
    header = rows[0][1]
    if column is not None:
        if column not in header:
            raise InputError(f"{file}: line 1: {unknown('column', column, header)}")
        place = header.index(column)
        rows = rows[1:]
    elif len(header) > 1:
        raise InputError(f"{file}: line 1: found {len(header)} columns ({', '.join(header)}); name one with column")
    elif not header[0].strip().isdecimal():
        rows = rows[1:]
    values = []
    for number, row in rows:
        if place >= len(row) or not row[place].strip().isdecimal() or not 1 <= int(row[place]) <= MOST_TOKENS:
            found = row[place] if place < len(row) else "nothing"
            raise InputError(f"{file}: line {number}: found {found!r}, but a whole number of tokens above 0 is needed")
        values.append(int(row[place]))
    if not values:
        raise InputError(f"{file}: there is a header, but not one length")
    return np.array(values, dtype=np.int64)


def _number(value: Any) -> Any:
    if isinstance(value, int | float):
        return {"distribution": "fixed", "tokens": value}
    if not isinstance(value, dict | Section):
        raise ValueError(
            f"found {value!r}, but a number of tokens is needed, or a mapping such as {{distribution: uniform, min: 1, max: 9}}"
        )
    return value


Lengths = Annotated[
    Fixed | Uniform | Normal | Lognormal | Quantiles | Empirical,
    Field(discriminator="distribution"),
    BeforeValidator(_number),
    ShortForm({"type": "integer", "minimum": 1}),
]


def _declared(value: Any) -> Any:
    if value != "as_output" and (
        isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS
    ):
        raise ValueError(f"found {value!r}; allowed: a whole number above 0, or as_output")
    return value


MaxTokens = Annotated[TokenCount | Literal["as_output"], BeforeValidator(_declared)]
"""What clients declare: a number, or `as_output` for exactly the answer's length."""
