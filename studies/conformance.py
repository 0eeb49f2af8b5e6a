"""Do our schedulers decide what the recorded one decided? Drives them through recorded traces, step by step.

No clock and no model take part: arrivals, `schedule()`, `update()`, and every recorded figure is compared
(`studies.scheduler_traces` has the format).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from serving.config import EngineConfig
from serving.fast_async_scheduler import fast_scheduler
from serving.fast_scheduler import FastScheduler
from serving.plan import StepPlan
from serving.request import Request
from serving.scheduler import Scheduler
from studies.reports.tables import Table
from studies.scheduler_traces import TraceScenario, read_file, trace_files


class AnyScheduler(Protocol):
    """What the driver needs of a scheduler."""

    def add(self, request: Request) -> None: ...
    def abort(self, request: Request) -> bool: ...
    def schedule(self, now_ns: int = 0) -> StepPlan: ...
    def update(
        self, plan: StepPlan, accepted: Mapping[int, int] | None = None, proposed: Mapping[int, int] | None = None
    ) -> list[Request]: ...
    @property
    def free_blocks(self) -> int: ...
    @property
    def running(self) -> Iterable[Request]: ...
    @property
    def has_work(self) -> bool: ...
    @property
    def prefix(self) -> Any: ...


Factory = Callable[[EngineConfig], AnyScheduler]


@dataclass(frozen=True)
class Subject:
    """A scheduler under test: how to make one, and for which settings it claims to be right."""

    make: Factory
    supports: Callable[[EngineConfig], bool] = lambda config: True


def default_subjects() -> dict[str, Subject]:
    """The two schedulers that the project runs on."""
    return {"readable": Subject(Scheduler), "fast": Subject(fast_scheduler, FastScheduler.supports)}


@dataclass(frozen=True)
class Difference:
    """The first place where a scheduler left the recording."""

    group: str
    scenario: str
    scheduler: str
    step: int | None
    field: str
    expected: object
    got: object

    def __str__(self) -> str:
        where = "at the end" if self.step is None else f"step {self.step}"
        return (
            f"{self.group}/{self.scenario} ({self.scheduler}) {where}: {self.field} should be {self.expected!r}, "
            f"is {self.got!r}"
        )


@dataclass
class Tally:
    """Scenarios by outcome; a scenario passes if every scheduler that supports its settings equals it."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def to_dict(self) -> dict[str, int]:
        return {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}


@dataclass
class ConformanceReport:
    """What came of a folder of traces. `schedulers` counts apart: `skipped` there are settings it does not support."""

    total: Tally = field(default_factory=Tally)
    groups: dict[str, Tally] = field(default_factory=dict)
    schedulers: dict[str, Tally] = field(default_factory=dict)
    failures: list[Difference] = field(default_factory=list)
    skips: dict[str, str] = field(default_factory=dict)
    files: int = 0
    steps: int = 0

    @property
    def passed(self) -> int:
        return self.total.passed

    @property
    def failed(self) -> int:
        return self.total.failed

    @property
    def skipped(self) -> int:
        return self.total.skipped

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: passed, failed, skipped, groups, schedulers, and the reasons in words."""
        return {
            **self.total.to_dict(),
            "groups": {name: tally.to_dict() for name, tally in self.groups.items()},
            "schedulers": {name: tally.to_dict() for name, tally in self.schedulers.items()},
            "failures": [str(difference) for difference in self.failures],
            "skips": dict(self.skips),
            "files": self.files,
            "steps": self.steps,
        }


# What a recording leaves out where there is none of it.
_UNSAID: dict[str, object] = {
    "aborted": [], "padded": [], "drafts": {}, "accepted": {}, "proposed": {}, "no_schedule": False,
}  # fmt: skip


class Drafter:
    """What is proposed and what stands, as recorded: by the number of output tokens that a request has."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.recorded = {r["id"]: r for r in raw["requests"]}
        self.outputs = dict.fromkeys(self.recorded, 0)

    def deliver(self, name: str, drafts: int) -> int:
        """How many of the drafts stand; the request has their tokens now, and one more."""
        stand = min(self._at("accepts", name), drafts) if drafts else 0
        self.outputs[name] = min(self.outputs[name] + stand + 1, self.recorded[name]["output_tokens"])
        return stand

    def propose(self, name: str) -> int:
        """Drafts for the next step; none if the request is complete."""
        complete = self.outputs[name] >= self.recorded[name]["output_tokens"]
        return 0 if complete else self._at("proposals", name)

    def _at(self, what: str, name: str) -> int:
        values: list[int] = self.recorded[name][what]
        return values[self.outputs[name] % len(values)]


