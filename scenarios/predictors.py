"""Who predicts how long answers will be, for orders that need foresight. To add one: write a class here and put it into
`Predictor`.

What they say is all that a policy sees of an answer's length beyond `max_tokens`: a policy is as good as its predictor.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from scenarios.fields import Section, ShortForm
from scenarios.workload import Workload

Tokens = NDArray[np.int64]


class Oracle(Section):
    """Knows every answer's length: the best that any predictor could do."""

    kind: Literal["oracle"] = "oracle"

    def predict(self, workload: Workload, rng: Generator) -> Tokens:
        """Expected answer tokens of every request, at least 1, int64 `(n,)`."""
        said: Tokens = np.minimum(workload.output_tokens, workload.max_tokens)
        return said


class NoisyOracle(Section):
    """The true length times a lognormal error of mean 1; `cv` is its standard deviation."""

    kind: Literal["noisy_oracle"]
    cv: float = Field(gt=0, le=100)

    def predict(self, workload: Workload, rng: Generator) -> Tokens:
        sigma = np.sqrt(np.log1p(self.cv**2))
        error = np.exp(sigma * rng.standard_normal(len(workload)) - sigma**2 / 2)
        said = np.rint(np.minimum(workload.output_tokens, workload.max_tokens) * error)
        clipped: Tokens = np.clip(said, 1, workload.max_tokens).astype(np.int64)
        return clipped


class ClassMean(Section):
    """The mean length of the service class, as known from its past; of all requests where there are no classes."""

    kind: Literal["class_mean"] = "class_mean"

    def predict(self, workload: Workload, rng: Generator) -> Tokens:
        output = np.minimum(workload.output_tokens, workload.max_tokens)
        code = np.zeros(len(workload), dtype=np.int64) if workload.service_class is None else workload.service_class
        count = np.maximum(np.bincount(code), 1)
        mean = np.bincount(code, weights=output) / count
        said: Tokens = np.maximum(np.rint(mean), 1).astype(np.int64)
        return said[code]


class Declared(Section):
    """What the client declared (`max_tokens`): no foresight."""

    kind: Literal["declared"] = "declared"

    def predict(self, workload: Workload, rng: Generator) -> Tokens:
        return workload.max_tokens.copy()


_ALONE = ("oracle", "class_mean", "declared")


def _by_name(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": value}
    if not isinstance(value, dict | Section):
        raise ValueError(
            f"found {value!r}; allowed: {', '.join(_ALONE)}, or a mapping such as {{kind: noisy_oracle, cv: 0.5}}"
        )
    return value


Predictor = Annotated[
    Oracle | NoisyOracle | ClassMean | Declared,
    Field(discriminator="kind"),
    BeforeValidator(_by_name),
    ShortForm({"enum": list(_ALONE)}),
]
