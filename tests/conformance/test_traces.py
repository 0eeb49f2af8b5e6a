"""Law 16: decisions equal those of the recorded vLLM scheduler, step by step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from serving.plan import StepPlan
from studies.conformance import Drive, compare, run
from studies.scheduler_traces import TraceScenario, read, read_file
from tests.conformance.subjects import SUBJECTS
from tests.oracle.scheduler import OracleScheduler

TRACES = Path(__file__).parent / "traces"
GROUPS = tuple(sorted(path.name.removesuffix(".json.gz") for path in TRACES.glob("*.json.gz")))
COUNTS = {
    "abort": 8, "admission": 9, "async": 24, "async_spec": 6, "chunked": 12, "edges": 37, "evict": 8, "large": 5,
    "longprefill": 6, "multiturn": 7, "nochunk": 5, "preempt": 18, "prefix": 14, "priority": 14, "spec": 22, "tight": 50,
}  # fmt: skip


@cache
def scenarios(group: str) -> tuple[TraceScenario, ...]:
    return tuple(read_file(TRACES / f"{group}.json.gz"))


def test_every_recorded_group_is_here() -> None:
    assert {group: len(scenarios(group)) for group in GROUPS} == COUNTS
    assert sum(COUNTS.values()) == 245


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_decisions_equal_the_recorded_ones(name: str, group: str) -> None:
    subject = SUBJECTS[name]
    differences = [compare(s, name, subject.make) for s in scenarios(group) if subject.supports(s.config)]
    assert [str(difference) for difference in differences if difference] == []


def test_fast_path_supports_a_large_part_of_the_recordings() -> None:
    supported = [SUBJECTS["fast"].supports(s.config) for group in GROUPS for s in scenarios(group)]
    assert sum(supported) >= 40


class NotesTables(OracleScheduler):
    """Keeps the block tables as they are after `schedule()`, before the update frees any."""

    def schedule(self, now_ns: int = 0) -> StepPlan:
        plan = super().schedule(now_ns)
        self.tables = {row.request.index: self.block_table(row.request) for row in plan.scheduled}
        return plan


def test_oracle_takes_the_very_blocks_that_were_recorded() -> None:
    """Stronger than conformance asks: the same block ids, so the eviction order is the same to the block."""
    compared = 0
    for scenario in (*scenarios("edges"), *scenarios("async"), *scenarios("spec")):
        drive = Drive(scenario, NotesTables)
        for expected in scenario.raw["steps"]:
            drive.step(expected["step"])
            for name, table in expected.get("blocks", {}).items():
                assert drive.scheduler.tables[drive.requests[name].index] == table, f"{scenario.name} {expected}"
                compared += 1
    assert compared > 390


def test_oracle_names_the_recorded_self_preemptions() -> None:
    seen = 0
    for group in GROUPS:
        for scenario in scenarios(group):
            drive = Drive(scenario, OracleScheduler)
            for expected in scenario.raw["steps"]:
                drive.step(expected["step"])
                assert [drive.names[r.index] for r in drive.scheduler.self_preempted] == expected.get(
                    "self_preempted", []
                )
                seen += len(drive.scheduler.self_preempted)
    assert seen > 50


def test_report_counts_scenarios_by_group_and_by_scheduler() -> None:
    document = run(TRACES).to_dict()
    assert (document["passed"], document["failed"], document["skipped"]) == (245, 0, 0)
    assert document["groups"]["async_spec"] == {"passed": 6, "failed": 0, "skipped": 0}
    assert document["schedulers"]["readable"] == {"passed": 245, "failed": 0, "skipped": 0}
    assert document["schedulers"]["fast"] == {"passed": 139, "failed": 0, "skipped": 106}
    assert document["skips"] == {}


def test_reading_a_folder_yields_all_scenarios() -> None:
    assert len(list(read(TRACES))) == 245
