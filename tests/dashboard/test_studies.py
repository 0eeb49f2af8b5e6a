"""Studies: what the workspace holds, and one of them opened."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import streamlit as st
import yaml

import scenarios
import studies
from dashboard.settings import Settings
from dashboard.studies import cell_settings, kept
from dashboard.studies.sweep_figures import DOTS, HEAT, LINES, NONE, PARALLEL, Shape
from scenarios import InputError
from studies.sweeps import run
from studies.sweeps.results import load_sweep
from studies.sweeps.run import sweep
from tests.studies.sweeps import rows

QUESTION = "Does $load$ hurt?"
ASKED = {
    "base": "demo",
    "question": QUESTION,
    "answer": "It does.",
    "set": ["workload.requests=20"],
    "axes": {"engine.max_num_seqs": [2, 16], "workload.rate": [2, 20]},
    "seeds": 2,
    "expect": [
        {
            "metric": "p50_ttft_ms",
            "lower": {"engine.max_num_seqs": 16, "workload.rate": 20},
            "than": {"engine.max_num_seqs": 2, "workload.rate": 20},
        }
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A complete study, made once."""
    folder = tmp_path_factory.mktemp("made") / "batch"
    sweep(ASKED, out=folder, processes=1)
    return folder


@pytest.fixture
def study(workspace, made) -> Path:
    """A complete study in the workspace: out/batch."""
    return Path(shutil.copytree(made, workspace / "out" / "batch"))


@pytest.fixture
def went(monkeypatch) -> list[str]:
    """Pages that were switched to."""
    found: list[str] = []
    monkeypatch.setattr(st, "switch_page", lambda page: found.append(page.title))
    return found


def small_run() -> studies.Run:
    return studies.simulate(scenarios.load("demo", overrides=["workload.requests=20"]))


def said(page) -> str:
    kinds = (page.error, page.warning, page.info, page.caption, page.markdown, page.success)
    return "\n".join(element.value for kind in kinds for element in kind)


def figures(page) -> int:
    return len(page.get("plotly_chart"))


def test_an_empty_workspace_teaches_how_a_study_is_made(opened):
    page = opened("studies")
    assert not page.exception
    assert "no study in this workspace yet" in page.info[0].value
    assert page.code[0].value.count("servetwin sweep") == 2
    studies_file = page.code[1].value
    assert run.plan(studies.sweeps.study.parse(studies_file)).cells


def test_a_study_is_listed_with_its_question_and_its_cells(opened, study):
    page = opened("studies")
    assert not page.exception
    row = page.dataframe[0].value.iloc[0]
    assert (row["question"], row["cells"], row["failed"], row["folder"]) == (QUESTION, "8", 0, "out/batch")


def test_choosing_one_opens_it_and_stands_in_the_link(opened, study):
    page = opened("studies")
    page.selectbox(key="own:open").select("out/batch").run()
    assert page.query_params["folder"] in ("out/batch", ["out/batch"])
    assert page.header[0].value == "batch"
    page.button[0].click().run()  # back to all of them
    assert "folder" not in page.query_params


def test_a_link_opens_a_study_with_figures_points_and_expectations(opened, study):
    page = opened("studies", folder="out/batch")
    assert not page.exception
    assert not page.error
    assert figures(page) > 2
    points = page.dataframe[0].value
    assert list(points["rate"]) == [2, 20, 2, 20]
    assert not any(name.startswith("±") for name in points.columns)
    assert "There is none here: 2 replications; an interval needs 5" in said(page)
    assert "What the study expects" in said(page)
    assert "4 points x 2 seeds: 8 cells" in said(page)


def test_points_stand_with_their_intervals_where_there_are_some(opened, workspace):
    asked = {"base": "demo", "set": ["workload.requests=20"], "axes": {"replicas": [1, 2]}, "seeds": 5}
    found = sweep(asked, out=workspace / "five", processes=1).points(["p50_ttft_ms"])
    points = opened("studies", folder="five").dataframe[0].value
    assert list(points["± p50 TTFT (ms)"]) == [outcome.figures["p50_ttft_ms"].half_width for outcome in found]


def test_a_questions_dollars_are_no_formula(opened, study):
    assert r"Does \$load\$ hurt?" in said(opened("studies", folder="out/batch"))


@pytest.mark.parametrize("view", [LINES, HEAT, PARALLEL, DOTS])
def test_every_view_of_a_grid_is_drawn(opened, study, view):
    page = opened("studies", folder="out/batch", view=view, metric="p50_ttft_ms,output_throughput")
    assert not page.exception
    assert not page.warning
    assert figures(page) == (3 if view == PARALLEL else 2)
    assert page.selectbox(key="studies:view").value == view


