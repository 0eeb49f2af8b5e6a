"""A sweep: which cells are run, which are kept, and what the table says of those that fail."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import scenarios
import studies
from scenarios import InputError
from studies.run import simulate, simulated_figures
from studies.sweeps import cells, columns, run, store
from studies.sweeps.store import Folder
from studies.sweeps.study import from_mapping

STUDY = {
    "base": "azure-conversation",
    "set": ["workload.requests=40"],
    "axes": {"engine.max_num_seqs": [4, 16], "workload.rate": [5, 10]},
    "seeds": 2,
}


def changed(**fields):
    return {**STUDY, **fields}


def files(folder: Path) -> dict[str, int]:
    """Cells that are kept, with the time when each was written."""
    return {file.stem: file.stat().st_mtime_ns for file in (folder / "cells").glob("*.parquet")}


@pytest.fixture
def failing(monkeypatch):
    """Makes the simulation fail where a condition of its scenario holds."""

    def fail(condition, error):
        def simulated(scenario):
            if condition(scenario):
                raise error
            return simulated_figures(scenario)

        monkeypatch.setattr(cells, "simulated_figures", simulated)

    return fail


def test_the_table_has_a_row_a_cell_in_order_of_point_and_seed(tmp_path):
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1)
    table = pq.read_table(tmp_path / "o" / "table.parquet")
    assert (done.run, done.skipped, done.failed) == (8, 0, 0)
    assert table["point"].to_pylist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["seed"].to_pylist() == [0, 1] * 4
    assert table["axis.engine.max_num_seqs"].to_pylist() == [4, 4, 4, 4, 16, 16, 16, 16]
    assert table["axis.workload.rate"].to_pylist() == [5, 5, 10, 10] * 2
    assert table["error"].null_count == 8
    one = simulate(
        scenarios.load("azure-conversation", overrides=["workload.requests=40", "engine.max_num_seqs=16", "workload.arrivals.rate=5"], seed=1)
    )  # fmt: skip
    assert table["mean_ttft_ms"][5].as_py() == one.summary["mean_ttft_ms"]
    assert table["scenario_hash"][5].as_py() == one.scenario.hash()


def test_the_table_is_the_same_to_the_byte_in_one_process_and_in_two(tmp_path):
    tables = []
    for count in (1, 2):
        run.sweep(STUDY, out=tmp_path / str(count), processes=count)
        tables.append((tmp_path / str(count) / "table.parquet").read_bytes())
    assert tables[0] == tables[1]


def test_cells_that_are_kept_are_not_run_again(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    before, table = files(tmp_path / "o"), (tmp_path / "o" / "table.parquet").read_bytes()
    for key in list(before)[:3]:
        (tmp_path / "o" / "cells" / f"{key}.parquet").unlink()
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1)
    assert (done.run, done.skipped) == (3, 5)
    after = files(tmp_path / "o")
    assert sum(before[key] == after[key] for key in before) == 5
    assert (tmp_path / "o" / "table.parquet").read_bytes() == table


def test_damaged_and_foreign_files_are_told_and_run_again(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    table = (tmp_path / "o" / "table.parquet").read_bytes()
    first, second, third, *_ = sorted((tmp_path / "o" / "cells").glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:1000])
    second.write_bytes(third.read_bytes())
    told: list[str] = []
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1, tell=told.append)
    assert (done.run, done.skipped) == (2, 6)
    assert "and 1 more like it: run again" in told[0]
    assert (tmp_path / "o" / "table.parquet").read_bytes() == table


def test_a_flipped_bit_is_noticed(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    file = min((tmp_path / "o" / "cells").glob("*.parquet"))
    whole = file.read_bytes()
    row = Folder(tmp_path / "o").read(file.stem)
    for place in range(5, len(whole), len(whole) // 30):
        content = bytearray(whole)
        content[place] ^= 1
        file.write_bytes(content)
        with suppress(InputError):  # else it was in what nobody reads
            assert Folder(tmp_path / "o").read(file.stem) == row


def test_a_study_that_changed_is_refused_with_what_changed(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    with pytest.raises(InputError) as refused:
        run.sweep(changed(seeds=3), out=tmp_path / "o", processes=1)
    assert "another study: study.seeds: was 2, now 3. Give a new folder, or --update" in str(refused.value)


def test_a_base_that_changed_is_a_change_of_the_study(tmp_path):
    base = tmp_path / "mine.yaml"
    base.write_text(scenarios.template("azure-conversation"))
    study = changed(base=str(base))
    run.sweep(study, out=tmp_path / "o", processes=1)
    base.write_text(base.read_text().replace("Llama-3.1-8B", "Qwen3-8B"))
    with pytest.raises(InputError, match=r"another study: scenario.model"):
        run.sweep(study, out=tmp_path / "o", processes=1)


def test_an_update_keeps_what_belongs_and_runs_the_rest(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    before = files(tmp_path / "o")
    axes = {"engine.max_num_seqs": [16, 32], "workload.rate": [5, 10]}
    done = run.sweep(changed(axes=axes), out=tmp_path / "o", processes=1, update=True)
    assert (done.run, done.skipped) == (4, 4)
    after = files(tmp_path / "o")
    assert all(before[key] == after[key] for key in before)
    run.sweep(changed(axes=axes), out=tmp_path / "new", processes=1)
    assert (tmp_path / "o" / "table.parquet").read_bytes() == (tmp_path / "new" / "table.parquet").read_bytes()


def test_what_is_shown_or_expected_is_no_change(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    done = run.sweep(changed(question="Why?", metrics=["p50_ttft_ms"]), out=tmp_path / "o", processes=1)
    assert (done.run, done.skipped) == (0, 8)


@pytest.mark.parametrize("error", [InputError("no such trace"), MemoryError("too large")])
def test_a_cell_that_fails_is_a_row_and_is_not_run_again(tmp_path, failing, error):
    failing(lambda scenario: scenario.engine.max_num_seqs == 4 and scenario.seed == 1, error)
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1)
    assert (done.run, done.failed) == (8, 2)
    table = pq.read_table(tmp_path / "o" / "table.parquet")
    assert [str(error) in (why or "") for why in table["error"].to_pylist()] == [False, True] * 2 + [False] * 4
    assert table["completed"].to_pylist()[:2] == [40, None]
    failing(lambda scenario: False, error)
    assert run.sweep(STUDY, out=tmp_path / "o", processes=1).run == 0
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1, retry_failed=True)
    assert (done.run, done.skipped, done.failed) == (2, 6, 0)


def test_types_of_columns_do_not_depend_on_which_cells_failed(tmp_path, failing):
    run.sweep(STUDY, out=tmp_path / "all", processes=1)
    whole = pq.read_schema(tmp_path / "all" / "table.parquet")
    for seed in (0, 1):
        failing(lambda scenario, seed=seed: scenario.seed == seed, InputError("cannot"))
        run.sweep(STUDY, out=tmp_path / str(seed), processes=1)
        found = pq.read_schema(tmp_path / str(seed) / "table.parquet")
        assert {name: found.field(name).type for name in found.names} == {
            name: whole.field(name).type for name in whole.names
        }


def test_axes_of_mixed_values_are_json_text():
    rows = [{"axis.a": 1, "axis.b": 1}, {"axis.a": "x", "axis.b": 2.5}, {"axis.a": {"k": [1]}, "axis.b": None}]
    table = columns.table(rows)
    assert table["axis.a"].to_pylist() == ["1", '"x"', '{"k": [1]}']
    assert table["axis.b"].to_pylist() == [1.0, 2.5, None]


@pytest.mark.parametrize("name", scenarios.names())
def test_a_cell_has_the_figures_of_a_run_and_counts_are_known_by_name(name):
    scenario = scenarios.load(name, overrides=["workload.requests=20"])
    found = cells.figures_of(scenario)
    assert list(found.items()) == list(cells.figures(simulate(scenario)).items())
    for key, value in found.items():
        if isinstance(value, str):
            assert key in columns.TEXTS, key
        elif isinstance(value, int) and value > 0:
            assert key.rpartition(".")[2] in columns.COUNTS, key


def test_a_figure_that_the_first_cell_has_not_is_told_at_once():
    told = []
    run.sweep(STUDY, metrics=["p95_ttft_m", "mean_ttft_ms"], processes=1, tell=told.append)
    assert told == ["metric p95_ttft_m: the first cell has no such figure; did you mean p95_ttft_ms?"]


def test_wrong_cells_stop_a_sweep_before_it_begins(tmp_path):
    study = changed(axes={"engine.max_num_seqs": [4, 0, -1]})
    with pytest.raises(InputError) as refused:
        run.sweep(study, out=tmp_path / "o", processes=1)
    assert "axes: engine.max_num_seqs=0: engine.max_num_seqs: found 0" in str(refused.value)
    assert "So 4 of 6 cells cannot be run, this one of max_num_seqs 0; --allow-bad runs the others" in str(
        refused.value
    )
    assert not (tmp_path / "o").exists()
    with pytest.raises(InputError, match=r"max_num_seq.*did you mean"):
        run.sweep(changed(axes={"engine.max_num_seq": [4, 8]}), out=tmp_path / "o", processes=1, allow_bad=True)


def test_wrong_cells_that_are_allowed_are_failed_rows(tmp_path):
    done = run.sweep(changed(axes={"engine.max_num_seqs": [4, 0]}), out=tmp_path / "o", processes=1, allow_bad=True)
    assert (done.run, done.skipped, done.failed) == (2, 0, 2)
    assert [row["error"] is None for row in done.rows] == [True, True, False, False]


def test_equal_points_are_run_once(tmp_path):
    study = changed(axes={"random": {"points": 6, "of": {"engine.max_num_seqs": [4, 16]}}}, seeds=1)
    done = run.sweep(study, out=tmp_path / "o", processes=1)
    assert (done.run, done.skipped, len(done.rows)) == (2, 4, 6)
    assert [row["point"] for row in done.rows] == [0, 1, 2, 3, 4, 5]


def test_requests_of_every_cell_are_kept_on_demand(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1)
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1, detailed=True)
    assert (done.run, done.skipped) == (8, 0)
    for key in files(tmp_path / "o"):
        assert pq.read_table(tmp_path / "o" / "requests" / f"{key}.parquet").num_rows == 40
    assert run.sweep(STUDY, out=tmp_path / "o", processes=1, detailed=True).run == 0


def test_two_sweeps_on_one_folder_are_refused(tmp_path):
    with Folder(tmp_path / "o").locked(), pytest.raises(InputError, match="another sweep is running on this folder"):
        run.sweep(STUDY, out=tmp_path / "o", processes=1)
    assert run.sweep(STUDY, out=tmp_path / "o", processes=1).run == 8


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_and_finished_cells_stay(tmp_path, monkeypatch):
    opened = Path.open
    left = 3

    def full(path, *arguments, **options):
        nonlocal left
        if path.name.endswith(".part") and path.parent.name == "cells":
            left -= 1
            if left < 0:
                path.touch()
                return opened(Path("/dev/full"), *arguments, **options)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(
        InputError, match=r"cannot be written to \(No space left on device\); cells that are finished are kept"
    ):
        run.sweep(STUDY, out=tmp_path / "o", processes=1)
    assert len(files(tmp_path / "o")) == 3
    assert sorted(p.name for p in (tmp_path / "o" / "cells").iterdir() if p.name.startswith(".")) == []
    monkeypatch.setattr(Path, "open", opened)
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1)
    assert (done.run, done.skipped) == (5, 3)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds thesis.txt, which is no part of a sweep"):
        run.sweep(STUDY, out=tmp_path / "o", processes=1)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a file, but a sweep is a folder"):
        run.sweep(STUDY, out=tmp_path / "file", processes=1)
    with pytest.raises(InputError, match="is a file, not a folder"):
        run.sweep(STUDY, out=tmp_path / "file" / "o", processes=1)


def test_axes_and_seeds_from_python_are_those_of_a_file():
    axes = {
        "workload.rate": np.linspace(5, 10, 2),
        "engine.max_num_seqs": range(4, 6),
        "engine.block_size": [np.int64(16)],
    }
    found = from_mapping(changed(axes=axes, seeds=range(2)))
    assert [dict(point.values) for point in found.points()][1] == {
        "workload.rate": 5.0, "engine.max_num_seqs": 5, "engine.block_size": 16,
    }  # fmt: skip
    assert found.seed_list() == (0, 1)
    assert found.content() == from_mapping(json.loads(json.dumps(found.content()))).content()
    with pytest.raises(
        InputError, match=r"axes.workload.rate: found nan, but a value is what a scenario file can hold"
    ):
        from_mapping(changed(axes={"workload.rate": [1.0, float("nan")]}))


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = studies.sweep(STUDY, processes=1)
    assert (done.run, done.folder, list(tmp_path.iterdir())) == (8, None, [])
    with pytest.raises(InputError, match="give one"):
        studies.sweep(STUDY, processes=1, detailed=True)


def test_the_study_in_the_folder_reads_back(tmp_path):
    run.sweep(STUDY, out=tmp_path / "o", processes=1, overrides=["workload.requests=30"])
    assert (
        Folder(tmp_path / "o").study().content()
        == from_mapping(STUDY).with_overrides(["workload.requests=30"]).content()
    )
    assert store.differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": "x"}) == [
        "a[1].b: was 2, now 3",
        'c: was nothing, now "x"',
    ]


def test_the_command_says_what_it_did(tmp_path, servetwin):
    Path("s.yaml").write_text(json.dumps(STUDY))
    code, out, _ = servetwin("sweep", "s.yaml", "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["cells_total"], told["cells_run"], told["cells_to_run"]) == (0, 8, 0, 8)
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]
    code, out, err = servetwin("sweep", "s.yaml", "--workers", "1", "--json")
    told = json.loads(out)
    assert code == 0
    assert {k: told[k] for k in ("cells_total", "cells_run", "cells_skipped", "cells_failed")} == {
        "cells_total": 8, "cells_run": 8, "cells_skipped": 0, "cells_failed": 0,
    }  # fmt: skip
    assert told["folder"] == "out/s"
    assert "8 of 8 cells" in err
    code, out, _ = servetwin("sweep", "s.yaml", "--dry-run")
    assert (code, "kept already" in out) == (0, True)
    assert "s into out/s\n" in out  # in one line, though the table is narrower
    code, out, err = servetwin("sweep", "s.yaml", "--workers", "1")
    assert (code, "4 points" in out, "wrote out/s" in err) == (0, True, True)


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        ("base: azure-conversation\naxes: {}", (), "s.yaml: axes: found {}, but an empty grid has no points"),
        ("base: azure-conversation\naxes: {engine.max_num_seqs: []}", (), "s.yaml: axes.engine.max_num_seqs: found []"),
        ("base: azure-conversation\naxes: {engine.max_num_seqs: 64}", (), "s.yaml: axes.engine.max_num_seqs: found 64, but a list"),
        ("base: azure-conversation\naxes: [{grid: {engine.max_num_seqs: [4, 4]}}]", (), "axes[0].grid.engine.max_num_seqs: found 4 twice"),
        ("base: azure-conversation\naxes: {engine.max_num_seqs: {from: 4, to: 2, steps: 2}}", (), "axes.engine.max_num_seqs.to: found 2, but it must be above from (4)"),
        ("base: azure-conversation\naxes: {engine.max_num_seqs: {from: 4, to: 8}}", (), "axes.engine.max_num_seqs.steps: is required"),
        ("base: azure-conversation\naxes: {engine.max_seqs: [4]}", (), "s.yaml: axes: engine.max_seqs=4: engine.max_seqs: unknown field"),
        ("base: azure-conversation\naxes: {variants: {a: [xx]}}", (), "s.yaml: axes.variants.a[0]: xx: write a path and a value"),
        ("base: azure-conversation\naxes: {workload.rate: [1], workload.arrivals.rate: [2]}", (), "varied twice"),
        ("base: azure-conversation\nseeds: 0", (), "s.yaml: seeds: found 0"),
        ("base: azure-conversation\nseeds: []", (), "s.yaml: seeds: found []"),
        ("base: azure-conversation\nseeds: [1, 1]", (), "s.yaml: seeds: found 1 twice"),
        ("model: qwen3-tiny\nworkload: {}", (), "s.yaml: is a scenario, and a study is needed: a file with `base: s.yaml`"),
        ("base: nowhere", (), "s.yaml: base: nowhere: there is no such file or shipped scenario"),
        ("base: azure-conversation\nset: [engine.colour=red]", (), "s.yaml: set: engine.colour=red: engine.colour: unknown field"),
        ("base: azure-conversation", ("--set", "engine.colour=red"), "engine.colour=red: engine.colour: unknown field"),
        ("base: azure-conversation", ("--scheduler", "tcp://a:1", "--workers", "2"), "--workers: is about processes of this machine"),
        ("base: azure-conversation", ("--out", "s.yaml"), "--out s.yaml: a file, but a sweep is a folder"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_the_terms_of_the_file(study, options, message, servetwin):
    Path("s.yaml").write_text(study)
    code, out, err = servetwin("sweep", "s.yaml", *options)
    assert (code, out) == (2, "")
    assert message in err


def test_a_scenario_is_no_study(servetwin):
    code, _, err = servetwin("sweep", "demo")
    assert code == 2
    assert "demo: is a scenario, and a study is needed: a file with `base: demo`, axes and seeds" in err
