from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from scenarios import InputError
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
