"""The page of a sweep, and the command that renders it again."""

from __future__ import annotations

import json

import pytest

from studies.sweeps import figures, page, run
from studies.sweeps.results import load_sweep
from tests.studies.sweeps import rows

SMALL = {
    "base": "azure-conversation",
    "set": ["workload.requests=20"],
    "axes": {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10]},
    "seeds": 2,
}
RATES = {"from": 1, "to": 16, "steps": 5, "spacing": "log"}
WIDTHS = [4, 16, 64]


def kinds(sweep, metrics=("p50_ttft_ms",)):
    return [{trace["type"] for trace in figure["data"]} for _, figure, _ in figures.drawn(sweep, list(metrics))]


def test_along_one_numeric_axis_stands_a_line_with_the_band_of_its_interval():
    ((title, figure, _),) = figures.drawn(rows.sweep({"workload.rate": RATES}, rows.queueing), ["output_throughput"])
    low, high, line = figure["data"]
    assert title == "output throughput (tok/s)"
    assert line["x"] == [1, 2, 4, 8, 16]
    assert line["y"] == [102, 202, 402, 802, 1602]
    assert high["fill"] == "tonexty"
    assert all(a < y < b for a, y, b in zip(low["y"], line["y"], high["y"], strict=True))
    assert figure["layout"]["xaxis"]["type"] == "log"  # equal ratios stand equally far apart
    assert figure["layout"]["xaxis"]["tickvals"] == [1, 2, 4, 8, 16]


def test_a_band_that_reaches_below_zero_ends_with_a_scale_of_ratios():
    def wide(values, seed):
        return {"p50_ttft_ms": 10.0 if values["workload.rate"] < 4 else 1000.0 * (1 + 2 * (seed == 0))}

    ((_, figure, _),) = figures.drawn(rows.sweep({"workload.rate": RATES}, wide), ["p50_ttft_ms"])
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert min(y for trace in figure["data"] for y in trace["y"]) > 0


def test_values_without_a_figure_keep_their_place_along_the_axis():
    def sparse(values, seed):
        return {"p95_ttft_ms": 10.0 + seed if values["workload.rate"] < 4 else None}

    ((_, figure, _),) = figures.drawn(rows.sweep({"workload.rate": [1, 3, 5, 7]}, sparse), ["p95_ttft_ms"])
    assert figure["data"][-1]["x"] == [1, 3]
    low, high = figure["layout"]["xaxis"]["range"]
    assert 0 < low < 1
    assert 7 < high < 8


def test_parts_of_a_whole_keep_their_scale_and_their_end():
    def falls(values, seed):
        return {"good_request_fraction": 0.99 + 0.002 * seed if values["workload.rate"] < 8 else 0.001}

    ((_, figure, _),) = figures.drawn(rows.sweep({"workload.rate": RATES}, falls), ["good_request_fraction"])
    assert "type" not in figure["layout"]["yaxis"]
    assert max(y for trace in figure["data"] for y in trace["y"]) <= 1


def test_variants_stand_below_one_another_with_their_intervals():
    variants = [{"variants": {"open": [], "bounded": ["engine.max_num_seqs=16"]}}]
    ((_, figure, _),) = figures.drawn(rows.sweep(variants, rows.queueing), ["p50_ttft_ms"])
    (mark,) = figure["data"]
    assert mark["y"] == ["open", "bounded"]
    assert min(mark["error_x"]["array"]) > 0


def test_of_two_axes_one_may_have_a_line_for_each_of_its_names():
    ((_, figure, _),) = figures.drawn(
        rows.sweep({"engine.batching": ["chunked", "static"], "workload.rate": [1, 2, 4]}, rows.queueing),
        ["p50_ttft_ms"],
    )
    assert [trace["name"] for trace in figure["data"] if trace.get("name")] == ["chunked", "static"]
    assert figure["layout"]["showlegend"] is True


def test_two_numeric_axes_are_a_map_that_is_brighter_where_it_is_better():
    def some(values, seed):
        if values["engine.max_num_seqs"] == 4 and values["workload.rate"] == 16:
            return {"error": "no"}
        return rows.queueing(values, seed)

    sweep = rows.sweep({"engine.max_num_seqs": WIDTHS, "workload.rate": RATES}, some)
    (_, latency, _), (_, throughput, _) = figures.drawn(sweep, ["p50_ttft_ms", "output_throughput"])
    (found,) = latency["data"]
    assert (found["x"], found["y"]) == (["4", "16", "64"], ["1", "2", "4", "8", "16"])
    assert (found["reversescale"], throughput["data"][0]["reversescale"]) == (True, False)
    assert found["z"][4][0] is None
    assert [note["text"] for note in latency["layout"]["annotations"]] == ["failed"]
    assert found["text"][0] == ["252", "64.5", "17.6"]


def test_axes_that_go_together_are_a_line_and_not_a_map():
    zipped = [{"zip": {"engine.max_num_seqs": WIDTHS, "workload.rate": [1, 2, 4]}}]
    ((_, figure, _),) = figures.drawn(rows.sweep(zipped, rows.queueing), ["p50_ttft_ms"])
    assert figure["data"][-1]["x"] == WIDTHS