class Drive:
    """One scheduler going through one scenario; `compare` says where it first left the recording."""

    def __init__(self, scenario: TraceScenario, make: Factory) -> None:
        self.raw = scenario.raw
        self.config = scenario.config
        self.scheduler: Any = make(scenario.config)
        self.requests = scenario.requests()
        self.names = {request.index: name for name, request in self.requests.items()}
        self.due = sorted(self.raw["requests"], key=lambda r: r["arrival_step"])  # stable: list order within a step
        self.endings = {  # a stop token is looked for before the length limits
            r["id"]: "stop" if r.get("stop_at") == r["output_tokens"] else "length" for r in self.raw["requests"]
        }
        self.computed: dict[str, int] = {}
        self.lost: set[str] = set()  # preempted and not yet back
        self.present: set[str] = set()
        self.end: dict[str, str] = {}
        self.plans: list[StepPlan] = []
        self.in_flight: deque[tuple[int, StepPlan]] = deque()
        self.news = False  # a request has ended since the last `schedule()`, which is then called once more
        self.drafter = Drafter(self.raw)
        self.drafted = {"draft_tokens": 0, "accepted_tokens": 0}

    def step(self, number: int) -> dict[str, Any]:
        """Arrivals, aborts, `schedule()`, aborts, `update()`: the record of one iteration, in the trace's fields.

        Under asynchronous scheduling the update is that of the step before, and nobody asks a scheduler without work.
        """
        while self.due and self.due[0]["arrival_step"] <= number:
            name = self.due.pop(0)["id"]
            self.scheduler.add(self.requests[name])
            self.present.add(name)
        aborted = self._abort(number, "before_schedule")
        asynchronous = self.config.async_scheduling
        if asynchronous and not (self.scheduler.has_work or self.news):
            counts = {"running": 0, "waiting": 0, "free_blocks": self.scheduler.free_blocks}
            record = {"scheduled": [], "new": {}, "resumed": {}, "preempted": [], **counts, "no_schedule": True}
        else:
            record = self._schedule(number)
        aborted += self._abort(number, "before_update")
        finished: list[str] = []
        updated, accepted, proposed = None, {}, {}
        # A step that computes something is left in flight until the next one has been decided.
        if len(self.in_flight) > (asynchronous and bool(record["scheduled"])):
            updated, plan = self.in_flight.popleft()
            finished, accepted, proposed = self._update(plan)
        record |= {"step": number, "aborted": aborted, "finished": finished, "free_after": self.scheduler.free_blocks}
        if asynchronous:
            record["updated_step"] = updated
        if self.config.speculation != "none":
            record |= {"accepted": accepted} if asynchronous else {"accepted": accepted, "proposed": proposed}
        return record

    def _schedule(self, number: int) -> dict[str, Any]:
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        self.in_flight.append((number, plan))
        self.news = False
        admitted = {self._name(a.request): a.hit_tokens for a in plan.admitted}
        resumed = {self._name(a.request) for a in plan.admitted if a.resumed}
        preempted = [self._name(request) for request in plan.preempted]
        self.lost = (self.lost | set(preempted)) - set(admitted)
        for row in plan.scheduled:
            self.computed[self._name(row.request)] = row.context + row.tokens
        record = {
            "scheduled": [[self._name(row.request), row.tokens] for row in plan.scheduled],
            "new": {name: hit for name, hit in admitted.items() if name not in resumed},
            "resumed": {name: hit for name, hit in admitted.items() if name in resumed},
            "preempted": preempted,
            "running": plan.running,
            "waiting": plan.waiting,
            "free_blocks": plan.free_blocks,
        }
        if self.config.speculation != "none":
            record["drafts"] = {self._name(row.request): row.drafts for row in plan.scheduled if row.drafts}
            record["padded"] = [self._name(row.request) for row in plan.scheduled if row.padded]
        return record

    def _update(self, plan: StepPlan) -> tuple[list[str], dict[str, int], dict[str, int]]:
        """Applies a step's result; who ended by it, which drafts stood, and what is proposed next."""
        accepted, proposed = {}, {}
        for row in plan.scheduled:
            name = self._name(row.request)
            if not row.samples or name not in self.present:
                continue
            stand = self.drafter.deliver(name, 0 if row.padded else row.drafts)
            if row.drafts:
                accepted[name] = stand
                self.drafted["draft_tokens"] += row.drafts
                self.drafted["accepted_tokens"] += stand
            if self.config.speculation != "none" and (drafts := self.drafter.propose(name)):
                proposed[name] = drafts
        index = {name: request.index for name, request in self.requests.items()}
        said = [{index[name]: n for name, n in counts.items()} for counts in (accepted, proposed)]
        ended = self.scheduler.update(plan) if self.config.speculation == "none" else self.scheduler.update(plan, *said)
        finished = [self._name(request) for request in ended]
        for name in finished:
            self.present.discard(name)
            self.end[name] = self.endings[name]
        self.news = self.news or bool(finished)
        return finished, accepted, proposed

    def _abort(self, number: int, when: str) -> list[list[str]]:
        aborted = []
        for request in self.raw["requests"]:
            name = request["id"]
            if request["abort_step"] == number and request["abort_when"] == when and name in self.present:
                state = self._state(name)
                if self.scheduler.abort(self.requests[name]):
                    aborted.append([name, state])
                    self.present.discard(name)
                    self.end[name] = "aborted"
                    self.news = True
        return aborted

    def _state(self, name: str) -> str:
        request = self.requests[name]
        if any(r.index == request.index for r in self.scheduler.running):
            prefilling = self.computed[name] < request.prompt_tokens
            return "running_prefill" if prefilling else "running_decode"
        return "preempted" if name in self.lost else "waiting"

    def _name(self, request: Request) -> str:
        return self.names[request.index]

    def totals(self) -> dict[str, int]:
        prefix = self.scheduler.prefix
        return {
            "steps": len(self.plans),
            "busy_steps": sum(bool(plan.scheduled) for plan in self.plans),
            "scheduled_tokens": sum(row.tokens for plan in self.plans for row in plan.scheduled),
            "preemptions": sum(len(plan.preempted) for plan in self.plans),
            "prefix_requests": prefix.requests,
            "prefix_queries": prefix.queries,
            "prefix_hits": prefix.hits,
            "preempted_requests": prefix.preempted_requests,
            "preempted_queries": prefix.preempted_queries,
            "preempted_hits": prefix.preempted_hits,
            **self.drafted,
        }