def test_a_choice_stands_in_the_link_and_the_usual_one_does_not(opened, study):
    page = opened("studies", folder="out/batch")
    page.selectbox(key="studies:view").select(LINES).run()
    assert page.query_params["view"] in (LINES, [LINES])
    page.selectbox(key="studies:view").select(HEAT).run()
    assert "view" not in page.query_params
    page.multiselect(key="own:metric").set_value(["output_throughput", "duration"]).run()
    assert page.query_params["metric"] in ("output_throughput,duration", ["output_throughput,duration"])
    assert not page.exception


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"metric": "no_such_ms"}, "no_such_ms: no cell of this study has such a figure"),
        ({"view": "pie"}, "view=pie: there is no such choice; shown instead: Heat map"),
        ({"view": "lines", "x": "y"}, "x=y: there is no such choice"),
        ({"colour": "red"}, "colour=red: no page and no scenario has such a setting"),
    ],
)
def test_what_a_link_asks_for_and_cannot_have_is_told(opened, study, query, words):
    page = opened("studies", folder="out/batch", **query)
    assert words in said(page)
    assert figures(page)


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("../x", "outside the workspace"),
        ("/etc", "outside the workspace"),
        ("link", "outside the workspace"),
        ("out/none", "has no such folder"),
        ("out", "is no folder of a study or a run"),
        ("a" * 300, "no name of a file"),
    ],
)
def test_a_link_to_no_study_is_one_sentence(opened, study, workspace, folder, words):
    (workspace / "link").symlink_to("/etc")
    page = opened("studies", folder=folder)
    assert not page.exception
    (error,) = page.error
    assert words in error.value


def test_a_study_whose_files_lie_elsewhere_is_not_read(opened, study, workspace, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "study.yaml"
    shutil.move(study / "study.yaml", elsewhere)
    (study / "study.yaml").symlink_to(elsewhere)
    page = opened("studies", folder="out/batch")
    assert "outside the workspace" in page.error[0].value
    assert not figures(page)


@pytest.mark.parametrize(
    ("file", "words"),
    [("table.parquet", "table.parquet: damaged; give the sweep's command again"), ("study.yaml", "study.yaml")],
)
def test_a_damaged_study_is_one_sentence_and_is_listed_nevertheless(opened, study, file, words):
    (study / file).write_bytes(b"\0: [")
    page = opened("studies", folder="out/batch")
    assert not page.exception
    assert any(words in error.value for error in page.error)
    assert len(page.error) == 1
    assert len(opened("studies").dataframe[0].value) == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"x": [1, 2]},
        {"point": [0], "seed": [0], "error": [None]},
        {"point": ["a"] * 8, "seed": [0] * 8, "error": [None] * 8},
    ],
)
def test_a_foreign_table_is_one_sentence(opened, study, columns):
    pq.write_table(pa.table(columns), study / "table.parquet")
    page = opened("studies", folder="out/batch")
    assert not page.exception
    (error,) = page.error
    assert "table.parquet: " in error.value
    assert "give the sweep's command again" in error.value


def test_of_a_stopped_study_the_finished_cells_are_shown(opened, study):
    (study / "table.parquet").unlink()
    next((study / "cells").glob("*.parquet")).unlink()
    page = opened("studies", folder="out/batch")
    assert "7 of 8 cells are finished. The command that began this study goes on" in said(page)
    assert "1 were not run" in said(page)
    assert figures(page)


def test_a_study_that_is_being_written_says_so(opened, study):
    (study / "table.parquet").unlink()
    next((study / "cells").glob("*.parquet")).unlink()
    with (study / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        page = opened("studies", folder="out/batch")
        assert "A sweep is writing to this folder: 7 of 8 cells" in said(page)
        assert "running" in opened("studies").dataframe[0].value.iloc[0]["cells"]


def test_a_study_without_a_finished_cell_says_so(opened, study):
    (study / "table.parquet").unlink()
    shutil.rmtree(study / "cells")
    page = opened("studies", folder="out/batch")
    assert not page.exception
    assert "No cell is finished yet" in said(page)


def test_failed_cells_are_told_with_their_reasons(opened, workspace):
    asked = ASKED | {"axes": {"workload.requests": [10, -1]}, "expect": [], "set": []}
    sweep(asked, out=workspace / "some", allow_bad=True, processes=1)
    page = opened("studies", folder="some")
    assert not page.exception
    assert "2 cells failed" in said(page)
    assert "requests" in str(page.table[0].value)
    assert opened("studies").dataframe[0].value.iloc[0]["failed"] == 2


def test_a_run_is_listed_and_opened(opened, workspace, went):
    studies.save(small_run(), workspace / "mine")
    assert opened("studies").dataframe[0].value.iloc[0]["cells"] == "a run"
    page = opened("studies", folder="mine")
    assert not page.exception
    assert figures(page) >= 5
    page.button[1].click().run()
    assert went == ["Explore"]
    assert page.session_state["settings"].scenario().workload.requests == 20


def test_a_damaged_run_is_one_sentence(opened, workspace):
    studies.save(small_run(), workspace / "mine")
    (workspace / "mine" / "requests.parquet").write_bytes(b"no")
    page = opened("studies", folder="mine")
    assert not page.exception
    assert "requests.parquet: cannot be read" in page.error[0].value


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_points_settings_are_the_scenario_that_was_run(study, place):
    found = load_sweep(study)
    outcome = found.points()[place]
    for seed in outcome.by_seed["p50_ttft_ms"]:
        settings = cell_settings.of_point(found, outcome.point, seed)
        (row,) = (row for row in found.rows if (row["point"], row["seed"]) == (outcome.point.index, seed))
        assert settings.scenario().hash() == row["scenario_hash"]
        assert Settings(**vars(settings)) == settings


def test_a_scenario_within_the_study_is_opened_as_an_upload(workspace):
    base = scenarios.load("demo", overrides=["workload.requests=5"])
    asked = {"scenario": yaml.safe_load(base.to_yaml()), "axes": {"replicas": [1, 2]}, "seeds": 1}
    found = sweep(asked, out=workspace / "own", processes=1)
    settings = cell_settings.of_point(found, found.points()[1].point, base.seed)
    assert settings.base.startswith("upload:")
    assert settings.scenario().replicas == 2


def test_a_study_whose_base_is_gone_says_so(workspace, study):
    text = (study / "study.yaml").read_text().replace("base: demo", "base: gone.yaml")
    (study / "study.yaml").write_text(text)
    found = load_sweep(study)
    with pytest.raises(InputError, match="based on a file that the workspace has not"):
        cell_settings.of_point(found, found.points()[0].point, 0)
    (study / "study.yaml").write_text(text.replace("gone.yaml", "/etc/passwd"))
    found = load_sweep(study)
    with pytest.raises(InputError, match="outside the workspace"):
        cell_settings.of_point(found, found.points()[0].point, 0)


GRID = {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10], "engine.policy": ["fcfs", "priority"]}