def test_more_axes_and_points_that_were_drawn_are_parallel_coordinates():
    three = {"engine.max_num_seqs": WIDTHS, "workload.rate": [1, 2], "engine.batching": ["chunked", "static"]}
    assert kinds(rows.sweep(three, rows.queueing)) == [{"parcoords"}, {"scatter"}, {"scatter"}, {"scatter"}]
    drawn = {
        "points": 12,
        "of": {"engine.max_num_seqs": {"from": 4, "to": 64, "integer": True}, "workload.rate": [1, 2]},
    }
    sweep = rows.sweep([{"random": drawn}], rows.queueing)
    assert kinds(sweep) == [{"parcoords"}, {"scatter"}, {"scatter"}]
    lines = figures.drawn(sweep, ["p50_ttft_ms"])[0][1]["data"][0]["dimensions"]
    assert [line["label"] for line in lines] == ["max_num_seqs", "rate", "p50 TTFT (ms)"]
    assert {len(line["values"]) for line in lines} == {12}


def test_an_axis_of_which_all_but_one_value_failed_is_no_axis_of_the_figure():
    def some(values, seed):
        return {"error": "no"} if values["engine.batching"] == "static" else rows.queueing(values, seed)

    three = {"engine.max_num_seqs": WIDTHS, "workload.rate": [1, 2], "engine.batching": ["chunked", "static"]}
    assert kinds(rows.sweep(three, some)) == [{"heatmap"}]


def test_a_study_of_one_point_has_no_figure():
    assert figures.drawn(rows.sweep({"workload.rate": [5]}, rows.queueing)) == []


def test_a_page_has_the_question_every_point_and_what_failed_and_no_address_of_a_network(tmp_path):
    def some(values, seed):
        return {"error": "<no room>"} if values["workload.rate"] == 10 else rows.queueing(values, seed)

    sweep = rows.sweep(SMALL["axes"], some, question="How wide?")
    text = page.write(sweep, tmp_path).read_text()
    body = text[: text.index("</main>")]
    assert "How wide?\n4 points x 5 seeds: 20 cells, 10 of them failed" in body
    assert "<td>314.5 ± 2.0</td>" in body
    assert "10 cells failed" in body
    assert "&lt;no room&gt;" in body
    assert "http" not in body
    with pytest.raises(ValueError, match="folder"):
        page.write(sweep)


def test_names_with_a_hyphen_stay_whole_and_long_ones_break_after_underscores(tmp_path):
    sweep = rows.sweep([{"variants": {"two-l40s": [], "one_a100": ["engine.max_num_seqs=16"]}}], rows.queueing)
    body = page.write(sweep, tmp_path).read_text()
    assert '<td><span class="whole">two-l40s</span></td>' in body
    assert "<td>one_<wbr>a100</td>" in body


def test_parallel_coordinates_have_room_for_their_names_on_a_narrow_screen(tmp_path):
    axes = {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10], "engine.max_num_batched_tokens": [512, 2048]}
    assert 'style="min-width:' in page.write(rows.sweep(axes, rows.queueing), tmp_path).read_text()


def test_a_sweep_where_every_cell_failed_has_a_page_too(tmp_path):
    sweep = rows.sweep(SMALL["axes"], lambda *_: {"error": "no"})
    assert "20 cells failed" in page.write(sweep, tmp_path).read_text()


def test_the_command_writes_the_page_and_report_renders_the_same_again(servetwin, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(SMALL | {"metrics": ["mean_ttft_ms"]}))
    code, out, err = servetwin("sweep", "s.yaml", "--workers", "1")
    assert code == 0, err
    file = tmp_path / "out/s/sweep.html"
    assert f"wrote {file.relative_to(tmp_path)}" in err
    assert "mean" in out
    written = file.read_bytes()
    file.unlink()
    code, again, err = servetwin("report", "out/s")
    assert (code, again) == (0, out)
    assert file.read_bytes() == written
    code, out, err = servetwin("report", "out/s", "--json")
    found = json.loads(out)
    assert (code, found["study"], found["cells_total"], found["cells_skipped"]) == (0, "s", 8, 8)
    assert list(found["points"][0]["figures"]) == ["mean_ttft_ms"]


def test_report_of_a_sweep_that_was_stopped_says_what_is_missing(servetwin, tmp_path):
    run.sweep(SMALL, out=tmp_path / "o", processes=1)
    (tmp_path / "o/table.parquet").unlink()
    for file in sorted((tmp_path / "o/cells").iterdir())[:3]:
        file.unlink()
    code, _, err = servetwin("report", "o")
    assert code == 0
    assert "o: 3 cells were not run; the sweep's command goes on with them" in err
    assert "3 were not run" in (tmp_path / "o/sweep.html").read_text()
    for file in (tmp_path / "o/cells").iterdir():
        file.unlink()
    assert servetwin("report", "o")[0] == 0


def test_a_metric_that_no_cell_has_is_refused_and_the_cells_are_kept(servetwin, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(SMALL))
    code, _, err = servetwin("sweep", "s.yaml", "--workers", "1", "--metric", "mean_tftt_ms")
    assert code == 2
    assert "--metric: unknown metric 'mean_tftt_ms': did you mean 'mean_ttft_ms'?" in err
    assert load_sweep(tmp_path / "out/s").missing == 0
