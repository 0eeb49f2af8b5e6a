"""The degradation ladder of a scenario: what is given up first, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from scenarios.errors import check_name, misplaced, unknown
from scenarios.fields import Duration, Section, TokenCount, parse_positive_duration
from serving.degradation import EFFECTS, SIGNALS, Rung


class RungSpec(Section):
    """One rung: exactly one thing that it does, and its trigger.

    Args:
        cap_output: answers end after so many tokens. drop_stale_turns: prompts keep so many of their earlier turns. route_to: the
            pool that takes every request. shed_class: the service class that is refused. reject: everybody is.
        signal: `queue_requests`, `queue_tokens` (waiting, mean over replicas), `kv_use` (0 to 1, mean) or `oldest_wait` (a duration).
        on_at: the rung is switched on when the signal reaches this. off_below: and off when it falls below this, half of it if not
            given; hold: but stays on for so long at least.
    """

    cap_output: TokenCount | None = None
    drop_stale_turns: Annotated[int, Field(ge=0)] | None = None
    route_to: str | None = None
    shed_class: str | None = None
    reject: bool = False
    signal: Annotated[str, Field(json_schema_extra={"enum": list(SIGNALS)})] = "queue_requests"
    on_at: float | str
    off_below: float | str | None = None
    hold: Duration = 0.0

    @field_validator("signal")
    @classmethod
    def _known_signal(cls, name: str) -> str:
        return check_name("signal", name, SIGNALS)

    @field_validator("on_at", "off_below", mode="before")
    @classmethod
    def _number_or_duration(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _agrees(self) -> RungSpec:
        given = self._given
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none of them"
            raise misplaced(
                f"{found}; a rung does exactly one of {', '.join(EFFECTS)}", given[-1] if given else EFFECTS[0]
            )
        for name in ("on_at", "off_below"):
            _level(self.signal, getattr(self, name), name)
        if self.on <= 0:
            raise misplaced("found 0, but a signal is never below that: the rung would always be on", "on_at")
        if self.signal == "kv_use" and self.on > 1:
            raise misplaced(f"found {self.on:g}, but kv_use is a share between 0 and 1", "on_at")
        if self.off <= 0:
            raise misplaced("found 0, but no signal falls below that: the rung could never be left again", "off_below")
        if self.off >= self.on:
            raise misplaced(
                f"found {self.off_below}, but it must be below on_at ({self.on_at}): else the rung could never be left, or would be "
                "switched with every request",
                "off_below",
            )
        return self

    @property
    def _given(self) -> list[str]:
        return [name for name in EFFECTS if (value := getattr(self, name)) is not None and value is not False]

    @property
    def does(self) -> str:
        """One of `serving.degradation.EFFECTS`."""
        return self._given[0]

    @property
    def on(self) -> float:
        return _level(self.signal, self.on_at, "on_at")

    @property
    def off(self) -> float:
        return self.on / 2 if self.off_below is None else _level(self.signal, self.off_below, "off_below")

    def rung(self, classes: Sequence[str]) -> Rung:
        """classes: of the workload, in the order of their numbers."""
        return Rung(
            self.does,
            self.signal,
            self.on,
            self.off,
            round(self.hold * 1e9),
            cap=self.cap_output or 0,
            keep_turns=self.drop_stale_turns or 0,
            pool=self.route_to or "",
            service_class=-1 if self.shed_class is None else classes.index(self.shed_class),
        )


def _level(signal: str, value: float | str | None, field: str) -> float:
    """A level of a signal; seconds for `oldest_wait`. 0 for None."""
    if value is None:
        return 0.0
    if signal == "oldest_wait":
        try:
            return parse_positive_duration(value)
        except ValueError as error:
            raise misplaced(str(error), field) from None
    if isinstance(value, str | bool):
        raise misplaced(f"found {value!r}, but a number is needed for {signal}", field)
    return value


class Degradation(Section):
    """What is given up under load, the mildest first; while a rung is on, all below it are in force too.

    Args:
        ladder: the rungs. They are looked at when a request comes.
        watch: the pool whose replicas the signals are read from; all if not given.
    """

    ladder: Annotated[tuple[RungSpec, ...], Field(strict=False)]
    watch: str | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Degradation:
        if not self.ladder:
            raise misplaced("has no rungs; give one, or leave degradation out", "ladder")
        for i, (lower, rung) in enumerate(zip(self.ladder, self.ladder[1:], strict=False), 1):
            if EFFECTS.index(rung.does) < EFFECTS.index(lower.does):
                raise misplaced(
                    f"found {rung.does} above {lower.does}; rungs go from the mildest to the hardest: {', '.join(EFFECTS)}",
                    "ladder",
                    i,
                )
            if lower.cap_output is not None and rung.cap_output is not None and rung.cap_output >= lower.cap_output:
                why = f"found {rung.cap_output} above a rung that caps at {lower.cap_output} already; a higher rung caps lower"
                raise misplaced(why, "ladder", i, "cap_output")
            kept, before = rung.drop_stale_turns, lower.drop_stale_turns
            if kept is not None and before is not None and kept >= before:
                why = f"found {kept} above a rung that keeps {before} already; a higher rung keeps fewer"
                raise misplaced(why, "ladder", i, "drop_stale_turns")
            for j in range(i):
                other = self.ladder[j]
                if other.signal == rung.signal and (rung.on < other.on or rung.off < other.off):
                    field = "on_at" if rung.on < other.on else "off_below"
                    why = f"is lower than that of rung {j + 1} below it, so that the harder measure comes first, or goes last"
                    raise misplaced(why, "ladder", i, field)
        return self

    def check(self, classes: Sequence[str] | None, pools: Sequence[str]) -> None:
        """Refuses names that the scenario does not have. classes: None where only the run can tell. pools: empty without any."""
        if self.watch is not None and self.watch not in pools:
            raise misplaced(_no_pool(self.watch, pools), "watch")
        shed = []
        for i, rung in enumerate(self.ladder):
            if rung.route_to is not None:
                if rung.route_to not in pools:
                    raise misplaced(_no_pool(rung.route_to, pools), "ladder", i, "route_to")
                if len(pools) == 1:
                    why = f"found {rung.route_to}, the only pool: everybody goes there already, so it never lowers its trigger"
                    raise misplaced(why, "ladder", i, "route_to")
                if rung.route_to == self.watch:
                    why = f"found {rung.route_to}, whose load is what switches it on (watch): sending more there never lowers it"
                    raise misplaced(why, "ladder", i, "route_to")
            if rung.shed_class is not None and classes is not None:
                if rung.shed_class not in classes:
                    hint = (
                        unknown("service class", rung.shed_class, classes) if classes else "the workload has no classes"
                    )
                    raise misplaced(hint, "ladder", i, "shed_class")
                shed.append(rung.shed_class)
                if set(shed) == set(classes):
                    raise misplaced(
                        "found the last class that was left: this is reject; write that", "ladder", i, "shed_class"
                    )


def _no_pool(name: str, pools: Sequence[str]) -> str:
    return unknown("pool", name, pools) if pools else f"found {name!r}, but the scenario has no pools (pools: [...])"
