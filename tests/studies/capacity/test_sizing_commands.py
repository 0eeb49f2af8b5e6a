"""`servetwin capacity --fewest` and `--cheapest`: what they print, write and refuse."""

import json

import pytest

CLIENTS = "workload.arrivals={process: closed_loop, concurrency: 24}"
SMALL = ("demo", "--set", CLIENTS, "--slo", "ttft_mean<=600ms", "--requests", "500")
SPACE = """
axes:
  - grid: {replicas: [1, 2, 3]}
  - variants:
      plain: []
      large: [model=Llama-3.1-70B]
      costly: [prices.gpu_hour=1]
"""


@pytest.fixture
def space(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(SPACE)
    return file


def test_fewest_says_how_many_and_why_not_fewer(servetwin, tmp_path):
    code, out, err = servetwin("capacity", *SMALL, "--fewest", "replicas", "--out", str(tmp_path / "out"))
    assert code == 0, err
    assert "Fewest replicas: 2. It keeps ttft_mean <= 600ms at 95% confidence; ttft_mean is nearest" in " ".join(
        out.split()
    )
    assert "replicas 1 is too few" in " ".join(out.split())
    page = (tmp_path / "out" / "fewest.html").read_text()
    assert "Objectives against replicas" in page
    told = json.loads((tmp_path / "out" / "fewest.json").read_text())
    assert told["value"] == 2
    assert told["interval"] == [2, 2]
    assert told["binding"]["objective"] == "ttft_mean <= 600ms"
    assert told["tried"]["1"]["met"] is False
    assert told["tried"]["2"]["objectives"]["ttft_mean <= 600ms"]["high"] <= 600
    assert told["usd_per_hour"] == pytest.approx(2 * told["tried"]["1"]["usd_per_hour"])


def test_fewest_that_nothing_does_ends_with_1(servetwin):
    code, out, _ = servetwin(
        "capacity", *SMALL[:3], "--slo", "ttft_mean<=1ms", "--requests", "60", "--fewest", "replicas", "--json"
    )
    told = json.loads(out)
    assert code == 1
    assert told["value"] is None
    assert told["interval"] is None
    assert "more of it is of no use" in told["why"]


def test_cheapest_says_which_and_how_much_cheaper_than_the_next(servetwin, space, tmp_path):
    code, out, err = servetwin("capacity", *SMALL, "--cheapest", str(space), "--out", str(tmp_path / "out"), "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["best"]["values"] == {"replicas": 2, "variant": "plain"}
    assert told["best"]["confirmed"]["met"] is True
    assert told["runner_up"]["values"] == {"replicas": 3, "variant": "plain"}
    assert told["dearer"]["relative"]["estimate"] == pytest.approx(0.5)
    assert told["counts"]["refused"] == 3
    refused = [c for c in told["configurations"] if c["outcome"] == "refused"]
    assert all("Llama-3.1-70B" in c["why"] for c in refused)
    assert {c["outcome"] for c in told["configurations"] if c["values"]["variant"] == "costly"} == {"dearer"}
    assert json.loads((tmp_path / "out" / "cheapest.json").read_text()) == told
    assert "Cost against latency" in (tmp_path / "out" / "cheapest.html").read_text()


def test_the_same_is_found_by_any_number_of_processes(servetwin, space):
    asked = ("capacity", *SMALL, "--cheapest", str(space), "--json", "--trials", "3")
    _, first, _ = servetwin(*asked, "--workers", "1")
    _, second, _ = servetwin(*asked, "--workers", "2")
    told = json.loads(first)
    assert first == second
    assert told["method"] == "optuna"
    assert told["best"]["values"] == {"replicas": 2, "variant": "plain"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fewest", "replicas", "--cheapest", "space.yaml"], "each asks for something else"),
        (["--fewest", "replicas", "--by", "usd_per_hour"], "--by: is about --cheapest"),
        (["--fewest", "slo.ttft"], "only whole numbers are searched"),
        (["--fewest", "workload.requests"], "is part of the load; --over workload.requests finds"),
        (["--fewest", "replica"], "did you mean 'replicas'"),
        (["--cheapest", "nothing.yaml"], "nothing.yaml: there is no such file"),
        (["--cheapest", "space.yaml", "--by", "usd_per_day"], "--by: unknown figure 'usd_per_day'"),
        (["--cheapest", "space.yaml", "--set", "engine.max_num_seqs=0"], "max_num_seqs"),
        (["--cheapest", "wrong.yaml"], "wrong.yaml: axes: replcas=1: replcas: unknown field 'replcas'"),
        (
            ["--cheapest", "none.yaml"],
            "none of 2 configurations can be; the first: none.yaml: axes: model=Llama-3.1-70B: model: Llama-3.1-70B",
        ),
    ],
)
def test_mistakes_are_told_in_one_sentence(servetwin, space, tmp_path, options, message):
    (tmp_path / "wrong.yaml").write_text("axes: {replcas: [1, 2]}")
    (tmp_path / "none.yaml").write_text("axes: {model: [Llama-3.1-70B], replicas: [1, 2]}")
    code, out, err = servetwin("capacity", *SMALL, *options)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
