"""Policies under the same seeds: intervals, differences to a baseline, the Pareto set, and how they are written."""

import json
import pickle

import pyarrow.parquet as pq
import pytest

import scenarios
from scenarios import InputError
from studies import comparison
from studies.comparison import compare, decision, figures, files, runs
from studies.comparison.policies import gather
from studies.comparison.winners import winners
from studies.reports import html

SMALL = ["workload.requests=60"]
TAIL, COST = "p90_ttft_ms", "usd_per_1m_total_tokens"


@pytest.fixture(scope="module")
def found():
    """Three policies of which one is worse in everything."""
    return compare(
        "azure-conversation",
        overrides=SMALL,
        variants={"fp8": ["engine.kv_cache_dtype=fp8"], "narrow": ["engine.max_num_seqs=4"]},
        seeds=5,
    )


def test_every_policy_has_the_same_seeds_and_an_interval(found):
    assert found.seeds == (0, 1, 2, 3, 4)
    assert {r.seeds for r in found.replications.values()} == {found.seeds}
    interval = found.interval("fp8", TAIL)
    assert interval.n == 5
    assert interval.low < interval.estimate < interval.high


def test_a_difference_under_the_same_seeds_is_known_better_than_its_figures(found):
    here = found.difference("fp8", "mean_tpot_ms")
    assert here.verdict == "better"
    assert here.absolute.half_width < found.interval("fp8", "mean_tpot_ms").half_width


def test_the_baseline_is_the_first_or_the_one_that_is_named(found):
    assert found.baseline == "azure-conversation"
    turned = compare("demo", overrides=["workload.requests=5"], variants={"b": ["replicas=2"]}, seeds=1, baseline="b")
    assert turned.to_dict()["scenarios"][1]["differences"] is None
    with pytest.raises(InputError, match="--baseline c: unknown policy"):
        compare("demo", overrides=["workload.requests=5"], baseline="c")


def test_who_is_worse_in_everything_is_dominated(found):
    across = found.fronts.index((TAIL, COST))
    assert found.standings[across]["narrow"].mark == "dominated"
    table = decision.pareto(found)
    assert table.rows[2][1].startswith("no: ")


def test_the_decision_has_a_row_a_policy_with_its_difference_below_each_figure(found):
    table = decision.decision(found)
    assert [row[0] for row in table.rows] == ["azure-conversation", "fp8", "narrow"]
    assert "\n" not in table.rows[0][1]
    assert all("\n" in cell for cell in table.rows[2][1:-1])
    assert table.head[-1] == "binds"
    assert table.rows[2][-1] == "max_num_seqs"
    assert "Means over 5 seeds (0 to 4)" in table.note


def test_verdicts_say_in_what_a_policy_is_better_and_by_how_much(found):
    fp8, narrow = decision.verdicts(found)
    assert fp8.startswith("fp8 against azure-conversation: better in ")
    assert "worse in p90 TTFT (" in narrow


def test_many_policies_are_told_by_who_is_best():
    many = {str(n): [f"engine.max_num_seqs={n}"] for n in (1, 2, 3, 4, 6, 8, 16, 32)}
    found = compare("azure-conversation", overrides=["workload.requests=20"], variants=many, seeds=2)
    said = decision.verdicts(found)
    assert any(line.startswith("output throughput is highest with ") for line in said)
    assert not any(" against " in line for line in said)
    assert found.sentences()[0] not in decision.sentences(found)


def test_few_seeds_have_no_interval_and_decide_nothing():
    found = compare("demo", overrides=["workload.requests=20"], variants={"b": ["replicas=2"]}, seeds=2)
    assert "nobody knows which differences are chance" in decision.decision(found).note
    assert decision.pareto(found) is None
    assert decision.verdicts(found) == []


def test_a_replayed_trace_is_no_sample_and_says_so(tmp_path):
    trace = tmp_path / "t.csv"
    rows = "".join(f"2023-11-16 18:15:{s}.68,{300 + s},44\n" for s in range(10, 50))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    found = compare("azure-conversation", trace=trace, variants={"fp8": ["engine.kv_cache_dtype=fp8"]}, seeds=5)
    assert found.exact
    table = decision.decision(found)
    assert "change nothing here" in table.note
    assert not any("±" in cell for row in table.rows for cell in row)
    assert found.difference("fp8", "mean_tpot_ms").verdict == "better"


