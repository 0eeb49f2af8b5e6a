"""Work side by side: what comes back, in whatever order, and what becomes of it when processes are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from scenarios import InputError
from studies import workers
from studies.workers import Lost


def squared(x: int) -> int:
    return x * x


def where(_: int) -> str:
    return os.getcwd()


def nested(x: int) -> list[int]:
    return [found for _, found in workers.each(squared, range(x), 2)]


def deadly(path: str) -> str:
    """Kills its process; a path that is no file, each time it is asked, else once."""
    if path.endswith("once"):
        if not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif path.endswith("always"):
        os.kill(os.getpid(), signal.SIGKILL)
    return path


@pytest.mark.parametrize("count", [1, 2])
def test_every_item_comes_back_with_its_place(count):
    assert dict(workers.each(squared, range(20), count)) == {i: i * i for i in range(20)}


def test_an_error_of_one_item_ends_the_work():
    with pytest.raises(TypeError):
        list(workers.each(squared, [1, None, 3], 2))  # type: ignore[list-item]
    assert dict(workers.each(squared, [1, 2], 2)) == {0: 1, 1: 4}


def test_processes_that_were_begun_elsewhere_work_in_the_folder_of_who_asks(tmp_path, monkeypatch):
    list(workers.each(squared, range(2), 2))
    monkeypatch.chdir(tmp_path)
    assert dict(workers.each(where, range(4), 2)) == dict.fromkeys(range(4), str(tmp_path))


def test_workers_have_no_workers_of_their_own():
    assert dict(workers.each(nested, [2, 3], 2)) == {0: [0, 1], 1: [0, 1, 4]}


def test_an_item_whose_process_is_killed_is_done_again(tmp_path):
    items = [f"{i}" for i in range(8)]
    items[3] = str(tmp_path / "once")
    assert dict(workers.each(deadly, items, 2)) == dict(enumerate(items))


def test_an_item_that_kills_every_process_is_lost_alone():
    items = ["a", "b", "always", "c", "d"]
    found = dict(workers.outcomes(deadly, items, 2))
    lost = found.pop(2)
    assert found == {0: "a", 1: "b", 3: "c", 4: "d"}
    assert isinstance(lost, Lost)
    assert lost.why.startswith("its process was killed 3 times (SIGKILL)")
    with pytest.raises(InputError, match="killed 3 times"):
        list(workers.each(deadly, ["a", "always"], 2))
