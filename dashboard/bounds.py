"""How many requests a page takes of a scenario. Nothing here needs Streamlit."""

from __future__ import annotations

from scenarios import InputError, Scenario

MOST_REQUESTS = 300_000
"""Of one simulation on a page: more take minutes and gigabytes."""


def bear(requests: int | None) -> None:
    """Refuses more requests than a page bears.

    Raises:
        InputError: there are more.
    """
    if requests is not None and requests > MOST_REQUESTS:
        raise InputError(
            f"workload: {requests:,} requests, but a page simulates {MOST_REQUESTS:,} at most; ask for fewer (workload.requests, or "
            "workload.trace.limit of a trace), or simulate them all on a terminal: servetwin run"
        )


def shortened(scenario: Scenario, most: int) -> Scenario:
    """The scenario with no more than so many requests, as far as it states their number."""
    asked = scenario.workload
    changes: dict[str, object] = {}
    if asked.requests is not None and asked.requests > most:
        changes["requests"] = most
    if asked.trace is not None and (asked.trace.limit is None or asked.trace.limit > most):
        changes["trace"] = asked.trace.model_copy(update={"limit": most})
    return scenario.model_copy(update={"workload": asked.model_copy(update=changes)})
