"""A figure that a study's answer states, and where it is from, so that a run can say whether it still is so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import model_validator

from scenarios.errors import misplaced
from studies.expectations import Figure, said

_STATED = re.compile(r"\$?(-?[0-9][0-9,]*(?:\.[0-9]+)?)(?: ± ([0-9][0-9,]*(?:\.[0-9]+)?))?(?: (\S.*))?")
_SCALES = {"thousand": 1e-3, "million": 1e-6}


class Shown(Figure):
    """One figure of an answer.

    Args:
        say: as the answer writes it: `21.4 ms`, `1.2 s`, `97 %`, `$0.42`, `1.3 million`, `21.4 ± 0.3 ms` (± half of the 95 %
            interval over seeds). Beside `against`: `3.1 times`, or `31 %` more or less.
        of: the points it is the mean of. against: what it is compared with.
    """

    say: str
    of: Mapping[str, Any]
    against: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _written_as_a_figure(self) -> Shown:
        found = _STATED.fullmatch(self.say)
        if found is None:
            raise misplaced("write a number and its unit, such as 21.4 ms or 21.4 ± 0.3 ms", "say")
        if self.against is not None and found[3] not in ("times", "%"):
            raise misplaced(f"found {self.say}, but a comparison is written as 3.1 times or 31 %", "say")
        return self

    @property
    def _parts(self) -> tuple[str, str | None, str]:
        found = _STATED.fullmatch(self.say)
        assert found is not None
        return found[1].replace(",", ""), found[2] and found[2].replace(",", ""), found[3] or ""

    def in_its_unit(self, value: float) -> float:
        """A figure of a row, or how many times as large one is as another, in the unit that is written."""
        unit = self._parts[2]
        if self.against is not None:
            return value if unit == "times" else 100 * abs(1 - value)
        if self.metric.endswith("_ms") and unit in ("s", "min"):
            return value / (1e3 if unit == "s" else 6e4)
        if unit == "%" and not self.metric.endswith("_percent"):
            return 100 * value
        return value * _SCALES.get(unit.partition(" ")[0], 1.0)

    def agrees(self, value: float, half: float | None) -> bool:
        """Whether a figure in its unit, and half the width of its interval, round to what is written. A loss is written without its
        sign."""
        stated, stated_half, _ = self._parts
        if not _rounds_to(value, stated):
            return False
        return stated_half is None or (half is not None and _rounds_to(half, stated_half))

    def __str__(self) -> str:
        against = f", against {said(self.against)}" if self.against is not None else ""
        return f"{self.called}: {said(self.of)}{against}"


def _rounds_to(value: float, written: str) -> bool:
    exponent = Decimal(written).as_tuple().exponent
    assert isinstance(exponent, int)
    return abs(abs(value) - abs(float(written))) <= 0.5 * 10.0**exponent * (1 + 1e-9)
