"""The real-time loop."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.live import run_wall
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.plan import StepPlan, StepResult
from serving.records import Records
from serving.request import Status
from serving.scheduler import Scheduler
from sim.cluster import run_on_executors
from sim.replay import ReplayReport, replay
from tests.gpu_backend.shapes import QWEN3

MS = 1_000_000
CONFIG = EngineConfig(65, block_size=4, max_model_len=128, max_num_batched_tokens=64, max_num_seqs=8)


class Sleeper:
    """An executor whose steps take 2 ms."""

    def submit(self, plan: StepPlan) -> None:
        self.plan = plan

    def collect(self) -> StepResult:
        time.sleep(0.002)
        return StepResult(2 * MS)


def workload(arrivals_ms: list[int], prompts: list[int], outputs: list[int], **more: object) -> Workload:
    n = len(prompts)

    def column(values: object) -> np.ndarray:
        return np.broadcast_to(np.asarray(values, dtype=np.int64), (n,)).copy()

    settings = {"follows": column(-1), "think_ns": column(0), "concurrency": None} | more
    return Workload(
        arrival_ns=column(arrivals_ms) * MS,
        prompt_tokens=column(prompts),
        output_tokens=column(outputs),
        max_tokens=column(outputs),
        priority=column(0),
        tenant=column(0),
        session=column(-1),
        **settings,
    )


def run(load: Workload, executor: object = None, **more: object) -> Records:
    return run_wall(CONFIG, load, executor or Sleeper(), **more)


def check_laws(records: Records) -> None:
    """Law 3, and steps that follow one another."""
    r, s = records.requests, records.steps
    done = records.finished
    for earlier, later in (
        ("arrival_ns", "scheduled_ns"),
        ("scheduled_ns", "first_token_ns"),
        ("first_token_ns", "finish_ns"),
    ):
        assert (r[earlier][done] <= r[later][done]).all()
    assert (s["scheduled_ns"] <= s["start_ns"]).all()
    assert (s["start_ns"] <= s["end_ns"]).all()
    assert (s["end_ns"][:-1] <= s["scheduled_ns"][1:]).all()
    assert set(r["first_token_ns"][done]) <= set(s["end_ns"])


def replica_of(records: Records, number: int) -> Records:
    """The steps of one replica alone."""
    mine = records.steps["replica"] == number
    requests = {name: column[records.requests["replica"] == number] for name, column in records.requests.items()}
    return replace(records, requests=requests, steps={name: column[mine] for name, column in records.steps.items()})


def test_arrivals_wait_in_real_time() -> None:
    began = time.perf_counter()
    records = run(workload([0, 5, 60], [9, 9, 9], [2, 2, 2]))
    assert time.perf_counter() - began >= 0.064
    check_laws(records)
    assert records.finished.all()
    assert (records.requests["arrival_ns"] == [0, 5 * MS, 60 * MS]).all()
    assert records.requests["scheduled_ns"][2] >= 60 * MS
    assert (records.requests["output_tokens"] == 2).all()
    assert sorted(records.visible[:, 2].tolist()) == [0, 1, 2]
    assert records.visible[0, 1] == 0


def test_an_arrival_is_seen_by_the_first_batch_decided_after_it() -> None:
    records = run(workload([0, 1, 7], [9, 9, 9], [9, 9, 9]))
    decided = dict(zip(records.steps["step"].tolist(), records.steps["scheduled_ns"].tolist(), strict=True))
    for _, step, i in records.visible.tolist():
        arrival = records.requests["arrival_ns"][i]
        assert decided[step] >= arrival
        assert step == 0 or decided[step - 1] < arrival


def test_a_closed_loop_keeps_so_many_in_flight() -> None:
    records = run(workload([-1] * 6, [9] * 6, [3] * 6, concurrency=2, think_ns=np.full(6, 3 * MS)))
    check_laws(records)
    r = records.requests
    assert records.finished.all()
    assert (r["arrival_ns"][:2] == 0).all()
    assert sorted(r["arrival_ns"][2:]) == sorted(r["finish_ns"] + 3 * MS)[:4]
    assert records.steps["running"].max() == 2


def test_the_next_turn_follows_the_answer_after_a_pause() -> None:
    follows, think = np.array([-1, 0, 1]), np.array([0, 5 * MS, 0])
    load = workload([0, -1, -1], [9, 13, 17], [4, 4, 4], follows=follows, think_ns=think)
    r = run(load).requests
    assert (r["status"] == Status.FINISHED).all()
    assert r["arrival_ns"][1] == r["finish_ns"][0] + 5 * MS
    assert r["arrival_ns"][2] == r["finish_ns"][1]


def test_what_can_never_run_is_rejected_with_the_reason_and_its_next_turn_never_sent() -> None:
    records = run(workload([0, -1, 0], [128, 9, 9], [1, 1, 1], follows=np.array([-1, 0, -1])))
    assert records.requests["status"].tolist() == [Status.REJECTED, -1, Status.FINISHED]
    assert records.info["rejected"] == [{"request": 0, "reason": "prompt of 128 tokens >= max_model_len 128"}]


def test_a_closed_loop_goes_on_after_a_rejection() -> None:
    records = run(workload([-1] * 3, [9, 128, 9], [1, 1, 1], concurrency=1))
    assert records.requests["status"].tolist() == [Status.FINISHED, Status.REJECTED, Status.FINISHED]


def test_the_horizon_ends_the_run_with_requests_in_flight() -> None:
    began = time.perf_counter()
    records = run(workload([0, 0, 60_000], [9, 9, 9], [100, 2, 2]), horizon_ns=50 * MS)
    assert time.perf_counter() - began < 5.0
    assert records.requests["status"].tolist() == [Status.IN_FLIGHT, Status.FINISHED, -1]
    assert 0 < records.requests["output_tokens"][0] < 100
    assert records.requests["finish_ns"][0] == -1


def test_an_idle_engine_waits_out_its_horizon_and_an_empty_workload_ends_at_once() -> None:
    assert run(workload([60_000], [9], [2]), horizon_ns=20 * MS).requests["status"].tolist() == [-1]
    assert len(run(workload([], [], [])).steps["step"]) == 0


def test_a_scheduler_that_cannot_go_on_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "admit_waiting", lambda self: None)
    with pytest.raises(RuntimeError, match="schedules nothing"):
        run(workload([0], [9], [2]))


def test_the_real_engine_serves_a_tight_pool_in_real_time() -> None:
    config = EngineConfig(22, block_size=4, max_model_len=64, max_num_batched_tokens=32, max_num_seqs=8)
    engine = CpuEngine(QWEN3, config)
    load = workload([0, 0, 0, 10], [15, 15, 15, 9], [25, 25, 25, 3])
    records = run_wall(config, load, engine)
    check_laws(records)
    assert records.finished.all()
    assert records.requests["preemptions"].sum() == len(records.preempted) > 0
    assert (records.steps["kv_blocks"] <= config.usable_blocks).all()
    assert replay(records, load, config) == ReplayReport(True, len(records.steps["step"]))


def test_two_replicas_of_the_real_engine_run_on_a_simulated_clock() -> None:
    engine = CpuEngine(QWEN3, CONFIG)
    load = workload([0, 0, 1, 1, 900_000], [9, 30, 70, 5, 9], [6, 3, 5, 9, 2])
    began = time.perf_counter()
    records = run_on_executors(CONFIG, load, [engine, engine.replica()])
    assert time.perf_counter() - began < 60.0, "an idle gap of 900 s costs nothing"
    check_laws(replica_of(records, 0))
    assert records.finished.all()
    assert set(records.requests["replica"].tolist()) == {0, 1}
    assert records.requests["finish_ns"][4] >= 900_000 * MS
    assert replay(records, load, CONFIG).identical
