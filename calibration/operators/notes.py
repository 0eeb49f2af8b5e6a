"""What went into a profile and has to be said of it: provenance, constants, rows that were left out, what is not modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from calibration.operators.tables import Grid, Line
from sim.operator_profile import Constant, Provenance


@dataclass
class Notes:
    """Filled while a profile is composed."""

    provenance: list[Provenance] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
    spikes: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def constant(self, name: str, value: float, unit: str, basis: str, why: str) -> None:
        self.constants.append(
            Constant.model_validate({"name": name, "value": value, "unit": unit, "basis": basis, "why": why})
        )

    def measured(self, operator: str, part: Grid | Line, rows: int, hashed: str) -> None:
        """An operator whose rows were used."""
        origin = part.origin
        self.provenance.append(
            Provenance(
                operator=operator,
                source=origin.file,
                version=origin.version,
                rows=rows,
                hash=hashed,
                licence=origin.licence,
            )
        )

    def left_out(self, file: str, operator: str, rows: Sequence[int]) -> None:
        """Measured rows that larger sizes contradict."""
        if rows:
            self.spikes.setdefault((file, operator), set()).update(rows)

    def analytic(self, operator: str, why: str) -> None:
        """An operator that nobody measured."""
        line = Provenance(operator=operator, source="roofline of this operator", version=why, rows=0, hash="")
        if line not in self.provenance:
            self.provenance.append(line)
