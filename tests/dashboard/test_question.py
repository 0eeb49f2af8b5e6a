from __future__ import annotations

import shlex

import pytest

from dashboard import command, question
from dashboard.capacity import query
from dashboard.compare import variants
from dashboard.settings import Settings, from_query
from studies import questions

NAMES = sorted(questions.names())


@pytest.mark.parametrize("name", NAMES)
def test_every_point_is_the_scenario_that_its_study_runs(name):
    told, study = question.of(name), questions.read(name)
    assert told.question
    assert told.topic
    seed = study.base_scenario().seed
    for settings, point in zip(told.points.values(), study.points(), strict=True):
        assert settings.scenario().hash() == study.scenario_of(point, seed).hash()
        assert from_query(settings.to_query()) == (settings, [])


def test_all_questions_are_on_offer_by_topic():
    assert sorted(name for _, name, _ in question.listed()) == NAMES


def test_the_settings_of_a_point_name_it():
    told = question.of("which_token_budget")
    called, settings = list(told.points.items())[3]
    assert question.point_of(told, settings) == called
    assert question.point_of(told, settings.changed("seed", "7")) is None


def test_the_line_for_a_shell_names_the_scenario_and_every_change():
    settings = Settings("demo", {"engine.max_num_seqs": "4", "workload.arrivals": "{process: poisson, rate: 3}"})
    assert command.line(settings) == (
        "servetwin run demo --set engine.max_num_seqs=4 --set 'workload.arrivals={process: poisson, rate: 3}'"
    )
    assert command.file(settings) is None


def test_the_line_of_a_question_carries_what_its_study_sets():
    settings = next(iter(question.of("which_token_budget").points.values()))
    assert command.line(settings).startswith("servetwin run azure-conversation --set workload.requests=2000")
    assert command.file(next(iter(question.of("how_many_users_fit").points.values()))) == "how_many_users_fit.yaml"


def test_the_lines_of_compare_and_capacity_begin_as_that_of_a_run():
    settings = next(iter(question.of("which_token_budget").points.values()))
    of_run = shlex.split(command.line(settings))[2:]
    asked = query.read({}, settings.scenario())
    two = [variants.Variant("as set"), variants.Variant("two", "replicas=2")]
    for line in (query.command(settings, asked), variants.command(settings, two, 5, [])):
        assert shlex.split(line)[2 : 2 + len(of_run)] == of_run


def test_an_unknown_question_is_reported(opened):
    page = opened(question="which_token_budge")
    assert not page.exception
    assert any("which_token_budget" in warning.value for warning in page.warning)


def test_a_question_is_chosen_at_the_side_and_its_point_sets_the_knobs(opened):
    page = opened()
    page.segmented_control(key="start").set_value("question").run()
    page.selectbox(key="asked").select("larger_batch_slower_tokens").run()
    assert not page.exception
    assert page.query_params["question"] == "larger_batch_slower_tokens"
    page.selectbox(key="point").select("max_num_seqs 8").run()
    assert not page.exception
    assert page.select_slider(key="knob:engine.max_num_seqs").value == 8
    assert page.query_params["engine.max_num_seqs"] == "8"
    page.segmented_control(key="start").set_value("scenario").run()
    page.selectbox(key="base").select("demo").run()
    assert "question" not in page.query_params
