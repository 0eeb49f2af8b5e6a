"""How figures with intervals, and differences between them, stand in a table."""

from __future__ import annotations

import math

from studies.statistics.differences import Difference, percent
from studies.statistics.intervals import Interval
from studies.tables import DASH, number

SHARES = ("good_request_fraction", "expected_quality", "device_utilization", "busy")
NONE_SEEN = "none seen"


def is_share(key: str) -> bool:
    """Whether a figure is a part of something, of which a difference is said in percentage points."""
    name = key.rpartition(".")[2]
    return name in SHARES or name.endswith("_percent")


def figure(key: str, found: Interval) -> str:
    """`162 ± 5`, `97.1 % ± 0.4`; without an interval, or with one of no width, the estimate alone; a dash for none, or where some
    seeds have none."""
    share = key.rpartition(".")[2] in SHARES
    scale, unit = (100.0, " %") if share else (1.0, "")
    value, half = found.estimate, found.half_width
    if value is None or _lacks(found):
        return DASH
    if not half:
        return f"{number(value * scale)}{unit}"
    digits = decimals(half * scale)
    if digits is None:
        return f"{number(value * scale)}{unit} ± {half * scale:.0e}"
    return f"{value * scale:,.{digits}f}{unit} ± {half * scale:,.{digits}f}"


def change(key: str, found: Difference) -> str:
    """`-12 % ± 3 %`, in percentage points of a share (`-4 pts ± 1`), in the unit of the figure where the baseline is 0; `none seen`
    where the interval holds 0, `same` where every seed says so, a dash where a figure is missing."""
    if found.absolute.estimate is None or _lacks(found.absolute):
        return DASH
    if found.verdict == "the same":
        return "same"
    if found.verdict == "not distinguishable":
        return NONE_SEEN
    if is_share(key):
        return _signed(found.absolute, 1.0 if key.endswith("_percent") else 100.0, " pts")
    if found.relative.estimate is None or found.relative.refused.startswith("the first"):
        return _signed(found.absolute, 1.0, "")
    return percent(found.relative, signed=True)


def _lacks(found: Interval) -> bool:
    """Whether some seeds have no value: what the others say is of other requests."""
    return found.refused.endswith("have no value")


def _signed(found: Interval, scale: float, unit: str) -> str:
    assert found.estimate is not None
    value, half = found.estimate * scale, (found.half_width or 0.0) * scale
    digits = decimals(half) if half else decimals(value)
    if digits is None:
        return f"{value:+.1e}{unit}"
    return f"{value:+,.{digits}f}{unit}" + (f" ± {half:,.{digits}f}" if half else "")


def decimals(spread: float) -> int | None:
    """Decimals that show a spread to one digit, two where the first is a 1; None of one so small that it is better written with an
    exponent."""
    if not spread:
        return 0
    place = math.floor(math.log10(abs(spread)))
    digits = -place + (1 if abs(spread) / 10**place < 2 else 0)
    return None if digits > 6 else max(0, digits)
