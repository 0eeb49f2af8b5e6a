"""YAML from strangers: data alone, and in bounded time and memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

import scenarios
from scenarios import InputError, documents
from scenarios.strict_yaml import MOST_DEPTH, MOST_TEXT


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        scenarios.loads(text)
    message = str(caught.value)
    assert message.startswith("scenario: ")
    assert len(message) < 400
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        ("!!python/object/apply:os.system ['true']", "!!python/object/apply:os.system"),
        ("!!python/name:os.system", "!!python/name:os.system"),
        ("!!bool maybe", "!!bool"),
        ("!!timestamp never", "!!timestamp"),
        ("!!set {a, b}", "!!set"),
        ("!!binary aGVsbG8=", "!!binary"),
        ("!mine {a: 1}", "!mine"),
        ("!<tag:example.org,2000:x> 1", "tag:example.org,2000:x"),
        ("! 1", "!"),
    ],
)
def test_no_tag_is_read(value: str, tag: str) -> None:
    assert refused(f"seed: 1\nname: {value}") == (
        f"scenario: line 2: found the tag {tag!r}, but tags are not read; write the plain value, and text in quotes"
    )


LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12))
LONG_TEXT = f"a: &a {'x' * 100_000}\nb: [{'*a, ' * 1000}]\n"


@pytest.mark.parametrize("text", [LAUGHS, MERGES, LONG_TEXT], ids=["lists", "merges", "texts"])
def test_aliases_that_explode_are_refused_before_they_do(text: str) -> None:
    tracemalloc.start()
    try:
        assert "with its aliases written out, this is too large" in refused(text)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_aliases_that_repeat_themselves_are_refused() -> None:
    assert "line 1: alias *a stands inside of what it repeats" in refused("a: &a [*a]")
    assert "line 2: alias *a stands inside" in refused("a: &a\n  b: {<<: *a}")


def test_ordinary_aliases_and_merges_are_read() -> None:
    read = documents.mapping("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n", "t")
    assert read == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": [{"x": 1, "y": 2}, {"x": 1, "y": 2}]}


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 100_000, "- " * 100_000, "? " * 100_000, "{a: " * 50_000, "".join(" " * i + "a:\n" for i in range(600))],
    ids=["flow lists", "block lists", "keys", "flow mappings", "block mappings"],
)  # fmt: skip
def test_what_is_nested_without_end_is_refused(text: str) -> None:
    assert f"nested more than {MOST_DEPTH} levels deep" in refused(text)


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    within = MOST_DEPTH - 2  # the mapping, and the number inside of the lists
    assert documents.mapping("a: " + "[" * within + "1" + "]" * within, "t")
    assert "nested" in refused("a: " + "[" * (within + 1) + "1" + "]" * (within + 1))


def test_fifty_megabytes_are_refused_unread(tmp_path: Path) -> None:
    assert f"50,000,000 characters of YAML, more than the {MOST_TEXT:,}" in refused("a: 1234\n" * (50_000_000 // 8))
    file = tmp_path / "large.yaml"
    file.write_text("a" * (MOST_TEXT + 1))
    with pytest.raises(InputError, match=r"large\.yaml: 500,001 characters of YAML"):
        scenarios.load(file)


def test_keys_that_are_written_twice_are_refused_wherever_they_stand() -> None:
    assert "line 4: key 'b' is written twice (first on line 3)" in refused("x:\n  - a: 1\n  - b: 1\n    b: 2\n")
    assert refused(f"{'k' * 1000}: 1\n{'k' * 1000}: 2").count("k") < 100


def test_characters_that_yaml_does_not_allow_are_named() -> None:
    assert "character U+0000 at place 7, which YAML does not allow; is it UTF-16" in refused("name: \0")
    assert "character U+0007 at place 7, which YAML does not allow" in refused("name: \a")


def test_numbers_without_end_are_refused() -> None:
    assert "line 1: a number of 5,000 digits" in refused("seed: " + "9" * 5000)
    assert "line 1: a number of 5,002 digits" in refused("seed: 0x" + "f" * 5000)


def test_keys_that_are_no_text_are_refused() -> None:
    assert "not valid YAML" in refused("? [a]\n: 1")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_files_that_are_not_utf_8_are_refused(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes("name: größer\n".encode(encoding))
    with pytest.raises(InputError, match=r"s\.yaml: .*(UTF-8|UTF-16)"):
        scenarios.load(file)


def test_a_byte_order_mark_of_utf_8_is_no_harm(tmp_path: Path, good: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + good.encode())
    assert scenarios.load(file) == scenarios.loads(good)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(300 << 20), 9)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"t\.csv: unpacks to more than 5\d MiB"):
            documents.text_of(packed, "t.csv")
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert documents.text_of(gzip.compress(b"arrival\n1\n" * 1000), "t.csv").startswith("arrival")


def test_what_a_newer_version_wrote_is_said_to_be_that_whatever_else_it_holds(good: str) -> None:
    message = refused(good + "schema_version: 2\nflux_capacitor: {gigawatts: 1.21}\n")
    assert "schema_version: found 2" in message
    assert "comes from a newer servetwin, and this one reads version 1; update servetwin" in message
    assert "flux_capacitor" not in message
