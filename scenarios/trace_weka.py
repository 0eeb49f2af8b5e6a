"""Reading coding-agent sessions of kv-cache-tester (WEKA): JSON lines, a session each, with a hash for each block of a prompt.

A session is `{id, block_size, hash_id_scope, requests}`; a request `{t, in, out, hash_ids}` with seconds since the session's
beginning, and sometimes `think_time` (the pause before it) and `api_time` (how long its answer took). An entry
`{type: subagent, t, requests}` among them is a sub-agent: all that stand between two requests work at the same time, and the next
request waits for them. https://github.com/callanjfox/kv-cache-tester

Hashes are chained, one for each full block (or each block begun). Those of scope `local` mean nothing in other sessions, so no
system prompt is shared between them. The trace does not say which blocks were answers: an answer's KV is not found again, its text
is computed as part of the next prompt, and then it is.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from scenarios.errors import InputError
from scenarios.fields import MOST_TOKENS
from scenarios.json_lines import json_rows
from scenarios.recorded_sessions import Call, SessionTrace
from scenarios.trace_options import TraceOptions

_USUAL_BLOCK = 64
_LONGEST = 10 * 365 * 86400.0  # seconds of a session


def read_weka(text: str, path: Path, options: TraceOptions) -> SessionTrace:
    """Sessions as above. The file has no absolute clock: when sessions start is generated.

    Raises:
        InputError: names file, line, request, field, what was found and what is allowed.
    """
    if options.time_unit not in (None, "s"):
        raise InputError(
            f"{path}: these sessions count seconds, so time_unit {options.time_unit!r} is wrong; leave it out"
        )
    rows, lines = json_rows(text, path)
    reader = _Reader(path, options.block_tokens)
    for session, (line, row) in enumerate(zip(lines.tolist(), rows, strict=True)):
        reader.session(session, line, row)
    shown = ", ".join(map(str, reader.unsent[:5])) + (", ..." if len(reader.unsent) > 5 else "")
    told = f"{len(reader.unsent)} requests without input or output are not sent (line {shown})" if reader.unsent else ""
    return SessionTrace(path, reader.calls, None, reader.block or _USUAL_BLOCK, unsent=told)


class _Reader:
    def __init__(self, path: Path, block: int | None) -> None:
        self.path = path
        self.block = block
        self.calls: list[Call] = []
        self.unsent: list[int] = []
        self.ids: dict[tuple[int, int], int] = {}  # by session (-1 for all) and id
        self.scope = -1
        self.line = 0
        self.number = 0

    def session(self, number: int, line: int, row: dict[str, Any]) -> None:
        self.line, self.number = line, number
        scope = row.get("hash_id_scope", "local")
        if scope not in ("local", "global"):
            raise self.wrong("hash_id_scope", scope, "local or global")
        self.scope = number if scope == "local" else -1
        block = self.count(row, "block_size", "") if "block_size" in row else _USUAL_BLOCK
        if self.block is None:
            self.block = block
        if not block or block != self.block:
            raise self.wrong("block_size", block, f"{self.block}, as in the lines before (or block_tokens),")
        self.requests(row.get("requests"), "requests", ())

    def requests(self, found: Any, where: str, after: tuple[int, ...], end: float | None = None) -> tuple[int, ...]:
        """Reads requests that follow one another; `after` are those that the first waits for, `end` when they were over. Returns
        those that whatever comes next waits for."""
        if type(found) is not list:
            raise self.wrong(where, found, "a list of requests")
        started: list[int] = []  # last requests of sub-agents
        for k, request in enumerate(found):
            here = f"{where}[{k}]"
            if type(request) is not dict:
                raise self.wrong(here, request, "an object")
            at = self.seconds(request, "t", here, needed=True) or 0.0
            if request.get("type") == "subagent":
                started += self.requests(request.get("requests"), f"{here}.requests", after, end)
                continue
            tokens, output = self.count(request, "in", here), self.count(request, "out", here)
            took = self.seconds(request, "api_time", here)
            ids = self.hashes(request, tokens, here)
            over = at + (took or 0.0)
            if not tokens or not output:
                self.unsent.append(self.line)
                continue
            waits = tuple(dict.fromkeys([*after, *(i for i in started if i not in after)]))
            think = self.seconds(request, "think_time", here)
            since = None if end is None else max(0.0, at - end)
            # With sub-agents between, thinking and their work are not told apart: it goes on when they are done.
            pause = 0.0 if started else since if think is None else think if since is None else min(think, at)
            after, end, started = (len(self.calls),), over, []
            self.calls.append(
                Call(self.line, self.number, waits, round((pause or 0.0) * 1e9), output, prompt_tokens=tokens, ids=ids)
            )
        return tuple(dict.fromkeys([*after, *started]))

    def hashes(self, request: dict[str, Any], tokens: int, where: str) -> list[int]:
        found = request.get("hash_ids")
        if type(found) is not list or not all(type(i) is int and abs(i) < 2**63 for i in found):
            raise self.wrong(f"{where}.hash_ids", found, "a list of whole numbers")
        block = self.block or _USUAL_BLOCK
        if len(found) not in (tokens // block, -(-tokens // block)):
            raise self.wrong(
                f"{where}.hash_ids", len(found), f"one for each of {tokens // block} full blocks of {block} tokens"
            )
        return [self.ids.setdefault((self.scope, i), len(self.ids)) for i in found]

    def count(self, row: dict[str, Any], field: str, where: str) -> int:
        found = row.get(field)
        if type(found) is not int or not 0 <= found <= MOST_TOKENS:
            raise self.wrong(f"{where}.{field}" if where else field, found, "a whole number, 0 or more,")
        return found

    def seconds(self, row: dict[str, Any], field: str, where: str, needed: bool = False) -> float | None:
        found: Any = row.get(field)
        if found is None and not needed:
            return None
        if type(found) not in (int, float) or not math.isfinite(found) or not 0 <= found <= _LONGEST:
            raise self.wrong(f"{where}.{field}", found, "a number of seconds, 0 or more,")
        return float(found)

    def wrong(self, field: str, found: Any, allowed: str) -> InputError:
        shown = "nothing" if found is None else repr(found)[:60]
        return InputError(f"{self.path}: line {self.line}: {field}: found {shown}, but {allowed} is needed")
