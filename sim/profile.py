"""A profile fitted to whole steps: its JSON schema. `sim.profile_cost` turns one into step costs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from serving.plan import StepShape
from sim.measured_acceptance import MeasuredAcceptance
from sim.profile_parts import Domain, Errors, Fraction, Jump, Nanoseconds, Noise, Part, Source, save_json, without
from sim.quality import Quality


class Coefficients(Part):
    """Nanoseconds a unit.

    chunk: one prefill chunk, beyond its rows of the dense layers.
    pair: one pair of query and key in prefill attention.
    prefill_context: one token of cached context that a chunk brings in.
    decode_sequence, decode_context: one decode; one token of its context.
    head, head_row: the output head when anything samples; each row of it.
    """

    chunk: Nanoseconds = 0.0
    pair: Nanoseconds = 0.0
    prefill_context: Nanoseconds = 0.0
    decode_sequence: Nanoseconds = 0.0
    decode_context: Nanoseconds = 0.0
    head: Nanoseconds = 0.0
    head_row: Nanoseconds = 0.0


class Measurement(Part):
    """Median duration of one step shape over its repeats, and the spread (max - min) / median."""

    prefill: tuple[tuple[int, int], ...] = ()
    decode_sequences: int = 0
    decode_context: int = 0
    decode_max_context: int = 0
    sampled: int = 0
    draft_tokens: int = 0
    ns: int
    repeats: int = 1
    spread: Fraction = 0.0

    @property
    def shape(self) -> StepShape:
        return StepShape(*(getattr(self, name) for name in StepShape._fields))

    @model_serializer(mode="wrap")
    def _without_drafts_where_there_are_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Steps without drafts are written, and hashed, as before there were any."""
        return without(handler(self), "draft_tokens")


class Outlier(Part):
    """One repeat far from the median of its shape; the median ignores it, the report does not."""

    shape: Measurement
    ns: int


class Profile(Part):
    """Step costs of one model, precision and device, as fitted.

    dense: `(tokens, ns)` knots of the dense layers, with all that a step costs in any case; both non-decreasing.
    residuals: quantiles 0, 1, ..., 100 % of measured / predicted - 1.
    cv_error: by kind of step (`all`, `decode`, `prefill`, `mixed`), each shape predicted by a fit that did not see it.
    data_hash: of the measurements.
    quality: what precisions of this model cost in quality, where somebody measured it.
    acceptance: how many drafts stood for this model, where somebody measured it.
    noise: what steps do beside their shape, where successive steps were measured.
    """

    schema_version: Literal[1] = 1
    name: str
    created: str
    source: Source
    model: str
    dtype: str
    kv_dtype: str
    block_size: int | None = None
    domain: Domain
    dense: Annotated[tuple[tuple[int, Nanoseconds], ...], Field(min_length=1)]
    coefficients: Coefficients
    jumps: tuple[Jump, ...] = ()
    residuals: tuple[Fraction, ...] = ()
    cv_error: dict[str, Errors] = Field(default_factory=dict)
    outliers: tuple[Outlier, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    data_hash: str
    quality: Quality | None = None
    acceptance: tuple[MeasuredAcceptance, ...] = ()
    noise: Noise | None = None

    @model_validator(mode="after")
    def _monotone(self) -> Profile:
        for (t0, ns0), (t1, ns1) in zip(self.dense, self.dense[1:], strict=False):
            if t1 <= t0 or ns1 < ns0:
                raise ValueError(f"dense: knots must grow, found ({t0}, {ns0}) before ({t1}, {ns1})")
        if self.dense[0][0] < 0:
            raise ValueError("dense: the first knot has a negative number of tokens")
        if self.measurements and self.data_hash != data_hash(self.measurements):
            raise ValueError("data_hash does not belong to these measurements")
        return self

    @model_serializer(mode="wrap")
    def _without_what_nobody_measured(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Such a profile is written, and hashed, as before there was any."""
        return without(handler(self), "quality", "acceptance", "noise")

    def save(self, path: Path | str) -> Path:
        """Writes the JSON file; complete or not at all."""
        return save_json(self, path)

    def hash(self) -> str:
        """Short hash of the whole profile, for results that were computed with it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def data_hash(measurements: Sequence[Measurement]) -> str:
    """Hash of shapes and durations, independent of their order."""
    rows = sorted(m.model_dump_json() for m in measurements)
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
