"""Case 15: what is left of a sweep whose processes are killed, and how it goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cli
from studies import stopping
from studies.sweeps import run

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes where Linux has them")

STUDY = {
    "base": "azure-conversation",
    "set": ["workload.requests=1000"],
    "axes": {"engine.max_num_seqs": [16, 64], "workload.rate": [5, 10]},
    "seeds": 5,
}
PATIENCE = 240.0


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Processes that a command has begun to work for it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == process.pid and state != "Z" and b"popen_loky" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
        except OSError:  # it has just ended
            continue
    return found


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            if (Path(f"/proc/{pid}/stat")).read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
        except OSError:
            continue
    return found


def cells(folder: Path) -> dict[str, int]:
    return {file.stem: file.stat().st_mtime_ns for file in (folder / "cells").glob("*.parquet")}


def wait_until(condition, process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


@contextmanager
def command(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`servetwin sweep s.yaml`, in a process group of its own, as of a shell."""
    (folder / "s.yaml").write_text(json.dumps(STUDY))
    process = subprocess.Popen(
        [sys.executable, "-c", "import cli; cli.main()", "sweep", "s.yaml", "--out", "o", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(cli.__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # As in a terminal, whatever these tests were started by: what runs in the background of a shell ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_case_15_resume(tmp_path):
    """20 cells, 4 workers, a worker killed at about 4, the command at about 8: the same final table, no cell twice."""
    whole = run.sweep(STUDY, out=tmp_path / "whole", processes=1)
    table = (tmp_path / "whole" / "table.parquet").read_bytes()
    assert (whole.run, whole.failed) == (20, 0)

    with command(tmp_path, "--workers", "4") as process:
        wait_until(lambda: len(cells(tmp_path / "o")) >= 4, process)
        os.kill(workers_of(process)[0], signal.SIGKILL)
        wait_until(lambda: len(cells(tmp_path / "o")) >= 8, process)
        left = workers_of(process)
        process.kill()
        process.wait()
        assert left
        wait_until(lambda: not alive(left))  # nobody works on for nobody
    kept = cells(tmp_path / "o")
    assert 8 <= len(kept) < 20
    assert not (tmp_path / "o" / "table.parquet").exists()

    damaged = min((tmp_path / "o" / "cells").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-100])
    told: list[str] = []
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1, tell=told.append)
    assert (done.run, done.skipped, done.failed) == (21 - len(kept), len(kept) - 1, 0)
    assert told == [f"{damaged}: damaged: run again"]
    after = cells(tmp_path / "o")
    assert [key for key in kept if after[key] != kept[key]] == [damaged.stem]
    assert (tmp_path / "o" / "table.parquet").read_bytes() == table

    axes = {**STUDY["axes"], "workload.rate": [5, 20]}
    done = run.sweep({**STUDY, "axes": axes}, out=tmp_path / "o", processes=1, update=True)
    assert (done.run, done.skipped) == (10, 10)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, stopping.INTERRUPTED), (signal.SIGTERM, stopping.TERMINATED)]
)
def test_what_is_stopped_keeps_what_is_finished_and_says_how_to_go_on(tmp_path, number, code):
    with command(tmp_path, "--workers", "2") as process:
        wait_until(lambda: len(cells(tmp_path / "o")) >= 2, process)
        left = workers_of(process)
        # Ctrl-C reaches all processes of a terminal, a service manager's word only the first
        os.killpg(process.pid, number) if number == signal.SIGINT else process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (code, "")
    said = "servetwin: stopped. Cells that are finished are kept in o; the same command goes on from there"
    assert err.splitlines()[-1] == said
    assert "Traceback" not in err
    assert "Warning" not in err
    assert alive(left) == []
    kept = len(cells(tmp_path / "o"))
    assert 2 <= kept < 20
    done = run.sweep(STUDY, out=tmp_path / "o", processes=1)
    assert (done.run, done.skipped) == (20 - kept, kept)


def test_ctrl_c_while_workers_start_is_told_in_one_sentence(tmp_path):
    """They import for a second or two before they can say that Ctrl-C is not for them."""
    with command(tmp_path, "--workers", "2") as process:
        wait_until(lambda: workers_of(process), process)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == stopping.INTERRUPTED
    assert "Traceback" not in err


def test_ctrl_c_while_the_command_is_imported_says_nothing(tmp_path):
    script = "import sys, time\nfrom studies import stopping\nwith stopping.quietly():\n    print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (-signal.SIGINT, b"")
