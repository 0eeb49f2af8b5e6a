"""The front end of a scenario: workers between clients and engines that parse HTTP and tokenise."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Duration, Section
from serving.front_end import FrontEndCost


class FrontEnd(Section):
    """Every request passes it before an engine sees it, in order of arrival.

    Args:
        workers: requests that are handled at a time.
        per_request, per_prompt_token: what one takes. Tokenising 200,000 tokens takes about half a second: 2.5us each.
    """

    workers: Annotated[int, Field(ge=1, le=100_000)] = 1
    per_request: Duration = 0.0
    per_prompt_token: Duration = 0.0

    @model_validator(mode="after")
    def _takes_time(self) -> FrontEnd:
        if not self.per_request and not self.per_prompt_token:
            raise misplaced(
                "found no cost per request and none per prompt token: a front end that takes no time changes nothing; leave it out",
                "per_request",
            )
        return self

    def cost(self) -> FrontEndCost:
        return FrontEndCost(self.workers, self.per_request * 1e9, self.per_prompt_token * 1e9)
