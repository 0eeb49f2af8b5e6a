from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

import scenarios
from scenarios import InputError, Scenario
from scenarios.arrivals import Arrivals

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Arrivals)


def draw(n: int | None, seed: int = 1, **process: Any) -> np.ndarray:
    """Arrival times in seconds."""
    times = _ADAPTER.validate_python(process).draw(n, np.random.default_rng(seed))
    assert times.dtype == np.int64
    assert (np.diff(times) >= 0).all()
    return times / 1e9


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(draw(200_000, process="poisson", rate=4.0))
    assert gaps.mean() == pytest.approx(0.25, rel=0.01)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.01)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_keeps_the_rate_and_sets_the_variation(burstiness: float) -> None:
    gaps = np.diff(draw(200_000, process="gamma", rate=4.0, burstiness=burstiness))
    assert gaps.mean() == pytest.approx(0.25, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.02)


def test_vllm_lands_exactly_at_n_over_rate() -> None:
    times = draw(500, process="vllm", rate=6.0)
    assert times[-1] == pytest.approx(500 / 6.0, abs=1e-9)
    # The same gaps as gamma's, stretched by one factor.
    plain = draw(500, process="gamma", rate=6.0)
    assert times / plain == pytest.approx(times[0] / plain[0], rel=1e-6)


def test_constant_starts_at_zero() -> None:
    assert draw(4, process="constant", rate=2.0).tolist() == [0, 0.5, 1.0, 1.5]


def test_all_at_once() -> None:
    assert (_ADAPTER.validate_python("all_at_once").draw(5, np.random.default_rng(1)) == 0).all()


def test_closed_loop_leaves_times_to_the_run() -> None:
    assert (draw(3, process="closed_loop", concurrency=2) == -1e-9).all()


class TestCase13Stages:
    def stages(self, *rates: float, duration: str = "60s", **more: Any) -> np.ndarray:
        return draw(None, process="staged", stages=[{"rate": r, "duration": duration} for r in rates], **more)

    def test_five_then_ten_a_second(self) -> None:
        times = self.stages(5, 10, duration="600s")
        assert ((times < 600).sum(), (times >= 600).sum()) == (3000, 6000)
        assert times[3000] == 600.0

    def test_silence_holds_nothing(self) -> None:
        times = self.stages(5, 0, 5)
        assert len(times) == 600
        assert (times < 60).sum() == 300
        assert not ((times >= 60) & (times < 120)).any()
        assert times[300] == 120.0

    def test_rates_that_are_no_binary_fractions(self) -> None:
        times = self.stages(0.1, 0.3, duration="30s")
        assert ((times < 30).sum(), len(times)) == (3, 12)

    @pytest.mark.parametrize("rates", [(0, 5), (5, 0), (0, 0, 5, 0, 0)])
    def test_silence_first_last_and_between(self, rates: tuple[float, ...]) -> None:
        times = self.stages(*rates)
        start = 60.0 * rates.index(5)
        assert len(times) == 300
        assert (times >= start).all()
        assert (times < start + 60).all()

    def test_poisson_inside_the_stages(self) -> None:
        times = self.stages(50, 0, 100, within="poisson")
        assert (times < 60).sum() == pytest.approx(3000, abs=4 * 3000**0.5)
        assert (times >= 120).sum() == pytest.approx(6000, abs=4 * 6000**0.5)
        assert not ((times >= 60) & (times < 120)).any()

    def test_requests_cut_the_stages(self) -> None:
        assert len(draw(7, process="staged", stages=[{"rate": 5, "duration": "60s"}])) == 7

    @pytest.mark.parametrize("rates", [(0,), (0, 0), (-1,), (float("nan"),), (float("inf"),), ()])
    def test_rates_that_make_no_sense_are_refused(self, rates: tuple[float, ...]) -> None:
        with pytest.raises(ValidationError):
            self.stages(*rates)


