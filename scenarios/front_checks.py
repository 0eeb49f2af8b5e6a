"""What stands before the replicas of a scenario, checked against the rest of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scenarios.admission import Admission
from scenarios.degradation import RungSpec
from scenarios.errors import beneath, misplaced
from scenarios.layouts import Conversations
from scenarios.lengths import Fixed
from scenarios.workload_spec import WorkloadSpec

if TYPE_CHECKING:
    from scenarios.schema import Scenario


def check_front(scenario: Scenario) -> None:
    """Refuses limits, ladders and clients that contradict the workload, the engines or each other.

    Raises:
        PydanticCustomError: names the field.
    """
    admission, degradation, clients = scenario.admission, scenario.degradation, scenario.client_behaviour
    parts = list((scenario.workload.mix or {"": scenario.workload}).values())
    if admission is not None:
        with beneath("admission"):
            admission.check_tenants(_tenants(parts))
            if admission.when_full == "shed_lowest" and _of_one_rank(parts):
                raise misplaced(
                    "found shed_lowest, but every request has the same priority, so nobody is ever pushed out; give classes or tenants "
                    "a priority",
                    "when_full",
                )
    if degradation is not None:
        with beneath("degradation"):
            degradation.check(_classes(scenario.workload), [pool.name for pool in scenario.pools])
            windows = [view.engine_config().max_model_len for view in scenario.of_pools()]
            for i, rung in enumerate(degradation.ladder):
                with beneath("ladder", i):
                    _check_effect(rung, parts, max(windows))
                    if admission is not None:
                        _check_reach(rung, admission)
    if clients is not None and clients.retries and not clients.impatient:
        refuses = degradation is not None and any(rung.does in ("shed_class", "reject") for rung in degradation.ladder)
        if admission is None and not refuses:
            raise misplaced(
                f"found {clients.retries}, but no request is ever given up or refused: there is no time-out, no admission and no ladder that "
                "refuses; give a timeout",
                "client_behaviour",
                "retries",
            )


def _check_effect(rung: RungSpec, parts: Sequence[WorkloadSpec], window: int) -> None:
    """A rung that changes nothing can never lower its trigger."""
    cap = rung.cap_output
    if cap is not None:
        if cap >= window:
            raise misplaced(
                f"found {cap}, but no sequence is longer than max_model_len {window}: it caps nothing", "cap_output"
            )
        longest = _longest(parts)
        if longest is not None and cap >= longest:
            raise misplaced(
                f"found {cap}, but no answer is longer than {longest} tokens anyway: it caps nothing", "cap_output"
            )
    if rung.drop_stale_turns is not None and not any(_has_turns(part) for part in parts):
        raise misplaced(
            "no prompt of this workload has earlier turns (prompts: sessions or agents): it drops nothing",
            "drop_stale_turns",
        )


def _check_reach(rung: RungSpec, admission: Admission) -> None:
    """A trigger beyond what admission lets happen is never reached."""
    for signal, bound, what in (
        ("queue_requests", admission.max_queue_requests, "admission.max_queue_requests"),
        ("oldest_wait", admission.queue_timeout, "admission.queue_timeout"),
    ):
        if rung.signal == signal and bound is not None and rung.on > max(bound, 1):
            raise misplaced(
                f"found {rung.on_at}, but {what} keeps {signal} at {bound:g} or less: it is never reached", "on_at"
            )


def _longest(parts: Sequence[WorkloadSpec]) -> int | None:
    """Tokens of the longest answer that clients may get; None where nothing bounds it beforehand."""
    found = []
    for part in parts:
        if part.replays:
            return None
        senders: list[tuple[int | str | None, object]] = [(part.max_tokens, part.output)]
        senders += [(c.max_tokens, c.output) for c in part.classes]
        senders += [(t.max_tokens, t.output) for t in part.tenants]
        for declared, output in senders:
            if declared is None and output is None:
                continue
            if isinstance(declared, int):
                found.append(declared)
            elif isinstance(output, Fixed):
                found.append(output.shortest)
            else:
                return None
    return max(found, default=None)


def _has_turns(part: WorkloadSpec) -> bool:
    stated = [part.prompts, *(c.prompts for c in part.classes)]
    return part.replays or any(isinstance(prompts, Conversations) for prompts in stated)


def _tenants(parts: Sequence[WorkloadSpec]) -> list[str] | None:
    """Names of all tenants; None where a trace brings its own."""
    if any(part.replays for part in parts):
        return None
    return [tenant.name for part in parts for tenant in part.tenants] or ["default"]


def _classes(workload: WorkloadSpec) -> list[str] | None:
    """Names of all service classes; None where a trace brings its own."""
    if workload.mix is None:
        return None if workload.replays else [c.name for c in workload.classes]
    names: list[str] = []
    for name, part in workload.mix.items():
        names += [c.name for c in part.classes] or [name]
    return names


def _of_one_rank(parts: Sequence[WorkloadSpec]) -> bool:
    if any(part.replays for part in parts):
        return False
    ranks = {t.priority + c.priority for part in parts for t in part.tenants for c in part.classes}
    ranks |= {t.priority for part in parts for t in part.tenants} | {c.priority for part in parts for c in part.classes}
    return len(ranks) < 2