def test_a_percentile_that_is_asked_for_is_computed():
    found = compare("demo", overrides=["workload.requests=20"], seeds=1, metrics=["p75_ttft_ms", "p12.5_e2el_ms"])
    assert found.metrics == ("p75_ttft_ms", "p12.5_e2el_ms")
    assert found.interval("demo", "p12.5_e2el_ms").estimate > 0


def test_a_figure_that_samples_cannot_carry_is_a_dash_with_its_reason():
    found = compare("demo", overrides=["workload.requests=20"], seeds=1, metrics=["p99_ttft_ms"])
    table = decision.decision(found)
    assert table.rows[0][1] == "–"
    assert "– p99 TTFT: not every run of demo can carry it" in table.note


def test_a_scenario_with_another_seed_runs_under_those_of_the_first():
    a, b = (scenarios.load("demo", overrides=["workload.requests=5"], seed=seed) for seed in (3, 9))
    found = compare({"a": a, "b": b}, seeds=2)
    assert found.seeds == (3, 4)
    assert "b: seed 9 of its own is not among them" in decision.decision(found).note


def test_a_study_runs_as_many_seeds_as_it_says_or_as_it_is_told(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "base: demo\nset: [workload.requests=5]\naxes: {replicas: [1, 2]}\nseeds: [4, 7]\n"
    )
    assert compare(tmp_path / "s.yaml").seeds == (4, 7)
    assert compare(tmp_path / "s.yaml", seeds=3).seeds == (4, 7, 8)


def test_classes_and_pools_are_compared_too():
    found = compare("priority_classes", overrides=["workload.requests=60"], seeds=1)
    assert "interactive: p90 TTFT (ms)" in [head.replace("\n", " ") for head in decision.decision(found).head]
    assert found.fronts[0] == ("by_class.interactive.p90_ttft_ms", COST)
    pools = compare("cascade", overrides=["workload.requests=30"], seeds=1)
    assert decision.decision(pools).rows[0][-1] == "–"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fold_to_the_width_of_a_terminal(found, width):
    for table in decision.shown(found, width):
        lines = [[max(map(len, cell.split("\n"))) for cell in row] for row in (table.head, *table.rows)]
        assert sum(map(max, zip(*lines, strict=True))) + 3 * (len(table.head) - 1) <= width


def test_what_is_written_does_not_depend_on_the_number_of_processes(tmp_path, monkeypatch):
    folders = []
    for processes, short in ((1, 1e9), (2, -1.0)):
        monkeypatch.setattr(runs, "SHORT", short)
        found = compare(
            "demo", overrides=["workload.requests=10"], variants={"b": ["replicas=2"]}, seeds=2, processes=processes
        )
        comparison.write(found, tmp_path / str(processes))
        folders.append({path.name: path.read_bytes() for path in (tmp_path / str(processes)).iterdir()})
    assert folders[0] == folders[1]
    assert set(folders[0]) == {"compare.html", "compare.json", "compare.parquet"}


def test_the_table_has_a_row_a_policy_and_figure(found, tmp_path):
    comparison.write(found, tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "compare.parquet")
    rows = {(row["policy"], row["metric"]): row for row in table.to_pylist()}
    assert len(rows) == table.num_rows == 3 * len(found.figures)
    row, here = rows["fp8", TAIL], found.difference("fp8", TAIL)
    assert (row["difference"], row["relative_high"]) == (here.absolute.estimate, here.relative.high)
    assert row["verdict"] == here.verdict
    assert rows["azure-conversation", TAIL]["verdict"] is None
    about = json.loads(table.schema.metadata[b"comparison"])
    assert about["seeds"] == [0, 1, 2, 3, 4]
    assert about["pareto"][0]["standings"]["narrow"]["mark"] == "dominated"


