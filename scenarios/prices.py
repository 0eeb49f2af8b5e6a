"""What devices and energy cost, and what customers are asked for tokens. USD everywhere."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Section

Usd = Annotated[float, Field(ge=0, le=1e9)]


class Energy(Section):
    """Electricity, where it is paid for apart from the device.

    Args:
        usd_per_kwh: price of a kilowatt-hour, cooling included.
        busy_watts: what one device draws while it computes a step, its share of the host included.
        idle_watts: the same while it does not.
    """

    usd_per_kwh: Usd
    busy_watts: Annotated[float, Field(ge=0, le=1e5)]
    idle_watts: Annotated[float, Field(ge=0, le=1e5)] = 0.0

    @model_validator(mode="after")
    def _more_when_busy(self) -> Energy:
        if self.idle_watts > self.busy_watts:
            raise misplaced(f"found {self.idle_watts:g}, more than busy_watts ({self.busy_watts:g})", "idle_watts")
        return self


class Sheet(Section):
    """What customers pay for a million tokens of each kind, of answered requests.

    Args:
        cached_discount: what a prompt token that the prefix cache held costs less than another: 0.9 for a tenth of the price.
    """

    input: Usd
    output: Usd
    cached_discount: Annotated[float, Field(ge=0, le=1)] = 0.0


class Prices(Section):
    """USD. What a run costs, and what it earns.

    Args:
        gpu_hour: of one device, the sheet's if not given; a replica has `tensor_parallel_size` of them.
        energy: electricity, if it is not part of that.
        sheet: prices per million tokens, for revenue and margins.
    """

    later: ClassVar[tuple[str, ...]] = ("energy", "sheet")

    gpu_hour: float = Field(default=0.0, ge=0)
    energy: Energy | None = None
    sheet: Sheet | None = None
