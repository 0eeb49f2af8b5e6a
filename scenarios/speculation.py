"""Speculative decoding in a scenario: who proposes drafts, and which share of them stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from scenarios import models as model_catalog
from scenarios.errors import misplaced
from scenarios.fields import Section
from scenarios.models import ModelSpec
from serving.speculation import MOST_DRAFTS

Share = Annotated[float, Field(ge=0, le=1, strict=False)]


class BetaAcceptance(Section):
    """Requests differ: the share of drafts that stands is drawn for each from a beta distribution of that mean; the larger the
    concentration (a + b), the more alike they are."""

    mean: Annotated[float, Field(gt=0, lt=1)]
    concentration: Annotated[float, Field(gt=0, le=1e6, strict=False)]


AcceptanceRate = Share | tuple[Share, ...] | BetaAcceptance
"""One share for every draft, one a position in the row (the last holds for those behind), or a distribution over requests."""


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _catalogued(value: Any) -> Any:
    return model_catalog.model(value) if isinstance(value, str) else value


class Speculation(Section):
    """Drafts that a target model verifies in one pass.

    Args:
        method: `ngram` looks them up in the request's own text, `draft` has a smaller model say them.
        k: drafts at a time.
        acceptance: probability that a draft stands where all before it do; from the profile (`servetwin acceptance`) if not
            given. by_tenant: of the requests of these tenants.
        found: probability that n-gram drafts are found after a step.
        draft_model: of method draft, a name of the catalog; its step costs come from the same hardware sheet.
        draft_cost: instead: what a draft takes, as a share of a decode step of the target.
        off_above: no drafts while more requests than that run; 0 for no such limit.
    """

    method: Literal["ngram", "draft"]
    k: int = Field(default=4, ge=1, le=MOST_DRAFTS)
    acceptance: Annotated[AcceptanceRate | None, BeforeValidator(_listed)] = None
    by_tenant: Mapping[str, Annotated[AcceptanceRate, BeforeValidator(_listed)]] = Field(default_factory=dict)
    found: Annotated[float | None, Field(gt=0, le=1, strict=False)] = None
    draft_model: Annotated[
        ModelSpec | None,
        BeforeValidator(_catalogued),
        PlainSerializer(lambda spec: None if spec is None else spec.name),
    ] = None
    draft_cost: Annotated[float | None, Field(gt=0, le=1, strict=False)] = None
    off_above: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _goes_together(self) -> Speculation:
        if self.method == "ngram":
            for name in ("draft_model", "draft_cost"):
                if getattr(self, name) is not None:
                    raise misplaced("found with method ngram, which has no draft model; leave it out", name)
        elif self.found is not None:
            raise misplaced("found with method draft: a draft model always finds drafts; leave it out", "found")
        elif (self.draft_model is None) == (self.draft_cost is None):
            raise misplaced("is needed with method draft, or draft_cost instead of it, and not both", "draft_model")
        for name, given in (("acceptance", self.acceptance), *self.by_tenant.items()):
            if isinstance(given, tuple) and not 1 <= len(given) <= self.k:
                where = (name,) if name == "acceptance" else ("by_tenant", name)
                raise misplaced(f"found {len(given)} positions, allowed: 1 to k = {self.k}", *where)
        return self


def draw_rates(
    given: Speculation,
    fallback: AcceptanceRate,
    tenant: NDArray[np.int64],
    tenants: tuple[str, ...],
    draws: np.random.Generator,
) -> list[tuple[float, ...]]:
    """The acceptance of every request by position in the row, `(n,)`: see `sim.acceptance.Acceptance`.

    A request takes its numbers from the stream whatever its tenant's acceptance, so that changing one changes no other.

    Args:
        fallback: of tenants that `by_tenant` does not name. tenant: code of each request, an index of `tenants`.
    """
    seeds = draws.integers(0, 2**63, len(tenant)).tolist()
    by_code = [given.by_tenant.get(name, fallback) for name in tenants]
    rates: list[tuple[float, ...]] = []
    for code, seed in zip(tenant.tolist(), seeds, strict=True):
        acceptance = by_code[code] if 0 <= code < len(by_code) else fallback
        if isinstance(acceptance, BetaAcceptance):
            a, b = acceptance.mean * acceptance.concentration, (1 - acceptance.mean) * acceptance.concentration
            rates.append((float(np.random.default_rng(seed).beta(a, b)),))
        else:
            rates.append(acceptance if isinstance(acceptance, tuple) else (acceptance,))
    return rates
