"""The page that compares: variants in the link, slips, partial results, and what it shows."""

from __future__ import annotations

import math
import shlex

import pytest

import scenarios
from dashboard import parts
from dashboard.compare import table as comparison_table
from dashboard.compare import work as compare_work
from dashboard.compare.work import Compared
from dashboard.explore import work
from dashboard.jobs import Job
from studies import comparison
from studies.comparison.runs import rounds

FEW = {"workload__requests": "20", "seeds": "1"}


def changes(page) -> dict[str, str]:
    """Changes by the name of each row."""
    shown = {text.key: text.value for text in page.text_input if text.key.startswith("variant:")}
    return {shown[f"variant:name:{k}"]: shown[f"variant:changes:{k}"] for k in range((len(shown) - 1) // 2)}


def links(page) -> list[str]:
    return [page.query_params[name] for name in sorted(page.query_params) if name[0] == "v"]


def table(page) -> str:
    return next(html for html in page.get("html") if "compared-scroll" in html.proto.body).proto.body


def told(page) -> str:
    return " ".join(element.value for kind in (page.warning, page.error, page.info) for element in kind)


def test_a_link_with_variants_shows_each_with_its_difference(opened):
    page = opened("compare", v1="one: replicas=1", v2="two: replicas=2", **FEW)
    assert not page.exception
    assert changes(page) == {"one": "replicas=1", "two": "replicas=2"}
    assert all(text in table(page) for text in ("one", "two", "baseline", "USD per 1M tokens", "what binds it"))
    assert len(page.get("plotly_chart")) == 5


def test_without_variants_the_page_says_what_to_do(opened):
    page = opened("compare", seeds="1")
    assert changes(page) == {"demo": ""}
    assert "Choose a set above" in told(page)


def test_who_comes_with_changes_finds_them_against_the_scenario_as_it_is(opened):
    page = opened("compare", replicas="2", seeds="1")
    assert changes(page) == {"demo": "replicas=1", "replicas 2": ""}
    assert not links(page)


def test_taking_the_settings_moves_them_into_a_variant(opened):
    page = opened("compare", replicas="2", seeds="1")
    page.button(key="variant:take").click().run()
    assert not page.exception
    assert links(page) == ["demo", "replicas 2: replicas=2"]
    assert "replicas" not in page.query_params
    page.number_input(key="knob:replicas").set_value(3).run()
    page.button(key="variant:take").click().run()
    assert links(page) == ["demo", "replicas 2: replicas=2", "replicas 3: replicas=3"]


def test_a_ready_set_is_one_click(opened):
    page = opened("compare", **FEW)
    page.button(key="set:Replicas").click().run()
    assert links(page) == ["1 replica: replicas=1", "2 replicas: replicas=2", "4 replicas: replicas=4"]
    assert "4 replicas" in table(page)
    page.button(key="variant:none").click().run()
    assert not links(page)


def test_a_knob_and_a_value_make_a_variant(opened):
    page = opened("compare", v1="as set", **FEW)
    page.selectbox(key="variant:knob").set_value("replicas").run()
    page.number_input(key="variant:value:replicas").set_value(3).run()
    page.button(key="variant:add").click().run()
    assert links(page) == ["as set", "replicas 3: replicas=3"]
    page.button(key="variant:add").click().run()
    assert links(page)[2] == "replicas 3 (2): replicas=3"
    assert "replicas 3 (2) is the same as replicas 3" in told(page)


def test_a_value_that_is_set_already_is_no_variant(opened):
    page = opened("compare", v1="as set", **FEW)
    page.selectbox(key="variant:knob").set_value("replicas").run()
    page.button(key="variant:add").click().run()
    assert "Replicas has that value already" in told(page)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("prices.sheet={input: 1, output: 4}, replicas=2", "2 changes: prices.sheet={input: 1, output: 4}, replicas=2"),
        ("mine: replicas=2", "mine: replicas=2"),
    ],
)
def test_text_makes_a_variant(opened, text, row):
    page = opened("compare", v1="as set", **FEW)
    page.text_input(key="variant:text").set_value(text).run()
    assert links(page) == ["as set", row]
    assert page.text_input(key="variant:text").value == ""


def test_text_that_is_no_change_is_not_added(opened):
    page = opened("compare", v1="as set", **FEW)
    page.text_input(key="variant:text").set_value("a: more").run()
    assert "write a path and a value" in told(page)


def test_rows_are_renamed_changed_and_removed(opened):
    page = opened("compare", v1="a: replicas=1", v2="b: replicas=2", v3="c: replicas=3", **FEW)
    page.text_input(key="variant:name:1").set_value("two").run()
    page.text_input(key="variant:changes:1").set_value("replicas=4").run()
    page.button(key="variant:remove:0").click().run()
    assert links(page) == ["two: replicas=4", "c: replicas=3"]
    assert changes(page) == {"two": "replicas=4", "c": "replicas=3"}


def test_two_things_done_before_the_page_is_drawn_again_both_count(opened):
    page = opened("compare", v1="a: replicas=1", v2="b: replicas=2", v3="c: replicas=3", **FEW)
    page.text_input(key="variant:changes:0").set_value("replicas=5")
    page.button(key="variant:remove:2").click()
    page.number_input(key="compare:seeds").set_value(2).run()
    assert links(page) == ["a: replicas=5", "b: replicas=2"]
    assert page.query_params["seeds"] == "2"


def test_a_name_that_a_link_cannot_carry_stays_as_it_was(opened):
    page = opened("compare", v1="a: replicas=1", v2="b: replicas=2", **FEW)
    page.text_input(key="variant:name:1").set_value("b=c").run()
    assert links(page)[1] == "b: replicas=2"
    assert "stays b" in told(page)


