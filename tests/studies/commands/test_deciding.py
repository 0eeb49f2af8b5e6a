"""`servetwin decide`."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

SMALL = ["--set", "workload.requests=20", "--set", "cost.profile=auto", "--metric", "mean_ttft_ms", "--workers", "1"]
BUDGET = ["--variant", "budget=engine.max_num_batched_tokens=512"]
CERTAIN = [
    "--set", "workload.requests=20", "--set", "engine.num_gpu_blocks=2000", "--set", "workload.arrivals={process: constant, rate: 20}",
    "--set", "workload.input=200", "--set", "workload.output=20", "--metric", "mean_tpot_ms",
]  # fmt: skip


def test_a_decision_says_how_sure_it_is_and_what_it_hangs_on(servetwin):
    code, out, err = servetwin("decide", "azure-conversation", *SMALL, *BUDGET, "--worlds", "48", "--out", "d")
    assert code == 0
    for part in (
        "48 worlds",
        "What it hangs on",
        "KV capacity on H100",
        "azure-conversation",
        "budget",
        "Taken as certain",
    ):
        assert part in out
    assert "worlds" in err
    page = Path("d/decide.html").read_text()
    assert "azure-conversation or budget?" in page
    assert "What the spread comes from" in page
    table = pq.read_table("d/worlds.parquet")
    assert table.num_rows == 48
    assert {"seed", "kv-capacity of vllm@0.32 on H100", "first.mean_ttft_ms"} <= set(table.column_names)
    assert json.loads(Path("d/decide.json").read_text())["worlds"] == 48


def test_json_holds_the_chance_with_its_interval_and_every_input(servetwin):
    two = ["--variant", "a=hardware=A100-80G", "--variant", "b=hardware=H200"]
    code, out, _ = servetwin("decide", "azure-conversation", *SMALL, *two, "--worlds", "20", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["first"], found["second"], found["settled"]) == ("a", "b", "b")
    assert found["second_is_better"]["estimate"] == 1
    assert found["second_is_better"]["low"] < 1
    assert {"linears", "kv-capacity"} <= {one["input"] for one in found["inputs"]}
    assert {one["input"] for one in found["without_stated_uncertainty"]} == {"element-wise", "host"}


def test_a_range_makes_an_assumption_uncertain(servetwin):
    ranges = ["--range", "host=0.5..2", "--range", "memory-efficiency=0.8..1.1"]
    code, out, _ = servetwin(
        "decide", "azure-conversation", "--set", "workload.requests=20", "--variant", "a=hardware=A100-80G", *ranges, "--workers", "1",
        "--metric", "mean_tpot_ms", "--worlds", "30", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    drawn = {one["input"]: one["spread"] for one in found["inputs"]}
    assert drawn["host"] == {"distribution": "uniform", "low": 0.5, "high": 2}
    assert {"compute-efficiency", "attention-efficiency"} == {
        one["input"] for one in found["without_stated_uncertainty"]
    }


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(["fp8_kv"], ("bfloat16", "fp8")), (["bounded_queue", "--between", "loss,bounded"], ("loss", "bounded"))],
)
def test_variants_of_an_ablation_are_decided_by_their_names(servetwin, arguments, names):
    few = ["--set", "workload.requests=20", "--metric", "mean_tpot_ms", "--worlds", "20", "--workers", "1", "--json"]
    code, out, _ = servetwin("decide", *arguments, *few)
    found = json.loads(out)
    assert code == 0
    assert (found["first"], found["second"]) == names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["azure-conversation"], "a decision is between two"),
        (["azure-conversation", "demo", "multi-turn"], "found 3 (azure-conversation, demo, multi-turn)"),
        (["bounded_queue"], "found 4 (unbounded, bounded, by_tokens, loss)"),
        (["bounded_queue", "--between", "loss,boundid"], "did you mean 'bounded'"),
        (["azure-conversation", "no-such"], "no-such: there is no such file"),
        (["azure-conversation", *BUDGET, *SMALL, "--metric", "p95_ttff_ms"], "unknown metric 'p95_ttff_ms'"),
        (["azure-conversation", *BUDGET, *SMALL, "--metric", "p99_ttft_ms"], "needs 299"),
        (["azure-conversation", *BUDGET, *SMALL, "--metric", "steps"], "--prefer lower or higher"),
        (["azure-conversation", *BUDGET, "--prefer", "more"], "--prefer: found 'more', allowed: lower, higher"),
        (["azure-conversation", *BUDGET, "--worlds", "5"], "--worlds: found 5"),
        (["azure-conversation", *BUDGET, "--range", "host"], "write a name and two numbers"),
        (["azure-conversation", *BUDGET, "--range", "host=1..e"], "write a name and two numbers"),
        (["azure-conversation", *BUDGET, "--range", "host=2..1"], "the lower one first"),
        (["azure-conversation", *BUDGET, "--range", "hots=0.5..2"], "did you mean 'host'"),
        (["azure-conversation", *BUDGET, "--range", "host=1..2", "--range", "host=1..3"], "another range of host"),
        (["azure-conversation", *BUDGET, "--range", "memory-efficiency=0.5..2"], "more than all of it cannot be"),
        (["azure-conversation", "--variant", "b=engine.block_sise=8"], "block_sise"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_a_sentence(servetwin, arguments, said):
    code, out, err = servetwin("decide", *arguments)
    assert code == 2
    assert not out
    assert said in " ".join(err.split())
    assert "Traceback" not in err


def test_a_file_is_no_folder(servetwin):
    Path("taken").write_text("")
    code, _, err = servetwin("decide", "azure-conversation", *BUDGET, "--out", "taken")
    assert code == 2
    assert "taken: a file, but --out is a folder" in err


def test_without_uncertainty_one_world_is_all(servetwin):
    code, out, _ = servetwin("decide", "azure-conversation", *CERTAIN, "--variant", "slow=hardware=A100-80G")
    assert code == 0
    assert "One world" in out
    assert "azure-conversation is better: mean TPOT (ms) -" in " ".join(out.split())
