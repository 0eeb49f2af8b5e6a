"""Why requests were slow: what stood in their way, in a sentence each, and what one request did to all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError
from serving.metrics import by_request
from serving.records import Records
from serving.request import Cause, Status
from serving.rows import Rows, rows_of
from serving.tries import answered
from studies.aspects.binding import cause_of
from studies.explaining.latency_parts import PARTS, LatencyParts, StepParts, divide_steps, latency_parts
from studies.explaining.run_parts import engines_of, host_copies_of, replica_costs
from studies.reports.tables import Table, milliseconds, number
from studies.results import Run

METRICS: dict[str, str] = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2el": "end-to-end latency",
    "queue": "queue time",
}
TAIL = 0.01
"""Share of the requests that counts as the tail, at least one."""
LARGEST = 20_000  # requests of a run that every report explains: about a second
NAMED = 3  # requests in the way that are named
SPOKEN = 0.05  # share of a latency from which a part of it is spoken of

_WORDS = {
    "retry": "in tries before",
    "front_end": "at the front end",
    "queue": "in the queue",
    "own_prefill": "computing its prompt",
    "other_prefill": "while other prompts were computed",
    "decode": "computing its answer",
    "preemption": "set back by preemptions",
    "transfer": "waiting for copies of KV blocks",
    "left_out": "left out of steps of others",
    "judge": "with its answer before a judge",
}
_LIMITS = {
    "kv": "KV memory is full",
    "sequences": "max_num_seqs requests run already",
    "tokens": "the step's token budget is spent",
    "other": "the batching lets no one in",
}


@dataclass(frozen=True)
class InTheWay:
    """A request whose prompt was computed while another one waited: for so long, in so many steps."""

    request: int
    ns: int
    steps: int


class Explanation:
    """Answers about one run.

    Raises:
        InputError: the run has no log of rows, so nobody knows who was in which step.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.records: Records = run.records
        rows = rows_of(run.records)
        if rows is None:
            raise InputError(
                f"{run.name}: who was in which step was not recorded (a result of an earlier version, or of another engine); "
                "run it again"
            )
        self.rows: Rows = rows
        self.costs = replica_costs(run)
        self.copies = host_copies_of(run)
        self.engines = engines_of(run)

    @cached_property
    def parts(self) -> LatencyParts:
        """Where the latency of every request went."""
        return latency_parts(self.records, self.rows, self.divided)

    @cached_property
    def divided(self) -> StepParts:
        """How every step is shared."""
        return divide_steps(self.records, self.rows, self.costs, self.copies)

    @cached_property
    def _prompt_tokens(self) -> NDArray[np.float64]:
        """Tokens of prompts in each step, `(steps,)`."""
        chunks, prompt = self.rows.chunks, self.divided.prompt
        return np.bincount(
            chunks["step"][prompt], weights=chunks["tokens"][prompt], minlength=len(self.records.steps["step"])
        )

    def worst(self, metric: str, count: int) -> list[int]:
        """The requests with the largest figures, worst first; fewer where fewer finished.

        Raises:
            InputError: no such metric.
        """
        if metric not in METRICS:
            raise InputError(f"--worst: found {metric}; allowed: {', '.join(METRICS)}")
        seconds = self._seconds(metric)
        ranked = np.argsort(-np.nan_to_num(seconds, nan=-1.0), kind="stable")
        return [int(i) for i in ranked[:count] if not np.isnan(seconds[i])]

    def _seconds(self, metric: str) -> NDArray[np.float64]:
        return by_request(self.records, metric)

    # -- what stood in the way -----------------------------------------------------------------------------------------

    def in_the_way(self, request: int, metric: str = "ttft") -> list[InTheWay]:
        """Whose prompts were computed on its replica while it waited for its first token (TPOT: for the others), most first."""
        since, until = self._window(request, metric)
        steps, chunks, d = self.records.steps, self.rows.chunks, self.divided
        step, replica = chunks["step"], int(self.records.requests["replica"][request])
        lo, hi = np.searchsorted(steps["replica"], (replica, replica + 1))
        lo, hi = (
            lo + np.searchsorted(steps["end_ns"][lo:hi], since, side="right"),
            lo + np.searchsorted(steps["start_ns"][lo:hi], until),
        )
        lo, hi = np.searchsorted(step, (lo, hi))
        at = lo + np.flatnonzero(d.prompt[lo:hi] & (chunks["request"][lo:hi] != request))
        share = chunks["tokens"][at] / self._prompt_tokens[step[at]]
        inside = np.minimum(steps["end_ns"][step[at]], until) - np.maximum(steps["start_ns"][step[at]], since)
        taken = np.maximum(steps["end_ns"][step[at]] - steps["start_ns"][step[at]], 1)
        ns = share * d.prompts[step[at]] * (inside / taken)
        owners, codes, counts = np.unique(chunks["request"][at], return_inverse=True, return_counts=True)
        sums = np.bincount(codes, weights=ns, minlength=len(owners))
        ranked = np.argsort(-sums, kind="stable").tolist()
        return [InTheWay(int(owners[k]), round(sums[k]), int(counts[k])) for k in ranked]

    def _window(self, request: int, metric: str) -> tuple[int, int]:
        r = self.records.requests
        first = int(r["first_token_ns"][request])
        end = int(r["finish_ns"][request])
        if metric == "tpot":
            return max(first, 0), end
        since = int(max(r["ready_ns"][request], r["arrival_ns"][request]))
        if metric == "queue":
            return since, int(r["scheduled_ns"][request]) if r["scheduled_ns"][request] >= 0 else end
        return since, first if metric == "ttft" and first >= 0 else end

    def queue_cause(self, request: int) -> str | None:
        """Which limit kept it in the queue for most of that time, in words; None if nothing of the kind was met."""
        r, steps = self.records.requests, self.records.steps
        since, until = self._window(request, "queue")
        there = (steps["replica"] == r["replica"][request]) & (steps["start_ns"] < until) & (steps["end_ns"] > since)
        weight = np.where(there, np.minimum(steps["end_ns"], until) - np.maximum(steps["start_ns"], since), 0)
        if not weight.any():
            return None
        return _LIMITS[cause_of(steps, weight.astype(np.float64), self.engines[int(r["replica"][request])])]

    # -- in words ------------------------------------------------------------------------------------------------------

    def sentence(self, request: int, metric: str = "ttft") -> str:
        """Why a request was slow, in a few sentences.

        Raises:
            InputError: there is no such request, or it was never sent.
        """
        r = self.records.requests
        self.check(request)
        status, who = Status(int(r["status"][request])), self.named(request)
        if status is Status.IN_FLIGHT:
            return f"{who} was still being served at the end of the run."
        if status is not Status.FINISHED:
            why = Cause(int(r["cause"][request])).name.lower().replace("_", " ")
            parts = self._listed(self.parts.of(request))
            return f"{who} was not answered ({status.name.lower().replace('_', ' ')}: {why}){': ' + parts if parts else ''}."
        before, after = ({k: int(v[request]) for k, v in p.items()} for p in (self.parts.before, self.parts.after))
        if metric == "tpot":
            per_token = self._seconds("tpot")[request]
            further = int(r["output_tokens"][request]) - 1
            said = [
                f"{who} took {milliseconds(per_token * 1e3)} for each of its {number(further)} further tokens: "
                f"in all {self._listed(after)}."
            ]
        elif metric == "e2el":
            both = {name: before[name] + after[name] for name in PARTS}
            said = [f"{who} was complete after {milliseconds(sum(both.values()) / 1e6)}: {self._listed(both)}."]
        else:
            said = [
                f"{who} had its first token after {milliseconds(sum(before.values()) / 1e6)}: {self._listed(before)}."
            ]
        waited = before["queue"] if metric != "tpot" else 0
        total = sum(before.values()) if metric in ("ttft", "queue") else sum(before.values()) + sum(after.values())
        if waited > SPOKEN * max(total, 1) and (cause := self.queue_cause(request)):
            said.append(f"It waited mostly because {cause}.")
        if way := self._in_the_way_said(request, metric, total if metric != "tpot" else sum(after.values())):
            said.append(way)
        return " ".join(said)

    def _in_the_way_said(self, request: int, metric: str, total: int) -> str:
        found = [one for one in self.in_the_way(request, metric) if one.ns > 0]
        named = [one for one in found if one.ns > SPOKEN * total][:NAMED]
        if not found or sum(one.ns for one in found) <= SPOKEN * total:
            return ""
        rest = found[len(named) :]
        words = [
            f"request {one.request}'s prompt of {number(self._prompt(one.request))} tokens took {milliseconds(one.ns / 1e6)} "
            f"of that time in {number(one.steps)} step{'s' if one.steps > 1 else ''}"
            for one in named
        ]
        if (others := sum(one.ns for one in rest)) > SPOKEN * total or not named:
            further = "further " if named else ""
            words.append(
                f"{number(len(rest))} {further}prompts took {milliseconds(others / 1e6)}{'' if named else ' of that time'}"
            )
        said = "; ".join(words)
        return f"{said[0].upper()}{said[1:]}."

    def _listed(self, parts: dict[str, int]) -> str:
        """Parts in words, those that matter, largest first."""
        total = max(sum(parts.values()), 1)
        spoken = sorted(((ns, name) for name, ns in parts.items() if ns >= SPOKEN * total), key=lambda item: -item[0])
        return ", ".join(f"{milliseconds(ns / 1e6)} {_WORDS[name]}" for ns, name in spoken)

    def named(self, request: int) -> str:
        """A request with what is known of it."""
        r, records = self.records.requests, self.records
        facts = []
        if len(records.tenants) > 1:
            facts.append(f"tenant {records.tenants[int(records.tenant[request])]}")
        if records.service_class is not None:
            facts.append(f"class {records.classes[int(records.service_class[request])]}")
        facts.append(f"{number(self._prompt(request))} prompt tokens")
        if r["cached_tokens"][request] > 0:
            facts.append(f"{number(int(r['cached_tokens'][request]))} of them cached")
        return f"Request {request} ({', '.join(facts)})"

    def _prompt(self, request: int) -> int:
        return int(self.records.requests["prompt_tokens"][request])

    def check(self, request: int) -> None:
        """Raises InputError unless such a request was sent."""
        status = self.records.requests["status"]
        if not 0 <= request < len(status):
            raise InputError(f"request {request}: found no such request; there are 0 to {len(status) - 1:,}")
        if status[request] < 0:
            raise InputError(f"request {request}: it was never sent in this run")

    # -- the tail ------------------------------------------------------------------------------------------------------

    def tail(self, metric: str = "ttft") -> NDArray[np.int64]:
        """The slowest 1 % of those that finished, at least one, slowest first."""
        seconds = self._seconds(metric)
        known = int((~np.isnan(seconds)).sum())
        return np.array(self.worst(metric, max(1, round(TAIL * known)) if known else 0), dtype=np.int64)

    def tail_table(self) -> Table:
        """Parts of the time to first token: mean of all, and of the slowest."""
        done = answered(self.records) & (self.records.requests["first_token_ns"] >= 0)
        slow = self.tail()
        rows = []
        for name, ns in self.parts.before.items():
            if ns[done].any():
                rows.append((_WORDS[name], number(_mean(ns[done]) / 1e6), number(_mean(ns[slow]) / 1e6)))
        total = self.parts.ttft()
        rows.append(("time to first token", number(_mean(total[done]) / 1e6), number(_mean(total[slow]) / 1e6)))
        head = ("ms", f"mean of {int(done.sum()):,}", f"slowest {len(slow):,}")
        return Table("Where time to first token went", head, rows, f"steps are divided by {self.parts.shared_by}")

    def tail_sentence(self) -> str:
        """What the slowest first tokens waited for, and behind whom."""
        slow = self.tail()
        if not len(slow):
            return "No request finished, so none was slow."
        total = self.parts.ttft()
        done = answered(self.records) & (self.records.requests["first_token_ns"] >= 0)
        shares = sorted(((int(ns[slow].sum()), name) for name, ns in self.parts.before.items()), reverse=True)
        ns, name = shares[0]
        whole = int(total[slow].sum())
        said = (
            f"The slowest {TAIL:.0%} of first tokens ({len(slow)} request{'s' if len(slow) > 1 else ''}) took "
            f"{milliseconds(whole / len(slow) / 1e6)} on average, the median {milliseconds(float(np.median(total[done])) / 1e6)}: "
            f"{ns / max(whole, 1):.0%} of it {_WORDS[name]}."
        )
        long = slow[2 * self.parts.before["own_prefill"][slow] > total[slow]]
        if len(long):
            longest = max(self._prompt(int(i)) for i in long)
            said += f" {len(long)} of them {'is' if len(long) == 1 else 'are'} slow by {'its' if len(long) == 1 else 'their'} own prompt, of up to {number(longest)} tokens."
        behind: dict[int, int] = {}
        for request in slow.tolist():
            for one in self.in_the_way(request):
                behind[one.request] = behind.get(one.request, 0) + one.ns
        if behind:
            worst = min(behind, key=lambda i: (-behind[i], i))
            part = behind[worst] / max(whole, 1)
            if part > SPOKEN:
                said += f" {part:.0%} of it went by while request {worst}'s prompt of {number(self._prompt(worst))} tokens was computed."
        return said

    # -- tables --------------------------------------------------------------------------------------------------------

    def table(self, requests: Sequence[int]) -> Table:
        """The parts of requests, a row each."""
        used = [name for name in PARTS if any(self.parts.of(i).get(name) for i in requests)]
        rows = []
        for i in requests:
            parts = self.parts.of(i)
            ns = (*(parts.get(name, 0) for name in used), sum(parts.values()))
            rows.append((f"request {i}", *(number(part / 1e6) for part in ns)))
        head = ("E2E by part, ms", *(name.replace("_", " ") for name in used), "sum")
        return Table("Where the time went", head, rows, f"steps are divided by {self.parts.shared_by}")

    def document(self, requests: Sequence[int], metric: str) -> list[dict[str, Any]]:
        """The same as JSON-able mappings; times in ms."""
        return [
            {
                "request": i,
                "parts_ms": {name: ns / 1e6 for name, ns in self.parts.of(i).items()},
                "ttft_parts_ms": {name: int(ns[i]) / 1e6 for name, ns in self.parts.before.items() if ns[i]},
                "in_the_way": [
                    {"request": one.request, "ms": one.ns / 1e6, "steps": one.steps}
                    for one in self.in_the_way(i, metric)[:10]
                ],
                "sentence": self.sentence(i, metric),
            }
            for i in requests
        ]


def _mean(ns: NDArray[np.int64]) -> float:
    return float(ns.mean()) if len(ns) else 0.0


def tables_of(run: Run) -> list[Table]:
    """Where the time to first token of all and of the slowest went, and behind whom; none of a run in which nobody was answered, whose
    rows were not logged, or that is too large to be looked at each time that its report is read."""
    records = run.records
    if len(records.requests["status"]) > LARGEST or not answered(records).any() or rows_of(records) is None:
        return []
    found = Explanation(run)
    table = found.tail_table()
    return [replace(table, note=f"{found.tail_sentence()}\n{table.note}")]
