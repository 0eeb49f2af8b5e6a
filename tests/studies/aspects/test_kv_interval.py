"""How sure a KV capacity is: a point where it is stated, else what memory may hold beside more or less of a reserve."""

from __future__ import annotations

import pytest

import scenarios
from scenarios.errors import InputError
from studies import results, simulate
from studies.aspects import kv_interval
from studies.reports import run_tables, tables
from studies.reports.report import cards

SMALL = ["workload.requests=12", "workload.arrivals.rate=20", "workload.output=6", "model=Qwen3-8B", "hardware=H100"]
DERIVED = [*SMALL, "engine.num_gpu_blocks=null"]


def test_a_stated_capacity_is_a_point():
    scenario = scenarios.load("demo", overrides=SMALL)
    run = simulate(scenario)
    assert run.summary["kv_capacity_tokens_low"] == run.summary["kv_capacity_tokens_high"] == 511 * 16
    assert run.info["kv_capacity"] == "as stated"
    assert tables.between(run.summary) == ""
    assert kv_interval.ends(scenario) is None


def test_a_derived_capacity_is_an_interval_and_is_shown_beside_the_headline(tmp_path):
    run = simulate(scenarios.load("demo", overrides=DERIVED))
    document = results.document(run)
    low, held, high = (document[f"kv_capacity_tokens{end}"] for end in ("_low", "", "_high"))
    assert low < held < high
    per_token = run.scenario.model.kv_bytes_per_token()
    assert high - low == pytest.approx(4.8e9 / per_token, rel=0.001)
    assert run.info["kv_capacity"].endswith("may take 1.2 to 6.0 GB")
    assert cards(run.summary)[0][1] == f"KV capacity, tokens ({low:,} to {high:,})"
    assert f"tokens ({low:,} to {high:,}): no log states it" in run_tables.capacity(run).note


def test_both_ends_run_with_their_own_memory():
    scenario = scenarios.load("demo", overrides=[*DERIVED, "engine.max_model_len=null"])
    low, high = (simulate(end) for end in kv_interval.ends(scenario))
    capacity = scenario.engine.kv_capacity(scenario.model, scenario.hardware)
    assert (low.summary["kv_capacity_tokens"], high.summary["kv_capacity_tokens"]) == (capacity.low, capacity.high)
    assert low.info["kv_capacity"] == "as stated"
    assert low.info["engine"]["max_model_len"] == high.info["engine"]["max_model_len"] == 40960
    assert low.info["scenario_hash"] != high.info["scenario_hash"]


def test_small_devices_and_cpus_have_intervals_of_their_own():
    spread = {}
    for device in ("H100", "RTX-4090", "L40S", "cpu"):
        scenario = scenarios.load("demo", overrides=["engine.num_gpu_blocks=null", f"hardware={device}"])
        capacity = scenario.engine.kv_capacity(scenario.model, scenario.hardware)
        assert capacity.low <= capacity.tokens <= capacity.high
        spread[device] = (capacity.high - capacity.low) * scenario.model.kv_bytes_per_token() / 1e9
    assert spread["cpu"] == 0
    assert spread["RTX-4090"] == pytest.approx(0.694, abs=0.01)
    assert spread["RTX-4090"] < spread["L40S"] < spread["H100"] == pytest.approx(4.8, abs=0.01)


def test_memory_that_may_be_gone_is_told():
    tight = ["model=Qwen3-32B", "hardware=H100", "engine.num_gpu_blocks=null", "engine.gpu_memory_utilization=0.83"]
    scenario = scenarios.load("demo", overrides=tight)
    assert scenario.engine.kv_capacity(scenario.model, scenario.hardware).low == 0
    with pytest.raises(InputError, match="may leave no KV memory on H100"):
        kv_interval.ends(scenario)
