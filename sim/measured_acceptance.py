"""How many drafts stood for a real model on a real text: its JSON schema. Kept in profiles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving.speculation import MOST_DRAFTS

Share = Annotated[float, Field(ge=0, le=1)]


class MeasuredAcceptance(BaseModel):
    """Of one method and one number of drafts at a time.

    per_position: share of drafts that stand where all before them in their row do, by position; None where none was seen.
    mean, concentration: of the beta distribution from which the acceptance of a request is drawn (a + b is the concentration;
        large where requests are alike). found: share of steps that had any drafts.
    steps_per_token: steps of the target model for each answer token behind the first; 1 without speculation.
    verifications: rows that had drafts. text: what the model continued.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["ngram", "draft"]
    k: Annotated[int, Field(ge=1, le=MOST_DRAFTS)]
    model: str
    draft_model: str | None = None
    text: str
    per_position: tuple[Share | None, ...]
    mean: Share
    concentration: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    found: Share
    steps_per_token: Annotated[float, Field(gt=0, le=1)]
    requests: int
    verifications: int
