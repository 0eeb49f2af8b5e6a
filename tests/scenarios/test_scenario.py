"""A scenario as a value: its file, its hash, the shipped library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

import scenarios
from scenarios import Scenario
from scenarios.models import CATALOG

Build = Callable[..., Scenario]


@pytest.mark.parametrize("name", scenarios.names())
class TestEveryShippedScenario:
    def test_loads_and_generates(self, name: str) -> None:
        scenario = scenarios.load(name)
        assert scenario.name == name
        assert scenario.description
        assert len(scenarios.generate(scenario)) == scenario.workload.requests

    def test_round_trips(self, name: str) -> None:
        scenario = scenarios.load(name)
        again = scenarios.loads(scenario.to_yaml())
        assert again == scenario
        assert again.hash() == scenario.hash()
        assert again.to_yaml() == scenario.to_yaml()

    def test_is_commented_for_a_newcomer(self, name: str) -> None:
        text = scenarios.template(name)
        assert text.startswith("# ")
        assert text.count("#") >= 8
        assert f"servetwin run {name}" in text

    def test_every_request_can_run(self, name: str) -> None:
        scenario = scenarios.load(name)
        workload, config = scenarios.generate(scenario), scenario.engine_config()
        reasons = {
            config.why_it_can_never_run(p, o)
            for p, o in zip(workload.prompt_tokens.tolist(), workload.max_tokens.tolist(), strict=True)
        }
        assert reasons == {None}


def test_hash_does_not_depend_on_the_process() -> None:
    code = "import scenarios; print(scenarios.load('multi-turn').hash())"
    hashes = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        hashes.add(run.stdout.strip())
    assert hashes == {scenarios.load("multi-turn").hash()}


def test_hash_follows_what_changes_results_and_nothing_else(build: Build) -> None:
    base = build().hash()
    assert build(name="other", description="words").hash() == base
    assert build(engine={"preset": "vllm@0.32"}).hash() == base
    assert build(model="QWEN3-TINY").hash() == base
    changes: list[dict[str, object]] = [
        {"seed": 1},
        {"engine": {"max_num_seqs": 5}},
        {"hardware": {"base": "cpu", "memory_bandwidth": 2e10}},
        {"workload": {"input": 101}},
        {"replicas": 2},
    ]
    hashes = {build(**change).hash() for change in changes}
    assert len(hashes | {base}) == len(changes) + 1


def test_hash_follows_a_traces_content_not_its_place(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text(text)
    (tmp_path / "c.csv").write_text(text.replace("374", "375"))
    a, b, c = (scenarios.load("azure-conversation", trace=tmp_path / f"{x}.csv").hash() for x in "abc")
    assert a == b
    assert a != c


def test_files_are_looked_for_beside_the_scenario(tmp_path: Path, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lengths.txt").write_text("7\n9\n")
    file = tmp_path / "s.yaml"
    file.write_text(good.replace("input: 100", "input: {distribution: empirical, file: lengths.txt}"))
    scenario = scenarios.load(file)
    assert set(scenarios.generate(scenario).prompt_tokens.tolist()) <= {7, 9}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "copy.yaml").write_text(scenario.to_yaml())
    monkeypatch.chdir(elsewhere)
    assert scenarios.load("copy.yaml") == scenario


def test_a_changed_scenario_is_as_if_its_file_said_so(tmp_path: Path, good: str, build: Build) -> None:
    (tmp_path / "lengths.txt").write_text("7\n9\n")
    file = tmp_path / "s.yaml"
    file.write_text(good.replace("input: 100", "input: {distribution: empirical, file: lengths.txt}"))
    overrides = ["replicas=3", scenarios.Override("engine.max_num_seqs", 8, "mine")]
    assert scenarios.changed(scenarios.load(file), overrides) == scenarios.load(file, overrides=overrides)
    with pytest.raises(scenarios.InputError, match=r"^mine: engine\.max_num_seqs: found 0"):
        scenarios.changed(build(), [scenarios.Override("engine.max_num_seqs", 0, "mine")])
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,4,2\n")
    replayed = scenarios.changed(scenarios.load("azure-conversation"), (), trace=tmp_path / "t.csv")
    assert replayed == scenarios.load("azure-conversation", trace=tmp_path / "t.csv")


def test_model_may_be_a_config_and_is_written_out_whole(tmp_path: Path, good: str) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 4096, "_name_or_path": "mine",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    file = tmp_path / "s.yaml"
    file.write_text(good.replace("model: qwen3-tiny", "model: config.json"))
    scenario = scenarios.load(file)
    assert scenario.model.name == "mine"
    assert scenarios.loads(scenario.to_yaml()) == scenario
    file.write_text(good.replace("model: qwen3-tiny", "model: no/config.json"))
    with pytest.raises(scenarios.InputError, match="no such file"):
        scenarios.load(file)


def test_scenarios_do_not_change(build: Build) -> None:
    scenario = build()
    with pytest.raises(ValidationError, match="frozen"):
        scenario.seed = 4  # type: ignore[misc]


def test_a_file_may_hide_a_shipped_name(tmp_path: Path, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").write_text(good)
    monkeypatch.chdir(tmp_path)
    assert scenarios.load("demo").name == "unnamed"


def test_template_names_what_there_is() -> None:
    with pytest.raises(scenarios.InputError, match="did you mean 'multi-turn'"):
        scenarios.template("multiturn")


def test_catalog_names_round_trip(build: Build) -> None:
    for name in CATALOG:
        data = build().model_dump(mode="json", exclude_unset=True) | {"model": name, "hardware": "B200"}
        assert f"model: {name}" in Scenario.model_validate(data).to_yaml()
