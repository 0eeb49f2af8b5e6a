"""Which step costs a scenario gets, what a report says of them, and by how much a run leaves what was measured."""

from __future__ import annotations

import json

import pytest

import scenarios
from scenarios.errors import InputError
from sim.operator_cost import OperatorCost
from sim.profiles import load_profile
from studies import comparison, simulate
from studies.aspects import extrapolation, step_costs
from studies.aspects.step_costs import cost_of, fitting, profile_cost
from studies.reports import run_tables

SHIPPED = "h100/llama-3.1-8b-bf16-tp1"


def scenario(cost=None, model="Llama-3.1-8B", hardware="H100", **engine):
    document = {
        "name": "steps",
        "model": model,
        "hardware": hardware,
        "engine": {"max_num_seqs": 32} | engine,
        "workload": {"requests": 20, "arrivals": {"process": "poisson", "rate": 20}, "input": 300, "output": 12},
    }
    return scenarios.loads(json.dumps(document | ({"cost": cost} if cost else {})))


AUTO = {"profile": "auto"}


def test_auto_takes_the_shipped_profile_of_just_this_deployment():
    assert cost_of(scenario(AUTO)).name == SHIPPED
    assert cost_of(scenario(AUTO, dtype="fp8", tensor_parallel_size=2)).name == "h100/llama-3.1-8b-fp8-tp2"
    assert isinstance(cost_of(scenario(AUTO)), OperatorCost)


def test_auto_refuses_with_what_there_is_instead():
    with pytest.raises(InputError) as refused:
        cost_of(scenario(AUTO, model="Qwen3-14B"))
    assert "no shipped profile is of Qwen3-14B in bfloat16" in str(refused.value)
    assert "on H100 there are" in str(refused.value)
    assert "Qwen3-32B" in str(refused.value)
    with pytest.raises(InputError, match=r"of this model on this hardware there are .*h100/llama-3.1-8b-fp8-tp1"):
        cost_of(scenario(AUTO, kv_cache_dtype="int8"))


def test_a_profile_of_something_else_is_refused_in_one_error_with_the_one_that_fits():
    with pytest.raises(InputError) as refused:
        cost_of(scenario({"profile": "h200/qwen3-8b-fp8-tp2"}))
    for words in ("model Qwen3-8B", "hardware H200", "dtype fp8", "tensor_parallel_size 2", f"auto}} takes {SHIPPED}"):
        assert words in str(refused.value)


def test_a_profile_of_another_precision_says_how_to_ask_for_it():
    with pytest.raises(
        InputError, match=r"engine: \{dtype: fp8, tensor_parallel_size: 2\} asks for what this one holds"
    ):
        cost_of(scenario({"profile": "h100/llama-3.1-8b-fp8-tp2"}))


def test_a_fitted_profile_is_of_its_model_kind_of_hardware_and_one_device():
    fitted = load_profile("cpu-avx2-qwen3-tiny")
    profile_cost(fitted, scenario(model="qwen3-tiny", hardware="cpu"))
    with pytest.raises(InputError, match=r"hardware cpu \(the scenario has H100\)"):
        profile_cost(fitted, scenario(model="qwen3-tiny"))
    with pytest.raises(InputError, match=r"model qwen3-tiny \(the scenario has Llama"):
        profile_cost(fitted, scenario())


def test_the_default_is_the_roofline_and_its_report_names_the_profile_that_fits():
    run = simulate(scenario())
    assert run.info["cost"].startswith("roofline")
    assert f"a measured profile exists ({SHIPPED}): cost: {{profile: auto}}" in run_tables.about(run)
    assert simulate(scenario(model="Qwen3-14B")).info["profile"] is None


def test_a_report_says_which_profile_and_its_error():
    run = simulate(scenario(AUTO))
    said = step_costs.sentence(run.info["profile"])
    assert said in run_tables.about(run)
    assert f"profile {SHIPPED}, composed of operators" in said
    assert "%" in said
    assert run.info["profile_hash"] == load_profile(SHIPPED).hash()
    json.dumps(run.info["profile"], allow_nan=False)


def test_a_report_says_by_how_much_a_run_extrapolates():
    whole = load_profile(SHIPPED)
    domain = whole.domain.model_copy(update={"tokens": whole.domain.tokens.model_copy(update={"max": 100})})
    narrow = OperatorCost(whole.model_copy(update={"domain": domain}))
    run = simulate(scenario(), cost=narrow)
    found = run.info["binding"]["outside"]
    (part,) = found["parts"]
    assert part["part"] == "tokens"
    assert part["measured"] == 100
    assert part["factor"] == pytest.approx(part["value"] / 100)
    assert part["value"] == max((run.records.steps["prefill_tokens"] + run.records.steps["decode_sequences"]).tolist())
    taken = run.records.steps["end_ns"] - run.records.steps["start_ns"]
    out = run.records.steps["prefill_tokens"] + run.records.steps["decode_sequences"] > 100
    assert found["steps"] == pytest.approx(out.mean())
    assert found["time"] == pytest.approx((taken * out).sum() / taken.sum())
    assert run.info["binding"]["extrapolated"] == found["time"]
    note = run_tables.binds(run).note
    assert "of steps are outside what was measured: tokens" in note
    assert "where 100 is the most measured" in note


def test_a_run_inside_the_domain_extrapolates_nothing():
    run = simulate(scenario(AUTO))
    assert run.info["binding"]["outside"] == {"steps": 0.0, "time": 0.0, "parts": []}
    assert extrapolation.sentence(run.info["binding"]["outside"]) is None
    assert run_tables.binds(run).note == ""


def test_fitting_profiles_of_the_own_engine_come_first():
    assert fitting(scenario(preset="vllm@0.10.2"))[0] == SHIPPED
    assert fitting(scenario(model="qwen3-tiny", hardware="cpu")) == []


def test_steps_without_tokens_lie_nowhere():
    run = simulate(scenario(AUTO, preset="vllm@0.19"))
    steps = run.records.steps
    assert (steps["prefill_tokens"] + steps["decode_sequences"] == 0).any()
    assert run.info["binding"]["outside"]["parts"] == []


def test_a_profile_of_another_engine_is_told():
    assert "of sglang@0.5 was measured" in step_costs.sentence(
        simulate(scenario(AUTO, preset="sglang")).info["profile"]
    )
    assert "nothing of" not in step_costs.sentence(simulate(scenario(AUTO, preset="vllm@0.19")).info["profile"])


def test_a_comparison_says_where_step_costs_come_from_and_what_nobody_measured():
    both = [scenario(AUTO, preset=preset).model_copy(update={"name": preset}) for preset in ("vllm", "sglang")]
    found = comparison.compare(both)
    costs = found.costs()
    assert [line.partition(":")[0] for line in costs] == ["vllm", "sglang"]
    assert all(f"profile {SHIPPED}" in line for line in costs)
    assert comparison.compare([both[0], both[0]]).costs() == [step_costs.sentence(found.runs["vllm"].info["profile"])]
    assert [entry["profile"]["name"] for entry in found.to_dict()["scenarios"]] == [SHIPPED, SHIPPED]
    assert "KV capacity (tokens) that no log states: vllm (" in found.table().note
    assert comparison.compare([scenario()]).costs()[0].startswith("step costs: roofline")
    long = scenario(AUTO, max_model_len=40000).model_dump(mode="json")
    long["workload"] |= {"requests": 2, "input": 30000}
    (line,) = comparison.compare([scenarios.loads(json.dumps(long))]).sentences()
    assert "is the most measured" in line
