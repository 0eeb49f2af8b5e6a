from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
from rich.console import Console

import scenarios
from calibration.features import steps_to_shapes
from scenarios.errors import InputError
from scenarios.presets import PRESETS
from serving.metrics import summary
from serving.request import Cause, Status
from studies import figures, results, simulate
from studies.aspects.binding import binding, sampled_shapes, why_rejected
from studies.figures import over_time
from studies.reports import html, report, run_tables, tables
from studies.results import Run
from tests.studies.test_metrics import empty

SLO = SimpleNamespace(ttft=0.2, tpot=0.02, e2e=None)


class FlatCost:
    """Every step: 60 % linears, 40 % host."""

    name = "flat"

    def terms(self, shape):
        return {"linears": 60.0, "host": 40.0}

    def extrapolation(self, shape):
        return "too many decodes" if shape.decode_sequences > 3 else None


def as_run(driven, name: str = "small", **info) -> Run:
    s = summary(driven.records, slo=SLO, engine=driven.engine)
    found = binding(driven.records, driven.engine, FlatCost(), s["duration"])
    facts = {
        "name": name, "way": "simulate", "clock": "simulated", "seed": 1, "replicas": 1, "router": "round_robin", "objectives": [],
        "percentiles": [50, 90, 95, 99], "engine": asdict(driven.engine), "slo": vars(SLO), "binding": found,
        "model": "tiny", "hardware": "cpu", "cost": "flat", "versions": {"servetwin": "0"}, **info,
    }  # fmt: skip
    return Run(driven.records, s, facts, "name: small\n")


@pytest.fixture
def run(drive):
    rng = np.random.default_rng(1)
    rows = [(20 * i, int(rng.integers(1, 300)), int(rng.integers(1, 40))) for i in range(70)]
    return as_run(drive([*rows, (500, 5000, 5)], max_model_len=4096, max_num_seqs=8))


def test_a_saved_run_loads_as_it_was(run, tmp_path):
    results.save(run, tmp_path / "out")
    again = results.load(tmp_path / "out")
    for part in ("requests", "steps"):
        for name, column in getattr(run.records, part).items():
            np.testing.assert_array_equal(getattr(again.records, part)[name], column)
    for part in ("visible", "preempted", "aborted", "tenant", "session"):
        np.testing.assert_array_equal(getattr(again.records, part), getattr(run.records, part))
    assert again.summary["mean_ttft_ms"] == run.summary["mean_ttft_ms"]
    assert again.info["binding"]["sentence"] == run.info["binding"]["sentence"]
    assert again.scenario_yaml == "name: small\n"


