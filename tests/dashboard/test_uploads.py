from __future__ import annotations

import pytest

from dashboard import uploads
from scenarios import InputError


def test_a_file_is_kept_once_by_what_is_in_it(workspace):
    first, second = uploads.keep("a.csv", b"x"), uploads.keep("b.csv", b"x")
    assert first == second
    assert uploads.find(first.digest) == first
    assert first.path.read_bytes() == b"x"
    assert len(list(uploads.folder().iterdir())) == 1


@pytest.mark.parametrize("name", ["../../x.yaml", "/etc/passwd", "..", ".hidden", "a b\0c.csv", "ü" * 300 + ".csv", ""])
def test_a_name_cannot_leave_the_folder(workspace, name):
    upload = uploads.keep(name, name.encode() + b"content")
    assert upload.path.parent == uploads.folder()
    assert upload.path.resolve().is_relative_to(workspace.resolve())
    assert uploads.find(upload.digest) == upload


@pytest.mark.parametrize("digest", ["", "*", "../..", "0123", "0123456789abcdeF", "[0-9]" * 4, "0123456789abcdef/"])
def test_what_is_no_digest_finds_nothing(workspace, digest):
    uploads.keep("a.csv", b"x")
    assert uploads.find(digest) is None


def test_an_empty_file_is_refused(workspace):
    with pytest.raises(InputError, match=r"a\.csv: the file is empty"):
        uploads.keep("a.csv", b"")


def test_a_workspace_that_cannot_be_written_is_told(workspace, monkeypatch):
    (workspace / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot be kept"):
        uploads.keep("a.csv", b"x")
