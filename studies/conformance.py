"""Do our schedulers decide what the recorded one decided? Drives them through recorded traces, step by step.

A trace file (`*.json` or `*.json.gz`, format `scheduler-trace` version 1) holds scenarios: engine settings, requests with
the step of their arrival and, for some, of their abortion, and one record for every call of `schedule()`. No clock and no
model take part: arrivals, `schedule()`, `update()`, and every recorded figure is compared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from scenarios.errors import InputError
from serving.config import EngineConfig
from serving.fast_scheduler import FastScheduler
from serving.plan import StepPlan
from serving.request import Request
from serving.scheduler import Scheduler

FORMAT = "scheduler-trace"
FORMAT_VERSION = 1
NOT_MODELLED = "not yet modelled"


class AnyScheduler(Protocol):
    """What the driver needs of a scheduler."""

    def add(self, request: Request) -> None: ...
    def abort(self, request: Request) -> bool: ...
    def schedule(self, now_ns: int = 0) -> StepPlan: ...
    def update(self, plan: StepPlan) -> list[Request]: ...
    @property
    def free_blocks(self) -> int: ...
    @property
    def running(self) -> Iterable[Request]: ...
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
    return {"readable": Subject(Scheduler), "fast": Subject(FastScheduler, FastScheduler.supports)}


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


@dataclass(frozen=True)
class TraceScenario:
    """One recorded scenario, as read. `raw` has the fields of the trace format."""

    group: str
    name: str
    raw: Mapping[str, Any]

    @property
    def why_not(self) -> str | None:
        """The reason why it cannot be run yet, or None."""
        settings = self.raw["settings"]
        missing = []
        if settings["async_scheduling"]:
            missing.append("asynchronous scheduling")
        if settings["speculative"] is not None:
            missing.append("speculative decoding")
        return f"{NOT_MODELLED}: {' with '.join(missing)}" if missing else None

    @property
    def config(self) -> EngineConfig:
        s = self.raw["settings"]
        return EngineConfig(
            num_gpu_blocks=s["num_usable_blocks"] + 1,  # the null block
            block_size=s["block_size"],
            max_model_len=s["max_model_len"],
            max_num_seqs=s["max_num_seqs"],
            max_num_batched_tokens=s["max_num_batched_tokens"],
            enable_prefix_caching=s["enable_prefix_caching"],
            enable_chunked_prefill=s["enable_chunked_prefill"],
            long_prefill_token_threshold=s["long_prefill_token_threshold"],
            policy=s["policy"],
            scheduler_reserve_full_isl=s["scheduler_reserve_full_isl"],
            watermark=s["watermark"],
        )

    def requests(self) -> dict[str, Request]:
        """Fresh requests by id, in the order of their addition. The index is the rank of the id, the last tie-break."""
        rank = {name: i for i, name in enumerate(sorted(r["id"] for r in self.raw["requests"]))}
        return {
            r["id"]: Request(
                rank[r["id"]],
                tuple((key, n) for key, n in r["prompt"]),
                r["output_tokens"],
                r["max_tokens"],
                arrival_order=r["arrival_time"],
                output_key=f"out:{r['id']}",
                priority=r["priority"],
            )
            for r in self.raw["requests"]
        }


# -------------------------------------------------------------------- reading


def read(directory: Path | str) -> Iterator[TraceScenario]:
    """Every scenario of every trace file of a folder, files by name.

    Raises:
        InputError: no folder, no trace file in it, or a file that is not of the documented format.
    """
    for path in trace_files(directory):
        yield from read_file(path)


def trace_files(directory: Path | str) -> list[Path]:
    """The `*.json` and `*.json.gz` files of a folder, by name."""
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(f"{folder}: not a directory; expected one with scheduler traces (*.json, *.json.gz)")
    files = sorted(p for p in folder.iterdir() if p.name.endswith((".json", ".json.gz")) and p.is_file())
    if not files:
        raise InputError(f"{folder}: no scheduler traces in it; expected files named *.json or *.json.gz")
    return files


_SETTINGS: dict[str, tuple[type, ...]] = {
    "block_size": (int,),
    "num_usable_blocks": (int,),
    "max_num_seqs": (int,),
    "max_num_batched_tokens": (int,),
    "max_model_len": (int,),
    "enable_prefix_caching": (bool,),
    "enable_chunked_prefill": (bool,),
    "long_prefill_token_threshold": (int,),
    "policy": (str,),
    "scheduler_reserve_full_isl": (bool,),
    "watermark": (int, float),
    "async_scheduling": (bool,),
    "speculative": (dict, type(None)),
}
_REQUEST: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "arrival_step": (int,),
    "prompt": (list,),
    "max_tokens": (int,),
    "output_tokens": (int,),
    "priority": (int,),
    "arrival_time": (int, float),
    "abort_step": (int, type(None)),
    "abort_when": (str, type(None)),
}
_STEP: dict[str, tuple[type, ...]] = {
    "step": (int,),
    "scheduled": (list,),
    "new": (dict,),
    "resumed": (dict,),
    "preempted": (list,),
    "running": (int,),
    "waiting": (int,),
    "free_blocks": (int,),
    "finished": (list,),
    "free_after": (int,),
}
_SCENARIO: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "settings": (dict,),
    "requests": (list,),
    "steps": (list,),
    "totals": (dict,),
    "end": (dict,),
}


def read_file(path: Path) -> list[TraceScenario]:
    """The scenarios of one file, checked."""
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if path.name.endswith(".gz") else raw)
    except (OSError, EOFError, ValueError) as error:  # truncated gzip, broken JSON, wrong encoding
        raise InputError(f"{path}: not a readable trace file ({error}); expected JSON, gzipped if named *.gz") from error
    _typed(path, "", document, (dict,))
    if document.get("format") != FORMAT or document.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path}: format {document.get('format')!r} version {document.get('format_version')!r}; "
            f"expected {FORMAT!r} version {FORMAT_VERSION}"
        )
    _fields(path, "", document, {"group": (str,), "scenarios": (list,)})
    scenarios = []
    for i, scenario in enumerate(document["scenarios"]):
        where = f"scenarios[{i}]"
        _fields(path, where, scenario, _SCENARIO)
        _fields(path, f"{where}.settings", scenario["settings"], _SETTINGS)
        for kind, fields in (("requests", _REQUEST), ("steps", _STEP)):
            for j, row in enumerate(scenario[kind]):
                _fields(path, f"{where}.{kind}[{j}]", row, fields)
        _check_requests(path, where, scenario)
        scenarios.append(TraceScenario(document["group"], scenario["name"], scenario))
    return scenarios


def _check_requests(path: Path, where: str, scenario: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for j, request in enumerate(scenario["requests"]):
        at = f"{path}: {where}.requests[{j}]"
        if request["id"] in seen:
            raise InputError(f"{at}.id: {request['id']!r} occurs twice; ids are unique in a scenario")
        seen.add(request["id"])
        for segment in request["prompt"]:
            if not (isinstance(segment, list) and len(segment) == 2 and _is(segment[1], (int,)) and segment[1] >= 0):
                raise InputError(f"{at}.prompt: {segment!r}; expected [content key, number of tokens]")
        if request["abort_when"] not in (None, "before_schedule", "before_update"):
            raise InputError(f"{at}.abort_when: {request['abort_when']!r}; expected before_schedule or before_update")
    if scenario["settings"]["policy"] not in ("fcfs", "priority"):
        raise InputError(
            f"{path}: {where}.settings.policy: {scenario['settings']['policy']!r}; expected fcfs or priority"
        )


def _fields(path: Path, where: str, value: Any, fields: Mapping[str, tuple[type, ...]]) -> None:
    _typed(path, where, value, (dict,))
    for name, types in fields.items():
        inside = f"{where}.{name}" if where else name
        if name not in value:
            raise InputError(f"{path}: {inside} is missing; expected {_names(types)}")
        _typed(path, inside, value[name], types)


def _typed(path: Path, where: str, value: Any, types: tuple[type, ...]) -> None:
    if not _is(value, types):
        found = f"{type(value).__name__} {str(value)[:40]!r}"
        raise InputError(f"{path}: {where or 'the document'} is a {found}; expected {_names(types)}")


def _is(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _names(types: tuple[type, ...]) -> str:
    return " or ".join({dict: "an object", list: "a list", type(None): "null"}.get(t, t.__name__) for t in types)


# -------------------------------------------------------------------- driving


class Drive:
    """One scheduler going through one scenario; `compare` says where it first left the recording."""

    def __init__(self, scenario: TraceScenario, make: Factory) -> None:
        self.raw = scenario.raw
        self.scheduler = make(scenario.config)
        self.requests = scenario.requests()
        self.names = {request.index: name for name, request in self.requests.items()}
        self.due = sorted(self.raw["requests"], key=lambda r: r["arrival_step"])  # stable: list order within a step
        self.computed: dict[str, int] = {}
        self.lost: set[str] = set()  # preempted and not yet back
        self.present: set[str] = set()
        self.end: dict[str, str] = {}
        self.plans: list[StepPlan] = []

    def step(self, number: int) -> dict[str, Any]:
        """Arrivals, aborts, `schedule()`, aborts, `update()`: the record of one iteration, in the trace's fields."""
        while self.due and self.due[0]["arrival_step"] <= number:
            name = self.due.pop(0)["id"]
            self.scheduler.add(self.requests[name])
            self.present.add(name)
        aborted = self._abort(number, "before_schedule")
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        admitted = {self._name(a.request): a.hit_tokens for a in plan.admitted}
        resumed = {self._name(a.request) for a in plan.admitted if a.resumed}
        preempted = [self._name(request) for request in plan.preempted]
        self.lost = (self.lost | set(preempted)) - set(admitted)
        for row in plan.scheduled:
            self.computed[self._name(row.request)] = row.context + row.tokens
        record = {
            "step": number,
            "scheduled": [[self._name(row.request), row.tokens] for row in plan.scheduled],
            "new": {name: hit for name, hit in admitted.items() if name not in resumed},
            "resumed": {name: hit for name, hit in admitted.items() if name in resumed},
            "preempted": preempted,
            "running": plan.running,
            "waiting": plan.waiting,
            "free_blocks": plan.free_blocks,
        }
        aborted += self._abort(number, "before_update")
        finished = [self._name(request) for request in self.scheduler.update(plan)]
        for name in finished:
            self.present.discard(name)
            self.end[name] = "length"
        record["aborted"] = aborted
        record["finished"] = finished
        record["free_after"] = self.scheduler.free_blocks
        return record

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
            recorded = expected.get(what, []) if what == "aborted" else expected[what]
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
        reason = scenario.why_not
        if reason is None and not any(s.supports(scenario.config) for s in subjects.values()):
            reason = "no scheduler supports its settings"
        if reason is not None:
            report.skips[f"{scenario.group}/{scenario.name}"] = reason
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
