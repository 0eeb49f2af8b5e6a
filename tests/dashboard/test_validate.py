"""Validate: shipped validations, kept ones, and an execution made from the page."""

from __future__ import annotations

import json

import pytest

from dashboard import parts
from dashboard.validate import live as validation_live
from dashboard.validate import shelf as validation_shelf
from dashboard.validate import view as validation_view
from dashboard.validate import work as validate_work
from studies.reports import html
from studies.validations import shipped
from tests.dashboard.test_calibrate import begin, said, titles

SMALL = {
    "workload__arrivals__rate": "50", "workload__input": "10", "workload__output": "3", "workload__requests": "4",
    "workload__prompts__prefix_tokens": "32", "engine__max_num_seqs": "4", "engine__max_num_batched_tokens": "16",
    "engine__max_model_len": "128",
}  # fmt: skip


def test_all_validations_are_listed_with_verdict_and_farthest_error(opened):
    page = opened("validate")
    assert not page.exception
    shown = said(page)
    for each in shipped.shipped():
        assert f"verdict: **{each.verdict}**" in shown
        assert validation_view.headline(each) in shown


@pytest.mark.parametrize("name", shipped.NAMES)
def test_a_link_opens_a_validation_with_its_figures(opened, name):
    page = opened("validate", validation=name)
    assert not page.exception
    found = shipped.load(name)
    assert titles(page) == [found.title]
    assert f"Verdict: **{found.verdict}**" in said(page) or "Verdict:" in found.sentence
    assert len(page.get("plotly_chart")) >= 2
    assert "Order of policies" in said(page)
    if found.worst:
        assert any("error" in table.value.columns and "noise" in table.value.columns for table in page.table)


def test_layers_below_the_outcome_have_their_names(opened):
    page = opened("validate", validation="own-engine")
    assert any("replayed schedule" in str(table.value) and "identical" in str(table.value) for table in page.table)


def test_choosing_one_stands_in_the_link_and_back_leaves_it(opened):
    page = opened("validate")
    page.button(key="validate:open:silicon").click().run()
    assert page.query_params["validation"] in ("silicon", ["silicon"])
    page.button[0].click().run()
    assert "validation" not in page.query_params


@pytest.mark.parametrize(
    ("name", "why"), [("silicone", "unknown validation"), ("../..", "lies outside the workspace"), ("out", "holds no validation")]
)  # fmt: skip
def test_what_a_link_cannot_show_is_said_and_the_list_stays(opened, workspace, name, why):
    (workspace / "out").mkdir()
    page = opened("validate", validation=name)
    assert not page.exception
    assert why in page.error[0].value
    assert "verdict: **" in said(page)


def test_a_damaged_folder_is_listed_with_what_is_wrong(opened, workspace):
    folder = workspace / "out" / "bad"
    folder.mkdir(parents=True)
    (folder / "validation.json").write_text("[1, 2")
    (folder / "run.json").write_text("{}")
    page = opened("validate")
    assert not page.exception
    assert "out/bad: holds no validation that can be opened" in said(page)


def test_a_folder_of_older_make_is_opened_without_single_requests(opened, workspace):
    stored = {
        "device": "cpu", "clock": "device", "repeats": 2, "verdict": "pass",
        "schedule": {"identical": True, "steps": 12, "first_difference": None},
        "cost": {"by_kind": {}}, "matched": {}, "ranking": None, "not_modelled": ["weather"],
        "outcome": [
            {"metric": "mean_ttft_ms", "live": 100.0, "simulated": 103.0, "error": 0.03, "noise": 0.05, "verdict": "pass"}
        ],
    }  # fmt: skip
    folder = workspace / "mine"
    folder.mkdir()
    (folder / "validation.json").write_text(json.dumps(stored))
    (folder / "run.json").write_text(json.dumps({"name": "chat"}))
    page = opened("validate", validation="mine")
    assert not page.exception
    assert titles(page) == ["chat: simulated against executed"]
    assert "weather" in said(page)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scenario": "azure-conversation"}, "this dashboard executes on its own CPU"),
        (
            {"model": "Qwen3-8B", "engine__dtype": "int4", "engine__num_gpu_blocks": "200"},
            "too large for the CPU engine",
        ),
    ],
)
def test_what_cannot_be_executed_here_says_why_and_offers_the_demo(opened, changes, why):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    page = opened("validate", part="live", **changes)
    assert not page.exception
    assert why in said(page)
    next(b for b in page.button if b.label == "Take the demo").click().run()
    assert not page.exception
    assert any(b.label == "Execute and compare" for b in page.button)


def test_without_the_engine_it_is_said_how_to_install_it(opened, monkeypatch):
    monkeypatch.setattr(validation_live, "find_spec", lambda name: None)
    page = opened("validate", part="live")
    assert "torch is not installed" in said(page)


def test_a_run_is_executed_from_the_page_kept_and_opened_again(opened, workspace):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    page = opened("validate", part="live", repeats="1", **SMALL)
    assert not page.exception
    assert "on one free core" in said(page)
    assert begin(page, "Execute and compare", "validate").wait(300)
    page.run()
    assert not page.exception
    assert "The replayed schedule is identical" in said(page)
    assert "Verdict: " in said(page)
    folder = workspace / "out/validations/demo"
    assert (folder / "report.html").is_file()
    next(b for b in page.button if b.label == "Its own page").click().run()
    assert not page.exception
    assert titles(page) == ["demo: simulated against executed"]
    again = validation_shelf.named("out/validations/demo")
    assert again.points
    text = html.render(validation_view.page_of(again))
    assert "The replayed schedule is identical" in text
    assert validation_shelf.free("demo").name == "demo-2"


def test_a_run_that_is_cancelled_leaves_nothing(opened, workspace):
    page = opened("validate", part="live", repeats="5", ranked="yes", grid="standard")
    parts.jobs().cancel(begin(page, "Execute and compare", "validate"))
    page.run()
    assert "Cancelled. Nothing was written" in said(page)
    assert not (workspace / validation_shelf.MADE).exists()


def test_more_repeats_policies_and_a_finer_grid_take_longer():
    import scenarios

    demo = scenarios.load("demo")
    least = validate_work.seconds(demo, 20, 1, "quick", False)
    assert (
        least < validate_work.seconds(demo, 20, 3, "quick", False) < validate_work.seconds(demo, 20, 3, "quick", True)
    )
    assert validate_work.seconds(demo, 20, 1, "standard", False) > least
