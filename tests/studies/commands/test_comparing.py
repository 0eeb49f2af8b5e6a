"""`servetwin compare`."""

import json
from pathlib import Path

import pytest

SMALL = ["--set", "workload.requests=20"]
FP8 = ["--variant", "fp8=engine.kv_cache_dtype=fp8"]


def test_variants_of_a_scenario_are_compared_as_a_decision(servetwin, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = servetwin("compare", "azure-conversation", *SMALL, *FP8)
    assert code == 0
    for part in ("Decision", "Pareto set", "Compared", "fp8 against azure-conversation: better in", "± "):
        assert part in out
    assert max(map(len, out.splitlines())) <= 80
    assert "simulating" in err


def test_figures_baseline_seeds_and_pareto_sets_may_be_chosen(servetwin):
    code, out, _ = servetwin(
        "compare", "azure-conversation", *SMALL, *FP8, "--seeds", "2", "--metric", "mean_e2el_ms", "--baseline", "fp8",
        "--pareto", "mean_tpot_ms,usd_per_hour", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert (found["seeds"], found["metrics"], found["baseline"]) == ([0, 1], ["mean_e2el_ms"], "fp8")
    assert [front["metrics"] for front in found["pareto"]] == [["mean_tpot_ms", "usd_per_hour"]]
    assert [s["name"] for s in found["scenarios"]] == ["azure-conversation", "fp8"]


def test_an_ablation_is_compared_by_the_names_of_its_variants(servetwin):
    code, out, _ = servetwin("compare", "batching", *SMALL, "--seeds", "1", "--out", "c")
    assert code == 0
    assert "prefill_first" in out
    assert "What do batches cost" in Path("c/compare.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--variant", "wide"], "write a name, a path and a value"),
        (["demo", "--variant", "wide=engine.max_num_seqz=3"], "max_num_seqs"),
        (["demo", "--variant", "a=replicas=2", "--variant", "a=replicas=3"], "there is another a"),
        (["batching", "--variant", "a=replicas=2"], "variants of its own"),
        (["demo", "--baseline", "demos"], "did you mean 'demo'"),
        (["demo", "--metric", "p95_ttft", *SMALL], "did you mean 'p95_ttft_ms'"),
        (["demo", "--pareto", "p95_ttft_ms"], "write two figures"),
        (["demo", "--pareto", "steps,p95_ttft_ms"], "of steps neither"),
        (["demo", "--pareto", "p95_ttft_ms,usd_per_1m_outputs_ms", *SMALL], "usd_per_1m_output_tokens"),
        (["demo", "--seeds", "0"], "--seeds 0"),
        (["batchin"], "did you mean 'batching'"),
        (["demo", "--out", "/proc/nowhere/c"], "/proc"),
    ],
)
def test_a_mistake_is_told_in_one_message_and_nothing_is_written(servetwin, tmp_path, arguments, named):
    code, out, err = servetwin("compare", *arguments)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_cannot_run_is_named(servetwin):
    code, _, err = servetwin("compare", "demo", *SMALL, "--variant", "lost=cost.profile=nothing.json")
    assert code == 2
    assert "lost" in err
    assert "nothing.json" in err
