"""Figures by class and tenant, limits of a class, and requests that were sent more than once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serving.group_metrics import MOST_GROUPS, by_class, by_tenant
from serving.metrics import arrays, by_request, meets, summary
from serving.records import REQUEST_COLUMNS, STEP_COLUMNS, Records
from serving.request import Status
from serving.tries import answered, intended_ns, last_tries

MS = 1_000_000
NOTHING = SimpleNamespace(ttft=None, tpot=None, e2e=None)


def records(*rows: dict[str, Any], **more: Any) -> Records:
    """Rows with arrival, first token and finish in ms."""
    table = {name: np.full(len(rows), -1, dtype=np.int64) for name in REQUEST_COLUMNS}
    for i, row in enumerate(rows):
        table["status"][i] = row.get("status", Status.FINISHED if row else -1)
        for name in ("arrival", "first_token", "finish"):
            if name in row:
                table[f"{name}_ns"][i] = row[name] * MS
        table["scheduled_ns"][i] = table["arrival_ns"][i]
        table["output_tokens"][i] = row.get("tokens", 11)
        table["prompt_tokens"][i] = 100
        table["cached_tokens"][i] = row.get("cached", 0)
        table["preemptions"][i] = 0
    events = np.empty((0, 3), dtype=np.int64)
    nobody = np.full(len(rows), -1, dtype=np.int64)
    steps = {name: np.empty(0, dtype=np.int64) for name in STEP_COLUMNS}
    made = Records(table, steps, events, events, events, nobody * 0, nobody)
    return replace(made, **more)


FAST = {"arrival": 0, "first_token": 100, "finish": 200}
SLOW = {"arrival": 0, "first_token": 900, "finish": 2900}
CLASSES: dict[str, Any] = {
    "service_class": np.array([0, 0, 1, 1]),
    "classes": ("chat", "batch"),
    "class_slo": ({"ttft": 0.5, "tpot": None, "e2e": None}, None),
}


class TestClassLimits:
    def test_each_request_is_held_to_its_own_class(self) -> None:
        run = records(FAST, SLOW, FAST, SLOW, **CLASSES)
        assert meets(run, NOTHING).tolist() == [True, False, True, True]
        common = SimpleNamespace(ttft=None, tpot=0.15, e2e=None)
        # 200 ms a token is too slow for those whom the scenario's limit holds; chat has limits of its own.
        assert meets(run, common).tolist() == [True, False, True, False]

    def test_limits_of_a_class_alone_make_goodput(self) -> None:
        run = records(FAST, SLOW, FAST, SLOW, **CLASSES)
        assert summary(run)["good_request_fraction"] is None
        assert summary(run, slo=NOTHING)["good_request_fraction"] == 0.75
        without = replace(run, class_slo=())
        assert summary(without, slo=NOTHING)["good_request_fraction"] is None

    def test_a_class_that_is_promised_nothing_only_has_to_finish(self) -> None:
        nothing = {"ttft": None, "tpot": None, "e2e": None}
        run = records(FAST, SLOW, FAST, {"arrival": 0, "finish": 1, "status": Status.REJECTED}, **CLASSES)
        run.class_slo = (CLASSES["class_slo"][0], nothing)
        strict = SimpleNamespace(ttft=0.001, tpot=None, e2e=None)
        assert meets(run, strict).tolist() == [True, False, True, False]


class TestGroups:
    def test_classes_have_figures_of_their_own(self) -> None:
        run = records(FAST, SLOW, SLOW, {"arrival": 5, "finish": 6, "status": Status.TIMED_OUT}, **CLASSES)
        found = by_class(run, NOTHING)
        assert list(found) == ["chat", "batch"]
        assert (found["chat"]["submitted"], found["chat"]["completed"], found["batch"]["timed_out"]) == (2, 2, 1)
        assert found["chat"]["mean_ttft_ms"] == 500
        assert found["batch"]["mean_ttft_ms"] == 900
        assert (found["chat"]["good_request_fraction"], found["batch"]["good_request_fraction"]) == (0.5, 0.5)
        assert found["chat"]["request_goodput"] == pytest.approx(1 / 2.9)
        assert found["batch"]["p99_ttft_ms"] is None
        assert "needs 299" in found["batch"]["refused"]["p99_ttft_ms"]

    def test_the_parts_sum_to_the_whole(self) -> None:
        run = records(FAST, SLOW, SLOW, FAST, **CLASSES)
        whole, parts = summary(run, slo=NOTHING), by_class(run, NOTHING).values()
        for key in ("submitted", "completed", "total_input_tokens", "total_output_tokens", "request_goodput"):
            assert sum(part[key] for part in parts) == pytest.approx(whole[key])
        assert sum(part["output_throughput"] for part in parts) == pytest.approx(whole["output_throughput"])

    def test_a_class_that_sent_nothing_has_dashes(self) -> None:
        run = records(FAST, FAST, FAST, FAST, **CLASSES | {"service_class": np.zeros(4, dtype=np.int64)})
        empty = by_class(run, NOTHING)["batch"]
        assert empty["submitted"] == 0
        assert empty["mean_ttft_ms"] is None
        assert empty["good_request_fraction"] is None

    def test_tenants_that_send_most_come_first(self) -> None:
        run = records(*[FAST] * 4, tenant=np.array([1, 1, 0, 1]), tenants=("small", "big"))
        assert list(by_tenant(run)) == ["big", "small"]
        names = tuple(f"t{i}" for i in range(MOST_GROUPS + 5))
        many = records(*[FAST] * len(names), tenant=np.arange(len(names)), tenants=names)
        assert len(by_tenant(many)) == MOST_GROUPS

    def test_where_all_are_alike_there_are_no_groups(self) -> None:
        run = records(FAST, SLOW)
        assert (by_class(run), by_tenant(run)) == ({}, {})


class TestTries:
    """Two requests, up to three tries each: row i + 2 k is try k of request i."""

    def run(self) -> Records:
        gave_up = {"arrival": 0, "finish": 1000, "status": Status.ABORTED}
        again = {"arrival": 1500, "first_token": 1600, "finish": 2000}
        escalated = {"arrival": 210, "first_token": 400, "finish": 1400}
        return records(gave_up, FAST, again, escalated, {}, {}, first_tries=2)

    def test_a_requests_outcome_is_that_of_its_last_try(self) -> None:
        run = self.run()
        assert last_tries(run).tolist() == [False, False, True, True, False, False]
        assert answered(run).tolist() == [False, False, True, True, False, False]
        s = summary(run, slo=SimpleNamespace(ttft=0.5, tpot=None, e2e=None))
        assert (s["submitted"], s["completed"], s["aborted"], s["never_sent"], s["tries"]) == (2, 2, 0, 0, 4)
        assert s["good_request_fraction"] == 0.5
        assert s["total_output_tokens"] == 22

    def test_time_counts_from_the_first_intent(self) -> None:
        run = self.run()
        assert (intended_ns(run) // MS).tolist() == [0] * 6
        assert by_request(run, "e2el")[2:4].tolist() == [2.0, 1.4]
        assert by_request(run, "ttft")[2:4].tolist() == [1.6, 0.4]
        assert np.isnan(by_request(run, "ttft")[[0, 1, 4, 5]]).all()
        assert summary(run)["mean_ttft_ms"] == 1000
        assert summary(run)["duration"] == 2.0
        assert arrays(run)["latencies"] == [2.0, 1.4]
        assert arrays(run)["start_times"] == [0, 0]

    def test_a_last_try_that_failed_is_a_failure(self) -> None:
        run = records(FAST, FAST, {}, {"arrival": 210, "finish": 900, "status": Status.TIMED_OUT}, first_tries=2)
        s = summary(run, slo=SimpleNamespace(ttft=0.5, tpot=None, e2e=None))
        assert (s["completed"], s["timed_out"], s["good_request_fraction"]) == (1, 1, 0.5)

    def test_requests_that_were_never_sent_have_no_try(self) -> None:
        run = records({}, FAST, {}, {}, first_tries=2)
        s = summary(run)
        assert (s["submitted"], s["never_sent"]) == (1, 1)

    def test_one_try_each_is_as_without_tries(self) -> None:
        rows = [FAST, SLOW, {}, {"arrival": 5, "finish": 6, "status": Status.REJECTED}]
        plain, tried = summary(records(*rows)), summary(records(*rows, first_tries=4))
        assert tried == {**plain, "tries": 3}

    def test_classes_count_requests_not_tries(self) -> None:
        run = replace(self.run(), service_class=np.array([0, 1] * 3), classes=("a", "b"))
        found = by_class(run)
        assert [(g["submitted"], g["completed"], g["tries"]) for g in found.values()] == [(1, 1, 2), (1, 1, 2)]
