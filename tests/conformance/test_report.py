"""What the conformance report says of schedulers that differ, and of files that are not traces."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import InputError
from serving.plan import StepPlan
from studies.conformance import Subject, run
from tests.oracle.scheduler import OracleScheduler

TRACE = Path(__file__).parent / "traces" / "edges.json.gz"


def document() -> dict[str, Any]:
    return copy.deepcopy(json.loads(gzip.decompress(TRACE.read_bytes())))


def write(folder: Path, content: Any, name: str = "edges.json") -> None:
    (folder / name).write_text(json.dumps(content))


class ForgetsBlocks(OracleScheduler):
    """Reports one free block too few."""

    def schedule(self, now_ns: int = 0) -> StepPlan:
        plan = super().schedule(now_ns)
        plan.free_blocks -= 1
        return plan


class Crashes(OracleScheduler):
    def schedule(self, now_ns: int = 0) -> StepPlan:
        raise RuntimeError("out of cheese")


def test_plain_json_is_read_as_well_as_gzip(tmp_path: Path) -> None:
    write(tmp_path, document())
    report = run(tmp_path, {"oracle": Subject(OracleScheduler)})
    assert (report.passed, report.failed, report.skipped) == (37, 0, 0)


def test_first_difference_is_named_in_words(tmp_path: Path) -> None:
    write(tmp_path, document())
    report = run(tmp_path, {"oracle": Subject(OracleScheduler), "broken": Subject(ForgetsBlocks)})
    assert (report.passed, report.failed) == (0, 37)
    assert report.schedulers["oracle"].passed == 37
    assert report.schedulers["broken"].failed == 37
    words = report.to_dict()["failures"][0]
    assert words == "edges/edge_fully_cached_P16 (broken) step 0: free_blocks should be 255, is 254"


def test_crash_is_a_failure_of_its_scenario_alone(tmp_path: Path) -> None:
    write(tmp_path, document())
    report = run(tmp_path, {"broken": Subject(Crashes)})
    assert report.failed == 37
    assert "RuntimeError: out of cheese" in str(report.failures[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scheduled", [["r00", 15]]),
        ("new", {"r00": 16}),
        ("resumed", {"r00": 0}),
        ("preempted", ["r00"]),
        ("aborted", [["r00", "waiting"]]),
        ("running", 2),
        ("waiting", 1),
        ("free_blocks", 254),
        ("free_after", 255),
        ("finished", []),
        ("self_preempted", ["r00"]),
    ],
)
def test_each_recorded_field_is_compared(tmp_path: Path, field: str, value: object) -> None:
    changed = document()
    changed["scenarios"] = changed["scenarios"][:1]
    changed["scenarios"][0]["steps"][0][field] = value
    write(tmp_path, changed)
    report = run(tmp_path, {"oracle": Subject(OracleScheduler)})
    assert report.failed == 1
    assert (report.failures[0].step, report.failures[0].field) == (0, field)
    assert report.failures[0].expected in (value, sorted(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("total", ["steps", "busy_steps", "scheduled_tokens", "preemptions", "prefix_hits"])
def test_totals_are_compared(tmp_path: Path, total: str) -> None:
    changed = document()
    changed["scenarios"] = changed["scenarios"][:1]
    changed["scenarios"][0]["totals"][total] += 1
    write(tmp_path, changed)
    report = run(tmp_path, {"oracle": Subject(OracleScheduler)})
    assert [(d.step, d.field) for d in report.failures] == [(None, total)]


def test_how_requests_end_is_compared(tmp_path: Path) -> None:
    changed = document()
    changed["scenarios"] = changed["scenarios"][:1]
    changed["scenarios"][0]["end"]["r01"] = "aborted"
    write(tmp_path, changed)
    assert [d.field for d in run(tmp_path, {"oracle": Subject(OracleScheduler)}).failures] == ["end"]


def test_block_ids_are_a_hint_only(tmp_path: Path) -> None:
    changed = document()
    for scenario in changed["scenarios"]:
        for step in scenario["steps"]:
            step["blocks"] = {"r00": [99]}
    write(tmp_path, changed)
    assert run(tmp_path, {"oracle": Subject(OracleScheduler)}).failed == 0


def test_ties_fall_to_the_smaller_id_not_to_the_order_in_the_file(tmp_path: Path) -> None:
    """Ids that are added out of order: the queue of the priority policy looks at the id last."""
    changed = document()
    tie = next(s for s in changed["scenarios"] if s["name"] == "edge_priority_tie_by_id")
    assert [r["id"] for r in tie["requests"]] != sorted(r["id"] for r in tie["requests"])
    changed["scenarios"] = [tie]
    write(tmp_path, changed)
    assert run(tmp_path).passed == 1


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a directory"):
        run(tmp_path / "nowhere")


def test_folder_without_traces_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(InputError, match="no scheduler traces"):
        run(tmp_path)


def test_truncated_gzip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.json.gz").write_bytes(TRACE.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"edges\.json\.gz: not a readable trace file"):
        run(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '{"format": "other", "format_version": 1}', "\x00"])
def test_what_is_not_a_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json"):
        run(tmp_path)


def test_other_version_of_the_format_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {**document(), "format_version": 2})
    with pytest.raises(InputError, match="version 2; expected 'scheduler-trace' version 1"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("settings", "block_size"), "16", r"scenarios\[0\]\.settings\.block_size is a str '16'; expected int"),
        (("settings", "max_num_seqs"), True, r"max_num_seqs is a bool 'True'; expected int"),
        (("settings", "block_size"), 0, r"settings\.block_size: 0; expected 1 or more"),
        (("settings", "watermark"), 1.5, r"settings\.watermark: 1\.5; expected a share"),
        (("settings", "policy"), "lifo", r"policy: 'lifo'; expected fcfs or priority"),
        (("requests", 0, "prompt"), [["a", -1]], r"requests\[0\]\.prompt: \['a', -1\]; expected \[content key"),
        (("requests", 1, "id"), "r00", r"requests\[1\]\.id: 'r00' occurs twice"),
        (("requests", 0, "abort_when"), "later", r"expected before_schedule or before_update"),
        (("steps", 0, "running"), None, r"steps\[0\]\.running is a NoneType 'None'; expected int"),
        (("totals",), 3, r"scenarios\[0\]\.totals is a int '3'; expected an object"),
    ],
)
def test_wrong_value_is_refused_with_its_place(tmp_path: Path, path: tuple[Any, ...], value: Any, words: str) -> None:
    changed = document()
    place = changed["scenarios"][0]
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    write(tmp_path, changed)
    with pytest.raises(InputError, match=words):
        run(tmp_path)


def test_missing_field_is_refused_with_its_place(tmp_path: Path) -> None:
    changed = document()
    del changed["scenarios"][3]["steps"][1]["free_after"]
    write(tmp_path, changed)
    with pytest.raises(InputError, match=r"scenarios\[3\]\.steps\[1\]\.free_after is missing; expected int"):
        run(tmp_path)


def test_settings_that_no_scheduler_supports_are_skipped_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, document())
    report = run(tmp_path, {"fcfs only": Subject(OracleScheduler, lambda config: config.policy == "fcfs")})
    assert report.failed == 0
    assert report.skipped > 0
    assert set(report.skips.values()) == {"no scheduler supports its settings"}