@pytest.mark.parametrize("process", ["poisson", "gamma", "vllm", "constant"])
@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "5", True, None])
def test_rate_must_be_above_zero_and_finite(process: str, rate: object) -> None:
    with pytest.raises(ValidationError):
        draw(1, process=process, rate=rate)


@pytest.mark.parametrize("process", ["poisson", "gamma", "vllm", "constant"])
def test_rates_that_outlast_the_clock_are_refused(process: str) -> None:
    with pytest.raises(InputError, match="hundred years"):
        draw(5, process=process, rate=1e-300)


def test_stages_of_too_many_requests_are_refused() -> None:
    with pytest.raises(ValidationError, match="hold 1e"):
        draw(None, process="staged", stages=[{"rate": 1e9, "duration": "10s"}])


def inside(times: np.ndarray, start: float, end: float) -> int:
    return int(((times >= start) & (times < end)).sum())


class TestRamp:
    def test_the_rate_rises_in_a_straight_line(self) -> None:
        times = draw(None, process="ramp", start_rate=0, end_rate=10, duration="100s", within="constant")
        assert len(times) == 500
        # A quarter of the area of a triangle lies below half of its height.
        assert inside(times, 0, 50) == 125
        assert times[125] == pytest.approx(50.0)

    def test_it_may_fall_and_stays_random(self) -> None:
        times = draw(None, process="ramp", start_rate=100, end_rate=20, duration="100s")
        assert inside(times, 0, 50) == pytest.approx(4000, abs=4 * 4000**0.5)
        assert inside(times, 50, 100) == pytest.approx(2000, abs=4 * 2000**0.5)

    def test_equal_rates_are_a_stage(self) -> None:
        flat = draw(None, process="ramp", start_rate=5, end_rate=5, duration="60s")
        stage = draw(None, process="staged", stages=[{"rate": 5, "duration": "60s"}], within="poisson")
        assert len(flat) == pytest.approx(len(stage), abs=4 * 300**0.5)
        gaps = np.diff(draw(None, process="ramp", start_rate=50, end_rate=50, duration="2000s"))
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)

    def test_requests_cut_it(self) -> None:
        assert len(draw(7, process="ramp", start_rate=1, end_rate=9, duration="60s")) == 7

    @pytest.mark.parametrize(
        "change",
        [{"start_rate": 0, "end_rate": 0}, {"end_rate": -1}, {"duration": "0s"}, {"duration": None}, {"end_rate": 1e8}],
    )
    def test_nonsense_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            draw(None, **({"process": "ramp", "start_rate": 1, "end_rate": 2, "duration": "60s"} | change))


class TestSpike:
    SPIKE: dict[str, Any] = {"process": "spike", "rate": 2, "peak_rate": 20, "start": "60s", "length": "10s"}  # noqa: RUF012

    def test_a_burst_between_steady_stretches(self) -> None:
        times = draw(None, **self.SPIKE, duration="120s", within="constant")
        assert (inside(times, 0, 60), inside(times, 60, 70), inside(times, 70, 120)) == (120, 200, 100)
        times = draw(None, **(self.SPIKE | {"rate": 20, "peak_rate": 500}), duration="120s")
        assert inside(times, 60, 70) == pytest.approx(5000, abs=4 * 5000**0.5)
        assert inside(times, 0, 60) == pytest.approx(1200, abs=4 * 1200**0.5)

    def test_without_a_duration_it_goes_on_at_the_base_rate(self) -> None:
        times = draw(1000, **self.SPIKE, within="constant")
        assert len(times) == 1000
        assert (inside(times, 0, 60), inside(times, 60, 70)) == (120, 200)
        assert times[-1] == pytest.approx(70 + 679 / 2)

    def test_it_may_be_there_from_the_beginning(self) -> None:
        times = draw(None, **(self.SPIKE | {"start": "0s"}), duration="20s", within="constant")
        assert (inside(times, 0, 10), len(times)) == (200, 220)

    @pytest.mark.parametrize(
        "change", [{"peak_rate": 2}, {"peak_rate": 1}, {"rate": 0}, {"length": "0s"}, {"duration": "65s"}]
    )
    def test_nonsense_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            draw(None, **({**self.SPIKE, "duration": "120s"} | change))