def compare(scenario: TraceScenario, scheduler: str, make: Factory) -> Difference | None:
    """The first difference between a recording and what a scheduler decides, or None.

    Block ids are a hint of the recording, not a claim about ours, so they are not compared. `self_preempted` follows from
    who was preempted and what came after, and `StepPlan` does not repeat it: only that those were preempted is checked.
    """

    def different(step: int | None, what: str, expected: object, got: object) -> Difference:
        return Difference(scenario.group, scenario.name, scheduler, step, what, expected, got)

    drive = Drive(scenario, make)
    for position, expected in zip(count(), scenario.raw["steps"]):
        number = expected["step"]
        try:
            got = drive.step(number)
        except Exception as error:  # a crash is a difference like any other, and must not hide the other scenarios
            return different(number, "the step", "decided", f"{type(error).__name__}: {error}")
        for what, value in got.items():
            recorded = expected.get(what, _UNSAID[what]) if what in _UNSAID else expected[what]
            if value != recorded:
                return different(number, what, recorded, value)
            if what in ("new", "resumed") and list(value) != list(recorded):
                return different(number, f"order of {what}", list(recorded), list(value))
        missing = set(expected.get("self_preempted", [])) - set(got["preempted"])
        if missing:
            return different(number, "self_preempted", sorted(missing), [])
        if position != number:
            return different(number, "step", position, number)
    totals = drive.totals()
    for name, recorded in scenario.raw["totals"].items():
        if name in totals and totals[name] != recorded:
            return different(None, name, recorded, totals[name])
    if drive.end != scenario.raw["end"]:
        return different(None, "end", scenario.raw["end"], drive.end)
    return None


def run(directory: Path | str, schedulers: Mapping[str, Subject] | None = None) -> ConformanceReport:
    """Drives schedulers through every trace of a folder.

    Args:
        directory: holds `*.json` or `*.json.gz` trace files.
        schedulers: by name; the readable scheduler and the fast one (where it supports the settings) unless given.

    Raises:
        InputError: no trace file there, or one that is not of the documented format.
    """
    subjects = default_subjects() if schedulers is None else schedulers
    report = ConformanceReport(schedulers={name: Tally() for name in subjects})
    scenarios = []
    for path in trace_files(directory):  # all files are read before any is run: bad input is refused before any work
        scenarios += read_file(path)
        report.files += 1
    for scenario in scenarios:
        group = report.groups.setdefault(scenario.group, Tally())
        if not any(s.supports(scenario.config) for s in subjects.values()):
            report.skips[f"{scenario.group}/{scenario.name}"] = "no scheduler supports its settings"
            for tally in (report.total, group, *report.schedulers.values()):
                tally.skipped += 1
            continue
        equal = True
        for name, subject in subjects.items():
            tally = report.schedulers[name]
            if not subject.supports(scenario.config):
                tally.skipped += 1
                continue
            difference = compare(scenario, name, subject.make)
            if difference is None:
                tally.passed += 1
            else:
                equal = False
                tally.failed += 1
                report.failures.append(difference)
        report.steps += len(scenario.raw["steps"])
        for tally in (report.total, group):
            if equal:
                tally.passed += 1
            else:
                tally.failed += 1
    return report


def conformance_table(found: dict[str, Any]) -> Table:
    """Scenarios by group: passed, failed, skipped."""
    names = ("passed", "failed", "skipped")
    rows = [(group, *(str(tally[name]) for name in names)) for group, tally in found["groups"].items()]
    rows.append(("all", *(str(found[name]) for name in names)))
    rows += [(f"{name} scheduler", *(str(t[n]) for n in names)) for name, t in found["schedulers"].items()]
    reasons = Counter(found["skips"].values())
    notes = [*found["failures"][:10], *(f"skipped {count}: {reason}" for reason, count in reasons.most_common())]
    return Table(f"Conformance: {found['steps']:,} steps compared", ("group", *names), rows, "\n".join(notes))
