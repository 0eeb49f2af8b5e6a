"""What of a conversation's KV is still there when its next request comes: after a tool, after a person, after sub-agents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scenarios.workload import Role, Workload
from serving.records import Records
from serving.request import Segment, Status
from studies.reports.tables import DASH, Table, number, percent
from studies.results import Run

PAUSES = (
    (1.0, "under 1 s"),
    (10.0, "1 to 10 s"),
    (60.0, "10 to 60 s"),
    (600.0, "1 to 10 min"),
    (np.inf, "over 10 min"),
)
AFTER = {Role.TOOL: "a tool", Role.TASK: "a sub-agent's task"}
_SUB_AGENTS, _PERSON = "sub-agents", "a person"
_ORDER = (_PERSON, "a tool", _SUB_AGENTS, "a sub-agent's task")


@dataclass(slots=True)
class _Known:
    """Texts that a conversation's engine has computed, as a tree: what follows a text, by content key."""

    tokens: dict[Hashable, int] = field(default_factory=dict)
    after: dict[Segment, _Known] = field(default_factory=dict)

    def add(self, prompt: Sequence[Segment], answer: Hashable, answered: int) -> None:
        """A request with this prompt has finished. The KV of its last token was never written."""
        node = self
        for segment in prompt:
            follows = node.after.get(segment)
            if follows is None:
                node.tokens[segment[0]] = max(node.tokens.get(segment[0], 0), segment[1])
                follows = node.after[segment] = _Known()
            node = follows
        node.tokens[answer] = max(node.tokens.get(answer, 0), answered - 1)

    def beginning(self, prompt: Sequence[Segment]) -> int:
        """Tokens of the longest beginning of a prompt that is known."""
        node, common = self, 0
        for segment in prompt:
            follows = node.after.get(segment)
            if follows is None:
                return common + min(node.tokens.get(segment[0], 0), segment[1])
            common += segment[1]
            node = follows
        return common


def described(workload: Workload, records: Records, block_size: int) -> dict[str, Any] | None:
    """What later requests of conversations found again, JSON-able; None where there are no conversations.

    follow_ups: by what they came after and how long that took: requests, their prompt tokens, `known` (tokens of their beginnings
        that the same conversation had sent or got before, in whole blocks: what a cache that forgets nothing would find) and
        `found` (those that were).
    quoted, unchanged: tokens of answers that prompts quote, and those of them that came back as they were.
    """
    follow_ups = np.flatnonzero(workload.follows >= 0)
    if not len(follow_ups):
        return None
    n = len(workload)
    finished = records.requests["status"][:n] == Status.FINISHED
    finish, arrival, tokens, answered, cached = (
        records.requests[name][:n].tolist()
        for name in ("finish_ns", "arrival_ns", "prompt_tokens", "output_tokens", "cached_tokens")
    )
    session, prompt_of = workload.session.tolist(), _prompts(workload)
    # Session by session; at one instant, what has ended is known before what is sent.
    ends = [(session[i], finish[i], 0, i) for i in np.flatnonzero(finished & (workload.session >= 0)).tolist()]
    sent = [(session[i], arrival[i], 1, i) for i in follow_ups[finished[follow_ups]].tolist()]
    known, of = _Known(), -1
    rows: dict[tuple[str, str], list[int]] = {}
    for conversation, at, is_sent, i in sorted(ends + sent):
        prompt = prompt_of(i)
        if conversation != of:
            known, of = _Known(), conversation
        if not is_sent:
            known.add(prompt, f"out:{i}", answered[i])
            continue
        after = _after(workload, i)
        pause = at - finish[_before(workload, i, after)]
        row = rows.setdefault((after, _bin(pause / 1e9)), [0, 0, 0, 0])
        whole = min(known.beginning(prompt), tokens[i] - 1) // block_size * block_size
        for k, value in enumerate((1, tokens[i], whole, min(cached[i], whole))):
            row[k] += value
    names = ("requests", "prompt_tokens", "known", "found")
    pauses = [name for _, name in PAUSES]
    order = sorted(rows, key=lambda key: (_ORDER.index(key[0]), pauses.index(key[1])))
    quoted, unchanged = _history(workload)
    return {
        "follow_ups": [{"after": a, "pause": p, **dict(zip(names, rows[a, p], strict=True))} for a, p in order],
        "quoted": quoted,
        "unchanged": unchanged,
    }