class TestDiurnal:
    DAY: dict[str, Any] = {"process": "diurnal", "rate": 0.5, "peak_to_mean": 1.8, "within": "constant"}  # noqa: RUF012

    def test_a_day_holds_the_mean_and_peaks_in_its_middle(self) -> None:
        times = draw(None, **self.DAY, duration="48h")
        assert len(times) == 2 * 43_200
        per_hour = np.histogram(times, bins=48, range=(0, 48 * 3600))[0]
        assert per_hour[:24].tolist() == pytest.approx(per_hour[24:].tolist(), abs=1)
        assert per_hour.argmax() % 24 in (11, 12)
        hours = np.arange(24) + 0.5
        sine = 1800 * (1 - 0.8 * np.cos(2 * np.pi * hours / 24))
        assert per_hour[:24] == pytest.approx(sine, rel=0.02)
        assert per_hour.max() == pytest.approx(1.8 * 1800, rel=0.01)

    def test_the_phase_says_at_which_hour_the_run_begins(self) -> None:
        noon = draw(None, **self.DAY, duration="6h", phase="9h")
        assert len(noon) == inside(draw(None, **self.DAY, duration="24h"), 9 * 3600, 15 * 3600)

    def test_the_peak_may_stay_silent_at_night(self) -> None:
        times = draw(None, **(self.DAY | {"peak_to_mean": 2.0}), duration="24h")
        assert inside(times, 0, 600) <= 2

    def test_hours_by_factors(self) -> None:
        factors = [0, 1, 3]
        times = draw(None, process="diurnal", rate=4, factors=factors, period="30s", duration="60s", within="constant")
        counts = np.histogram(times, bins=6, range=(0, 60))[0]
        assert counts.tolist() == [0, 30, 90, 0, 30, 90]

    def test_poisson_within_it(self) -> None:
        day = {"process": "diurnal", "rate": 50, "factors": [1, 3], "period": "20m"}
        times = draw(None, **day, duration="20m")
        assert inside(times, 0, 600) == pytest.approx(15_000, abs=4 * 15_000**0.5)
        assert inside(times, 600, 1200) == pytest.approx(45_000, abs=4 * 45_000**0.5)

    def test_without_a_duration_requests_say_when_it_ends(self) -> None:
        times = draw(100_000, **self.DAY)
        assert len(times) == 100_000
        assert times[43_200] == pytest.approx(86_400, abs=20)  # (few are sent around midnight)

    @pytest.mark.parametrize(
        "change",
        [
            {"peak_to_mean": 2.1},
            {"peak_to_mean": 0.5},
            {"peak_to_mean": float("nan")},
            {"peak_to_mean": None},
            {"factors": [1, 2]},
            {"peak_to_mean": None, "factors": [0, 0]},
            {"peak_to_mean": None, "factors": [1, -1]},
            {"peak_to_mean": None, "factors": [1]},
            {"phase": "24h"},
            {"period": "0s"},
            {"rate": 0},
            {"rate": 1e5},
        ],
    )
    def test_nonsense_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            draw(None, **({**self.DAY, "duration": "24h"} | change))


