"""How figures with intervals, and differences between them, stand in reports: rounded to the digit that the interval leaves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from studies.reports.tables import DASH, number

if TYPE_CHECKING:
    from studies.statistics.differences import Difference
    from studies.statistics.intervals import Interval

SHARES = ("good_request_fraction", "expected_quality", "device_utilization", "busy")
MANY = 9.0
"""Part that a figure grows by from which it is written as times."""
EVEN = 1.5
"""How many times farther one end of an interval may be, so that both are written as one ±, the larger."""
NONE_SEEN = "none seen"


def is_share(key: str) -> bool:
    """Whether a figure is a part of something, of which a difference is said in percentage points."""
    name = key.rpartition(".")[2]
    return name in SHARES or name.endswith("_percent")


def figure(key: str, found: Interval | None) -> str:
    """A figure of a summary: parts of a whole in percent (`97.1 % ± 0.4`), others as they are exported."""
    return plus_minus(found, 100.0, " %") if key.rpartition(".")[2] in SHARES else plus_minus(found)


def plus_minus(found: Interval | None, scale: float = 1.0, unit: str = "") -> str:
    """`162 ± 5`, or `99.6 % (98.9 to 100.0)` where the ends are not about equally far; without both ends, or with an interval of no
    width, the estimate alone; a dash for none, or where some seeds have none."""
    if found is None or found.estimate is None or _lacks(found):
        return DASH
    value, low, high = found.estimate, found.low, found.high
    half = 0.0 if low is None or high is None else max(value - low, high - value)
    if not half or low is None or high is None:
        return f"{number(value * scale)}{unit}"
    digits = decimals(half * scale)
    if digits is None:
        return f"{number(value * scale)}{unit} ± {half * scale:.0e}"
    said = f"{value * scale:,.{digits}f}{unit}"
    if _is_even(found):
        return f"{said} ± {half * scale:,.{digits}f}"
    return f"{said} ({low * scale:,.{digits}f} to {high * scale:,.{digits}f})"


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
    return part(found.relative)


def part(found: Interval, *, around: bool = False) -> str:
    """What is more, as a part: `-12 % ± 3 %`, ten times as much and more as `430 times`; the ends of its interval where they are not
    about equally far. around: how far it is from none, without a sign and in percent whatever it is, for a sentence that says
    which way (`12 % ± 3 % better`)."""
    if found.estimate is None:
        return DASH
    times = found.estimate >= MANY and not around
    turned = -1.0 if around and found.estimate < 0 else 1.0
    scale, above, unit, sign = (1.0, 1.0, " times", "") if times else (100.0 * turned, 0.0, " %", "" if around else "+")
    middle = (found.estimate + above) * scale
    ends = sorted((end + above) * scale for end in (found.low, found.high) if end is not None)
    far = max(middle - ends[0], ends[1] - middle) if len(ends) == 2 else 0.0
    if far < 0.0005:  # it would round to nothing
        far = 0.0
    digits = min(decimals(far) or 0, 3) if far else decimals(middle) or 0
    said = f"{_plain(middle, digits):{sign},.{digits}f}{unit}"
    if not far:
        return said
    after = "" if times else unit
    if _is_even(found):
        return f"{said} ± {far:,.{digits}f}{after}"
    low, high = (f"{_plain(end, digits):{sign},.{digits}f}" for end in ends)
    return f"{said} ({low} to {high}{after})"


def _plain(value: float, digits: int) -> float:
    """Without a minus before what rounds to nothing, which would be read as a direction."""
    return round(value, digits) + 0.0


def _is_even(found: Interval) -> bool:
    """Whether both ends of an interval are about equally far from its estimate."""
    near, far = sorted((found.estimate - found.low, found.high - found.estimate))  # type: ignore[operator]
    return far <= EVEN * near


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
