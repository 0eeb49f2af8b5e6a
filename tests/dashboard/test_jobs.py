from __future__ import annotations

import os
import time

import pytest

from dashboard import jobs as module
from dashboard.jobs import Jobs
from tests.dashboard import pieces

LONG = 60.0


@pytest.fixture
def jobs():
    found = Jobs(most=2)
    yield found
    found.close()


def until(claim, seconds: float = LONG) -> bool:
    end = time.monotonic() + seconds
    while not claim() and time.monotonic() < end:
        time.sleep(0.02)
    return claim()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_work_is_done_elsewhere_and_tells_how_far_it_is(jobs):
    job = jobs.ask("me", "a", pieces.double, 21)
    assert job.wait(LONG)
    assert (job.state, job.result, job.what, job.share, job.partials) == ("done", 42, "doubling", 0.5, 1)


def test_the_same_question_is_answered_once(jobs, tmp_path):
    file = tmp_path / "log"
    first = jobs.ask("me", "a", pieces.noted, str(file))
    second = jobs.ask("you", "a", pieces.noted, str(file))
    assert first is second
    assert first.wait(LONG)
    jobs.ask("me", "b", pieces.double, 1).wait(LONG)
    assert jobs.ask("me", "a", pieces.noted, str(file)).result == first.result != os.getpid()
    assert file.read_text() == "done\n"


def test_a_users_mistake_is_a_sentence_and_a_defect_keeps_its_traceback(jobs):
    refused, broken = jobs.ask("me", "a", pieces.refused), jobs.ask("you", "b", pieces.broken)
    assert refused.wait(LONG)
    assert broken.wait(LONG)
    assert (refused.state, refused.error) == ("refused", "replicas: found 0, at least 1 is needed")
    assert broken.state == "failed"
    assert "RuntimeError: a defect" in broken.error
    assert jobs.ask("you", "b", pieces.broken) is not broken  # a defect may pass; it is tried again


def test_a_process_that_dies_is_told_and_replaced(jobs):
    job = jobs.ask("me", "a", pieces.dying)
    assert job.wait(LONG)
    assert job.state == "refused"
    assert "killed" in job.error
    again = jobs.ask("me", "b", pieces.double, 1)
    assert again.wait(LONG)
    assert again.result == 2


def test_what_is_printed_does_not_come_among_the_answers(jobs):
    job = jobs.ask("me", "a", pieces.talking)
    assert job.wait(LONG)
    assert job.result == "said"


def test_cancelled_work_ends_with_its_process(jobs, tmp_path):
    job = jobs.ask("me", "a", pieces.lasting, str(tmp_path / "pid"))
    assert until(lambda: job.share > 0)
    pid = int((tmp_path / "pid").read_text())
    jobs.cancel(job)
    assert job.ended
    assert job.state == "cancelled"
    assert until(lambda: gone(pid))
    assert jobs.ask("me", "a", pieces.lasting, str(tmp_path / "pid")) is not job


def test_a_new_question_supersedes_the_one_before(jobs, tmp_path):
    old = jobs.ask("me", "a", pieces.lasting, str(tmp_path / "pid"))
    new = jobs.ask("me", "b", pieces.double, 1)
    assert new.wait(LONG)
    assert until(lambda: old.state == "cancelled")


def test_what_somebody_else_waits_for_goes_on(jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.0)
    shared = jobs.ask("me", "a", pieces.lasting, str(tmp_path / "pid"))
    jobs.ask("you", "a", pieces.lasting, str(tmp_path / "pid"))
    assert jobs.ask("me", "b", pieces.double, 1).wait(LONG)
    assert not shared.ended


def test_superfluous_work_makes_room_at_once(jobs, tmp_path):
    for k in range(5):
        jobs.ask("me", k, pieces.lasting, str(tmp_path / "pid"))
    job = jobs.ask("me", "last", pieces.double, 4)
    assert job.wait(LONG)
    assert job.result == 8


def test_work_of_a_reader_who_left_is_ended(tmp_path):
    here = {"me"}
    jobs = Jobs(most=1, alive=lambda who: who in here)
    try:
        job = jobs.ask("me", "a", pieces.lasting, str(tmp_path / "pid"))
        assert until(lambda: job.share > 0)
        here.clear()
        assert until(lambda: job.state == "cancelled")
    finally:
        jobs.close()


def test_more_questions_than_processes_wait_for_their_turn(jobs):
    asked = [jobs.ask(k, k, pieces.double, k) for k in range(8)]
    assert all(job.wait(LONG) for job in asked)
    assert [job.result for job in asked] == [2 * k for k in range(8)]


def test_the_oldest_results_go_when_there_are_too_many(jobs, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 5 << 20)
    first = jobs.ask("me", 0, pieces.large, 2)
    assert first.wait(LONG)
    for k in range(1, 4):
        assert jobs.ask("me", k, pieces.large, 2).wait(LONG)
    assert jobs.ask("you", 0, pieces.large, 2) is not first


def test_closing_ends_all_processes(tmp_path):
    jobs = Jobs(most=2)
    job = jobs.ask("me", "a", pieces.lasting, str(tmp_path / "pid"))
    assert until(lambda: job.share > 0)
    pid = int((tmp_path / "pid").read_text())
    jobs.close()
    assert until(lambda: gone(pid))


@pytest.mark.parametrize("function", [pieces.unreadable, pieces.unwritable, pieces.endless])
def test_an_answer_that_cannot_be_handed_over_is_a_defect_and_work_goes_on(jobs, function):
    job = jobs.ask("me", "a", function)
    assert job.wait(LONG)
    assert job.state == "failed"
    assert "Traceback" in job.error
    again = jobs.ask("me", "b", pieces.double, 1)
    assert again.wait(LONG)
    assert again.result == 2


def test_a_question_that_cannot_be_handed_over_is_a_defect(jobs):
    job = jobs.ask("me", "a", pieces.length, lambda: None)
    assert job.wait(LONG)
    assert job.state == "failed"


def test_what_was_killed_or_refused_is_tried_again(jobs):
    killed = jobs.ask("me", "a", pieces.dying)
    assert killed.wait(LONG)
    assert jobs.ask("me", "a", pieces.double, 2) is not killed
    refused = jobs.ask("you", "b", pieces.refused)
    assert refused.wait(LONG)
    assert jobs.ask("you", "b", pieces.refused) is refused  # while it is looked at
    jobs.ask("you", "c", pieces.double, 1)
    assert jobs.ask("you", "b", pieces.refused) is not refused


def test_large_questions_are_handed_over_without_waiting_and_not_kept(jobs):
    job = jobs.ask(
        "me", "a", pieces.length, bytes(20 << 20)
    )  # more than the pipe to a process that is just starting takes
    assert job.wait(LONG)
    assert job.result == 20 << 20
    assert job.arguments == ()


def test_many_partial_results_leave_the_last_and_then_the_result(jobs):
    job = jobs.ask("me", "a", pieces.flooding, 3000)
    assert job.wait(LONG)
    assert (job.result, job.partials, job.partial) == (3000, 3000, None)
