"""Reading sessions in JSON lines, in a format of our own: who waits for whom, what each request says, and what it repeats.

A line is a call: one request to the model, and its answer. A call's prompt is its parent's prompt, its parent's answer, and then
what is new: the answers of sub-agents, tool results, what a person says. Lines of a session are in an order in which they can be
sent: nobody waits for a later one. Fields:

    session        name of the session; its lines may stand anywhere in the file
    call           name of the call, within its session
    parent         the call whose prompt and answer this one repeats; left out for a session's first
    fork           what of the parent is repeated: `context` (all, the default) or `system` (the system prompt alone: a sub-agent
                   that begins afresh)
    results        calls whose answers are told here, as tool results: sub-agents that are done
    time           seconds at which a session starts; of first calls, of all sessions or of none
    pause          seconds from the last answer that it waits for (its parent's and all results') until it is sent; 0 if left out
    system         name of the system prompt, for first calls: equal names are equal texts; `system_tokens`: its length
    user_tokens    what a person says: a new turn begins
    task_tokens    what a sub-agent is told
    tool_tokens    what tools give back
    output_tokens  the answer. 0 is a call that failed: it is not sent, and who waits for it waits for whom it waited for
    tenant         of first calls: whose session it is

For example:

    {"session": "a", "call": "1", "time": 0, "system": "v2", "system_tokens": 6000, "user_tokens": 80, "output_tokens": 60}
    {"session": "a", "call": "2", "parent": "1", "pause": 3.5, "tool_tokens": 900, "output_tokens": 40}
    {"session": "a", "call": "2.1", "parent": "2", "fork": "system", "task_tokens": 150, "output_tokens": 300}
    {"session": "a", "call": "2.2", "parent": "2", "fork": "system", "task_tokens": 120, "output_tokens": 250}
    {"session": "a", "call": "3", "parent": "2", "results": ["2.1", "2.2"], "output_tokens": 90}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.contexts import Said
from scenarios.errors import InputError, unknown
from scenarios.fields import CENTURY, MOST_TOKENS
from scenarios.json_lines import json_rows
from scenarios.recorded_sessions import Call, SessionTrace
from scenarios.trace_options import TraceOptions
from scenarios.workload import Role

OF_FIRST = ("time", "system", "system_tokens", "tenant")
OF_OTHERS = ("parent", "fork", "results", "pause")
FIELDS = ("session", "call", *OF_OTHERS, *OF_FIRST, "user_tokens", "task_tokens", "tool_tokens", "output_tokens")
_SECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class _Read:
    """A call that was read. position: among those that are sent; None for one that failed. waits: whom others wait for that wait
    for it, and for how long beyond that."""

    position: int | None
    waits: tuple[int, ...]
    delay_ns: int
    context: list[Said]  # with its answer
    system: list[Said]
    turn: int


def read_sessions(text: str, path: Path, options: TraceOptions) -> SessionTrace:
    """Lines as above; times are seconds unless `time_unit` says otherwise.

    Raises:
        InputError: names file, line, field, what was found and what is allowed.
    """
    rows, lines = json_rows(text, path)
    reader = _Reader(path, _SECONDS[options.time_unit or "s"])
    by_session: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for line, row in zip(lines.tolist(), rows, strict=True):
        reader.line = line
        by_session.setdefault(reader.name(row, "session"), []).append((line, row))
    for number, written in enumerate(by_session.values()):
        reader.begin(number)
        for line, row in written:
            reader.line = line
            reader.read(row)
    return reader.trace()


class _Reader:
    def __init__(self, path: Path, unit_ns: int) -> None:
        self.path = path
        self.unit_ns = unit_ns
        self.line = 0
        self.calls: list[Call] = []
        self.starts: list[tuple[int, int | None]] = []  # line and time of every first call
        self.tenants: dict[str, int] = {}
        self.tenant: list[int] = []
        self.failed: list[int] = []
        self.session = -1
        self.known: dict[str, _Read] = {}

    def begin(self, session: int) -> None:
        self.session, self.known = session, {}

    def trace(self) -> SessionTrace:
        stated = [at for _, at in self.starts if at is not None]
        if stated and len(stated) < len(self.starts):
            line = next(line for line, at in self.starts if at is None)
            raise InputError(
                f"{self.path}: line {line}: time: is missing, but other sessions have one; give all of them one"
            )
        if stated and (max(stated) - min(stated)) > CENTURY * 1e9:
            raise InputError(
                f"{self.path}: its times span more than a hundred years; is workload.trace.time_unit right?"
            )
        shown = ", ".join(map(str, self.failed[:5])) + (", ..." if len(self.failed) > 5 else "")
        unsent = f"{len(self.failed)} calls without an answer are not sent (line {shown})" if self.failed else ""
        tenants = tuple(self.tenants) or ("default",)
        return SessionTrace(self.path, self.calls, stated or None, 0, self.tenant, tenants, unsent)

    def read(self, row: dict[str, Any]) -> None:
        for name in row:
            if name not in FIELDS:
                raise InputError(f"{self.path}: line {self.line}: {unknown('field', name, FIELDS)}")
        call = self.name(row, "call")
        if call in self.known:
            raise self.wrong("call", call, "a name that no other call of its session has")
        first = not self.known
        for name in OF_OTHERS if first else OF_FIRST:
            if name in row:
                whose = (
                    "the first call of a session waits for none" if first else "only the first call of a session has it"
                )
                raise InputError(
                    f"{self.path}: line {self.line}: {name}: found {row[name]!r}, but {whose}; leave it out"
                )
        if first:
            self.open(row)
            parent = _Read(None, (), 0, self.system(row), self.system(row), 0)
        else:
            if "parent" not in row:
                raise InputError(
                    f"{self.path}: line {self.line}: parent: is missing; name the call of this session that this one goes on from"
                )
            parent = self.earlier(row["parent"], "parent")
        self.add(row, call, parent, [self.earlier(name, "results") for name in self.names(row)])

    def open(self, row: dict[str, Any]) -> None:
        at = None if "time" not in row else self.number(row, "time")
        self.starts.append((self.line, at))
        tenant = self.name(row, "tenant") if "tenant" in row else "default"
        self.tenant.append(self.tenants.setdefault(tenant, len(self.tenants)))

    def system(self, row: dict[str, Any]) -> list[Said]:
        tokens = self.count(row, "system_tokens")
        if ("system" in row) != bool(tokens):
            raise self.wrong("system", row.get("system"), "a name and system_tokens above 0, or neither,")
        return [Said(f"sys:{self.name(row, 'system')}", -1, tokens, Role.SYSTEM, 0)] if tokens else []

    def add(self, row: dict[str, Any], call: str, parent: _Read, results: list[_Read]) -> None:
        fork = row.get("fork", "context")
        if fork not in ("context", "system"):
            raise self.wrong("fork", fork, "context or system")
        context = [*(parent.context if fork == "context" else parent.system)]
        user, task, tool = (self.count(row, name) for name in ("user_tokens", "task_tokens", "tool_tokens"))
        turn = parent.turn + 1 if user else parent.turn
        of = f"{self.session}/{call}"
        for one in results:
            if one.position is not None:  # of an answer that is handed on, only the final part counts
                answer = one.context[-1]
                context.append(Said("", answer.row, answer.tokens, Role.TOOL, -1))
        for name, tokens, role in (("t", tool, Role.TOOL), ("a", task, Role.TASK), ("p", user, Role.USER)):
            if tokens:
                context.append(Said(f"{name}:{of}", -1, tokens, role, turn))
        pause = self.number(row, "pause") if "pause" in row else 0
        if pause < 0:
            raise self.wrong("pause", row["pause"], "0 or more")
        waits = tuple(dict.fromkeys(i for one in (parent, *results) for i in one.waits))
        delay = pause + max(one.delay_ns for one in (parent, *results))
        output = self.count(row, "output_tokens", needed=True)
        if not output:
            self.failed.append(self.line)
            self.known[call] = _Read(None, waits, delay, context, parent.system, turn)
            return
        if not context:
            raise InputError(
                f"{self.path}: line {self.line}: its prompt is empty; give it user_tokens, or a system prompt"
            )
        position = len(self.calls)
        self.calls.append(Call(self.line, self.session, waits, delay, output, context=context, turn=turn))
        said = [*context, Said("", position, output, Role.ANSWER, turn)]
        self.known[call] = _Read(position, (position,), 0, said, parent.system, turn)

    # -- values -----------------------------------------------------------------------------------------------------------

    def wrong(self, field: str, found: Any, allowed: str) -> InputError:
        shown = "nothing" if found is None else repr(found)[:60]
        return InputError(f"{self.path}: line {self.line}: {field}: found {shown}, but {allowed} is needed")

    def value(self, row: dict[str, Any], field: str, good: Callable[[Any], bool], allowed: str) -> Any:
        found = row.get(field)
        if not good(found):
            raise self.wrong(field, found, allowed)
        return found

    def name(self, row: dict[str, Any], field: str) -> str:
        return str(self.value(row, field, lambda v: type(v) in (str, int) and v != "", "a name"))

    def names(self, row: dict[str, Any]) -> list[Any]:
        found: list[Any] = self.value(
            row | {"results": row.get("results", [])}, "results", lambda v: type(v) is list, "a list of calls"
        )
        return found

    def count(self, row: dict[str, Any], field: str, needed: bool = False) -> int:
        if field not in row and not needed:
            return 0
        good = self.value(row, field, lambda v: type(v) is int and 0 <= v <= MOST_TOKENS, "a whole number, 0 or more,")
        return int(good)

    def number(self, row: dict[str, Any], field: str) -> int:
        seconds = self.value(row, field, lambda v: type(v) in (int, float) and abs(v) < 1e18, "a finite number")
        ns = float(seconds) * self.unit_ns
        if abs(ns) > CENTURY * 1e9 * 2:
            raise self.wrong(field, seconds, "less than two hundred years")
        return round(ns)

    def earlier(self, name: Any, field: str) -> _Read:
        if type(name) not in (str, int) or str(name) not in self.known:
            known = ", ".join(list(self.known)[-5:])
            raise self.wrong(field, name, f"an earlier call of the same session (the last were {known})")
        return self.known[str(name)]
