from __future__ import annotations

import pytest

import scenarios
from dashboard import uploads
from dashboard.settings import MissingUploadError, Settings, as_text, from_query, is_setting
from scenarios import InputError

CSV = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:04.0319600,396,109\n"
SHIPPED = """schema_version: 1
name: mine
model: qwen3-tiny
hardware: cpu
engine: {max_model_len: 640, num_gpu_blocks: 512}
workload: {requests: 20, arrivals: {process: poisson, rate: 2}, input: 50, output: 10}
"""


@pytest.fixture(autouse=True)
def _workspace(workspace):
    return workspace


def test_the_default_needs_no_link():
    assert Settings().to_query() == {}
    settings, told = from_query({})
    assert settings == Settings()
    assert told == []
    assert settings.scenario() == scenarios.load("demo")


def test_a_link_and_its_settings_are_the_same():
    settings = Settings("azure-conversation", {"replicas": "2", "engine.max_num_seqs": "64", "slo.ttft": "200ms"})
    again, told = from_query(settings.to_query())
    assert again == settings
    assert told == []
    found = again.scenario()
    assert (found.replicas, found.engine.max_num_seqs, found.slo.ttft) == (2, 64, 0.2)


def test_what_encloses_another_change_comes_first_whatever_the_order():
    changes = {"workload.arrivals.rate": "9", "workload.arrivals": "{process: constant, rate: 1}"}
    for query in (changes, dict(reversed(changes.items()))):
        found = from_query(query)[0].scenario()
        assert (found.workload.arrivals.process, found.workload.arrivals.rate) == ("constant", 9)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"engine.max_num_seqs": "many"}, "whole number"),
        ({"engine.max_num_seq": "4"}, "max_num_seqs"),
        ({"replicas": "{a"}, "replicas={a"),
        ({"scenario": "dem"}, "did you mean 'demo'"),
        ({"scenario": "upload:../../etc"}, "upload"),
        ({"model": "/etc/passwd.json"}, "outside"),
        ({"workload.trace.path": "../../../etc/passwd"}, "outside"),
    ],
)
def test_what_a_link_cannot_have_is_told_and_the_rest_is_there(query, word):
    settings, told = from_query({"slo.ttft": "300ms", **query})
    assert len(told) == 1
    assert word in told[0]
    if not query.get("scenario", "").startswith("upload"):
        assert settings.changes == {"slo.ttft": "300ms"}
        assert settings.scenario().slo.ttft == 0.3


def test_values_that_only_fit_together_are_taken_together():
    query = {"engine.max_num_batched_tokens": "8", "engine.max_num_seqs": "8"}
    settings, told = from_query(query)
    assert told == []
    assert settings.changes == query


def test_of_values_that_do_not_fit_together_as_many_as_can_be_had_are_kept():
    settings, told = from_query({"engine.max_num_batched_tokens": "8", "engine.max_num_seqs": "many", "replicas": "3"})
    assert settings.changes.get("replicas") == "3"
    assert any("max_num_seqs" in line for line in told)
    settings.scenario()


def test_an_uploaded_scenario_is_in_the_link_by_its_hash():
    upload = uploads.keep("mine.yaml", SHIPPED.encode())
    settings, told = from_query({"scenario": f"upload:{upload.digest}", "replicas": "2"})
    assert told == []
    assert settings.scenario().name == "mine"
    assert settings.scenario().replicas == 2
    assert settings.named() == "mine.yaml"


def test_a_missing_upload_is_asked_for_and_the_changes_wait_for_it():
    digest = "0123456789abcdef"
    settings, told = from_query({"scenario": f"upload:{digest}", "replicas": "2"})
    assert settings.changes == {"replicas": "2"}
    assert digest in told[0]
    with pytest.raises(MissingUploadError, match="upload it"):
        settings.scenario()


def test_a_trace_is_replayed_and_a_missing_one_is_asked_for():
    trace = uploads.keep("trace.csv", CSV)
    settings, told = from_query({"trace": trace.digest})
    assert told == []
    workload = scenarios.generate(settings.scenario())
    assert len(workload) == 2
    settings, told = from_query({"trace": "fedcba9876543210"})
    assert "upload it" in told[0]
    with pytest.raises(MissingUploadError):
        settings.scenario()


def test_an_upload_names_no_file_outside_the_workspace():
    text = SHIPPED.replace("model: qwen3-tiny", "model: /etc/passwd.json")
    upload = uploads.keep("mine.yaml", text.encode())
    with pytest.raises(InputError, match="outside"):
        Settings(f"upload:{upload.digest}").scenario()


def test_a_scenario_of_a_newer_version_is_refused_in_words():
    upload = uploads.keep("mine.yaml", SHIPPED.replace("schema_version: 1", "schema_version: 2").encode())
    settings, told = from_query({"scenario": f"upload:{upload.digest}"})
    assert settings == Settings()
    assert "newer" in told[0]


@pytest.mark.parametrize(
    "value",
    [
        True,
        64,
        0.5,
        "fp8",
        "null",
        "1",
        "a: b",
        "[draft",
        "!!int 3",
        "a: b: c",
        None,
        [1, 2],
        {"process": "poisson", "rate": 2},
    ],
)
def test_a_value_as_text_is_read_as_itself(value):
    from scenarios import documents

    assert documents.parse(as_text(value), "text") == value
    assert "\n" not in as_text(value)


def test_query_parameters_of_pages_are_no_settings():
    assert is_setting("engine.max_num_seqs")
    assert is_setting("pools[0].replicas")
    assert not is_setting("view")
    assert not is_setting("v1")
