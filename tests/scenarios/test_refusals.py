"""Bad input is refused in one message: file, path inside it, what was found, what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import scenarios
from scenarios import InputError

Refusal = Callable[..., str]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("engine: {max_model_len", "engine: {max_num_seq: 4, max_model_len", ["engine.max_num_seq:", "'max_num_seqs'"]),
        ("workload:", "worklod: 1\nworkload:", ["worklod:", "did you mean 'workload'"]),
        ("  output: 20", "  output: 20\n  outputs: 3", ["workload.outputs:", "did you mean 'output'"]),
        ("model: qwen3-tiny", "model: qwen3-8", ["model:", "did you mean 'Qwen3-8B'", "Llama-3.1-8B"]),
        ("hardware: cpu", "hardware: H10", ["hardware:", "did you mean 'H100'", "L40S"]),
        ("hardware: cpu", "hardware: {memory_bytes: 1}", ["hardware.name:", "required"]),
        ("hardware: cpu", "hardware: {base: H100, memory: 1}", ["hardware.memory:", "memory_bytes"]),
        ("hardware: cpu", "hardware: {base: H100, memory_bytes: -1}", ["hardware:", "memory_bytes", "-1"]),
        ("rate: 2", "rate: 0", ["workload.arrivals.rate:", "above 0", "all_at_once"]),
        ("rate: 2", "rate: -3", ["workload.arrivals.rate:", "-3", "never negative"]),
        ("rate: 2", "rate: .nan", ["workload.arrivals.rate:", "nan", "finite"]),
        ("rate: 2", "rate: .inf", ["workload.arrivals.rate:", "inf", "finite"]),
        ("rate: 2", "rate: 2/fortnight", ["workload.arrivals.rate:", "30/min"]),
        ("rate: 2", "rat: 2", ["workload.arrivals.rat:", "'rate'"]),
        ("process: poisson", "process: poison", ["workload.arrivals:", "did you mean 'poisson'", "closed_loop"]),
        ("process: poisson, ", "", ["workload.arrivals:", "process"]),
        ("input: 100", "input: -5", ["workload.input:", "-5", "greater than or equal to 1"]),
        ("input: 100", "input: 0", ["workload.input:", "0"]),
        ("input: 100", "input: 1.5", ["workload.input:", "1.5", "whole number"]),
        ("input: 100", "input: long", ["workload.input:", "'long'"]),
        ("input: 100", "input: {distribution: normal, mean: .nan, std: 1}", ["workload.input.mean:", "finite"]),
        ("input: 100", "input: {distribution: uniform, min: 9, max: 3}", ["workload.input.max:", "3", "min 9"]),
        ("input: 100", "input: 5000", ["workload.input:", "5000", "max_model_len 1024"]),
        ("output: 20", "output: 20\n  max_tokens: 0", ["workload.max_tokens:", "as_output"]),
        ("output: 20", "output: 20\n  max_tokens: all", ["workload.max_tokens:", "as_output"]),
        ("requests: 10", "requests: 10.5", ["workload.requests:", "10.5", "whole number"]),
        ("requests: 10", "requests: true", ["workload.requests:", "True", "whole number"]),
        ("requests: 10", "requests: '10'", ["workload.requests:", "'10'", "whole number"]),
        ("  requests: 10\n", "", ["workload.requests:", "required"]),
        ("requests: 10", "requests: 10000000000", ["workload.requests:", "10000000"]),
        ("hardware: cpu", "hardware: cpu\nhorizon: 1e12h", ["horizon:", "hundred years"]),
        ("hardware: cpu", "hardware: {base: H100, memory_bandwidth: .nan}", ["hardware.memory_bandwidth:", "finite"]),
        ("  input: 100\n", "", ["workload.input:", "required", "--trace"]),
        ("hardware: cpu\n", "", ["hardware:", "required"]),
        ("hardware: cpu", "hardware: cpu\nreplicas: 0", ["replicas:", "0", "greater than or equal to 1"]),
        ("hardware: cpu", "hardware: cpu\nslo: {ttft: 200}", ["slo.ttft:", "200", "200ms", "200s"]),
        ("hardware: cpu", "hardware: cpu\nslo: {ttft: 200 parsecs}", ["slo.ttft:", "parsecs", "ns, us, ms, s, m, h"]),
        ("hardware: cpu", "hardware: cpu\nslo: {ttft: -1s}", ["slo.ttft:", "-1s"]),
        ("hardware: cpu", "hardware: cpu\nslo: {ttfs: 1s}", ["slo.ttfs:", "'ttft'"]),
        ("hardware: cpu", "hardware: cpu\nhorizon: 60", ["horizon:", "60s"]),
        ("hardware: cpu", "hardware: cpu\nhorizon: 0s", ["horizon:", "above 0"]),
        ("hardware: cpu", "hardware: cpu\nprices: {gpu_hour: -1}", ["prices.gpu_hour:", "-1"]),
        ("hardware: cpu", "hardware: cpu\nprices: {gpu_hour: .inf}", ["prices.gpu_hour:", "finite"]),
        ("hardware: cpu", "hardware: cpu\nrouter: round_robbin", ["router:", "did you mean 'round_robin'"]),
        ("hardware: cpu", "hardware: cpu\nschema_version: 2", ["schema_version:", "2", "newer servetwin", "version 1", "update"]),
        ("hardware: cpu", "hardware: cpu\nseed: -1", ["seed:", "-1"]),
        ("hardware: cpu", "hardware: cpu\nobjectives: [ttft_p99 <= 500]", ["objectives[0]:", "500ms"]),
        ("hardware: cpu", "hardware: cpu\nobjectives: [tfft_p99 <= 5s]", ["objectives[0]:", "did you mean 'ttft_p99'"]),
        ("hardware: cpu", "hardware: cpu\nobjectives: [fast please]", ["objectives[0]:", "reads like"]),
        ("hardware: cpu", "hardware: cpu\nobjectives: ttft_p99 <= 5s", ["objectives:", "list"]),
        ("hardware: cpu", "hardware: cpu\ncost: {source: profile}", ["cost.profile:", "required"]),
        ("hardware: cpu", "hardware: cpu\ncost: {source: profile, profile: no.json}", ["cost.profile:", "no file no.json"]),
        ("engine: {", "engine: {policy: fifo, ", ["engine.policy:", "fcfs"]),
        ("engine: {", "engine: {batching: chunky, ", ["engine.batching:", "did you mean 'chunked'"]),
        ("engine: {", "engine: {preset: vllm@0.31, ", ["engine.preset:", "did you mean 'vllm@0.32'"]),
        ("engine: {", "engine: {async_scheduling: true, batching: static, ", ["engine.async_scheduling:", "batching chunked"]),
        ("engine: {", "engine: {speculation: {method: eagle}, ", ["engine.speculation.method:", "ngram, draft"]),
        ("engine: {", "engine: {speculation: {method: ngram, k: 99}, ", ["engine.speculation.k:", "99"]),
        ("engine: {", "engine: {speculation: {method: ngram, acceptance: 1.2}, ", ["engine.speculation.acceptance", "1.2"]),
        ("engine: {", "engine: {speculation: {method: ngram, k: 1, acceptance: [0.5, 0.4]}, ", ["engine.speculation.acceptance:", "1 to k"]),
        ("engine: {", "engine: {speculation: {method: ngram, draft_cost: 0.1}, ", ["engine.speculation.draft_cost:", "no draft model"]),
        ("engine: {", "engine: {speculation: {method: draft}, ", ["engine.speculation.draft_model:", "draft_cost"]),
        ("engine: {", "engine: {speculation: {method: draft, draft_cost: 0.1, found: 0.5}, ", ["engine.speculation.found:", "always"]),
        ("engine: {", "engine: {dtype: bf16, ", ["engine.dtype:", "did you mean 'bfloat16'"]),
        ("engine: {", "engine: {watermark: 1.5, ", ["engine.watermark:", "1.5"]),
        ("engine: {", "engine: {num_gpu_blocks: 4, ", ["workload.input:", "KV blocks", "3 are usable"]),
        ("max_model_len: 1024", "max_model_len: 9000", ["engine.max_model_len:", "9000", "8192"]),
        ("engine: {max_model_len: 1024}", "engine: 4", ["engine:", "4", "mapping"]),
    ],
)  # fmt: skip
def test_bad_value_is_refused_with_path_and_remedy(
    refusal: Refusal, good: str, old: str, new: str, expected: list[str]
) -> None:
    assert old in good
    message = refusal(good.replace(old, new))
    assert message.startswith("bad.yaml: ")
    assert message.removeprefix("bad.yaml: ").startswith(expected[0]), message
    for part in expected:
        assert part in message, message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("- a\n- b\n", "a list"),
        ("just words\n", "plain text"),
        ("a: [1, 2\n", "line 2"),
        ("model: a\nhardware: b\nmodel: c\n", "line 3: key 'model' is written twice (first on line 1)"),
        ("workload:\n  input: 1\n  input: 2\n", "line 3: key 'input' is written twice"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: *nobody\n", "not valid YAML"),
        ("3: 4\n", "field names are text"),
    ],
)
def test_broken_document_is_refused_with_its_line(refusal: Refusal, text: str, expected: str) -> None:
    assert expected in refusal(text)


def test_missing_file_folder_and_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        scenarios.load(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is a folder"):
        scenarios.load(tmp_path)
    with pytest.raises(InputError, match="did you mean 'demo'"):
        scenarios.load("deno")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="UTF-8"):
        scenarios.load(binary)


def test_one_message_counts_the_other_problems(refusal: Refusal, good: str) -> None:
    message = refusal(good.replace("hardware: cpu", "hardware: cpu\nreplicas: 0\nseed: x\nname: 3"))
    assert "also wrong: " in message


def test_scalars_are_read_as_yaml_1_2(build: Callable[..., scenarios.Scenario]) -> None:
    read = scenarios.load.__globals__["documents"].mapping(
        "{a: 1e9, b: 3.35e12, c: on, d: 1:30, e: 010, f: .5, g: ~}", "t"
    )
    assert read == {"a": 1e9, "b": 3.35e12, "c": "on", "d": "1:30", "e": 10, "f": 0.5, "g": None}


class TestOverrides:
    def test_values_are_yaml_and_the_last_wins(self) -> None:
        scenario = scenarios.load("demo", overrides=["engine.max_num_seqs=4", "engine.max_num_seqs=8", "slo.tpot=20ms"])
        assert scenario.engine.max_num_seqs == 8
        assert scenario.slo.tpot == 0.02

    def test_whole_parts_and_list_items(self, tmp_path: Path, good: str) -> None:
        file = tmp_path / "s.yaml"
        file.write_text(good)
        stages = "workload.arrivals={process: staged, stages: [{rate: 1, duration: 5s}, {rate: 2, duration: 5s}]}"
        scenario = scenarios.load(file, overrides=[stages, "workload.arrivals.stages[1].rate=3"])
        assert [stage.rate for stage in scenario.workload.arrivals.stages] == [1, 3]  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            (
                "engine.max_num_seq=4",
                "--set engine.max_num_seq=4: engine.max_num_seq: unknown field 'max_num_seq': did you",
            ),
            ("engin.max_num_seqs=4", "--set engin.max_num_seqs=4: engin"),
            ("engine.max_num_seqs=many", "--set engine.max_num_seqs=many: engine.max_num_seqs: found 'many'"),
            ("hardware.memory_bytes=1", "hardware is 'cpu', not a mapping"),
            ("workload.arrivals.stages[7].rate=1", "no item 7"),
            ("engine.max_num_seqs", "write a path and a value"),
            ("=4", "write a path and a value"),
            ("engine.=4", "write a path and a value"),
            ("seed=[1", "not valid YAML"),
        ],
    )
    def test_wrong_override_is_named(self, override: str, expected: str) -> None:
        with pytest.raises(InputError) as caught:
            scenarios.load("demo", overrides=[override])
        assert expected in str(caught.value)

    def test_seed_and_trace_come_last(self, tmp_path: Path) -> None:
        assert scenarios.load("demo", overrides=["seed=3"], seed=5).seed == 5
        with pytest.raises(InputError, match="--seed -1"):
            scenarios.load("demo", seed=-1)
        with pytest.raises(InputError, match="no such file"):
            scenarios.load("demo", trace=tmp_path / "none.csv")


def test_python_users_get_the_same_words(build: Callable[..., scenarios.Scenario]) -> None:
    with pytest.raises(ValueError, match="did you mean 'max_num_seqs'"):
        build(engine={"max_num_seq": 1})


def test_schema_knows_every_shipped_scenario() -> None:
    schema = scenarios.json_schema()
    for name in scenarios.names():
        fields = yaml.safe_load(scenarios.template(name))
        assert set(fields) <= set(schema["properties"])
    assert "fcfs" in schema["$defs"]["Engine"]["properties"]["policy"]["enum"]
    assert "round_robin" in schema["properties"]["router"]["oneOf"][0]["enum"]
    assert schema["additionalProperties"] is False


def test_schema_says_beside_a_field_what_it_is() -> None:
    parts = scenarios.json_schema()["$defs"]
    rung = parts["RungSpec"]["properties"]
    assert rung["route_to"]["description"] == "the pool that takes every request."
    assert rung["shed_class"]["description"] == "the service class that is refused."
    assert parts["ServiceClass"]["properties"]["output"]["description"].startswith("its own, instead of the workload's")
    assert "description" not in parts["Engine"]["properties"]["max_num_seqs"]
