"""What a precision costs in quality, as measured on a text: its JSON schema. Kept in profiles and in tables that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

UNQUANTISED = "unquantised"
"""The precision of whatever is as wide as the weights that were measured: float32, bfloat16, float16."""

QUANTISED = ("int8", "int4", "fp8")
"""Precisions of weights that lose something; of a KV cache int8 and fp8."""

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Loss(_Part):
    """Of one pair of precisions, against the unquantised model on the same tokens.

    mean_kl, p99_kl: Kullback-Leibler divergence of the next token's distribution, in nats, over positions.
    top1_agreement: share of positions at which the likeliest next token is the same.
    """

    weights: str
    kv: str
    perplexity: NonNegative
    mean_kl: NonNegative
    p99_kl: NonNegative
    top1_agreement: Share


class Quality(_Part):
    """Losses of one model, all on one text.

    reference: the unquantised weights: the file that they were read from.
    tokens: positions at which a next token was predicted. window: most tokens before one.
    """

    schema_version: Literal[1] = 1
    model: str
    reference: str
    reference_perplexity: NonNegative
    text: str
    text_hash: str
    tokens: Annotated[int, Field(ge=1)]
    window: Annotated[int, Field(ge=2)]
    losses: tuple[Loss, ...] = ()

    def find(self, weights: str, kv: str) -> Loss | None:
        """What was measured of a pair of precisions; None if it was not."""
        return next((loss for loss in self.losses if (loss.weights, loss.kv) == (weights, kv)), None)

    def joined(self, newer: Quality) -> Quality:
        """With the losses of a newer measurement. One on another text, or of other weights, is not comparable: it replaces
        all of this."""
        same = ("model", "reference", "text_hash", "tokens", "window")
        if any(getattr(self, name) != getattr(newer, name) for name in same):
            return newer
        measured = {(loss.weights, loss.kv) for loss in newer.losses}
        kept = [loss for loss in self.losses if (loss.weights, loss.kv) not in measured]
        return newer.model_copy(update={"losses": (*kept, *newer.losses)})

    def save(self, path: Path) -> None:
        """Writes the JSON file; complete or not at all."""
        part = path.with_name(path.name + ".part")
        part.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def precision(dtype: str) -> str:
    """An engine's precision as losses call it."""
    return dtype if dtype in QUANTISED else UNQUANTISED
