"""Cells on the workers of a dask.distributed scheduler: a real one, with workers that are killed."""

from __future__ import annotations

import json
import socket
import sys

import numpy as np
import pytest

import scenarios
from scenarios import InputError
from studies.sweeps import cells, cluster, run
from studies.sweeps.results import load_sweep
from studies.workers import Lost
from tests.studies.sweeps import clusters

pytest.importorskip("distributed")

STUDY = {
    "base": "azure-conversation",
    "set": ["workload.requests=300"],
    "axes": {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10, 20]},
    "seeds": 2,
}


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    with clusters.processes(tmp_path_factory.mktemp("machines")) as found:
        yield found


def test_a_killed_worker_loses_its_cell_only_and_the_table_is_the_same_to_the_byte(machines, tmp_path):
    one, _ = machines.work(2)
    seen = []

    def told(done, total, failed):
        seen.append((done, total, failed))
        if done == 3:
            one.kill()

    far = run.sweep(STUDY, out=tmp_path / "far", scheduler=machines.address, progress=told)
    assert one.wait() != 0
    assert seen[-1] == (12, 12, 0)
    assert (far.run, far.skipped, far.failed) == (12, 0, 0)
    run.sweep(STUDY, out=tmp_path / "here", processes=1)
    assert (tmp_path / "far/table.parquet").read_bytes() == (tmp_path / "here/table.parquet").read_bytes()
    names = [sorted(file.name for file in (tmp_path / place / "cells").iterdir()) for place in ("far", "here")]
    assert names[0] == names[1]


def test_a_sweep_that_began_here_goes_on_elsewhere(machines, tmp_path):
    machines.work(1)
    small = STUDY | {"set": ["workload.requests=20"]}
    run.sweep(
        small | {"axes": {"engine.max_num_seqs": [16], "workload.rate": [5, 10, 20]}}, out=tmp_path / "o", processes=1
    )
    done = run.sweep(small, out=tmp_path / "o", update=True, scheduler=machines.address)
    assert (done.run, done.skipped) == (6, 6)
    again = run.sweep(
        small, out=tmp_path / "o", scheduler="tcp://127.0.0.1:1"
    )  # nobody is asked where nothing is left to do
    assert (again.run, again.skipped) == (0, 12)


def test_rows_of_requests_come_back_too(machines, tmp_path):
    machines.work(1)
    small = STUDY | {"set": ["workload.requests=20"], "axes": {"workload.rate": [5]}, "seeds": 1}
    for place, options in (("far", {"scheduler": machines.address}), ("here", {"processes": 1})):
        run.sweep(small, out=tmp_path / place, detailed=True, **options)
    (far,), (here,) = (list((tmp_path / place / "requests").iterdir()) for place in ("far", "here"))
    assert far.read_bytes() == here.read_bytes()


