"""Tables for notebooks say the same as the records, in seconds and with nulls where nothing happened."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import scenarios
import studies
from scenarios.errors import InputError
from studies import figures, frames
from studies.results import Run
from studies.run import simulate

RETRIES = [
    "admission={max_queue_requests: 1}",
    "client_behaviour={timeout: 3s, retries: 2}",
    "workload.arrivals.rate=20",
]


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate("demo")


@pytest.fixture(scope="module")
def retried() -> Run:
    return simulate(scenarios.load("demo", overrides=RETRIES))


def test_columns_are_those_that_are_documented(run: Run) -> None:
    for table, texts in ((run.requests(), frames.REQUESTS), (run.steps(), frames.STEPS)):
        assert table.column_names == list(texts)
        for name, text in texts.items():
            assert table.schema.field(name).metadata[b"description"].decode() == text


def test_figures_of_the_table_are_those_of_the_summary(run: Run) -> None:
    frame = run.frame()
    assert frame.ttft.mean() * 1e3 == pytest.approx(run.summary["mean_ttft_ms"])
    assert frame.tpot.mean() * 1e3 == pytest.approx(run.summary["mean_tpot_ms"])
    assert frame.e2e.quantile(0.9) * 1e3 == pytest.approx(run.summary["p90_e2el_ms"])
    assert frame.good.mean() == pytest.approx(run.summary["good_request_fraction"])
    assert frame.output_tokens.sum() == run.summary["total_output_tokens"]
    assert frame.usd.sum() == pytest.approx(run.summary["usd_total"] - run.summary["usd_idle"])


def test_steps_are_in_the_table(run: Run) -> None:
    frame = run.frame("steps")
    assert len(frame) == run.summary["steps"]
    assert set(frame.kind) <= {"prefill", "decode", "mixed"}
    assert (frame.end > frame.start).all()
    assert frame.sampled.sum() == run.summary["total_output_tokens"]


def test_tries_that_were_never_sent_are_left_out(retried: Run) -> None:
    frame = retried.frame()
    assert len(frame) == int(retried.records.submitted.sum()) < len(retried.records.requests["status"])
    last = frame[frame.last_attempt]
    assert len(last) == retried.summary["submitted"]
    assert (last.status == "finished").sum() == retried.summary["completed"]
    assert frame[frame.status == "rejected"].cause.eq("queue_requests").all()
    assert frame[frame.status != "finished"].ttft.isna().all()


def test_pools_and_conversations_have_their_columns() -> None:
    several = simulate(scenarios.load("cascade", overrides=["workload.requests=40"])).frame()
    assert set(several.attempt) == {0, 1}
    talk = simulate(scenarios.load("multi-turn", overrides=["workload.requests=40"])).frame()
    assert talk.session.notna().all()
    assert talk.cached_tokens.sum() > 0


def test_a_run_without_anybody_served_has_an_empty_look() -> None:
    run = simulate(scenarios.load("demo", overrides=["workload.requests=3", "horizon=1ms"]))
    assert run.requests()["ttft"].null_count == 3
    assert run.steps().num_rows == 0
    assert "<table>" in run._repr_html_()


def test_other_tables_are_refused(run: Run) -> None:
    with pytest.raises(InputError, match="allowed: requests, steps"):
        run.frame("rows")  # type: ignore[arg-type]


def test_without_pandas_the_remedy_is_told(run: Run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        run.frame()
    assert run.requests().num_rows == 100


@pytest.mark.parametrize("make", [figures.ttft_cdf, figures.tpot_cdf, figures.e2e_cdf, figures.load, figures.batches])
def test_figures_are_plotlys_own(run: Run, make) -> None:
    figure = make(run)
    assert figure.data
    assert figure.layout.xaxis.title.text.endswith("s)")


def test_distributions_of_several_runs_share_a_figure(run: Run) -> None:
    other = simulate(scenarios.load("demo", seed=1))
    figure = figures.ttft_cdf({"seed 0": run, "seed 1": other})
    assert [trace.name for trace in figure.data] == ["seed 0", "seed 1"]
    assert np.max(figure.data[0].y) == 100


def test_a_saved_run_reads_back_with_the_same_table(run: Run, tmp_path) -> None:
    studies.save(run, tmp_path / "run")
    again = studies.load(tmp_path / "run")
    same = [name for name in frames.REQUESTS if name != "usd"]
    assert again.requests().select(same).equals(run.requests().select(same))
