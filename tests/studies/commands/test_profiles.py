"""`servetwin import` and `servetwin profiles`: from tables to a file, and what is shipped."""

from __future__ import annotations

import json

import pytest

import cli
from sim.operator_profile import OperatorProfile
from sim.profiles import load_profile, shipped_profiles
from studies import profile_list
from tests.calibration import synthetic_tables as toy


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in arguments])
    found = capsys.readouterr()
    return ended.value.code, found.out, found.err


IMPORT = ("import", "aiconfigurator", "--system", "toy", "--model")


def test_import_writes_a_profile_that_loads(capsys, tmp_path):
    root, out = toy.write(tmp_path / "systems"), tmp_path / "some" / "mine.json"
    code, text, err = run(capsys, *IMPORT, "SmolLM2-135M", "--tables", root, "--out", out, "--data-sheet")
    assert (code, f"wrote {out}" in err) == (0, True)
    assert "gemm over m" in text
    profile = load_profile(out)
    assert isinstance(profile, OperatorProfile)
    assert (profile.name, profile.model, profile.engine) == ("mine", "SmolLM2-135M", "vllm@1.0")
    assert profile.host.step_ns == 0
    code, text, _ = run(capsys, "profiles", out)
    assert code == 0
    assert "Not modelled" in text
    assert "Constants" in text


def test_import_refuses_before_it_writes(capsys, tmp_path):
    root = toy.write(tmp_path / "systems", {"gemm": toy.with_value("latency", 5, float("nan"))})
    code, _, err = run(capsys, *IMPORT, "SmolLM2-135M", "--tables", root, "--out", tmp_path / "x.json")
    assert code == 2
    assert "gemm_perf.parquet, row 5" in err
    assert not (tmp_path / "x.json").exists()
    code, _, err = run(capsys, *IMPORT, "SmolLM2-135M", "--tables", root, "--out", tmp_path)
    assert (code, "a folder, but a profile is a file" in " ".join(err.split())) == (2, True)


def test_profiles_lists_all_and_filters(capsys):
    code, text, _ = run(capsys, "profiles", "--json")
    found = json.loads(text)["profiles"]
    assert code == 0
    assert [row["name"] for row in found] == shipped_profiles()
    code, text, _ = run(
        capsys, "profiles", "--hardware", "h200", "--model", "llama-3.1-8b", "--dtype", "fp8", "--tp", 1, "--json"
    )
    (row,) = json.loads(text)["profiles"]
    assert row["name"] == "h200/llama-3.1-8b-fp8-tp1"
    assert row["domain"]["tokens"]["max"] == 32768
    assert 0 < row["cv_error"] < 0.2


def test_an_unknown_profile_is_refused_with_the_nearest(capsys):
    code, _, err = run(capsys, "profiles", "h200/llama-3.1-8b-fp8-tp3")
    assert code == 2
    assert "did you mean 'h200/llama-3.1-8b-fp8-tp" in err
    code, _, err = run(capsys, "profiles", "--hardware", "H20")
    assert (code, "did you mean 'H200'" in err) == (2, True)


def test_names_are_whole_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, text, _ = run(capsys, "profiles")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines() if "%" in line] == shipped_profiles()
    assert max(len(line) for line in text.splitlines()) <= 80
    code, text, _ = run(capsys, "profiles", "--tp", 16)
    assert (code, "None is of that" in text) == (0, True)


def test_a_profile_that_cannot_be_written_is_told_before_the_work(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(
        capsys, "import", "steps", tmp_path / "none.csv", "--model", "x", "--out", tmp_path / "file" / "p.json"
    )
    assert (code, "is a file, not a folder" in " ".join(err.split())) == (2, True)
    code, _, err = run(capsys, "import", "steps", tmp_path / "none.csv", "--model", "x", "--out", tmp_path)
    assert (code, "a folder, but a profile is a file" in " ".join(err.split())) == (2, True)


def test_what_a_profile_lacks_takes_no_table(capsys):
    profile = load_profile(shipped_profiles()[0])
    bare = profile.model_copy(update={"constants": (), "jumps": (), "created": ""})
    titles = [table.title for table in profile_list.tables(bare)]
    assert "Constants" not in titles
    assert "Dips and leaps" not in titles
    assert "composed" not in profile_list.tables(bare)[0].note


def test_a_file_that_is_no_profile_is_not_written_over(capsys, tmp_path):
    root, out = toy.write(tmp_path / "systems"), tmp_path / "steps.csv"
    out.write_text("iteration\n")
    code, _, err = run(capsys, *IMPORT, "SmolLM2-135M", "--tables", root, "--out", out)
    assert code == 2
    assert "steps.csv: exists already and is no profile" in err
    assert out.read_text() == "iteration\n"


@pytest.mark.parametrize("sizes", ["a", "-1,0", "1,0", "9" * 5000])
def test_graph_sizes_are_whole_numbers_above_zero(capsys, tmp_path, sizes):
    asked = (
        "import",
        "llmservingsim",
        tmp_path,
        "--model",
        "Qwen3-8B",
        "--out",
        tmp_path / "p.json",
        "--capture-sizes",
        sizes,
    )
    code, _, err = run(capsys, *asked)
    assert code == 2
    assert "--capture-sizes: found" in err