def test_files_of_a_study_are_found_from_where_the_sweep_was_started(machines, tmp_path, monkeypatch):
    machines.work(1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(scenarios.template("azure-conversation"))
    (tmp_path / "s.yaml").write_text(json.dumps({"base": "mine.yaml", "set": ["workload.requests=10"], "seeds": 1}))
    assert run.sweep("s.yaml", out="o", scheduler=machines.address).failed == 0
    assert list(cluster.each(clusters.home, [0], machines.address)) == [(0, str(tmp_path))]


@pytest.mark.parametrize(
    ("there", "said"),
    [(None, "there is no such file"), ("horizon: 5s\n", "names a file that has other content on a worker")],
)
def test_a_file_that_a_worker_has_not_or_has_otherwise_is_told(machines, tmp_path, there, said):
    machines.work(1)
    base, study = tmp_path / "mine.yaml", tmp_path / "s.yaml"
    text = scenarios.template("azure-conversation")
    base.write_text(text)
    study.write_text(json.dumps({"base": "mine.yaml", "set": ["workload.requests=10"], "seeds": [0]}))
    planned = run.plan(study)
    jobs = [run.Job(cell, key, elsewhere=True) for cell, key in zip(planned.cells, planned.keys, strict=True)]
    if there is None:
        base.unlink()
    else:
        base.write_text(text + there)
    with pytest.raises(InputError, match=said) as refused:
        list(cluster.each(run.computed, jobs, machines.address))
    assert "must lie at the same place on every worker" in str(refused.value)
    assert f"--scheduler {machines.address}" in str(refused.value)


def test_a_cell_over_which_every_worker_dies_is_lost_and_the_others_are_not(machines):
    machines.work(2)
    ((place, lost),) = cluster.each(clusters.dies, [0], machines.address)
    assert place == 0
    assert lost == Lost("its worker died, 2 times; was there too little memory?")
    machines.work(1)
    assert sorted(cluster.each(clusters.waits, [0.0, 0.01], machines.address)) == [(0, 0.0), (1, 0.01)]


def test_a_worker_with_other_packages_is_refused_before_any_cell(machines, monkeypatch):
    machines.work(1)
    monkeypatch.setattr(np, "__version__", "0.1")
    wrong = "it has numpy .*, but the sweep was started with 0.1; install the same on every machine"
    with pytest.raises(InputError, match=f"--scheduler {machines.address}: worker tcp://.*: {wrong}"):
        list(cluster.each(clusters.waits, [0.0], machines.address))


def test_packages_that_change_figures_must_be_equal_and_patches_of_python_need_not():
    here = {"servetwin": "0.1.0", "python": "3.11.7", "numpy": "2.1.0", "source": "0123"}
    assert cluster._difference(here, here | {"python": "3.11.9"}) is None
    assert "it has python 3.12, but the sweep was started with 3.11" in str(
        cluster._difference(here, here | {"python": "3.12.1"})
    )
    assert "it has numpy 1.26" in str(cluster._difference(here, here | {"numpy": "1.26"}))
    assert "its code of servetwin is not that of" in str(cluster._difference(here, here | {"source": "4567"}))


def test_the_command_takes_a_scheduler(machines, servetwin, tmp_path):
    machines.work(1)
    (tmp_path / "s.yaml").write_text(json.dumps(STUDY | {"set": ["workload.requests=20"], "seeds": 1}))
    code, out, err = servetwin("sweep", "s.yaml", "--scheduler", machines.address, "--json")
    assert code == 0, err
    assert json.loads(out)["cells_run"] == 6
    assert "6 of 6 cells" in err
    assert load_sweep(tmp_path / "out/s").failed == 0


def test_a_scheduler_without_workers_and_one_that_goes_away_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    monkeypatch.setattr(cluster, "LOOK", 0.1)
    with clusters.processes(tmp_path) as mine:
        with pytest.raises(InputError, match="it has no workers; start some with: dask worker tcp://"):
            list(cluster.each(clusters.waits, [0.0], mine.address))
        (worker,) = mine.work(1)
        found = cluster.each(clusters.waits, [0.0, 600.0], mine.address)
        assert next(found) == (0, 0.0)
        worker.kill()
        with pytest.raises(InputError, match="no worker is left; what is finished stays"):
            next(found)
        mine.work(1)
        found = cluster.each(clusters.waits, [0.0, 600.0], mine.address)
        assert next(found) == (0, 0.0)
        mine.scheduler.kill()
        with pytest.raises(InputError, match="it has gone away; what is finished stays"):
            next(found)


@pytest.mark.parametrize("address", ["", "here", "tcp://127.0.0.1", "tcp://127.0.0.1:port", "http://127.0.0.1:8786"])
def test_what_is_no_address_is_refused_with_one_that_is(address):
    with pytest.raises(InputError, match="an address is needed, such as tcp://host:8786"):
        list(cluster.each(clusters.waits, [0.0], address))


def test_an_address_where_no_scheduler_answers_is_refused(monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER", 0.5)
    with pytest.raises(InputError, match=r"no dask scheduler answers there .* start one with: dask scheduler"):
        list(cluster.each(clusters.waits, [0.0], "tcp://127.0.0.1:1"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(InputError, match="no dask scheduler answers there"):
            list(cluster.each(clusters.waits, [0.0], f"tcp://127.0.0.1:{port}"))


def test_without_distributed_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'servetwin\[cluster\]'"):
        list(cluster.each(clusters.waits, [0.0], "tcp://127.0.0.1:8786"))


def test_a_cell_is_the_same_where_its_files_are():
    cell = cells.cells(run.plan(STUDY).study)[0]
    cluster.check_same(cell, cell.key())
    with pytest.raises(InputError, match="other content"):
        cluster.check_same(cell, "0" * 64)
