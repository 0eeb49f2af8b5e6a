"""Knobs of what is promised, what it costs, and how the run is made."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.knobs.controls import Choice, Knob, Number, Switch, given, written
from scenarios import Scenario

_SHEETS = {
    "null": "not sold by token",
    "{input: 0.1, output: 0.4}": "0.10 in, 0.40 out (USD per 1M)",
    "{input: 0.5, output: 1.5, cached_discount: 0.5}": "0.50 in, 1.50 out, cached half",
    "{input: 3, output: 15, cached_discount: 0.9}": "3 in, 15 out, cached a tenth",
}
_ENERGY = {
    "null": "in the price of the hour",
    "{usd_per_kwh: 0.1, busy_watts: 700, idle_watts: 150}": "0.10 USD a kWh, 700 W busy, 150 W idle",
    "{usd_per_kwh: 0.3, busy_watts: 700, idle_watts: 150}": "0.30 USD a kWh, 700 W busy, 150 W idle",
}


def knobs(scenario: Scenario) -> Iterator[Knob]:
    """SLO, prices, and the run."""
    for field, label, unit, step, help in (
        ("ttft", "First token within", "ms", 50.0, "TTFT, queue included."),
        ("tpot", "Each further token within", "ms", 5.0, "TPOT, the mean of a request."),
        ("e2e", "Whole answer within", "s", 1.0, "End to end."),
    ):
        yield Knob(
            f"slo.{field}", "SLO", label, f"{help} A request that misses any promise is not counted as good; empty: not promised.",
            Number(0.001, 1e7, step, optional=True, unit=unit, duration=True), getattr(scenario.slo, field),
        )  # fmt: skip
    yield from _prices(scenario)
    yield from _run(scenario)


def _prices(scenario: Scenario) -> Iterator[Knob]:
    help = "What a token costs is this, over what the devices get done; idle time is paid too."
    if not scenario.pools:
        yield Knob(
            "prices.gpu_hour", "Prices", "USD a device-hour", help, Number(0, 1000, 0.1, unit="USD"), scenario.prices.gpu_hour
        )  # fmt: skip
    for i, (pool, view) in enumerate(zip(scenario.pools, scenario.of_pools(), strict=False)):
        yield Knob(
            f"pools[{i}].gpu_hour", "Prices", f"USD a device-hour, {pool.name}", help,
            Number(0, 1000, 0.1, unit="USD"), view.prices.gpu_hour,
        )  # fmt: skip
    yield Knob(
        "prices.sheet", "Prices", "Token prices", "What customers pay; with it the report has revenue and margin.",
        *given(scenario.prices.sheet, _SHEETS),
    )  # fmt: skip
    yield Knob(
        "prices.energy", "Prices", "Electricity", "Where it is paid for apart from the device: a busy device costs more than an idle one.",
        *given(scenario.prices.energy, _ENERGY),
    )  # fmt: skip


def _run(scenario: Scenario) -> Iterator[Knob]:
    profile = scenario.cost.profile
    if not scenario.pools or any(pool.cost is None for pool in scenario.pools):
        value = "{source: roofline}" if profile is None else written(scenario.cost)
        yield Knob(
            "cost", "Run", "Step costs",
            "From the data sheet, or from measurements where a profile of this model and device is shipped.",
            Choice({"{source: roofline}": "data sheet (roofline)", "{profile: auto}": "measured, shipped profile"}), value,
        )  # fmt: skip
        if profile is not None:
            yield Knob(
                "cost.noise", "Run", "Noise of steps", "Steps take more or less, as they did where they were measured: for tails, not means.",
                Switch(), scenario.cost.noise,
            )  # fmt: skip
    yield Knob(
        "horizon", "Run", "Cut after", "The run ends there, whoever is still served: for load that never settles. Empty: when all are answered.",
        Number(0.1, 1e7, 60, optional=True, unit="s", duration=True), scenario.horizon,
    )  # fmt: skip
    yield Knob(
        "seed", "Run", "Seed", "Of everything that is drawn; another seed is another day of the same traffic.",
        Number(0, 2**31, 1, whole=True), scenario.seed,
    )  # fmt: skip