def test_a_wrong_variant_is_told_by_name_and_the_others_run(opened):
    page = opened("compare", v1="a", v2="b: replicas=two", v3="c: replicas=2", **FEW)
    assert "Left out: b: replicas=two" in told(page)
    assert "Remove" in {button.label for button in page.button}
    assert ">c<" in table(page)
    assert ">b<" not in table(page)


def test_a_variant_that_only_its_run_refuses_is_told_too(opened):
    page = opened(
        "compare",
        scenario="azure-conversation",
        v1="bad: cost={profile: auto}, engine.dtype=int4",
        v2="a",
        v3="c: replicas=2",
        **FEW,
    )
    assert "Left out: bad: cost.profile" in told(page)
    assert 'a<span class="role">baseline' in table(page)
    assert "bad" not in page.code[0].value


def test_all_wrong_variants_leave_a_page_that_says_so(opened):
    page = opened("compare", v1="a: replicas=two", **FEW)
    assert not page.exception
    assert "nothing to run" in told(page)


@pytest.mark.parametrize("seeds", ["0", "x", "999", "1.5"])
def test_seeds_that_cannot_be_are_told_and_not_silently_replaced(opened, seeds):
    page = opened("compare", workload__requests="20", seeds=seeds)
    assert f"seeds={seeds}: seeds are a whole number from 1 to 50" in told(page)
    assert page.query_params["seeds"] == seeds


def test_figures_are_chosen_and_those_that_do_not_exist_are_told(opened):
    page = opened("compare", v1="a", v2="b: replicas=2", metrics="p75_ttft_ms,nonsense", **FEW)
    assert "nonsense: a run has no such figure" in told(page)
    assert "p75 TTFT (ms)" in table(page)
    assert "mean TPOT" not in table(page)
    page.multiselect(key="compare:metrics").set_value(["mean_tpot_ms"]).run()
    assert page.query_params["metrics"] == "mean_tpot_ms"
    assert "mean TPOT (ms)" in table(page)


def test_few_seeds_have_no_interval_and_the_page_says_so(opened):
    page = opened("compare", v1="a", v2="b: replicas=2", **FEW)
    assert "5 seeds give intervals" in told(page)
    assert "±" not in table(page)
    page.number_input(key="compare:seeds").set_value(5).run()
    assert "seeds" not in page.query_params
    assert "±" in table(page)
    assert "wins in" in told(page)


def test_the_command_line_is_there_to_copy(opened):
    page = opened("compare", v1="a: replicas=1", v2="b: replicas=2", **FEW)
    words = shlex.split(page.code[0].value)
    assert words[:3] == ["servetwin", "compare", "demo"]
    assert "b=replicas=2" in words


def test_a_long_comparison_waits_for_a_word(opened, monkeypatch):
    monkeypatch.setattr("dashboard.compare.page.PATIENCE", 0.0)
    page = opened("compare", v1="a", v2="b: replicas=2", **FEW)
    assert "2 runs will take about" in told(page)
    page.button(key="compare:run").click().run()
    assert ">b<" in table(page)


class _Slow(Job):
    """A job that is seen after each of its partial results."""

    def wait(self, seconds: float) -> bool:
        if self.arguments:
            self.partial, *rest = self.arguments
            self.arguments, self.partials = tuple(rest), self.partials + 1
            return False
        self.state = self.state if self.arguments else "done"
        return not self.arguments


def test_partial_results_are_shown_without_intervals_until_there_are_enough_seeds(opened, monkeypatch):
    monkeypatch.setattr(parts, "QUICK", 0.0)
    policies = {
        name: scenarios.load("demo", overrides=["workload.requests=20", f"replicas={k}"])
        for k, name in enumerate("ab", 1)
    }
    each = [Compared(found.without_steps()) for found in rounds(comparison.policies.Policies(policies), seeds=5)]
    drawn = []
    monkeypatch.setattr(parts, "ask", lambda *_: _Slow("k", work.simulate, tuple(each[:4]), result=each[4]))
    made = comparison_table.table
    monkeypatch.setattr(comparison_table, "table", lambda found, *more: drawn.append(found) or made(found, *more))
    page = opened("compare", v1="a: replicas=1", v2="b: replicas=2")
    assert not page.exception
    assert [len(found.seeds) for found in drawn] == [1, 2, 3, 4, 5]
    assert "±" in table(page)


class _Told:
    def __init__(self) -> None:
        self.said: list[tuple[str, float]] = []
        self.partials: list[Compared] = []

    def __call__(self, what: str, share: float) -> None:
        self.said.append((what, share))

    def partial(self, found: Compared) -> None:
        self.partials.append(found)


def some(**overrides: str) -> dict[str, scenarios.Scenario]:
    return {name: scenarios.load("demo", overrides=["workload.requests=20", text]) for name, text in overrides.items()}


def test_work_gives_what_a_comparison_in_one_go_gives():
    tell, policies = _Told(), some(a="replicas=1", b="replicas=2")
    found = compare_work.compare(tell, policies, 5, (), None).found
    assert found.to_dict() == comparison.compare(policies, seeds=5).to_dict()
    assert [len(each.found.seeds) for each in tell.partials] == [1, 2, 3, 4]
    assert tell.said[-1] == ("10 of 10 runs", 1.0)


def test_work_that_would_take_too_long_says_how_long_and_ends():
    tell = _Told()
    found = compare_work.compare(tell, some(a="replicas=1", b="replicas=2"), 5, (), 0.0)
    assert found.found is None
    assert 0 < found.seconds < math.inf
    assert not tell.partials
