"""Calibrate: what stands behind a profile, whether the present scenario stays inside it, measuring and importing."""

from __future__ import annotations

import pytest
import streamlit as st

from dashboard import parts, uploads
from dashboard.calibrate import import_files
from dashboard.calibrate import measuring as profile_measuring
from dashboard.calibrate import shelf as profile_shelf
from dashboard.calibrate import work as calibrate_work
from dashboard.settings import Settings
from scenarios import InputError
from sim.profiles import load_profile, shipped_bytes

SHIPPED = "cpu-avx2-qwen3-tiny"
TINY = (
    "engine.max_num_seqs=2", "engine.max_num_batched_tokens=8", "engine.max_model_len=64", "engine.num_gpu_blocks=17",
)  # fmt: skip


def said(page) -> str:
    kinds = (page.error, page.warning, page.info, page.caption, page.markdown, page.success)
    return "\n".join(element.value for kind in kinds for element in kind)


def titles(page) -> list[str]:
    return [element.value for element in page.header]


def begin(page, label: str, of: str):
    """Presses a button that begins work, without waiting for it: the page, and the work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "follow", lambda job, draw, what: None)
        next(button for button in page.button if button.label == label).click().run()
    return page.session_state[f"errand:{of}"].job


@pytest.fixture
def went(monkeypatch) -> list[str]:
    """Pages that were switched to."""
    found: list[str] = []
    monkeypatch.setattr(st, "switch_page", lambda page: found.append(page.title))
    return found


def test_all_profiles_are_listed_and_filters_stand_in_the_link(opened):
    page = opened("calibrate")
    assert not page.exception
    everything = page.dataframe[0].value
    assert len(everything) == len(profile_shelf.every()) > 100
    page.selectbox(key="calibrate:device").select("H200").run()
    fewer = page.dataframe[0].value
    assert set(fewer["device"]) == {"H200"}
    assert page.query_params["device"] in ("H200", ["H200"])


def test_a_link_filters_and_a_filter_that_there_is_not_is_told(opened):
    page = opened("calibrate", of_model="Qwen3-8B", tp="2", precision="fp9")
    assert not page.exception
    assert set(page.dataframe[0].value["model"]) == {"Qwen3-8B"}
    assert "precision=fp9: there is no such choice" in said(page)


def test_a_fit_to_whole_steps_shows_its_points_domain_and_terms(opened):
    page = opened("calibrate", profile=SHIPPED, workload__requests="30")
    assert not page.exception
    assert not page.error
    assert titles(page) == [SHIPPED]
    tables = "\n".join(str(table.value) for table in page.table)
    assert "hash" in tables
    assert load_profile(SHIPPED).hash() in tables
    shown = said(page)
    for title in (
        "Step times, predicted against measured",
        "Residuals over tokens",
        "Domain",
        "Inside what was measured",
    ):
        assert title in shown + "\n".join(expander.label for expander in page.expander)


def test_how_far_the_present_scenario_stays_inside_is_said(opened):
    inside = opened("calibrate", profile=SHIPPED, workload__requests="30")
    assert "inside what was measured" in said(inside)
    outside = opened(
        "calibrate", profile=SHIPPED, workload__requests="30",
        engine__max_num_batched_tokens="4096", engine__max_model_len="8192", engine__num_gpu_blocks="4096", workload__input="4000",
    )  # fmt: skip
    assert "of steps lie outside what was measured" in said(outside)


def test_a_profile_of_something_else_says_why_and_offers_what_it_fits(opened, went):
    page = opened("calibrate", profile="h200/llama-3.1-8b-bf16-tp1", workload__requests="30")
    assert not page.exception
    assert "It does not fit" in said(page)
    assert "model Llama-3.1-8B (the scenario has qwen3-tiny)" in said(page)
    page.button(key="profile:use").click().run()
    assert went == ["Explore"]
    settings: Settings = page.session_state["settings"]
    scenario = settings.scenario()
    assert (scenario.model.name, scenario.hardware.name, scenario.cost.profile) == (
        "Llama-3.1-8B", "H200", "h200/llama-3.1-8b-bf16-tp1",
    )  # fmt: skip


def test_a_profile_of_the_workspace_is_used_in_explore_by_a_link_that_holds(opened, workspace, went):
    (workspace / "out").mkdir()
    (workspace / "out" / "mine.json").write_bytes(shipped_bytes(SHIPPED))
    (workspace / "out" / "else.json").write_text("{}")
    page = opened("calibrate", profile="out/mine.json", workload__requests="30")
    assert not page.exception
    page.button(key="profile:use").click().run()
    assert went == ["Explore"]
    settings: Settings = page.session_state["settings"]
    assert settings.to_query()["cost"].startswith("{profile: ")
    assert settings.scenario().cost.profile.startswith(str(uploads.folder()))
    listed = [entry.name for entry in profile_shelf.every() if entry.file is not None]
    assert listed == ["out/mine.json"]  # not its copy


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../../etc/passwd.json", "lies outside the workspace"),
        ("out/none.json", "has no file out/none.json"),
        ("h200/llama", "unknown profile"),
        ("out/bad.json", "not JSON"),
    ],
)
def test_what_a_link_cannot_show_is_said_and_the_list_stays(opened, workspace, name, why):
    (workspace / "out").mkdir()
    (workspace / "out" / "bad.json").write_text('{"schema_version"')
    page = opened("calibrate", profile=name)
    assert not page.exception
    assert why in page.error[0].value
    assert len(page.dataframe[0].value) > 100


def test_settings_that_do_not_fit_together_leave_the_profile_readable(opened):
    page = opened("calibrate", profile=SHIPPED, scenario="upload:0123456789abcdef")
    assert not page.exception
    assert "which Explore mends" in said(page)
    assert titles(page) == [SHIPPED]


def test_this_machine_is_measured_and_the_profile_shown(opened, workspace, monkeypatch):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    monkeypatch.setitem(profile_measuring.SIZES, "small", TINY)
    page = opened("calibrate", part="measure", times="1")
    assert not page.exception
    assert "steps in all: about" in said(page)
    assert begin(page, "Measure", "calibrate").wait(300)
    page.run()
    assert "Done: out/profiles/qwen3-tiny-cpu.json" in said(page)
    next(b for b in page.button if b.label == "Show it").click().run()
    assert titles(page) == ["out/profiles/qwen3-tiny-cpu.json"]
    assert load_profile(workspace / "out/profiles/qwen3-tiny-cpu.json").source.device == "cpu"


def test_a_measurement_that_is_cancelled_leaves_nothing(opened, workspace):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    page = opened("calibrate", part="measure", grid="standard", times="9", size="medium")
    parts.jobs().cancel(begin(page, "Measure", "calibrate"))
    page.run()
    assert "Cancelled. Nothing was written" in said(page)
    assert not (workspace / profile_shelf.MADE).exists()


def test_without_the_engine_it_is_said_how_to_install_it(opened, monkeypatch):
    monkeypatch.setattr(profile_measuring, "find_spec", lambda name: None)
    page = opened("calibrate", part="measure")
    assert "torch is not installed" in said(page)
    assert page.code[0].value == "pip install 'servetwin[gpu]'"


@pytest.mark.parametrize("kind", ["profile", "steps", "llmservingsim", "vidur", "aiconfigurator"])
def test_every_kind_says_what_it_is(opened, kind):
    page = opened("calibrate", part="import", kind=kind)
    assert not page.exception
    assert not page.error
    assert len(page.caption[0].value) > 20


def work(function, *arguments):
    class Tell:
        def __call__(self, what, share): ...

    return function(Tell(), *arguments)


def test_a_file_is_imported_and_kept_in_the_workspace(workspace):
    folder = import_files.keep([("mine.json", shipped_bytes(SHIPPED))])
    file = profile_shelf.free("from elsewhere")
    made = work(calibrate_work.bring, folder / "mine.json", "profile", calibrate_work.Options(), file.stem, file)
    assert load_profile(made).name == "from-elsewhere"
    assert profile_shelf.free("from elsewhere") != file


def test_what_is_wrong_with_a_file_is_said_in_its_own_name(workspace):
    folder = import_files.keep([("steps.csv", b"a,b\n1,2\n")])
    with pytest.raises(InputError) as told:
        work(
            calibrate_work.bring, folder / "steps.csv", "steps", calibrate_work.Options(model="Qwen3-8B"), "x",
            profile_shelf.free("x"),
        )  # fmt: skip
    assert str(told.value).startswith("steps.csv")
    assert str(workspace) not in str(told.value)


def test_two_files_of_one_name_are_refused(workspace):
    with pytest.raises(InputError, match="two files of that name"):
        import_files.keep([("a.csv", b"1"), ("a.csv", b"2")])
    with pytest.raises(InputError, match="is empty"):
        import_files.keep([("a.csv", b"")])