def test_the_page_holds_the_decision_and_every_figure(found, tmp_path):
    page = comparison.write(found, tmp_path / "out").read_text()
    for part in ("Decision", "Pareto set", "Compared with azure-conversation", "Latency of requests", "What was run"):
        assert part in page
    for k in range(len(found.fronts)):
        drawn = figures.pareto(found, k)
        names = [name for trace in drawn["data"] for name in trace.get("text", ())]
        assert sorted(names) == sorted(found.runs)


def test_a_figure_of_differences_leaves_out_the_baseline_and_what_is_all_the_same(found):
    assert figures.change(found, "usd_per_hour") is None
    assert figures.change(found, TAIL)["data"][0]["y"] == ["narrow", "fp8"]


def test_json_keeps_the_figures_of_the_first_seed_beside_intervals(found):
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    first = told["scenarios"][0]
    assert first["mean_ttft_ms"] == found.runs["azure-conversation"].summary["mean_ttft_ms"]
    assert first["intervals"]["mean_ttft_ms"]["n"] == 5
    assert first["differences"] is None
    assert told["scenarios"][1]["differences"]["mean_tpot_ms"]["verdict"] == "better"
    assert told["pareto"][0]["metrics"] == [TAIL, COST]


def test_round_by_round_ends_where_one_go_does(found):
    given = gather(
        "azure-conversation",
        overrides=SMALL,
        variants={"fp8": ["engine.kv_cache_dtype=fp8"], "narrow": ["engine.max_num_seqs=4"]},
    )
    shares: list[float] = []
    each = list(runs.rounds(given, seeds=5, progress=lambda what, share: shares.append(share)))
    assert [len(one.seeds) for one in each] == [1, 2, 3, 4, 5]
    assert each[0].interval("fp8", TAIL).refused == "1 replications; an interval needs 5"
    assert each[-1].to_dict() == found.to_dict()
    assert shares == sorted(shares)
    assert (shares[0], shares[-1], len(shares)) == (0.0, 1.0, 16)


def test_rounds_come_in_order_whichever_process_is_first():
    ended = iter([(0, "a0"), (3, "b1"), (2, "a1"), (1, "b0"), (5, "b2"), (4, "a2")])
    assert list(runs._in_order(ended, 2)) == [["a0", "b0"], ["a1", "b1"], ["a2", "b2"]]


def test_who_stops_after_the_first_round_waits_for_no_other():
    first = next(iter(runs.rounds(gather("demo", overrides=["workload.requests=20"]), seeds=10_000)))
    assert first.seeds == (scenarios.load("demo").seed,)


def test_a_policy_that_cannot_run_is_told_by_name():
    given = gather(
        "azure-conversation", overrides=SMALL, variants={"unmeasured": ["cost={profile: auto}", "engine.dtype=int4"]}
    )
    with pytest.raises(runs.PolicyError, match=r"unmeasured: cost\.profile: ") as told:
        list(runs.rounds(given, seeds=1))
    assert told.value.policy == "unmeasured"
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


def test_all_that_is_written_needs_no_steps(found):
    light = found.without_steps()
    assert html.render(files.page(light)) == html.render(files.page(found))
    assert files.table(light).equals(files.table(found))
    assert len(pickle.dumps(light)) < len(pickle.dumps(found)) / 3


def test_the_winner_of_a_figure_is_better_than_every_other(found):
    said = winners(found, ["mean_tpot_ms", "output_throughput", "usd_per_hour"])
    assert found.difference("fp8", "mean_tpot_ms", "narrow").verdict == "worse"
    assert said.startswith("narrow wins in mean TPOT; fp8 wins in output throughput; ")
    assert "no difference is seen in USD per hour" in said


def test_who_cannot_be_told_from_the_best_shares_it():
    found = compare(
        "demo",
        overrides=["workload.requests=60"],
        variants={"same": ["engine.max_num_seqs=300"], "slow": ["engine.max_num_seqs=1"]},
        seeds=5,
    )
    assert winners(found, ["mean_ttft_ms"]).startswith(
        "demo and same are as good as each other, and better than the rest"
    )


def test_without_intervals_nobody_wins():
    found = compare("demo", overrides=["workload.requests=20"], variants={"b": ["replicas=2"]}, seeds=2)
    assert winners(found) == ""
