"""Requests that were sent more than once: retries after a time-out, escalations to another model.

Try k of request i is row `i + k * first_tries` of the records. What became of a request is what became of its last try, and it has
waited since its client first meant to send it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serving.records import Records


def last_tries(records: Records) -> NDArray[np.bool_]:
    """Rows that tell what became of a request: of each that was sent, the last try, `(rows,)`."""
    sent = records.submitted
    n = records.first_tries
    if n is None or len(sent) == n:
        return sent
    by_try = sent.reshape(-1, n)
    later = np.zeros_like(by_try)
    later[:-1] = np.logical_or.accumulate(by_try[::-1], axis=0)[::-1][1:]  # whether any try after this one was sent
    last: NDArray[np.bool_] = (by_try & ~later).reshape(-1)
    return last


def answered(records: Records) -> NDArray[np.bool_]:
    """Rows whose answer is the one that counts: of requests that ended well, the last try, `(rows,)`."""
    return records.finished & last_tries(records)


def first_token_ns(records: Records) -> NDArray[np.int64]:
    """When the client of each row has seen a first token, `(rows,)`: at once, or when a judge has read the whole answer; -1 for never."""
    return _shown(records, records.requests["first_token_ns"])


def finish_ns(records: Records) -> NDArray[np.int64]:
    """When the client of each row had the whole answer, or had been sent away, `(rows,)`; -1 for never."""
    return _shown(records, records.requests["finish_ns"])


def _shown(records: Records, came: NDArray[np.int64]) -> NDArray[np.int64]:
    judged = records.judged_ns
    return came if judged is None else np.where(judged >= 0, judged, came)


def intended_ns(records: Records) -> NDArray[np.int64]:
    """When the client of each row first meant to send the request, `(rows,)`."""
    arrival = records.requests["arrival_ns"]
    n = records.first_tries
    return arrival if n is None else np.tile(arrival[:n], len(arrival) // n)
