"""What happens while a simulation runs: it can be ended, superseded, and nothing that is typed meanwhile is lost."""

from __future__ import annotations

from tests.browser.server import until

TTFT = "Cumulative distribution of time to first token"
LONG = {"scenario": "azure-conversation", "workload__requests": "300000"}
LATER = "description=typed meanwhile"


def begun(reader, server, **query):
    """Opens a page whose simulation takes long. Returns the processes of which one is at it."""
    reader.begin(**query)
    reader.page.get_by_role("button", name="Cancel").wait_for()
    until(server.workers, "a worker is there")
    return server.workers()


def one_is_gone(workers):
    until(lambda: not all(worker.is_running() for worker in workers), "the worker that ran it is ended")


def test_a_run_that_is_cancelled_leaves_no_result_no_process_and_a_page_that_can_be_used(reader, server):
    workers = begun(reader, server, **LONG)
    reader.page.get_by_role("button", name="Cancel").click()
    reader.page.get_by_text("Cancelled.").wait_for()
    one_is_gone(workers)
    reader.settled()
    assert reader.figures() == []
    assert reader.cards() == {}
    reader.slider("Requests").press("Home")
    reader.drawn(TTFT)


def test_a_change_while_running_supersedes_the_run(reader, server):
    workers = begun(reader, server, **LONG)
    reader.slider("Requests").press("Home")
    reader.drawn(TTFT)
    one_is_gone(workers)
    fewest = int(reader.settled().query()["workload.requests"])
    assert fewest < 1000
    assert len(reader.figure(TTFT).curve("azure-conversation")["x"]) == fewest
    assert reader.page.get_by_role("button", name="Cancel").count() == 0


def test_what_is_typed_while_a_run_ends_stays(reader):
    reader.begin(scenario="azure-conversation", workload__requests="20000")
    lines = reader.section("Anything else").get_by_role("textbox")
    lines.click()
    lines.press_sequentially(LATER)
    reader.drawn(TTFT)
    reader.settled()
    assert lines.input_value() == LATER
    lines.press("Control+Enter")
    reader.query_becomes(description="typed meanwhile")
    reader.settled()
    assert lines.input_value() == LATER