class TestOnOff:
    BURSTS: dict[str, Any] = {"process": "on_off", "rate": 10, "on": "5s", "off": "15s"}  # noqa: RUF012

    def test_bursts_with_silence_between(self) -> None:
        times = draw(None, **self.BURSTS, duration="60s", within="constant")
        assert len(times) == 150
        assert (times % 20 < 5).all()
        assert len(draw(None, **self.BURSTS, off_rate=2, duration="60s", within="constant")) == 150 + 3 * 30

    @pytest.mark.parametrize("off_rate", [0, 3])
    def test_drawn_bursts_keep_the_mean_load(self, off_rate: float) -> None:
        on, off = ({"distribution": "exponential", "mean": text} for text in ("5s", "15s"))
        bursts = self.BURSTS | {"on": on, "off": off, "off_rate": off_rate}
        times = draw(400_000, **bursts)
        mean = (10 * 5 + off_rate * 15) / 20
        assert len(times) / times[-1] == pytest.approx(mean, rel=0.05)
        # Far more variable than a Poisson process: counts in windows of 20 s vary by more than their mean.
        counts = np.histogram(times, bins=int(times[-1] // 20), range=(0, times[-1] // 20 * 20))[0]
        assert counts.var() > 3 * counts.mean()

    def test_a_longer_run_begins_as_a_shorter_one(self) -> None:
        bursts = self.BURSTS | {"on": {"distribution": "exponential", "mean": "5s"}}
        assert draw(50, **bursts).tolist() == draw(5_000, **bursts)[:50].tolist()
        assert draw(None, **bursts, duration="50s").tolist() == [
            t for t in draw(None, **bursts, duration="5000s").tolist() if t < 50
        ]

    @pytest.mark.parametrize(
        "change",
        [{"on": "0s"}, {"off": "0s"}, {"rate": 0}, {"off_rate": 10}, {"off_rate": -1}, {"on": 5}, {"rate": 1e7}],
    )
    def test_nonsense_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            draw(None, **({**self.BURSTS, "duration": "1h"} | change))

    def test_bursts_too_short_to_count_are_refused(self) -> None:
        with pytest.raises(InputError, match="changes more than"):
            draw(1000, process="on_off", rate=1e-3, on="1ns", off="1ns")


@pytest.mark.parametrize(
    "process",
    [
        {"process": "spike", "rate": 2, "peak_rate": 20, "start": "60s", "length": "10s"},
        {"process": "diurnal", "rate": 0.5, "peak_to_mean": 1.8},
        {"process": "on_off", "rate": 10, "on": "5s", "off": {"distribution": "exponential", "mean": "15s"}},
    ],
)
def test_more_requests_keep_the_first_ones(process: dict[str, Any]) -> None:
    assert draw(100, **process).tolist() == draw(900, **process)[:100].tolist()
    with pytest.raises(InputError, match="duration"):
        draw(None, **process)


@pytest.mark.parametrize("within", ["poisson", "constant"])
def test_rates_that_change_and_outlast_the_clock_are_refused(within: str) -> None:
    with pytest.raises(InputError, match="hundred years"):
        draw(5, process="diurnal", rate=1e-300, peak_to_mean=1.5, within=within)


@pytest.mark.parametrize(
    ("process", "spelled_out"),
    [
        (
            {"process": "diurnal", "rate": 0.5, "peak_to_mean": 1.8},
            {"period": "1440min", "phase": "0h", "within": "poisson"},
        ),
        ({"process": "on_off", "rate": 10, "on": "5s", "off": "1m"}, {"off_rate": 0, "off": "60s", "duration": None}),
        ({"process": "spike", "rate": "120/min", "peak_rate": 20, "start": "0s", "length": "10s"}, {"rate": 2}),
        ({"process": "ramp", "start_rate": 1, "end_rate": 2, "duration": "1h"}, {"duration": "3600s"}),
    ],
)
def test_the_same_process_has_one_hash_however_it_is_written(
    build: Callable[..., Scenario], process: dict[str, Any], spelled_out: dict[str, Any]
) -> None:
    def scenario(arrivals: dict[str, Any]) -> Scenario:
        data = build().model_dump(mode="json", exclude_unset=True)
        data["workload"] |= {"arrivals": arrivals}
        return Scenario.model_validate(data)

    one, other = scenario(process), scenario(process | spelled_out)
    assert one.hash() == other.hash() == scenarios.loads(one.to_yaml()).hash()
    assert scenario(process | {"within": "constant"}).hash() != one.hash()
    assert (scenarios.generate(one).arrival_ns == scenarios.generate(other).arrival_ns).all()
