"""Uploaded traces: of long ones the beginning is replayed and that is said; what is no trace is refused in a sentence."""

from __future__ import annotations

import gzip
import os

import pytest

from dashboard import bounds, traces, uploads
from dashboard.explore import work
from dashboard.settings import Settings
from scenarios import InputError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BASE = "azure-conversation"


def rows(count: int) -> str:
    return "".join(f"2024-05-10 00:{k // 60 % 60:02}:{k % 60:02}.0000000,20,3\n" for k in range(count))


def given(content: bytes, name: str = "mine.csv") -> Settings:
    return Settings(BASE, trace=uploads.keep(name, content).digest)


class Heard:
    def __init__(self) -> None:
        self.partials: list[object] = []

    def __call__(self, what: str, share: float) -> None: ...

    def partial(self, found: object) -> None:
        self.partials.append(found)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_of_a_long_trace_the_beginning_is_taken_and_that_is_said(workspace, monkeypatch, pack):
    monkeypatch.setattr(traces, "FIRST", 30)
    found = traces.limited(given(pack((HEAD + rows(50)).encode())))
    assert found.changes == {traces.LIMIT: "30"}
    line = traces.said(found, found.scenario())
    assert line is not None
    assert "first 30 requests of mine.csv" in line
    assert traces.LIMIT in line
    more = found.changed(traces.LIMIT, "50")
    assert traces.said(more, more.scenario()) is None


def test_of_a_short_trace_all_is_taken(workspace, monkeypatch):
    monkeypatch.setattr(traces, "FIRST", 50)
    found = given((HEAD + rows(50)).encode())
    assert traces.limited(found) == found
    assert traces.said(found, found.scenario()) is None


def test_what_a_scenario_says_of_traces_is_left(workspace, monkeypatch):
    monkeypatch.setattr(traces, "FIRST", 30)
    of_demo = Settings("demo", trace=given((HEAD + rows(250)).encode()).trace)
    assert traces.limited(of_demo) == of_demo
    assert "first 200 requests" in str(traces.said(of_demo, of_demo.scenario()))


def test_the_page_says_that_only_the_beginning_is_replayed(opened, monkeypatch):
    trace = given((HEAD + rows(250)).encode()).trace
    page = opened(trace=trace)
    assert not page.exception
    assert any("first 200 requests of mine.csv" in info.value for info in page.info)


@pytest.mark.parametrize("name", ["explore", "compare", "capacity"])
def test_a_trace_that_is_deleted_while_it_is_looked_at_is_asked_for_again(opened, name):
    trace = given((HEAD + rows(250)).encode()).trace
    page = opened(name, trace=trace)
    uploads.find(trace).path.unlink()
    page.run()
    assert not page.exception
    assert any(trace in error.value for error in page.error)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("cut.csv.gz", gzip.compress((HEAD + rows(99)).encode())[:150], "truncated"),
        ("head.csv", HEAD.encode(), "not one request"),
        ("negative.csv", (HEAD + "2024-05-10 00:00:01,-5,3\n").encode(), "found '-5'"),
        ("binary.csv", b"\xff\xfe" + os.urandom(5000), "not text in UTF-8"),
        ("columns.csv", b"a,b\n1,2\n", "columns.csv"),
        ("zeros.csv.gz", gzip.compress(bytes(300 << 20), 1), "unpacks to more than"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence_with_its_own_name(workspace, name, content, why):
    settings = traces.limited(given(content, name))
    with pytest.raises(InputError, match=why) as told:
        work.simulate(Heard(), settings.scenario())
    assert uploads.plain(str(told.value)).startswith(name)
    assert "\n" not in str(told.value)


def test_requests_beyond_what_a_page_bears_are_refused_before_any_work(workspace):
    found = Settings("demo", {"workload.requests": "300001"})
    with pytest.raises(InputError, match="300,001 requests, but a page simulates 300,000 at most"):
        work.simulate(Heard(), found.scenario())


def test_so_are_those_of_a_trace_and_those_that_arrivals_count(workspace, monkeypatch):
    monkeypatch.setattr(bounds, "MOST_REQUESTS", 40)
    with pytest.raises(InputError, match="50 requests"):
        work.simulate(Heard(), given((HEAD + rows(50)).encode()).scenario())


def test_of_a_long_run_the_beginning_comes_before_the_whole(workspace, monkeypatch):
    monkeypatch.setattr(work, "LONG", 50)
    heard = Heard()
    run = work.simulate(heard, Settings("demo", {"workload.requests": "100"}).scenario())
    (begun,) = heard.partials
    assert 0 < begun.records.submitted.sum() < run.records.submitted.sum()
