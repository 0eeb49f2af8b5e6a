"""What is no load of a scenario is told as such before anything is run."""

from __future__ import annotations

import pytest

import scenarios
from scenarios.errors import InputError
from studies.capacity.load import load_of
from studies.sweeps import study


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("workload.speedup", "no trace is replayed, so it changes nothing; .*workload.rate"),
        ("model", "there is a whole section, but a load is a number"),
        ("name", "found 'demo' there, but a load is a number"),
    ],
)
def test_what_is_no_load_is_told(over, message):
    with pytest.raises(InputError, match=message):
        load_of(scenarios.load("demo"), over)


def test_a_range_of_millions_of_steps_is_refused_before_it_is_written_out():
    axes = {"workload.rate": {"from": 1, "to": 2, "steps": 10**12}}
    with pytest.raises(InputError, match=r"steps.*1,?000,?000"):
        study.from_mapping({"base": "demo", "axes": axes})