def test_result_json_has_the_names_of_the_serving_benchmark_and_null_for_refusals(run, tmp_path):
    results.save(run, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    for key in ("mean_ttft_ms", "p90_tpot_ms", "request_throughput", "request_goodput", "max_concurrent_requests"):
        assert isinstance(found[key], (int, float)), key
    assert found["p99_ttft_ms"] is None
    assert found["rejected"] == 1


def test_a_failed_write_leaves_the_old_result_and_nothing_else(run, tmp_path):
    results.save(run, tmp_path / "out")
    broken = Run(run.records, run.summary | {"mean_ttft_ms": float("nan")}, run.info)
    with pytest.raises(ValueError, match="JSON"):
        results.save(broken, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert results.load(tmp_path / "out").summary["mean_ttft_ms"] == run.summary["mean_ttft_ms"]


def test_a_folder_with_other_files_is_not_overwritten(run, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds thesis\.txt"):
        results.save(run, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("damage", ["steps.parquet", "run.json", "result.json"])
def test_a_damaged_result_is_refused_by_file(run, tmp_path, damage):
    folder = results.save(run, tmp_path / "out")
    (folder / damage).write_bytes((folder / damage).read_bytes()[:20])
    with pytest.raises(InputError, match=damage.replace(".", r"\.")):
        results.load(folder)


def test_the_terminal_report_begins_with_kv_capacity_and_explains_dashes(run):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        report.show(run, console)
    text = console.export_text()
    places = [text.index(word) for word in ("KV capacity", "TTFT", "Throughput", "What binds", "Not modelled")]
    assert places == sorted(places)
    assert re.search(r"– E2E: too few independent requests \(.*p99: \d+ of 299\)", text)
    assert "Rejected: 1" in text
    assert "nan" not in text.lower().split()


def test_what_binds_is_the_queue_when_sequences_run_out(run):
    found = run.info["binding"]
    assert found["cause"] == "sequences"
    assert "max_num_seqs (8)" in found["sentence"]
    assert found["terms"] == pytest.approx({"linears": 0.6, "host": 0.4})
    assert 0 < found["extrapolated"] <= 1


def test_an_idle_engine_is_said_to_be_idle(drive):
    driven = drive([(5000 * i, 16, 2) for i in range(5)])
    found = binding(driven.records, driven.engine, FlatCost(), 20.11)
    assert found["cause"] is None
    assert found["sentence"].startswith("Nobody waits")


def test_a_wait_for_the_running_step_is_not_called_no_wait(drive):
    driven = drive([(500 * i + late, 16, 1) for i in range(10) for late in (0, 100)], prefill_ms=200)
    sentence = binding(driven.records, driven.engine, FlatCost(), 4.9)["sentence"]
    assert "queue time (p90" in sentence
    assert "Nobody waits" not in sentence


def test_rejected_requests_are_said_first(run):
    assert run.info["binding"]["sentence"].startswith(
        "1 of 71 requests are rejected: no empty engine could hold them. "
    )


def test_requests_that_limits_turned_away_are_not_called_too_large(drive):
    records = drive([(0, 16, 2)] * 5).records
    records.requests["status"][:3] = Status.REJECTED
    records.requests["cause"][:3] = [Cause.QUEUE_REQUESTS, Cause.LADDER, Cause.NEVER_FITS]
    assert why_rejected(records).startswith("2 turned away by declared limits")
    assert why_rejected(records).endswith("1 that no empty engine could hold")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_word_of_a_table_is_cut_where_the_terminal_is_narrow(width):
    heads = ("", "requests", "per request", "per 1M output", "met its SLO", "revenue so far", "margin so far")
    table = tables.Table("Cost", heads, [("a_tenant_of_ours and more", *["123,456"] * 6)])
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        report.show_table(table, console)
    text = console.export_text()
    assert "…" not in text
    assert text.count("123,456") == 6
    for word in ("a_tenant_of_ours", "requests", "output", "margin"):
        assert word in text


def test_a_rewritten_trace_is_told_on_the_terminal_and_in_the_page(run):
    run.info |= {"workload": "5 of 20 requests, 0.5 times as fast, lengths x 0.6852", "set": ["replicas=2"]}
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        report.show(run, console)
    for text in (console.export_text(), html.render(report.page(run)).split("<script>")[0]):
        assert "lengths x 0.6852" in text
        assert "set: replicas=2" in text


def test_the_page_holds_the_scenario_and_survives_text_that_no_file_can_hold(run, tmp_path):
    run.info["name"] = "broken \ud800"
    text = (report.save(run, tmp_path / "out") / "report.html").read_text()
    assert "<pre>name: small\n</pre>" in text
    assert "broken ?" in text


def test_the_cards_of_repeats_are_their_means(run):
    other = Run(run.records, run.summary | {"mean_ttft_ms": run.summary["mean_ttft_ms"] + 2}, run.info)
    mean = report.mean_summary([run, other])
    assert mean["mean_ttft_ms"] == pytest.approx(run.summary["mean_ttft_ms"] + 1)
    assert mean["completed"] == run.summary["completed"]
    assert mean["p99_ttft_ms"] is None


def test_a_full_kv_memory_is_named(drive):
    driven = drive([(0, 160, 60) for _ in range(12)], num_gpu_blocks=41)
    assert binding(driven.records, driven.engine, FlatCost(), 1.0)["cause"] == "kv"


def test_the_shape_of_a_recorded_step_keeps_its_sums(run):
    steps = run.records.steps
    for row, shape in enumerate(steps_to_shapes(steps)):
        assert shape.prefill_tokens == steps["prefill_tokens"][row]
        assert shape.tokens == steps["prefill_tokens"][row] + steps["decode_sequences"][row]
        assert shape.prefill_attention == pytest.approx(steps["prefill_attention"][row], abs=shape.prefill_tokens)


def test_a_run_without_steps_has_an_empty_report():
    records = empty(1)
    s = summary(records)
    run = Run(records, s, {"name": "nothing", "way": "simulate", "seed": 0})
    page = report.page(run)
    assert "nothing" in html.render(page)
    assert sampled_shapes(records) == []


def test_figures_are_valid_plotly_with_units_on_every_axis(run):
    found = [figure for _, figure, _ in report.figures_of(run)]
    found += [figures.predicted_against_measured(run.records, run.records, m) for m in ("ttft", "tpot", "e2el")]
    for figure in found:
        drawn = go.Figure(figure)
        for name, part in drawn.layout.to_plotly_json().items():
            if name.startswith(("xaxis", "yaxis")):
                text = part["title"]["text"]
                assert re.search(r"\((s|ms|%)\)|Requests|Tokens|blocks", text), text


def test_an_slo_is_drawn_where_it_is_also_on_a_logarithmic_axis(drive):
    slow = drive([(0, 16, 2), *[(0, 3000, 2)] * 60], max_model_len=4096)
    figure = figures.latency_cdf("ttft", {"a": slow.records}, SimpleNamespace(ttft=0.2, tpot=None, e2e=None))
    assert figure["layout"]["shapes"][0]["x0"] == 0.2
    assert "SLO 0.2 s" in figure["layout"]["annotations"][0]["text"]


def test_thinning_keeps_the_extremes_and_the_ends():
    rng = np.random.default_rng(0)
    x, y = np.arange(90_000.0), rng.normal(size=90_000)
    y[45_678] = 99
    a, b = figures.thin(x, y)
    assert len(a) <= 2002
    assert b.max() == 99
    assert b.min() == y.min()
    assert (a[0], a[-1]) == (0, 89_999)
    assert (np.diff(a) > 0).all()


def test_levels_of_replicas_are_summed_and_fall_to_zero_when_idle(drive):
    at, (level,) = over_time._summed(drive([(0, 16, 2), (1000, 16, 1)]).records, ("running",))
    assert dict(zip(at.tolist(), level.tolist(), strict=True)) == {0.0: 1, 0.1: 1, 0.11: 0, 1.0: 1, 1.1: 0}


def test_the_html_file_needs_no_network(run):
    text = html.render(report.page(run))
    assert text.count("<script>") == 2
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"'](?!data:)", text)
    assert "Plotly.newPlot" in text
    own = text.split("<script>")[0]
    assert "http" not in own
    assert "NaN" not in own


def test_text_of_a_scenario_cannot_break_the_page(run):
    run.info["name"] = "</script><b>x"
    own = html.render(report.page(run)).split("<script>/")[0].split("!function")[0]
    assert "<b>x" not in own


def test_a_long_run_makes_a_small_report_quickly(drive):
    driven = drive([(30 * i, 100, 20) for i in range(3000)], prefill_ms=5)
    run = as_run(driven)
    html.plotly_js()
    begin = time.process_time()
    text = html.render(report.page(run))
    taken = time.process_time() - begin
    assert taken < 2, f"{taken:.2f} s"  # 0.2 s on an idle machine
    assert len(text) - len(html.plotly_js()) < 600_000


def test_numbers_read_like_numbers():
    shown = [tables.number(v) for v in (None, 0, 3, 12_345, 0.01234, 123.456, 54_321.0, 1e-7)]
    assert shown == ["–", "0", "3", "12,345", "0.0123", "123", "54,321", "1.00e-07"]
    assert tables.percent(0.0123, signed=True) == "+1.2 %"
    assert tables.percent(-0.00001) == "0.0 %"
    assert tables.milliseconds(12_345.0) == "12.3 s"


@pytest.mark.parametrize(("field", "value"), [("engine", None), ("percentiles", 5), ("slo", 5), ("binding", None)])
def test_a_run_whose_facts_are_damaged_is_refused_by_field(run, tmp_path, field, value):
    folder = results.save(run, tmp_path / "out")
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(facts | {field: value}))
    with pytest.raises(InputError, match=rf"run\.json: {field}"):
        results.load(folder)


def test_a_target_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, why in (
        ("file/out", "is a file, not a folder"),
        ("a" * 300, "too long"),
        ("file", "a result is a folder"),
    ):
        with pytest.raises(InputError, match=why):
            results.check_target(tmp_path / folder)


def test_another_engine_and_a_group_of_devices_are_named():
    changes = ["hardware=H200", "workload.requests=12", "engine.preset=trtllm", "engine.tensor_parallel_size=2"]
    run = simulate(scenarios.load("demo", overrides=changes))
    assert "2 x H200" in run_tables.heading(run)
    lines = [line for line in run_tables.about(run) if line.startswith("engine")]
    assert lines == [f"engine trtllm@1.0: {PRESETS['trtllm@1.0'].about}"]
    plain = simulate(scenarios.load("demo", overrides=["workload.requests=12"]))
    assert not any(line.startswith("engine") for line in run_tables.about(plain))
