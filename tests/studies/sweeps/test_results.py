"""What a sweep is read with: points with intervals, tables, frames, folders."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import studies
from scenarios import InputError
from studies.replications import ALIKE
from studies.reports.tables import Table, label
from studies.statistics import intervals
from studies.sweeps import run, tables
from studies.sweeps.results import is_sweep, load_sweep
from tests.studies.sweeps import rows

RATES = {"workload.rate": [5, 10]}
BOTH = {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10]}
SMALL = {"base": "azure-conversation", "set": ["workload.requests=20"], "axes": BOTH, "seeds": 2}


def test_a_point_has_the_mean_of_its_seeds_with_students_interval():
    first, second = rows.sweep(RATES, rows.queueing).points(["p50_ttft_ms"])
    assert first.point.values == {"workload.rate": 5}
    assert first.figures["p50_ttft_ms"] == intervals.mean([312.5 + seed for seed in range(5)])
    assert first.by_seed["p50_ttft_ms"] == {seed: 312.5 + seed for seed in range(5)}
    assert second.figures["p50_ttft_ms"].estimate == 627
    assert (first.causes, second.causes) == ((), ("sequences",) * 5)


def test_four_seeds_give_no_interval_and_say_why():
    (point,) = rows.sweep({"workload.rate": [5]}, rows.queueing, seeds=4).points(["p50_ttft_ms"])
    assert point.figures["p50_ttft_ms"].half_width is None
    assert "4 replications" in point.figures["p50_ttft_ms"].refused


def test_seeds_that_change_nothing_are_no_sample():
    (point,) = rows.sweep({"workload.rate": [5]}, lambda *_: {"p50_ttft_ms": 7.0}).points()
    found = point.figures["p50_ttft_ms"]
    assert (found.estimate, found.low, found.refused) == (7.0, None, ALIKE)


def test_metrics_are_those_asked_for_else_the_studys_else_those_of_every_day():
    assert rows.sweep(RATES, rows.queueing).metrics() == ("p50_ttft_ms", "output_throughput", "good_request_fraction")
    named = rows.sweep(RATES, rows.queueing, metrics=["output_throughput"])
    assert named.metrics() == ("output_throughput",)
    assert named.metrics(["p95_ttft_ms"]) == ("p95_ttft_ms",)


@pytest.mark.parametrize(
    ("fields", "asked", "said"),
    [
        ({}, ["p50_tftt_ms"], "--metric: unknown metric 'p50_tftt_ms': did you mean 'p50_ttft_ms'?"),
        ({"metrics": ["output_throughput", "no"]}, None, "study: metrics[1]: unknown metric 'no'"),
    ],
)
def test_an_unknown_metric_is_refused_with_the_nearest_one(fields, asked, said):
    with pytest.raises(InputError) as refused:
        rows.sweep(RATES, rows.queueing, **fields).points(asked)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("key", ["binding.cause", "seed", "axis.workload.rate", "error"])
def test_what_is_no_figure_is_no_metric(key):
    with pytest.raises(InputError, match=f"unknown metric '{key}'"):
        rows.sweep(RATES, rows.queueing).points([key])


def test_json_has_counts_points_and_failures():
    def some_fail(values, seed):
        return {"error": "no room"} if values["workload.rate"] == 10 and seed == 1 else rows.queueing(values, seed)

    found = rows.sweep(RATES, some_fail).to_dict(["p50_ttft_ms"])
    assert {key: found[key] for key in found if key.startswith("cells_")} == {
        "cells_total": 10,
        "cells_run": 10,
        "cells_skipped": 0,
        "cells_failed": 1,
    }
    assert [point["failed"] for point in found["points"]] == [0, 1]
    assert found["points"][1]["figures"]["p50_ttft_ms"]["refused"] == "1 of 5 replications have no value"
    assert found["points"][1]["binds"] == "sequences"
    assert found["failures"] == [{"point": 1, "seed": 1, "error": "no room"}]
    json.dumps(found, allow_nan=False)


def test_the_table_has_a_column_for_each_axis_and_metric_and_says_what_is_withheld():
    found = tables.points(rows.sweep(BOTH, rows.queueing), ["p50_ttft_ms", "p95_ttft_ms"])
    assert found.head == ("max_num_seqs", "rate", "p50 TTFT (ms)", "p95 TTFT (ms)", "queue waits for")
    assert found.rows[0] == ("16", "5", "314.5 ± 2.0", "–", "–")
    assert found.rows[1] == ("16", "10", "627.0 ± 2.0", "–", "max_num_seqs")
    assert "± half of the 95 % interval of the mean over 5 seeds" in found.note
    assert "– p95 TTFT (ms): not every seed has one" in found.note


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (64, "64"),
        (16384, "16,384"),
        (2.476724, "2.477"),
        (20000.4, "20,000"),
        (True, "true"),
        (None, "none"),
        ({"process": "closed_loop", "concurrency": 4}, "process: closed_loop, concurrency: 4"),
        ([1, 2], "[1, 2]"),
        ("a" * 60 + "b", "a" * 22 + "…" + "a" * 21 + "b"),
    ],
)
def test_values_of_axes_are_short_and_can_be_told_apart(found, said):
    assert tables.value(found) == said


def test_figures_of_classes_are_named_by_them():
    assert label("by_class.chat.p95_ttft_ms") == "chat: p95 TTFT (ms)"
    assert label("by_tenant.a.b.output_throughput") == "a.b: output throughput (tok/s)"
    found = rows.sweep(RATES, lambda _, seed: {"by_class.chat.mean_ttft_ms": 10.0 + seed})
    assert tables.points(found, ["by_class.chat.mean_ttft_ms"]).head[1] == "chat: mean TTFT (ms)"


def test_of_many_points_the_terminal_shows_the_best():
    found = rows.sweep({"workload.rate": {"from": 1, "to": 50, "steps": 50}}, rows.queueing)
    shown = tables.points(found, ["output_throughput"])
    assert shown.title == "Best 20 of 50 points by output throughput (tok/s)"
    assert [row[0] for row in shown.rows[:3]] == ["50", "49", "48"]
    assert len(tables.points(found, ["output_throughput"], most=50).rows) == 50


def test_the_best_point_says_how_many_others_are_as_good():
    def near(values, seed):
        rate = values["workload.rate"]
        noise = np.random.default_rng([rate, seed]).normal()
        return {"p50_ttft_ms": {1: 100.0, 2: 100.1, 3: 900.0}[rate] + noise, "output_throughput": 10.0 * rate + noise}

    found = tables.best(rows.sweep({"workload.rate": [1, 2, 3]}, near), ["p50_ttft_ms", "output_throughput"])
    assert [(row[0], row[2]) for row in found.rows] == [("p50 TTFT (ms)", "1"), ("output throughput (tok/s)", "0")]
    assert found.rows[1][3] == "rate 3"


def test_cells_that_failed_alike_stand_in_one_row():
    def fails(values, seed):
        if values["engine.max_num_seqs"] == 64:
            return {"error": "too wide"}
        return {"error": "odd"} if seed == 3 and values["workload.rate"] == 5 else rows.queueing(values, seed)

    found = tables.failures(rows.sweep(BOTH, fails))
    assert found.title == "11 cells failed"
    assert found.rows == [
        ("odd", "max_num_seqs 16, rate 5, seed 3"),
        ("too wide", "max_num_seqs 64, rate 5\nmax_num_seqs 64, rate 10"),
    ]


def test_a_table_that_is_too_wide_is_folded_and_every_part_keeps_the_axes():
    whole = tables.points(
        rows.sweep(BOTH, rows.queueing), ["p50_ttft_ms", "output_throughput", "good_request_fraction"]
    )
    parts = tables.folded(whole, 2, 40)
    assert len(parts) > 1
    assert all(part.head[:2] == ("max_num_seqs", "rate") for part in parts)
    assert tuple(name.replace("\n", " ") for part in parts for name in part.head[2:]) == whole.head[2:]
    assert [part.note for part in parts[:-1]] == [""] * (len(parts) - 1)
    assert tables.folded(whole, 2, 400) == [whole]


def test_a_sweep_is_read_again_from_its_folder(tmp_path):
    done = run.sweep(SMALL, out=tmp_path / "o", processes=1)
    again = studies.load_sweep(tmp_path / "o")
    assert again.points() == done.points()
    assert again.table().equals(done.table())
    assert again.counts() == {"cells_total": 8, "cells_run": 0, "cells_skipped": 8, "cells_failed": 0}
    frame = again.frame()
    assert list(frame["axis.workload.rate"]) == [5, 5, 10, 10] * 2
    assert is_sweep(tmp_path / "o")
    assert not is_sweep(tmp_path)


def test_of_a_sweep_that_was_stopped_the_finished_cells_are_read(tmp_path):
    done = run.sweep(SMALL, out=tmp_path / "o", processes=1)
    (tmp_path / "o/table.parquet").unlink()
    files = sorted((tmp_path / "o/cells").iterdir())
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:100])
    again = load_sweep(tmp_path / "o")
    assert (len(again.rows), again.missing, again.counts()["cells_total"]) == (6, 2, 8)
    kept = [(row["point"], row["seed"]) for row in again.rows]
    assert kept == sorted(kept)
    assert all(row["mean_ttft_ms"] in [whole["mean_ttft_ms"] for whole in done.rows] for row in again.rows)


def test_a_folder_without_a_sweep_and_a_damaged_table_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no sweep \(it has no study.yaml\)"):
        load_sweep(tmp_path)
    run.sweep(SMALL | {"axes": RATES, "seeds": 1}, out=tmp_path / "o", processes=1)
    table = tmp_path / "o/table.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"table.parquet: damaged; give the sweep's command again"):
        load_sweep(tmp_path / "o")


def test_a_frame_without_pandas_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        rows.sweep(RATES, rows.queueing).frame()


def test_names_of_axes_break_at_underscores_where_they_would_take_half_of_the_width():
    whole = Table("", ("max_num_batched_tokens", "p50 TTFT (ms)"), [("512", "1"), ("8192", "2")])
    (one,) = tables.folded(whole, 1, 40)
    assert one.head[0] == "max_num_\nbatched_\ntokens"
    assert tables.folded(whole, 1, 80) == [whole]


def test_lists_in_words_break_between_their_parts():
    whole = Table("", ("", "best", "at"), [("p50 TTFT (ms)", "28", "max_num_seqs 64, rate 5, kv_cache_dtype fp8")])
    assert tables.narrow(whole, 50).rows[0][-1] == "max_num_seqs 64, rate 5,\nkv_cache_dtype fp8"
    assert tables.narrow(whole, 120) == whole
