"""The deployments that the laws are tried on are not empty talk: they preempt, hit, reject, wait and leap."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from hypothesis import given

from serving.records import _LEAP, StepLog
from serving.request import Status
from tests.laws.worlds import World, law, worlds


def test_worlds_reach_what_they_are_meant_to_reach() -> None:
    seen: Counter[str] = Counter()
    arrays = StepLog.arrays

    def counting(log: StepLog):  # type: ignore[no-untyped-def]
        columns = arrays(log)
        seen["leaps"] += len(columns["step"]) > len(log.leaps) // len(_LEAP)
        return columns

    @law(250)
    @given(worlds(horizons=True))
    def look(world: World) -> None:
        records = world.run()
        status = records.requests["status"]
        seen["preempted"] += len(records.preempted) > 0
        seen["hits"] += bool((records.requests["cached_tokens"] > 0).any())
        seen["rejected"] += Status.REJECTED in status
        seen["cut by the horizon"] += Status.IN_FLIGHT in status
        seen["waited"] += bool((records.steps["waiting"] > 0).any())
        seen["several replicas"] += len(set(records.steps["replica"].tolist())) > 1
        seen["finished all"] += bool(records.finished.all())
        seen["drafts stood"] += bool(records.steps["accepted_tokens"].any())
        seen["drafts fell"] += bool((records.steps["draft_tokens"] > records.steps["accepted_tokens"]).any())
        seen["decided ahead"] += bool((records.steps["scheduled_ns"] < records.steps["start_ns"]).any())

    with patch.object(StepLog, "arrays", counting):
        look()
    assert min(seen.values()) >= 10, seen
    assert len(seen) == 11
