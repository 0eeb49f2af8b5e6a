"""Reading BurstGPT: CSV of requests to a university's GPT service. https://github.com/HPMLL/BurstGPT

Columns `Timestamp` (seconds), `Model`, `Request tokens`, `Response tokens`, `Total tokens`, `Log Type`, in any order; others are
ignored. A response of 0 tokens is a request that failed: it is dropped, and counted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scenarios.errors import InputError, unknown
from scenarios.recorded import RecordedTrace, nanoseconds
from scenarios.trace_csv import CsvTable
from scenarios.trace_options import TraceOptions

BURSTGPT = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")


def read_burstgpt(text: str, path: Path, options: TraceOptions) -> RecordedTrace:
    """The requests; tenants are the models that were asked, service classes the kinds of log (conversation, API).

    Raises:
        InputError: names file, line, what was found and what is needed; a total that is not the sum of both parts is a sign of
            mixed-up columns.
    """
    if options.time_unit not in (None, "s"):
        raise InputError(f"{path}: BurstGPT counts seconds, so time_unit {options.time_unit!r} is wrong; leave it out")
    table = CsvTable(text, path)
    for name in BURSTGPT:
        if name not in table.header:
            raise InputError(f"{path}: line 1: {unknown('column', name, table.header)}")
    prompt, output, total = (table.counts(name) for name in BURSTGPT[2:5])
    wrong = np.flatnonzero(total != prompt + output)
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"{path}: line {table.lines[at]}: Total tokens: found {total[at]}, but request and response have "
            f"{prompt[at]} + {output[at]}; are columns mixed up? Correct the line, or read the file with format csv"
        )
    arrival = nanoseconds(table.numbers("Timestamp"), "s", path)
    trace = RecordedTrace(path, arrival, prompt, output, lines=table.lines)
    models, model = np.unique(np.array(table.column("Model")), return_inverse=True)
    kinds, kind = np.unique(np.array(table.column("Log Type")), return_inverse=True)
    trace.tenants, trace.tenant = tuple(models.tolist()), model.astype(np.int64)
    trace.classes, trace.service_class = tuple(kinds.tolist()), kind.astype(np.int64)
    return trace
