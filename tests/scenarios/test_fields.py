from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.fields import format_duration, parse_duration, parse_rate
from scenarios.objectives import parse_objective


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("1.5s", 1.5), ("30 us", 3e-5), ("30µs", 3e-5), ("7ns", 7e-9), ("2m", 120.0), ("2min", 120.0),
     ("1h", 3600.0), (".5s", 0.5), ("1e3ms", 1.0)],
)  # fmt: skip
def test_durations_carry_their_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", [5, 5.0, "5", "ms", "", "5 days", "-5s", "nans", "infs", "1e999s", None, True, [1], "5s5s"]
)
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|hundred years"):
        parse_duration(value)


@given(st.floats(min_value=0, max_value=1e9, allow_nan=False))
def test_durations_round_trip_exactly(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_durations_are_written_short() -> None:
    assert [format_duration(s) for s in (0.2, 60.0, 3600.0, 0.0, 1.5)] == ["200ms", "1m", "1h", "0s", "1500ms"]


def test_rates_are_per_second_unless_said() -> None:
    assert [parse_rate(v) for v in (5, 0.5, "30/min", "3600/h", "2 / s")] == [5.0, 0.5, 0.5, 1.0, 2.0]


class TestObjectives:
    def test_latencies_name_statistic_and_unit(self) -> None:
        objective = parse_objective("ttft_p99 <= 500ms")
        assert (objective.metric, objective.statistic, objective.comparison, objective.limit) == (
            "ttft",
            "p99",
            "<=",
            0.5,
        )
        assert objective.key == "p99_ttft_ms"
        assert objective.percentile == 99
        assert objective.met_by(500.0)
        assert not objective.met_by(510.0)
        assert parse_objective("e2e_mean<=2s").key == "mean_e2el_ms"

    def test_rates_are_plain_numbers(self) -> None:
        objective = parse_objective("request_goodput >= 5")
        assert (objective.key, objective.limit) == ("request_goodput", 5.0)
        assert objective.met_by(6)

    @pytest.mark.parametrize("text", ["ttft_p99 <= 500ms", "request_goodput >= 5.0", "tpot_p99.9 >= 1m"])
    def test_text_round_trips(self, text: str) -> None:
        assert str(parse_objective(text)) == text
