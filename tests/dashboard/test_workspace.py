"""The workspace: what a page may name, and what is found in it."""

from __future__ import annotations

import os

import pytest

from dashboard import workspace as at
from scenarios import InputError


def test_a_name_below_the_workspace_is_taken(workspace):
    assert at.inside("out/x") == workspace.resolve() / "out" / "x"
    assert at.inside("out/../b") == workspace.resolve() / "b"
    assert at.relative(at.inside("out/x")) == "out/x"


def test_the_workspace_itself_is_taken(workspace):
    assert at.inside("") == at.inside(".") == workspace.resolve()


@pytest.mark.parametrize("name", ["..", "../beside", "out/../../beside", "/", "/etc/passwd", "./../.", "out//..//.."])
def test_what_leads_out_is_refused(workspace, name):
    with pytest.raises(InputError, match="outside the workspace"):
        at.inside(name)


def test_a_folder_beside_whose_name_begins_alike_is_outside(workspace):
    with pytest.raises(InputError, match="outside the workspace"):
        at.inside(f"../{workspace.name}-2")


@pytest.mark.parametrize("depth", ["", "deep/"])
def test_a_link_that_leads_out_is_refused(workspace, tmp_path_factory, depth):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "secret").mkdir()
    (workspace / "deep").mkdir()
    (workspace / f"{depth}link").symlink_to(elsewhere)
    for name in (f"{depth}link", f"{depth}link/secret", f"{depth}link/not-there"):
        with pytest.raises(InputError, match="outside the workspace"):
            at.inside(name)


def test_a_link_within_the_workspace_is_followed(workspace):
    (workspace / "a").mkdir()
    (workspace / "b").symlink_to("a")
    assert at.inside("b") == workspace.resolve() / "a"


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "x/" * 5000, "out/" + "y" * 5000, "\ud800"])
def test_what_no_file_can_be_called_is_refused_in_a_short_sentence(workspace, name):
    with pytest.raises(InputError, match="is no name of a file or folder") as error:
        at.inside(name)
    assert len(str(error.value)) < 200
    assert "\0" not in str(error.value)


def test_links_in_a_circle_are_refused(workspace):
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    with pytest.raises(InputError):
        at.inside("a")


def test_a_workspace_that_is_a_link_is_where_it_leads(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv(at.VARIABLE, str(tmp_path / "link"))
    assert at.inside("x") == (tmp_path / "real" / "x").resolve()


def made(workspace, *folders: str, names: tuple[str, ...] = ("a.txt", "b.txt")) -> None:
    for folder in folders:
        (workspace / folder).mkdir(parents=True)
        for name in names:
            (workspace / folder / name).touch()


def names(held: at.Held) -> list[str]:
    return [at.relative(path) for path in held.folders]


def test_folders_are_found_that_hold_all_files_of_a_kind(workspace):
    made(workspace, "x/y", "z")
    made(workspace, "half", names=("a.txt",))
    made(workspace, "other", names=("c.txt",))
    assert names(at.holding(("a.txt", "b.txt"))) == ["x/y", "z"]
    assert names(at.holding(("a.txt", "b.txt"), ("c.txt",))) == ["other", "x/y", "z"]


def test_hidden_folders_and_those_beyond_links_are_passed_over(workspace, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    made(elsewhere, "found")
    (workspace / "link").symlink_to(elsewhere / "found")
    made(workspace, ".hidden/x", "__pycache__/x", "node_modules/x")
    assert at.holding(("a.txt",)) == at.Held(())


def test_what_is_found_is_not_looked_into(workspace):
    made(workspace, "x", "x/inner")
    assert names(at.holding(("a.txt",))) == ["x"]


def test_folders_deeper_than_the_limit_are_not_found(workspace):
    made(workspace, "1/2/3/4", "a/2/3/4/5")
    assert names(at.holding(("a.txt",))) == ["1/2/3/4"]


def test_a_huge_tree_is_looked_at_in_part_and_that_is_said(workspace, monkeypatch):
    monkeypatch.setattr(at, "MOST_FOLDERS", 20)
    looked = []
    scandir = os.scandir
    monkeypatch.setattr(at.os, "scandir", lambda path: looked.append(path) or scandir(path))
    made(workspace, "near")
    for i in range(5):
        made(workspace, *(f"many/{i}/{j}" for j in range(20)))
    held = at.holding(("a.txt",))
    assert not held.whole
    assert len(looked) == 20
    assert "near" in names(held)  # what is near the top is found first


def test_a_folder_of_very_many_files_is_looked_at_in_part_and_that_is_said(workspace, monkeypatch):
    monkeypatch.setattr(at, "MOST_ENTRIES", 5)
    made(workspace, "x", names=tuple(f"{i}.txt" for i in range(10)))
    assert not at.holding(("a.txt",)).whole


def test_a_tree_that_is_looked_at_whole_says_so(workspace):
    made(workspace, "x")
    assert at.holding(("a.txt",)).whole


def test_a_folder_that_may_not_be_read_is_passed_over(workspace, monkeypatch):
    made(workspace, "x", "y")
    scandir = os.scandir

    def refused(path):
        if path.name == "x":
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(at.os, "scandir", refused)
    assert names(at.holding(("a.txt",))) == ["y"]
