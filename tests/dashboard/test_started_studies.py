"""A small study of the present scenario: planned, started from the page, and gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

import studies
from dashboard.knobs import of as knobs_of
from dashboard.settings import Settings
from dashboard.studies import sweep_form
from dashboard.studies import work as sweep_work
from scenarios import InputError
from studies.sweeps.run import sweep
from tests.dashboard.test_studies import figures, said


def knob(path: str):
    return next(found for found in knobs_of(Settings().scenario()) if found.path == path)


def test_values_are_read_in_the_unit_of_the_knob():
    assert sweep_form.values(knob("workload.arrivals.rate"), "1, 2.5") == [1, 2.5]
    assert sweep_form.values(knob("slo.ttft"), "250, 500") == ["250ms", "500ms"]
    assert sweep_form.values(knob("engine.policy"), "fcfs, priority") == ["fcfs", "priority"]
    assert sweep_form.values(knob("engine.enable_prefix_caching"), "true, false") == [True, False]


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("workload.arrivals.rate", "", "none are given"),
        ("workload.arrivals.rate", "1, many", "found 'many', but a number is needed"),
        ("workload.arrivals.rate", "1, [", "values of"),
        ("replicas", "0", "allowed: 1 to"),
    ],
)
def test_values_that_a_knob_cannot_have_are_refused(path, text, words):
    with pytest.raises(InputError, match="values of") as error:
        sweep_form.values(knob(path), text)
    assert words in str(error.value)


def test_the_usual_values_of_every_knob_make_a_study():
    for each in knobs_of(Settings().scenario()):
        if each.path not in ("seed", "model", "hardware"):
            axes = {each.path: sweep_form.values(each, sweep_form.usual(each))}
            assert sweep_form.planned(Settings(), axes, 1).cells


def test_a_study_of_too_many_cells_is_left_to_the_terminal():
    with pytest.raises(InputError, match="a page starts at most 400"):
        sweep_form.planned(Settings(), {"workload.arrivals.rate": list(range(1, 50))}, 10)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("workload.input", {"distribution": "empirical", "file": "{}"}),
        ("workload.trace", {"path": "{}"}),
        ("cost", {"profile": "{}"}),
        ("model", "{}"),
    ],
)
def test_no_value_of_a_study_reads_a_file_outside_the_workspace(workspace, tmp_path_factory, path, value):
    file = tmp_path_factory.mktemp("elsewhere") / "kept.csv"
    file.write_text("secret,b\n1,2\n")
    named = str(file) if isinstance(value, str) else {k: v.format(file) for k, v in value.items()}
    with pytest.raises(InputError, match="outside the workspace") as error:
        sweep_form.planned(Settings(), {path: [named]}, 1)
    assert "secret" not in str(error.value)


def test_a_study_can_be_made_of_a_question(workspace):
    settings = Settings("question:batch_jobs_beside_interactive", {"slo.ttft": "2s"})
    planned = sweep_form.planned(settings, {"replicas": [1, 2]}, 1)
    assert planned.study.base_scenario().hash() == settings.scenario().hash()


def test_a_started_study_is_a_file_that_the_terminal_goes_on_with(workspace, monkeypatch):
    settings = Settings("demo", {"workload.requests": "20"})
    planned = sweep_form.planned(settings, {"replicas": [1, 2]}, 1)
    begun = sweep_form.write(planned, "../odd name")
    assert begun.folder == "out/sweeps/odd-name"
    told = []
    done = sweep_work.sweep(Told(told), workspace / begun.file, workspace / begun.folder)
    assert told[-1] == ("2 of 2 cells", 1.0)
    monkeypatch.chdir(workspace)
    _, _, file, _, folder, _ = begun.command.split()
    again = sweep(Path(file), out=folder, allow_bad=True)
    assert (again.run, again.skipped) == (0, 2)
    assert again.rows == done.rows
    assert sweep_form.begun_as(begun.folder) == begun
    assert sweep_form.begun_as("out/batch") is None


def test_another_study_of_the_same_name_is_refused(workspace):
    settings = Settings("demo", {"workload.requests": "20"})
    sweep_form.write(sweep_form.planned(settings, {"replicas": [1, 2]}, 1), "mine")
    sweep_form.write(sweep_form.planned(settings, {"replicas": [1, 2]}, 1), "mine")
    with pytest.raises(InputError, match="another study of that name"):
        sweep_form.write(sweep_form.planned(settings, {"replicas": [1, 3]}, 1), "mine")


def test_a_small_study_is_started_run_and_opened(opened, workspace):
    page = opened("studies", vary="replicas", values="1, 2", seeds="1", workload__requests="20")
    assert not page.exception
    assert not page.error
    (start,) = (button for button in page.button if button.label == "Run 2 cells")
    start.click().run()
    assert not page.exception
    assert "All 2 cells are done" in said(page)
    (look,) = (button for button in page.button if button.label == "Open it")
    look.click().run()
    assert page.query_params["folder"] in ("out/sweeps/demo-replicas", ["out/sweeps/demo-replicas"])
    assert figures(page)


def test_what_cannot_be_started_is_one_sentence(opened):
    page = opened("studies", vary="replicas", values="0, 2")
    assert "allowed: 1 to" in page.error[0].value
    assert not any(button.label.startswith("Run") for button in page.button)


def test_a_cancelled_study_keeps_its_cells_and_goes_on(opened, workspace):
    page = opened("studies", vary="replicas", values="1, 2", seeds="1", workload__requests="20")
    next(button for button in page.button if button.label == "Run 2 cells").click().run()
    running = page.session_state["errand:studies"]
    running.job.state = "cancelled"
    page.run()
    assert "Cancelled. Cells that are finished are kept" in said(page)
    assert any("--out out/sweeps/demo-replicas" in code.value for code in page.code)
    next(button for button in page.button if button.label == "Go on").click().run()
    assert "All 2 cells are done" in said(page)


class Told:
    """Takes down what a function tells."""

    def __init__(self, told: list) -> None:
        self.told = told

    def __call__(self, what: str, share: float) -> None:
        self.told.append((what, share))

    def partial(self, found: object) -> None:
        self.told.append(found)


def test_what_is_finished_is_shown_while_others_run(workspace, monkeypatch):
    monkeypatch.setattr(sweep_work, "PAUSE", 0.0)
    settings = Settings("demo", {"workload.requests": "20"})
    begun = sweep_form.write(sweep_form.planned(settings, {"replicas": [1, 2, 3]}, 1), "mine")
    told: list = []
    sweep_work.sweep(Told(told), workspace / begun.file, workspace / begun.folder)
    partial = next(found for found in told if isinstance(found, studies.sweeps.results.Sweep))
    assert 0 < len(partial.rows) < 3
    assert partial.missing == 3 - len(partial.rows)
