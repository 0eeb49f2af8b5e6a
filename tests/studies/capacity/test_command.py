"""`servetwin capacity`: the answer on the terminal, as JSON and as a page; what is wrong is said in the user's terms."""

import json

import pytest

from tests.studies.capacity.conftest import text

QUICK = ("--requests", "400", "--seeds", "12", "--resolution", "10%", "--workers", "1")


@pytest.fixture
def server(tmp_path, straight_profile):
    """A scenario file of one server of 10 ms."""
    file = tmp_path / "server.yaml"
    file.write_text(text(straight_profile).replace("rate: 50", "rate: 40"))
    return str(file)


def test_the_answer_is_told_and_written(servetwin, server, tmp_path, monkeypatch):
    monkeypatch.setattr("studies.capacity.search.PARTS", (0.6, 0.9, 1.05))
    code, out, err = servetwin("capacity", server, "--slo", "queue_mean<=10ms", *QUICK, "--out", "found")
    assert code == 0
    said = " ".join(out.split())
    assert "Capacity: " in said
    assert "queue_mean <= 10ms holds at 95% confidence" in said
    assert "What binds at " in said
    assert "max_num_seqs" in said
    assert "wrote found/capacity.html" in err
    page = (tmp_path / "found" / "capacity.html").read_text()
    assert "Queue time against load" in page
    assert "Throughput against load" in page
    written = json.loads((tmp_path / "found" / "capacity.json").read_text())
    assert "cpu_seconds" not in written, "what is written does not depend on the machine"
    low, high = written["interval"]
    assert low == written["load"] < high
    assert len(written["curve"]) > len(written["tried"]) >= 4
    assert [point["load"] for point in written["curve"]] == sorted(point["load"] for point in written["curve"])


def test_json_holds_the_load_its_interval_and_what_binds(servetwin, server):
    arguments = ("capacity", server, "--slo", "queue_mean<=10ms, ttft_p95<=10s", *QUICK, "--json")
    code, out, _ = servetwin(*arguments)
    found = json.loads(out)
    assert code == 0
    low, high = found["interval"]
    assert low == found["load"]
    assert low < 200 / 3 < high  # Pollaczek and Khinchine: at 200 / 3 a second the mean wait is 10 ms
    assert found["binding"]["objective"] == "queue_mean <= 10ms"
    assert found["binding"]["resource"] == "max_num_seqs"
    assert found["objectives"] == ["queue_mean <= 10ms", "ttft_p95 <= 10s"]
    assert found["over"] == "workload.rate"
    assert found["cpu_seconds"] > 0


def test_the_scenarios_own_objectives_and_load_are_the_default(servetwin, server):
    clients = "workload.arrivals={process: closed_loop, concurrency: 4}"
    code, out, _ = servetwin(
        "capacity", server, "--set", "objectives=[e2e_p50 <= 65ms]", "--set", clients, *QUICK, "--json"
    )
    found = json.loads(out)
    assert (code, found["over"], found["interval"]) == (0, "workload.arrivals.concurrency", [6, 7])


def test_no_capacity_is_told_with_exit_code_1(servetwin, server):
    code, out, _ = servetwin("capacity", server, "--slo", "ttft_p50<=9ms", *QUICK)
    assert code == 1
    assert "No capacity. Never met: even at" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slo", "ttft_p99<=500"), "--slo: ttft_p99<=500"),
        (("--slo", "ttft_p99<=1s, ttft_p99>=2s"), "ttft_p99 >= 2s and ttft_p99 <= 1s contradict one another"),
        (("--slo", "request_goodput>=5"), "the scenario makes none"),
        ((), "says no objectives"),
        (("--slo", "ttft_p99<=1s", "--over", "workload.rte"), "--over workload.rte"),
        (("--slo", "ttft_p99<=1s", "--over", "replicas"), "--fewest replicas"),
        (("--slo", "ttft_p99<=1s", "--over", "workload.rate", "--fewest", "replicas"), "--over and --fewest"),
        (("--slo", "ttft_p99<=1s", "--trials", "5"), "--trials: is about --cheapest"),
        (("--slo", "ttft_p99<=1s", "--confidence", "95"), "between 0 and 1"),
        (("--slo", "ttft_p99<=1s", "--confidence", "high"), "--confidence: found 'high'"),
        (("--slo", "ttft_p99<=1s", "--resolution", "0%"), "--resolution"),
        (("--slo", "ttft_p99<=1s", "--out", "file"), "a file, but --out is a folder"),
    ],
)
def test_mistakes_are_told_before_any_work(servetwin, server, tmp_path, arguments, said):
    (tmp_path / "file").touch()
    code, out, err = servetwin("capacity", server, *arguments)
    assert (code, out) == (2, "")
    assert said.replace("says no", "states no") in " ".join(err.split())
    assert "Traceback" not in err


def test_the_fewest_of_a_whole_number(servetwin, server):
    rate = ("--set", "workload.arrivals.rate=150")
    code, out, _ = servetwin(
        "capacity", server, "--slo", "queue_mean<=20ms", "--fewest", "replicas", *rate, *QUICK, "--json"
    )
    found = json.loads(out)
    assert (code, found["value"]) == (0, 2)


def test_the_cheapest_of_a_space(servetwin, server, tmp_path):
    (tmp_path / "space.yaml").write_text("axes: {replicas: [1, 2, 3]}\n")
    rate = ("--set", "workload.arrivals.rate=150")
    code, out, _ = servetwin(
        "capacity", server, "--slo", "queue_mean<=20ms", "--cheapest", "space.yaml", *rate, *QUICK, "--json"
    )
    assert code == 0
    assert json.loads(out)["best"]["values"] == {"replicas": 2}