@pytest.mark.parametrize(
    ("axes", "views"),
    [
        ({"workload.rate": [5, 10]}, [LINES, DOTS]),
        ({"engine.policy": ["fcfs", "priority"]}, [DOTS]),
        ({"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10]}, [HEAT, LINES, PARALLEL, DOTS]),
        (GRID, [PARALLEL, LINES, HEAT, DOTS]),
        ([{"zip": {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10]}}], [LINES, PARALLEL, DOTS]),
        ({"workload.rate": [5]}, []),
    ],
)
def test_views_that_make_sense_are_on_offer(axes, views):
    found = rows.sweep(axes, rows.queueing)
    assert set(Shape(found, found.metrics()).views()) == set(views)
    assert Shape(found, found.metrics()).views()[:1] == views[:1]


def test_an_axis_of_which_one_value_is_left_is_none_of_a_figure():
    def figures(values: dict, seed: int) -> dict:
        return {"error": "no"} if values["engine.policy"] == "priority" else rows.queueing(values, seed)

    shape = Shape(rows.sweep(GRID, figures), ("p50_ttft_ms",))
    assert list(shape.values) == ["engine.max_num_seqs", "workload.rate"]
    assert shape.views()[0] == HEAT
    assert len(shape.every) == 2 * len(shape.placed) == 8


def test_of_three_axes_a_heat_map_shows_two_at_a_value_of_the_third():
    found = rows.sweep(GRID, rows.queueing)
    shape = Shape(found, ("p50_ttft_ms",))
    assert shape.rest("engine.max_num_seqs", "workload.rate") == {"engine.policy": ["fcfs", "priority"]}
    ((_, figure, _),) = shape.drawn(HEAT, "engine.max_num_seqs", "workload.rate", {"engine.policy": "priority"})
    assert all("priority" in text for line in figure["data"][0]["customdata"] for text in line)


@pytest.mark.parametrize("view", [LINES, HEAT, DOTS, PARALLEL])
def test_a_mark_in_a_figure_leads_to_its_point(view):
    found = rows.sweep({"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10]}, rows.queueing)
    shape = Shape(found, ("p50_ttft_ms",))
    x, y = ("workload.rate", NONE) if view == LINES else ("engine.max_num_seqs", "workload.rate")
    y = "engine.max_num_seqs" if view == LINES else y
    figure = shape.drawn(view, x, y, {})[-1][1]
    reached = set()
    for k, trace in enumerate(figure["data"]):
        for i in range(len(trace.get("text", ())) if trace["type"] == "scatter" else 0):
            point = shape.clicked(figure, {"points": [{"curve_number": k, "point_number": i}]})
            assert f"rate {point.point.values['workload.rate']}" in trace["text"][i]
            reached.add(point.point.index)
    assert reached == {0, 1, 2, 3}
    assert shape.clicked(figure, {"points": []}) is None


def test_the_latest_is_listed_first(workspace, made):
    for age, name in enumerate(("new", "old")):
        folder = shutil.copytree(made, workspace / name)
        os.utime(folder / "table.parquet", (1e9 - 1e6 * age,) * 2)
    assert [each.folder for each in kept.every()[0]] == ["new", "old"]
