"""What a scenario that comes from a stranger may reach: the files of one folder, and nothing else."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest

import scenarios
from scenarios import InputError, Override
from scenarios.cost import profile_names
from scenarios.fields import Section
from scenarios.paths import NamesFile, place

FILE = "<file>"
LENGTHS = {"distribution": "empirical", "file": FILE}


PLACES: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("Scenario", "model"): [{"model": FILE}],
    ("PoolSpec", "model"): [{"pools": [{"name": "a", "model": FILE}]}, {"pools": [{"name": "a"}, {"name": "b", "model": FILE}]}],
    ("Cost", "profile"): [{"cost": {"profile": FILE}}, {"pools": [{"name": "a", "cost": {"profile": FILE}}]}],
    ("TraceOptions", "path"): [{"workload.trace": {"path": FILE}}, {"workload": {"mix": {"a": {"trace": {"path": FILE}}}}}],
    ("QualityCurve", "measured"): [{"pools": [{"name": "a", "quality": {"measured": FILE}}]}],
    ("Empirical", "file"): [
        {"workload.input": LENGTHS},
        {"workload.output": LENGTHS},
        {"workload.prompts": {"kind": "shared_prefix", "prefix_tokens": LENGTHS}},
        {"workload.classes": [{"name": "a", "weight": 1, "output": LENGTHS}]},
        {"workload.tenants": [{"name": "a", "weight": 1, "input": LENGTHS}]},
    ],
}  # fmt: skip
"""Every field that may name a file, by class, with places in a scenario where it stands."""

CASES = [
    pytest.param(change, id=f"{key[0]}.{key[1]}-{i}") for key, list_ in PLACES.items() for i, change in enumerate(list_)
]

OUTSIDE = (
    "/etc/passwd",
    "/no/such/folder/a.json",
    "..",
    "../x",
    "../outside/secret.json",
    "../outside",
    "a/../../outside/secret.json",
    "{workspace}/../outside/secret.json",
    "{workspace}-of-another/a.csv",
    "~",
    "~/secret.json",
    "~root/.profile",
    "~nobody-of-that-name/x.json",
    "link.json",
    "linked/secret.json",
    "linked",
    "chain.json",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    outside, inside = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret.json").write_text("SECRET,SECRET\nSECRET,1\n")
    (inside / "link.json").symlink_to(outside / "secret.json")
    (inside / "linked").symlink_to(outside)
    (inside / "chain.json").symlink_to("link.json")
    return inside


def load(good: str, change: dict[str, Any], file: str, within: Path | None) -> scenarios.Scenario:
    text = json.dumps(change).replace(json.dumps(FILE), json.dumps(file))
    overrides = [Override(path, value, "scenario") for path, value in json.loads(text).items()]
    return scenarios.loads(good, overrides=overrides, within=within)


def annotations(of: Any) -> Iterator[Any]:
    yield of
    for part in get_args(of):
        yield from annotations(part)


def sections(of: type[Section] = Section) -> Iterator[type[Section]]:
    for section in of.__subclasses__():
        yield section
        yield from sections(section)


def test_the_fields_that_may_name_a_file_are_known() -> None:
    found = {
        (section.__name__, name)
        for section in sections()
        for name, field in section.model_fields.items()
        if any(isinstance(part, NamesFile) for part in (*field.metadata, *annotations(field.annotation)))
    }
    assert found == set(PLACES)


def test_no_other_module_of_scenarios_opens_files() -> None:
    """Whoever reads a file of a new kind finds out here that its field must be a `NamesFile`."""
    reads = re.compile(r"\b(open|read_text|read_bytes|read_mapping)\(|os\.open|\bis_file\(|\.exists\(")
    found = {
        f.name[:-3]
        for f in resources.files("scenarios").iterdir()
        if f.name.endswith(".py") and reads.search(f.read_text())
    }
    of_fields = {"fields", "hf_config", "lengths", "quality_curve", "traces"}
    asked_by_callers = {"documents", "load", "shipped"}
    assert found == of_fields | asked_by_callers | {"trace_sessions"}  # which opens sessions
    assert "open(self, row" in inspect.getsource(
        scenarios.generate.__globals__["traces"].read_sessions.__globals__["_Reader"]
    )


@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize("file", OUTSIDE)
def test_what_lies_outside_is_refused_in_the_same_words_whether_or_not_it_exists(
    good: str, workspace: Path, change: dict[str, Any], file: str
) -> None:
    file = file.format(workspace=workspace)
    with pytest.raises(InputError) as caught:
        load(good, change, file, workspace)
    field = re.escape(next(iter(change)))
    shown = repr(file) if len(repr(file)) <= 60 else repr(file)[:57] + "..."
    assert re.fullmatch(
        rf"scenario: {field}\S*: found {re.escape(shown)}, which lies outside the workspace; upload it( \(also wrong: .*\))?",
        str(caught.value),
    )


@pytest.mark.parametrize("change", CASES)
def test_what_is_not_there_inside_is_said_to_be_missing(good: str, workspace: Path, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"no (such )?file"):
        load(good, change, "none.json", workspace)


@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize("file", ["a\0b.json", "x" * 300 + ".json", "x/" * 3000 + "a.json"])
def test_what_is_no_path_is_refused(good: str, workspace: Path, change: dict[str, Any], file: str) -> None:
    for within in (workspace, None):
        with pytest.raises(InputError):
            load(good, change, file, within)


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 4096,
}  # fmt: skip


def test_files_of_the_folder_are_used_by_their_resolved_paths(good: str, workspace: Path) -> None:
    (workspace / "mine").mkdir()
    (workspace / "mine" / "config.json").write_text(json.dumps(CONFIG))
    (workspace / "t.csv").write_text("arrival,input_tokens,output_tokens\n0,10,2\n1,20,3\n")
    (workspace / "alias.csv").symlink_to("t.csv")
    trace = {"path": "alias.csv", "time_unit": "s"}
    scenario = scenarios.loads(
        good, overrides=["model=mine", Override("workload.trace", trace, "trace")], within=workspace
    )
    assert scenario.model.num_layers == 2
    assert scenario.workload.trace is not None
    assert scenario.workload.trace.path == str(workspace.resolve() / "t.csv")
    again = scenarios.changed(scenario, ["seed=3"], within=workspace)
    assert len(scenarios.generate(again)) == 2
    with pytest.raises(InputError, match=r"workload\.trace\.path: found .* lies outside"):
        scenarios.changed(scenario, ["workload.trace.path=/etc/passwd"], within=workspace)


def test_a_folder_inside_may_not_hold_a_model_that_is_outside(good: str, workspace: Path) -> None:
    (workspace / "mine").mkdir()
    (workspace / "mine" / "config.json").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match=r"model: found 'mine/config\.json', which lies outside the workspace"):
        scenarios.loads(good, overrides=["model=mine"], within=workspace)


def test_a_workspace_may_be_reached_by_a_link(good: str, workspace: Path) -> None:
    (workspace / "mine.json").write_text(json.dumps(CONFIG))
    link = workspace.parent / "elsewhere"
    link.symlink_to(workspace)
    for name in ("mine.json", str(link / "mine.json"), str(workspace / "mine.json")):
        assert scenarios.loads(good, overrides=[f"model={name}"], within=link).model.num_layers == 2


def test_names_of_catalogs_and_shipped_profiles_keep_working(good: str, workspace: Path) -> None:
    for override in (
        "model=Qwen/Qwen3-8B",
        "cost.profile=auto",
        f"cost.profile={profile_names()[-1]}",
        "hardware=H100",
    ):
        more = ["hardware=H100"] if override.startswith("model") else []
        given = [override, *more]
        assert scenarios.loads(good, overrides=given, within=workspace) == scenarios.loads(good, overrides=given)
    assert scenarios.load("demo", within=workspace) == scenarios.load("demo")


def test_a_name_that_is_no_profile_is_not_looked_for_elsewhere(
    good: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.parent / "outside")
    for name in ("secret", "secret.json"):
        Path(name).write_text("{}")
        with pytest.raises(InputError, match=r"unknown profile|there is no file"):
            scenarios.loads(good, overrides=[f"cost.profile={name}"], within=workspace)


def test_the_scenario_itself_and_a_trace_beside_it_must_lie_there(
    good: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.parent)
    for name in ("outside/secret.json", str(workspace / "link.json"), "/etc/passwd", "../none"):
        for ask in (
            lambda name=name: scenarios.load(name, within=workspace),
            lambda name=name: scenarios.loads(good, trace=name, within=workspace),
        ):
            if name == "outside/secret.json":  # the workspace has no such file
                with pytest.raises(InputError, match="there is no such file"):
                    ask()
            else:
                with pytest.raises(InputError, match="lies outside the workspace"):
                    ask()
    (workspace / "s.yaml").write_text(good)
    assert scenarios.load("s.yaml", within=workspace) == scenarios.loads(good)


def test_without_a_workspace_any_file_may_be_named(tmp_path: Path) -> None:
    assert place("../x", tmp_path) == tmp_path / "../x"
    assert place("/etc/passwd", tmp_path) == Path("/etc/passwd")
    assert place("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")
