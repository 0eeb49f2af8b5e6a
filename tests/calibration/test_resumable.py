"""A section of measurements keeps to its budget, is written as it goes and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from calibration.resumable import Budget, Item, Result, Row, Section, earlier, run_section


class Measured:
    """A section of items that count how often they ran."""

    def __init__(self, names: str = "abc", seconds: float = 1.0, settings: Row | None = None) -> None:
        self.ran: list[str] = []
        self.said: list[str] = []
        self.section = Section("things", settings or {"size": (1, 2)}, self.items)
        self.names, self.seconds = names, seconds
        self.before: dict[str, Callable[[], None]] = {}

    def items(self, rows: Mapping[str, Row]) -> Iterator[Item]:
        for name in self.names:

            def run(name: str = name) -> Row:
                self.before.get(name, lambda: None)()
                self.ran.append(name)
                return {"of": name}

            yield Item(name, self.seconds, run)

    def go(self, folder: Path, budget: float = 100.0, clock: Callable[[], float] = lambda: 0.0) -> Result:
        return run_section(self.section, folder, Budget(budget, clock), self.said.append)


def test_rows_are_kept_and_the_rest_is_done(tmp_path: Path) -> None:
    Measured("ab").go(tmp_path)
    again = Measured("abc")
    result = again.go(tmp_path)
    assert again.ran == ["c"]
    assert list(result.rows) == ["a", "b", "c"]
    assert result.complete


def test_what_does_not_fit_the_budget_is_skipped_and_named_with_the_reason(tmp_path: Path) -> None:
    spent = iter([0.0, 0.0, 4.0, 8.0, 8.0])
    measured = Measured(seconds=3.0)
    result = measured.go(tmp_path, 10.0, lambda: next(spent))
    assert measured.ran == ["a", "b"]
    assert result.skipped == {"c": "takes about 3.0 s, and 2.0 s of the budget of 10 s are left"}
    assert measured.said == ["things: c: skipped, takes about 3.0 s, and 2.0 s of the budget of 10 s are left"]
    assert json.loads((tmp_path / "things.json").read_text())["skipped"] == result.skipped
    later = Measured(seconds=3.0)
    assert later.go(tmp_path).complete
    assert later.ran == ["c"]


def test_an_interruption_leaves_what_is_there(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    measured = Measured()
    measured.before["b"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        measured.go(tmp_path)
    assert json.loads((tmp_path / "things.json").read_text())["rows"] == {"a": {"of": "a"}}
    again = Measured()
    assert again.go(tmp_path).complete
    assert again.ran == ["b", "c"]


def test_an_interruption_of_a_second_run_loses_no_row_of_the_first(tmp_path: Path) -> None:
    Measured("bc").go(tmp_path)

    def interrupt() -> None:
        raise KeyboardInterrupt

    again = Measured("aXbc")
    again.before["X"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        again.go(tmp_path)
    assert json.loads((tmp_path / "things.json").read_text())["rows"].keys() == {"a", "b", "c"}


def test_a_failing_item_is_named_and_tried_again(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no memory")

    measured = Measured()
    measured.before["b"] = fail
    result = measured.go(tmp_path)
    assert result.failed == {"b": "RuntimeError: no memory"}
    assert measured.ran == ["a", "c"]
    again = Measured()
    assert again.go(tmp_path).complete
    assert again.ran == ["b"]


@pytest.mark.parametrize("keep", [0, 1, 30, -20])
def test_a_truncated_file_is_noticed_and_done_again(tmp_path: Path, keep: int) -> None:
    Measured().go(tmp_path)
    path = tmp_path / "things.json"
    path.write_text(path.read_text()[:keep])
    again = Measured()
    assert again.go(tmp_path).complete
    assert again.ran == ["a", "b", "c"]
    assert again.said == [f"{path}: not a whole result file (truncated?); its section is done again"]


def test_other_settings_measure_again(tmp_path: Path) -> None:
    Measured().go(tmp_path)
    again = Measured(settings={"size": (1, 3)})
    again.go(tmp_path)
    assert again.ran == ["a", "b", "c"]
    assert again.said == [
        f"{tmp_path / 'things.json'}: was measured with other settings (size); its section is done again"
    ]


def test_what_cannot_be_done_here_is_skipped_but_a_row_of_it_is_kept(tmp_path: Path) -> None:
    def items(rows: Mapping[str, Row]) -> Iterator[Item]:
        yield Item("a", 1.0, dict, "there is no cuda device here")

    said: list[str] = []
    section = Section("things", {}, items)
    result = run_section(section, tmp_path, Budget(10.0), said.append)
    assert result.skipped == {"a": "there is no cuda device here"}
    assert earlier(section, tmp_path) is None
    run_section(
        Section("things", {}, lambda rows: iter([Item("a", 1.0, lambda: {"x": 1})])),
        tmp_path,
        Budget(10.0),
        said.append,
    )
    assert run_section(section, tmp_path, Budget(10.0), said.append).rows == {"a": {"x": 1}}
    known = earlier(section, tmp_path)
    assert known is not None
    assert known.rows == {"a": {"x": 1}}


def test_a_later_item_sees_the_rows_before_it(tmp_path: Path) -> None:
    def items(rows: Mapping[str, Row]) -> Iterator[Item]:
        yield Item("a", 1.0, lambda: {"x": 1})
        if "a" in rows:
            yield Item(f"after {rows['a']['x']}", 1.0, dict)

    result = run_section(Section("things", {}, items), tmp_path, Budget(10.0), lambda line: None)
    assert list(result.rows) == ["a", "after 1"]
