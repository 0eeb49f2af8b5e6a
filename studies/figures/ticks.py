"""Ticks of a logarithmic axis, written out: one that spans a decade or two needs more than powers of ten."""

from __future__ import annotations

import math
from typing import Any

WIDE = 300.0
"""Ratio of the ends from which powers of ten are enough."""


def log_ticks(low: float, high: float) -> dict[str, Any]:
    """What a logarithmic axis from `low` to `high` (both above 0) has beside its title."""
    steps = (1,) if high > WIDE * low else (1, 2, 5)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{m * 10.0**k:.5g}") for k in decades for m in steps]
    shown = [value for value in values if low <= value <= high]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{value:,.12g}" for value in shown]}
