"""Every question of the library is answered as its file says; docs/questions.md is what the files say."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from scenarios.errors import InputError
from studies import questions
from studies.stated_figures import Shown
from studies.sweeps.study import parse
from tests.studies import questions_page

TEXT = """
question: Does a larger load have more requests?
answer: Yes. Two have 2 times as many, 20 in all; latency is not asked for.
base: demo
set: [workload.arrivals.rate=20]
axes: {workload.requests: [10, 20]}
seeds: 5
expect: [{metric: completed, higher: {workload.requests: 20}, than: {workload.requests: 10}, by: 1.9}]
shown:
  - {say: 2 times, metric: completed, of: {workload.requests: 20}, against: {workload.requests: 10}}
  - {say: 20 in all, metric: completed, of: {workload.requests: 20}}
reduced: {set: [workload.arrivals.rate=50]}
"""
ask = partial(questions.ask, processes=1)
NAMES = [name for topic in questions.TOPICS.values() for name in topic]


def test_every_shipped_study_has_its_topic() -> None:
    assert sorted(NAMES) == list(questions.names())


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_still_has_its_direction(name: str) -> None:
    found = ask(name, small=True)
    assert found.holds, found.to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_says_what_it_rests_on(name: str) -> None:
    study = questions.read(name)
    assert study.question.endswith("?")
    assert study.assumes
    assert "servetwin" in study.on_hardware
    assert study.expect
    assert len(study.shown) >= 3
    assert len(study.seed_list()) >= 5


def test_the_page_is_what_the_files_say() -> None:
    # python -m tests.studies.questions_page writes it anew.
    assert questions_page.PAGE.read_text(encoding="utf-8") == questions_page.page()


def test_a_full_run_compares_the_figures_of_the_answer() -> None:
    found = ask(parse(TEXT))
    assert found.holds
    assert found.says_what_is
    assert [shown.say for shown, _, _ in found.figures] == ["2 times", "20 in all"]
    assert ask(parse(TEXT), small=True).figures == []
    assert ask(parse(TEXT), overrides=["workload.arrivals.rate=30"]).figures == []


def test_a_figure_has_its_interval_unless_seeds_change_nothing() -> None:
    shown = "{say: 20 in all, metric: completed, of: {workload.requests: 20}}"
    text = TEXT.replace(shown, f"{shown}\n  - {{say: 20 in all, metric: mean_ttft_ms, of: {{workload.requests: 20}}}}")
    _, same, drawn = [interval for _, interval, _ in ask(parse(text)).figures]
    assert (same.low, same.n, same.refused) == (None, 1, "the same with every seed")
    assert drawn.n == 5
    assert drawn.low < drawn.estimate < drawn.high


def test_a_figure_that_no_longer_comes_out_is_told() -> None:
    found = ask(parse(TEXT.replace("2 times", "3 times")))
    assert found.holds
    assert not found.says_what_is
    assert found.to_dict()["figures"][0]["same"] is False
    assert "differs" in found.tables()[1].rows[0]


@pytest.mark.parametrize(
    ("say", "metric", "against", "value", "half", "agrees"),
    [
        ("21.4 ms", "mean_tpot_ms", False, 21.44, None, True),
        ("21.4 ms", "mean_tpot_ms", False, 21.46, None, False),
        ("1.2 s", "mean_ttft_ms", False, 1249.0, None, True),
        ("97 %", "good_request_fraction", False, 0.974, None, True),
        ("97 %", "kv_cache_hit_percent", False, 97.4, None, True),
        ("$0.42", "usd_total", False, 0.4204, None, True),
        ("447 thousand tokens", "kv_capacity_tokens", False, 446_900.0, None, True),
        ("3,295", "output_throughput", False, 3295.4, None, True),
        ("3.1 times", "mean_tpot_ms", True, 3.14, None, True),
        ("31 %", "mean_tpot_ms", True, 0.69, None, True),
        ("31 %", "mean_tpot_ms", True, 1.312, None, True),
        ("21.4 ± 0.3 ms", "mean_tpot_ms", False, 21.4, 0.31, True),
        ("21.4 ± 0.3 ms", "mean_tpot_ms", False, 21.4, 0.36, False),
        ("21.4 ± 0.3 ms", "mean_tpot_ms", False, 21.4, None, False),
    ],
)
def test_a_stated_figure_agrees_to_the_digits_that_are_written(
    say: str, metric: str, against: bool, value: float, half: float | None, agrees: bool
) -> None:
    shown = Shown.model_validate({"say": say, "metric": metric, "of": {}} | ({"against": {}} if against else {}))
    assert shown.agrees(shown.in_its_unit(value), half) is agrees


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("say: 2 times", "say: two times"), "shown[0].say: write a number and its unit"),
        (("say: 2 times", "say: 3 times"), "shown[0].say: found 3 times, which the answer does not say"),
        (("say: 2 times", "say: 20 in all"), "but a comparison is written as 3.1 times or 31 %"),
        (("say: 20 in all, metric: completed, of: {workload.requests: 20}", "say: 20 in all, metric: completed, of: {workload.requests: 30}"), "shown[1].of: no point has"),
        (("metric: completed, of: {workload.requests: 20}}", "metric: completd, of: {workload.requests: 20}}"), "did you mean 'completed'"),
        (("metric: completed, higher", "metric: completd, higher"), "expect[0].metric: unknown metric"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_study_is_named(change: tuple[str, str], message: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(InputError) as refused:
        ask(parse(TEXT.replace(*change)))
    assert message in str(refused.value)


def test_the_command_lists_all(servetwin) -> None:
    code, out, _ = servetwin("question")
    assert code == 0
    for name in NAMES:
        assert name in out
    code, out, _ = servetwin("question", "--json")
    found = json.loads(out)
    assert code == 0
    assert list(found) == NAMES
    assert set(found[NAMES[0]]) == {"topic", "question", "answer"}


def test_the_command_answers_and_runs(servetwin, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TEXT)
    code, out, err = servetwin("question", "mine.yaml", "--workers", "1")
    assert code == 0
    assert "Does a larger load have more requests?" in out
    assert "Yes. Two have" in out
    assert "What the answer states" in out
    assert "Does it hold?" in out
    assert "mine:" in err
    code, out, _ = servetwin("question", "mine.yaml", "--small", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["holds"] is True
    assert found["figures"] == []
    assert found["expectations"][0]["is"] == 20


def test_a_question_about_something_else_says_so(servetwin, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TEXT)
    code, out, _ = servetwin("question", "mine.yaml", "--small", "--set", "engine.max_num_seqs=4")
    assert code == 0
    assert "The runs below are with engine.max_num_seqs=4." in " ".join(out.split())


def test_an_expectation_that_does_not_hold_ends_with_one(servetwin, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TEXT.replace("higher", "lower"))
    code, out, _ = servetwin("question", "mine.yaml", "--small")
    assert code == 1
    assert "NO" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["int4_at_batch_25"], "did you mean 'int4_at_batch_256'"),
        (["--small"], "--small: needs the name of a question, or --all"),
        (["int4_at_batch_256", "--all"], "--all: runs every shipped one"),
        (["int4_at_batch_256", "--small", "--set", "engine.dtyp=int8"], "engine.dtyp"),
        (["nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_mistakes_are_told(servetwin, arguments: list[str], message: str) -> None:
    code, _, err = servetwin("question", *arguments)
    assert code == 2
    assert message in " ".join(err.split())
