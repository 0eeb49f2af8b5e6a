"""What is said of a search for the cheapest configuration, and of one for the fewest replicas."""

import json

from scenarios.objectives import parse_objective
from studies.capacity import cheapest_figure, cheapest_report, fewest_report
from studies.capacity.attainment import Attainment, Binding
from studies.capacity.cheapest import cheapest
from studies.capacity.replicas import fewest
from studies.capacity.space import space, usd_per_hour
from studies.reports import html
from studies.reports.strict_json import dumps
from studies.statistics.intervals import Interval
from tests.studies.capacity.judged import azure

TTFT, TPOT = parse_objective("ttft_p99 <= 500ms"), parse_objective("tpot_p95 <= 50ms")


class Judge:
    """As many replicas as `enough` keep both objectives; where there is one fewer it stays open."""

    objectives = (TTFT, TPOT)
    confidence = 0.95

    def __init__(self, enough, still_open=False):
        self.enough, self.still_open = enough, still_open

    def __call__(self, scenario, most=None):
        share = self.enough / scenario.replicas
        seeds = tuple(range(scenario.seed, scenario.seed + (most or 6)))
        nothing = Interval(0.0, 0.0, 0.0, len(seeds))
        met = None if self.still_open and scenario.replicas == self.enough - 1 else share <= 1
        return Attainment(
            met=met,
            sustained=True,
            intervals={
                str(TTFT): Interval(400 * share, 390 * share, 410 * share, len(seeds)),
                str(TPOT): Interval(45 * share, 44 * share, 46 * share, len(seeds)),
            },
            growth=nothing,
            lost=nothing,
            rows=tuple({"usd_per_hour": usd_per_hour(scenario), "p99_ttft_ms": 400 * share} for _ in seeds),
            seeds=seeds,
            requests=3000,
            binding=Binding(str(TPOT), "memory bandwidth", "Nobody waits."),
            why="" if met else "tpot_p95 <= 50ms is broken" if met is False else "too close to tell",
            runs=len(seeds),
        )


def found(enough, axes=None, **more):
    return cheapest(space({"axes": axes or {"replicas": [1, 2, 3, 4]}}, azure(), "space.yaml"), Judge(enough), **more)


def test_the_answer_names_the_price_the_nearest_limit_and_the_runner_up():
    said = cheapest_report.sentences(found(2))
    assert said[0] == (
        "Cheapest: replicas 2, 6 USD an hour. It keeps ttft_p99 <= 500ms and tpot_p95 <= 50ms at 95% confidence, and did again with 6 "
        "fresh seeds; tpot_p95 is nearest to its limit, at 90 % of it."
    )
    assert (
        said[2]
        == "Runner-up: replicas 3, 9 USD an hour: +50 % in cost; tpot_p95 is nearest to its limit, at 60 % of it."
    )


def test_where_nothing_does_the_nearest_is_named():
    said = cheapest_report.sentences(found(7))
    assert said == [
        "No configuration of 4 is known to keep ttft_p99 <= 500ms and tpot_p95 <= 50ms.",
        "Nearest: replicas 4, not met: tpot_p95 <= 50ms is broken; tpot_p95 is nearest to its limit, at 158 % of it.",
    ]


def test_what_is_cheaper_but_open_is_named():
    judge = Judge(3, still_open=True)
    open_ = cheapest(space({"axes": {"replicas": [1, 2, 3, 4]}}, azure()), judge)
    assert (
        cheapest_report.sentences(open_)[-1] == "Cheaper, but not known to keep them: replicas 2 (too close to tell)."
    )


def test_the_table_has_the_best_first_and_what_was_not_run_last():
    search = found(2, {"replicas": [1, 2, 3, 4, 5], "hardware": ["H100", "RTX-4090"], "engine.dtype": ["bfloat16"]})
    table, *_ = cheapest_report.found_tables(search)
    assert table.head[0] == "replicas, hardware, dtype"
    assert [row[-1] for row in table.rows][:2] == ["met", "met"]
    assert table.rows[-1][-1] == "not run: dearer"
    assert table.rows[0][0] == "2, RTX-4090, bfloat16 *"
    assert table.rows[0][3] == "400 ± 10"


def test_json_says_what_was_seen_of_every_configuration():
    search = found(2, {"replicas": [1, 2, 3, 4]})
    told = json.loads(dumps(cheapest_report.to_dict(search)))
    assert told["best"]["index"] == 1
    assert told["best"]["cost"]["estimate"] == 6.0
    assert told["dearer"]["relative"]["estimate"] == 0.5
    assert [c["outcome"] for c in told["configurations"]] == ["not met", "met", "met", "dearer"]
    assert told["counts"] == {"met": 2, "not_met": 1, "dearer": 1, "refused": 0, "not_decided": 0, "not_confirmed": 0}
    assert told["runs"] == 4 * 6  # three configurations, and the best again
    assert told["pareto"] == {"latency": "ttft_p99 <= 500ms", "configurations": [0, 1, 2]}


def test_the_figure_has_a_dot_for_each_that_was_run():
    drawn = cheapest_figure.figure(found(2))
    names = {trace["name"]: trace["x"] for trace in drawn["data"]}
    assert names == {"Pareto set": [3.0, 6.0, 9.0], "met": [6.0, 9.0], "not met": [3.0]}


def test_pages_can_be_written(tmp_path):
    assert "Cost against latency" in cheapest_report.write(found(2), tmp_path).read_text()
    assert "Cost against latency" in html.render(cheapest_report.page(found(9)))
    assert "of the limit" in fewest_report.write(fewest(azure(), "replicas", Judge(3)), tmp_path).read_text()


def test_an_interval_without_an_upper_end_is_drawn_as_far_as_it_is_known():
    assert fewest_report._shares(Interval(250.0, 200.0, None, 300), TTFT) == (50, 40, 50)


def test_a_page_says_why_configurations_are_refused():
    some = found(2, {"replicas": [1, 2, 3], "model": ["Llama-3.1-8B", "Llama-3.1-70B"]})
    assert "Refused: 3" in html.render(cheapest_report.page(some))
    assert "Refused" not in html.render(cheapest_report.page(found(2)))


def test_the_fewest_name_what_the_one_below_is_short_of():
    said = fewest_report.sentences(fewest(azure(), "replicas", Judge(3)))
    assert said == [
        "Fewest replicas: 3. It keeps ttft_p99 <= 500ms and tpot_p95 <= 50ms at 95% confidence; tpot_p95 is nearest to its limit, at "
        "90 % of it.",
        "replicas 2 is too few: tpot_p95 <= 50ms is broken. It is short of memory bandwidth. Nobody waits.",
        "It costs 9 USD an hour.",
    ]


def test_the_fewest_say_what_stayed_open():
    said = fewest_report.sentences(fewest(azure(), "replicas", Judge(3, still_open=True)))
    assert said[1] == "It may be 2 already: too close to tell."
    assert said[2].startswith("replicas 1 is too few")