def _prompts(workload: Workload) -> Callable[[int], list[Segment]]:
    """The prompt of a request as the workload says it: a list is read several times faster than an array's elements."""
    if workload.segment_offset is None or workload.segment_tokens is None:
        return lambda i: list(workload.prompt(i))
    offset, tokens, keys = workload.segment_offset.tolist(), workload.segment_tokens.tolist(), workload.segment_keys
    segments = list(zip(keys, tokens, strict=True))
    return lambda i: segments[offset[i] : offset[i + 1]]


def survival(found: dict[str, Any] | None) -> float | None:
    """Percent of what follow-ups could find that they did."""
    known = sum(row["known"] for row in found["follow_ups"]) if found else 0
    return 100.0 * sum(row["found"] for row in found["follow_ups"]) / known if found and known else None


def _after(workload: Workload, i: int) -> str:
    """What a request came after: what the last piece of its prompt is."""
    if workload.segment_role is None or workload.segment_offset is None:
        return _PERSON
    last = int(workload.segment_offset[i + 1]) - 1
    role = Role(int(workload.segment_role[last]))
    # Behind everything there may be a part of the system prompt that was moved there.
    while role == Role.SYSTEM and last > int(workload.segment_offset[i]):
        last -= 1
        role = Role(int(workload.segment_role[last]))
    if role == Role.TOOL and str(workload.segment_keys[last]).startswith(("out:", "fin:", "ret:")):
        return _SUB_AGENTS
    return AFTER.get(role, _PERSON)


def _before(workload: Workload, i: int, after: str) -> int:
    """The request whose context request i goes on with: after sub-agents, the one that started them."""
    before = int(workload.follows[i])
    if after != _SUB_AGENTS:
        return before
    while workload.follows[before] >= 0 and _after(workload, before) != AFTER[Role.TASK]:
        before = int(workload.follows[before])
    return max(int(workload.follows[before]), 0)


def _bin(seconds: float) -> str:
    return next(name for limit, name in PAUSES if seconds < limit)


def _history(workload: Workload) -> tuple[int, int]:
    """Tokens of answers that prompts quote, and those of them that come back as they were."""
    if workload.segment_role is None or workload.segment_tokens is None:
        return 0, 0
    of_answers = np.flatnonzero(workload.segment_role == Role.ANSWER).tolist()
    tokens = workload.segment_tokens
    quoted = sum(int(tokens[k]) for k in of_answers)
    return quoted, sum(int(tokens[k]) for k in of_answers if str(workload.segment_keys[k]).startswith("out:"))


def tables_of(run: Run) -> list[Table]:
    """What conversations found again, and what transforms of the workload changed."""
    return [*_reuse(run.info.get("conversations")), *_changes(run.info.get("transforms"))]


def _reuse(found: dict[str, Any] | None) -> list[Table]:
    if not found or not found["follow_ups"]:
        return []
    rows = [
        (
            f"{row['after']}, {row['pause']}",
            number(row["requests"]),
            number(row["prompt_tokens"]),
            percent(row["known"] / row["prompt_tokens"]),
            percent(row["found"] / row["known"]) if row["known"] else DASH,
        )
        for row in found["follow_ups"]
    ]
    note = (
        "known: what the conversation had sent or got before, in whole blocks; still there: what of that the cache had"
    )
    if found["quoted"]:
        share = percent(found["unchanged"] / found["quoted"])
        note += f"\n{share} of the answer tokens that prompts quote come back as they were"
    return [
        Table(
            "Does the KV survive? By what a request came after",
            ("", "requests", "prompt tokens", "known", "still there"),
            rows,
            note,
        )
    ]


def _changes(changes: list[dict[str, Any]] | None) -> list[Table]:
    if not changes:
        return []
    rows = [
        (
            str(change["transform"]),
            number(change["requests_changed"]),
            number(change["prompt_tokens_saved"]),
            number(change["output_tokens_saved"]),
        )
        for change in changes
    ]
    note = "a negative saving is what a transform added"
    return [Table("Transforms", ("", "requests changed", "prompt tokens saved", "answer tokens saved"), rows, note)]
