from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import cli
from studies.commands.options import spread
from studies.reports import terminal

SMALL = ["--set", "workload.requests=30"]


def document(text: str) -> dict:
    """Strict JSON: one document, no NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_run_prints_a_report_that_begins_with_kv_capacity(servetwin):
    code, out, err = servetwin("run", "demo", *SMALL)
    assert code == 0
    assert err == ""
    assert out.index("KV capacity") < out.index("TTFT") < out.index("Not modelled")


def test_json_is_one_document_with_null_for_refused_values(servetwin):
    code, out, _ = servetwin("run", "demo", *SMALL, "--json")
    found = document(out)
    assert code == 0
    assert found["completed"] == 30
    assert found["p95_ttft_ms"] is None
    assert found["refused"]["p95_ttft_ms"]
    assert found["run"]["binding"]["sentence"]
    assert found["kv_capacity_tokens"] > 1000


def test_the_same_seed_gives_the_same_result_and_another_does_not(servetwin):
    first, again, other = (
        servetwin("run", "demo", *SMALL, "--json", *s)[1] for s in ([], ["--seed", "0"], ["--seed", "1"])
    )
    assert first == again
    assert document(other)["mean_ttft_ms"] != document(first)["mean_ttft_ms"]


def test_out_writes_a_folder_that_reports_and_replays(servetwin, tmp_path):
    code, out, err = servetwin("run", "demo", *SMALL, "--out", "a/b")
    assert code == 0
    assert "wrote a/b" in err
    files = {path.name for path in (tmp_path / "a" / "b").iterdir()}
    assert files >= {"requests.parquet", "steps.parquet", "result.json", "run.json", "scenario.yaml", "report.html"}
    code, again, _ = servetwin("report", "a/b")
    assert (code, again) == (0, out)
    code, replayed, _ = servetwin("replay", "a/b", "--json")
    found = document(replayed)
    assert (code, found["identical"]) == (0, True)
    assert found["steps"] > 30


def test_a_saved_scenario_runs_to_the_same_result(servetwin):
    _, first, _ = servetwin("run", "demo", *SMALL, "--json", "--out", "a")
    _, second, _ = servetwin("run", "a/scenario.yaml", "--json")
    assert document(first) == document(second)


def test_options_of_the_serving_benchmark_mean_the_same_here(servetwin):
    code, out, _ = servetwin(
        "run", "demo", "--request-rate", "5", "--num-prompts", "12", "--random-input-len", "50", "--random-output-len", "9",
        "--goodput", "ttft:20000", "tpot:3000", "--metric-percentiles", "25,75", "--json",
    )  # fmt: skip
    found = document(out)
    assert code == 0
    assert (found["completed"], found["total_output_tokens"]) == (12, 108)
    assert found["good_request_fraction"] == 1.0
    assert found["p25_ttft_ms"] <= found["p75_ttft_ms"]
    assert "p90_ttft_ms" not in found


def test_max_concurrency_is_a_closed_loop(servetwin):
    _, out, _ = servetwin("run", "demo", "--max-concurrency", "3", "--num-prompts", "9", "--json")
    assert document(out)["max_concurrent_requests"] == 3


def test_an_infinite_rate_sends_everything_at_once(servetwin):
    _, out, _ = servetwin("run", "demo", "--request-rate", "inf", "--num-prompts", "9", "--json")
    assert document(out)["max_concurrent_requests"] == 9


def test_goodput_takes_its_limits_in_a_row():
    given = ["run", "x", "--goodput", "ttft:1", "tpot:2", "--json", "e2el:3"]
    assert spread(given) == ["run", "x", "--goodput", "ttft:1", "--goodput", "tpot:2", "--json", "e2el:3"]


def test_a_trace_row_that_can_never_fit_is_rejected_counted_and_named(servetwin, tmp_path):
    rows = [
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:50.9951690,90000,10",
        "2023-11-16 18:15:51.2224670,279,55",
    ]
    Path("t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "\r\n".join(rows))
    arguments = ("run", "demo", "--trace", "t.csv", "--set", "workload.trace.length_scale=1.0")
    code, out, _ = servetwin(*arguments)
    assert code == 0
    assert "Rejected: 1" in out
    assert "request 1: prompt of 90000 tokens >= max_model_len" in out
    found = document(servetwin(*arguments, "--json")[1])
    assert (found["completed"], found["rejected"], found["failed"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml"),
        (["run", "demo", "--set", "engine.max_num_sequences=4"], "max_num_seqs"),
        (["run", "demo", "--set", "slo.ttft=200"], "ms"),
        (["run", "demo", "--random-input-len", "-5"], "-5"),
        (["run", "demo", "--random-input-len", "5000"], "max_model_len"),
        (["run", "demo", "--request-rate", "0"], "all_at_once"),
        (["run", "demo", "--request-rate", "nan"], "nan"),
        (["run", "demo", "--request-rate", "1", "--max-concurrency", "2"], "closed loop"),
        (["run", "demo", "--goodput", "speed:3"], "ttft:MS"),
        (["run", "demo", "--metric-percentiles", "50,abc"], "50,abc"),
        (["run", "demo", "--set", "replicas=0"], "replicas"),
        (["run", "demo", "--trace", "nowhere.csv"], "nowhere.csv"),
        (["execute", "demo", "--device", "tpu"], "cpu"),
        (["execute", "demo", "--clock", "sundial"], "device, wall"),
        (["validate", "demo", "--profile", "nothing"], "nothing"),
        (["calibrate", "--model", "qwen9"], "qwen9"),
        (["compare", "demo", "nowhere.yaml"], "nowhere.yaml"),
        (["validate", "demo", "--quick", "--profile", "p.json"], "give one"),
        (["init", "no/such"], "no folder no"),
        (["report", "nowhere"], "run.json"),
        (["replay", "nowhere"], "run.json"),
        (["conformance", "nowhere"], "nowhere"),
        (["run", "--no-such-option"], "no-such-option"),
        (["run"], "SCENARIO"),
    ],
)
def test_bad_input_ends_with_code_2_one_message_and_nothing_written(servetwin, tmp_path, arguments, named):
    code, out, err = servetwin(*arguments)
    assert code == 2
    assert out == ""
    assert named in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_refused_before_any_work(servetwin, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    code, _, err = servetwin("run", "demo", "--out", ".")
    assert code == 2
    assert "holds thesis.txt" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_repeated_key_is_refused_by_file_and_key(servetwin):
    Path("twice.yaml").write_text("name: a\nname: b\n")
    code, _, err = servetwin("run", "twice.yaml")
    assert code == 2
    assert "twice.yaml" in err
    assert "name" in err


def test_init_writes_a_commented_scenario_that_runs_and_never_overwrites(servetwin, tmp_path):
    assert servetwin("init", "mine")[:2] == (0, "mine.yaml\n")
    text = (tmp_path / "mine.yaml").read_text()
    assert yaml.safe_load(text)["name"] == "mine"
    assert "servetwin run mine.yaml" in text
    code, out, _ = servetwin("run", "mine.yaml", *SMALL, "--json")
    assert (code, document(out)["run"]["name"]) == (0, "mine")
    assert servetwin("init", "mine")[0] == 2
    assert (tmp_path / "mine.yaml").read_text() == text


def test_compare_shows_scenarios_side_by_side(servetwin):
    servetwin("init", "other")
    code, out, _ = servetwin("compare", "demo", "other.yaml", *SMALL)
    assert code == 0
    assert "mean TTFT (ms)" in out
    _, out, _ = servetwin("compare", "demo", "demo", *SMALL, "--json")
    assert [s["name"] for s in document(out)["scenarios"]] == ["demo", "demo (2)"]


def test_compared_scenarios_go_by_their_files_and_become_rows_where_columns_do_not_fit(servetwin, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in "abcdefg":
        servetwin("init", name)
        Path(f"{name}.yaml").write_text(Path(f"{name}.yaml").read_text().replace(f'name: "{name}"', "name: same"))
    code, out, _ = servetwin("compare", *(f"{name}.yaml" for name in "abcdefg"), *SMALL)
    assert code == 0
    assert "…" not in out
    lines = out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert [line[0] for line in lines[3:] if "8,176" in line] == list("abcdefg")


def test_a_comparison_writes_its_page_and_replays_a_trace(servetwin):
    Path("t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n")
    code, out, err = servetwin("compare", "demo", "demo", "--trace", "t.csv", "--out", "c", "--json")
    assert code == 0
    assert "wrote c/compare.html" in err
    assert [s["completed"] for s in document(out)["scenarios"]] == [1, 1]
    assert {path.name for path in Path("c").iterdir()} == {"compare.html", "compare.json", "compare.parquet"}
    assert document(Path("c/compare.json").read_text()) == document(out)


def test_what_was_overridden_is_told_also_by_the_report_of_the_folder(servetwin):
    _, out, _ = servetwin("run", "demo", *SMALL, "--out", "a")
    assert "set: workload.requests=30" in out
    assert servetwin("report", "a")[1] == out


def test_a_name_that_no_terminal_can_show_is_still_a_result(servetwin):
    code, out, _ = servetwin("run", "demo", *SMALL, "--set", 'name="broken \\ud800"', "--out", "a")
    assert code == 0
    assert "broken ?" in out


def test_the_dashboard_takes_the_place_of_the_command_and_sends_nothing_out(servetwin, monkeypatch):
    pytest.importorskip("streamlit", reason="streamlit (extra `app`) is not installed")
    became: list[str] = []
    monkeypatch.setattr("os.execv", lambda path, arguments: became.extend(arguments))
    with socket.create_server(("localhost", 0)) as found:
        port = str(found.getsockname()[1])
    servetwin("app", "--port", port, "--no-browser")
    assert became[-3:] == ["-m", "dashboard.server", port]
    from dashboard.server import OPTIONS

    assert OPTIONS["browser.gatherUsageStats"] is False
    assert OPTIONS["server.fileWatcherType"] == "none"


def test_the_dashboard_refuses_a_port_that_is_taken_or_none(servetwin):
    pytest.importorskip("streamlit", reason="streamlit (extra `app`) is not installed")
    with socket.create_server(("localhost", 0)) as other:
        port = str(other.getsockname()[1])
        code, _, err = servetwin("app", "--port", port, "--no-browser")
    assert code == 2
    assert port in err
    assert "in use" in err
    assert servetwin("app", "--port", "70000")[0] == 2


def test_the_dashboard_refuses_a_workspace_that_is_not_there(servetwin):
    pytest.importorskip("streamlit", reason="streamlit (extra `app`) is not installed")
    code, _, err = servetwin("app", "--workspace", "nowhere")
    assert code == 2
    assert "there is no such folder" in err


def test_a_reader_that_leaves_early_sees_no_traceback():
    command = [sys.executable, "-m", "cli", "run", "demo", *SMALL]
    with subprocess.Popen(
        command, cwd=Path(cli.__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() in (-signal.SIGPIPE, 0)


def test_where_nobody_looks_a_line_tells_what_begins(capsys):
    with terminal.progress_bar() as tell:
        for part in (0.0, 0.1):
            tell("executing demo 1 of 2", part)
        tell("executing demo 2 of 2", 0.5)
    assert capsys.readouterr().err == "executing demo 1 of 2 ...\nexecuting demo 2 of 2 ...\n"


def test_schema_is_a_json_schema_with_the_installed_strategies(servetwin):
    code, out, _ = servetwin("schema")
    assert code == 0
    assert "chunked" in document(out)["$defs"]["Engine"]["properties"]["batching"]["enum"]


def test_conformance_counts_by_group(servetwin):
    traces = Path(__file__).parent / "conformance" / "traces"
    folder = Path("some")
    folder.mkdir()
    (folder / "edges.json.gz").write_bytes((traces / "edges.json.gz").read_bytes())
    code, out, _ = servetwin("conformance", "some", "--json")
    found = document(out)
    assert code == 0
    assert found["failed"] == 0
    assert found["groups"]["edges"]["passed"] == found["passed"] > 0


def test_executing_without_torch_names_the_extra(servetwin, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("gpu_backend.")]:
        monkeypatch.delitem(sys.modules, name)
    code, _, err = servetwin("execute", "demo")
    assert code == 2
    assert "servetwin[gpu]" in err


def test_help_imports_nothing_that_computes():
    text = (
        "import sys, cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "found = {'numpy', 'pydantic', 'yaml', 'scenarios'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=Path(cli.__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_simulating_imports_neither_torch_nor_what_reports_need():
    text = (
        "import sys, cli\n"
        "try: cli.main(['run', 'demo', '--set', 'workload.requests=5', '--json'])\n"
        "except SystemExit: pass\n"
        "found = {'torch', 'numba', 'plotly', 'pyarrow', 'streamlit', 'scipy.stats'} & set(sys.modules)\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=Path(cli.__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document(done.stdout)
