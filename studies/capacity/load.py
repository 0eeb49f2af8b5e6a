"""How loud a scenario is asked: one number of it that a search turns up and down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import scenarios
from scenarios.arrivals import ClosedLoop
from scenarios.errors import InputError
from scenarios.fields import Section
from scenarios.load import Override
from scenarios.schema import Scenario
from scenarios.varying_rate import Staged
from studies.capacity.evidence import parts_of
from studies.sweeps import axes

RATE, CONCURRENCY, SPEEDUP = "workload.arrivals.rate", "workload.arrivals.concurrency", "workload.trace.speedup"
EVERY_RATE = "workload.rate"
"""Where arrivals have several rates (stages, a ramp, bursts, the parts of a mix): a factor on all of them."""
TITLES = {RATE: "Request rate", EVERY_RATE: "Request rate", CONCURRENCY: "Concurrency", SPEEDUP: "Speed of the trace"}
"""What a reader calls a load."""
UNITS = {RATE: "requests/s", CONCURRENCY: "clients", SPEEDUP: "times as fast"}


@dataclass(frozen=True)
class Load:
    """A number of a scenario that says how much is asked of it.

    Args:
        path: what it is called. start: its present value. integer: whether it is counted. unit: in words.
        values: the fields that it sets, by path, as they are at `start`.
    """

    scenario: Scenario
    path: str
    start: float
    integer: bool
    unit: str
    values: Mapping[str, float]

    def at(self, value: float) -> Scenario:
        """The scenario under another load.

        Raises:
            InputError: the value is not allowed there.
        """
        overrides = []
        for path, base in self.values.items():
            scaled = base * value / self.start
            new = round(value) if self.integer else float(f"{scaled:.10g}") if len(self.values) > 1 else value
            overrides.append(Override(path, new, f"{self.path}: {value:g}"))
        return scenarios.changed(self.scenario, overrides)

    def said(self, value: float) -> str:
        """A value in words."""
        number = f"{value:,.0f}" if self.integer else f"{value:,.4g}"
        return f"{number} {self.unit}".strip()


def usual(scenario: Scenario) -> str:
    """The load that a scenario has: a trace's speed, its clients, or its rates."""
    spec = scenario.workload
    if spec.replays:
        return SPEEDUP
    return CONCURRENCY if isinstance(spec.arrivals, ClosedLoop) else EVERY_RATE


def load_of(scenario: Scenario, over: str | None = None) -> Load:
    """The load that `over` names: a path of a number within the workload, such as `workload.arrivals.rate`, or a short name of one.

    Raises:
        InputError: there is no such number, or it is none that a search can turn.
    """
    over = usual(scenario) if over is None else over
    source = f"--over {over}"
    path = axes.ALIASES.get(over, over)
    if path == RATE:
        return _of_rates(scenario, over, source)
    value, section = _found(scenario, path, source)
    if path == SPEEDUP and not scenario.workload.replays:
        raise InputError(f"{source}: no trace is replayed, so it changes nothing; {_remedy(scenario)}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = f"found {value!r} there" if isinstance(value, str | bool) else "there is a whole section"
        raise InputError(f"{source}: {found}, but a load is a number; {_remedy(scenario)}")
    if not path.startswith("workload."):
        raise InputError(
            f"{source}: is no load but a setting of the deployment; a load stands in the workload, and of whole numbers such as "
            f"replicas or engine.max_num_seqs servetwin capacity --fewest {over} finds the least that will do; {_remedy(scenario)}"
        )
    if path.rpartition(".")[2] == "requests":
        raise InputError(f"{source}: is how long a run is, not how much comes at once; {_remedy(scenario)}")
    if value <= 0:
        raise InputError(f"{source}: found {value:g}, but a search begins above 0; set it first (--set {over}=1)")
    whole = isinstance(value, int) and _is_whole(section, path)
    return Load(scenario, over, float(value), whole, UNITS.get(path, ""), {path: float(value)})


def _of_rates(scenario: Scenario, over: str, source: str) -> Load:
    """The one rate of the arrivals, or a factor on all of several."""
    spec = scenario.workload
    if any(part.replays for part in parts_of(scenario)):
        raise InputError(f"{source}: a trace says itself when requests come; say --over {SPEEDUP}")
    if isinstance(spec.arrivals, ClosedLoop):
        raise InputError(f"{source}: a closed loop has clients, not a rate; say --over {CONCURRENCY}")
    values = dict(_rates(scenario))
    if not values:
        raise InputError(
            f"{source}: these arrivals have no rate; give some, such as --set workload.arrivals='{{process: poisson, rate: 1}}'"
        )
    if list(values) == [RATE]:
        return Load(scenario, over, values[RATE], False, UNITS[RATE], values)
    return Load(scenario, over, 1.0, False, "times the scenario's rates", values)


def _rates(scenario: Scenario) -> Iterator[tuple[str, float]]:
    """Every rate of the arrivals that is not 0, by path."""
    spec = scenario.workload
    named = (
        {"workload": spec} if spec.mix is None else {f"workload.mix.{name}": part for name, part in spec.mix.items()}
    )
    for place, part in named.items():
        arrivals = part.arrivals
        if isinstance(arrivals, Staged):
            found = {f"stages[{i}].rate": stage.rate for i, stage in enumerate(arrivals.stages)}
        else:
            fields = type(arrivals).model_fields if arrivals is not None else {}
            found = {name: getattr(arrivals, name) for name in fields if name.endswith("rate")}
        yield from ((f"{place}.arrivals.{name}", rate) for name, rate in found.items() if rate)


def _found(scenario: Scenario, path: str, source: str) -> tuple[Any, Any]:
    """What stands at a path, and the section that holds it."""
    where = Override(path, None, source).location
    node: Any = scenario
    above: Any = None
    for part in where:
        above = node
        if isinstance(part, int):
            inside = isinstance(node, tuple) and part < len(node)
            node = node[part] if inside else None
        elif isinstance(node, Mapping):
            node = node.get(part)
        else:
            node = getattr(node, part, None) if isinstance(node, Section) and part in type(node).model_fields else None
        if node is None:
            raise InputError(f"{source}: the scenario states no such number; {_remedy(scenario)}")
    return node, above


def _is_whole(section: Any, path: str) -> bool:
    """Whether a field takes whole numbers only."""
    name = path.rpartition(".")[2]
    return isinstance(section, Section) and type(section).model_fields[name].annotation in (int, int | None)


def _remedy(scenario: Scenario) -> str:
    return f"the load of this scenario is {usual(scenario)}"
