"""Files of one's own: a trace is replayed, a link names it by its content, and what cannot be used is said plainly."""

from __future__ import annotations

import hashlib

import pytest

from tests.browser.server import start

TTFT = "Cumulative distribution of time to first token"
ROWS = 40


def trace(rows: int = ROWS) -> bytes:
    """A request a second, in the layout of the Azure traces."""
    lines = [f"2023-11-16 18:{k // 60:02}:{k % 60:02}.0000000,{100 + k},{5 + k % 7}" for k in range(rows)]
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines, ""]).encode()


def give(reader, what: str, file) -> None:
    """Uploads a file in the section of files. file: a path, or name and content."""
    box = reader.section("Files").get_by_test_id("stFileUploader").filter(has_text=f"Upload a {what}")
    given = {"name": file[0], "mimeType": "text/plain", "buffer": file[1]} if isinstance(file, tuple) else file
    box.locator("input[type=file]").set_input_files(given)


@pytest.fixture
def uploaded(reader):
    """A reader whose page replays a trace."""
    before = reader.open().figure(TTFT)
    give(reader, "trace", ("mine.csv", trace()))
    reader.query_becomes(trace=hashlib.sha256(trace()).hexdigest()[:16])
    reader.redrawn(before, TTFT)
    return reader


def test_an_uploaded_trace_is_replayed_and_the_link_carries_its_hash(uploaded, readers):
    assert len(uploaded.figure(TTFT).curve("demo")["x"]) == ROWS
    there = readers(stranger=True).follow(uploaded.page.url)
    there.drawn(TTFT)
    assert there.figure(TTFT).data == uploaded.figure(TTFT).data
    assert there.cards() == uploaded.cards()


def test_a_server_that_lacks_the_file_asks_for_it_and_then_shows_the_same(uploaded, readers, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    other = start(folder)
    there = readers(url=other.url, stranger=True)
    try:
        there.follow(uploaded.page.url.replace(uploaded.url, other.url))
        digest = uploaded.query()["trace"]
        assert any(digest in alert for alert in there.alerts())
        assert there.query() == uploaded.query()
        missing = there.page.get_by_test_id("stFileUploader").filter(has_text="The trace of this link")
        missing.locator("input[type=file]").set_input_files(
            {"name": "found.csv", "mimeType": "text/csv", "buffer": trace()}
        )
        there.drawn(TTFT)
        assert there.figure(TTFT).data == uploaded.figure(TTFT).data
    finally:
        there.page.close()
        other.stop()


@pytest.mark.parametrize(
    ("what", "name", "content", "said"),
    [
        ("trace", "broken.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,many,few\n", "yesterday"),
        ("scenario", "later.yaml", b"schema_version: 99\nname: later\n", "newer servetwin"),
        ("scenario", "code.yaml", b"name: !!python/object/apply:os.system ['touch hacked']\n", "code.yaml"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_words(reader, server, what, name, content, said):
    reader.open(workload__requests="50").drawn(TTFT)
    give(reader, what, (name, content))
    reader.page.get_by_test_id("stAlert").filter(has_text=said).first.wait_for()
    reader.settled()
    assert reader.page.get_by_test_id("stException").count() == 0
    assert not any("Traceback" in alert for alert in reader.alerts())
    assert not list(server.workspace.rglob("hacked"))


def test_fifty_megabytes_are_taken(reader, tmp_path):
    head, *lines = trace().decode().splitlines()
    wide = [f"{line},{'-' * 99_000}" for line in lines * 13]
    path = tmp_path / "large.csv"
    path.write_text("\n".join([f"{head},Note", *wide, ""]), encoding="utf-8")
    assert path.stat().st_size > 50_000_000
    before = reader.open().figure(TTFT)
    give(reader, "trace", path)
    reader.query_becomes(trace=hashlib.sha256(path.read_bytes()).hexdigest()[:16])
    reader.redrawn(before, TTFT)
