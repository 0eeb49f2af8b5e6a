"""The events of one run: clients, a front end, a degradation ladder, a router, admission, and the replicas behind them.

With an open loop the only events are the arrivals: each advances the replicas to its own instant, so that a quiet stretch of
steps costs one look, and they come in order, so that nothing needs to be put on SimPy's heap. Where clients react to finishes
(closed loop, later turns of a session) or lose patience, the ends and starts of steps are events too, ordered at one instant as
arrival < step end < time-out < reaction < step start.

A request's way: `arrive` (its client sends it) -> `enter` (the front end hands it on; the ladder decides what it becomes) ->
`route` -> `_admit` -> `hand_over` (a replica has it). From anywhere it may end early: `refuse`, `_end_early`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from simpy.events import NORMAL, Event

from scenarios.client_behaviour import Retries
from scenarios.clients import Clients, Sends
from scenarios.errors import InputError
from scenarios.workload import Workload
from serving.admission import AdmissionControl, Load
from serving.degradation import Ladder
from serving.front_end import FrontEnd
from serving.records import RequestLog
from serving.request import Cause, Request, Status
from serving.routing import Cascade, Router
from sim.escalation import Escalation
from sim.front import REFUSED, Cut, Front, degrade, note_answer, requote
from sim.pool import Pool
from sim.replica import AnyReplica
from sim.step_events import END_OF_TIME, REACTION, TIME_OUT, StepEvents

TOO_LONG = "the run lasts longer than the clock can count (146 years); shorten its pauses, or give it a horizon"


class Deployment:
    """State of one run: the environment, the replicas, and who is to be told what.

    homes: the pool of each replica.
    observed: whether somebody acts upon finishes, or between arrivals.
    held: of those who may end early, which replica has them; None while the front end has.
    """

    def __init__(
        self,
        homes: Sequence[Pool],
        workload: Workload,
        requests: RequestLog,
        router: Router,
        horizon_ns: int | None,
        front: Front,
        escalation: Escalation | None = None,
    ) -> None:
        self.homes = homes
        self.workload = workload
        self.requests = requests
        self.router = router
        self.horizon_ns = horizon_ns
        self.events = StepEvents()
        self.env = self.events.env
        self.replicas: list[AnyReplica] = []
        self.clients = Clients(workload)
        self.front = front
        self.plain = front.plain
        self.front_end = None if front.front_end is None else FrontEnd(front.front_end)
        self.ladder = Ladder(front.rungs) if front.rungs else None
        self.admission = None if front.limits is None else AdmissionControl(front.limits)
        self.retries = None if front.patience is None else Retries(front.patience, len(workload))
        self.escalation = escalation
        self.judged_ns = np.full(len(workload) * workload.tries, -1, dtype=np.int64) if escalation is not None else None
        self.homes_of: dict[int, int] = {}  # the pool that answers, where somebody judges
        self.observed = self.clients.react or front.times_out or escalation is not None
        self.held: dict[int, AnyReplica | None] = {}
        self.inside: dict[int, Request] = {}  # the front end
        self.cut_answers: Cut = {}
        fits = {id(pool): pool.engine.fits(workload.prompt_tokens, workload.max_tokens) for pool in homes}
        of_pool = {pool: found.tolist() for pool, found in fits.items()}
        self.fits: list[list[bool]] = [of_pool[id(pool)] for pool in homes]  # by replica, then by request
        self.fits_all: list[bool] = np.logical_and.reduce(list(fits.values())).tolist()
        self.everywhere = range(len(homes))
        watched = [number for number, pool in enumerate(homes) if front.watch in (None, pool.name)]
        self.watched: Sequence[int] = watched
        self.on_arrival: list[Callable[[Event], None]] = []

    def go(self) -> None:
        workload, end = self.workload, END_OF_TIME if self.horizon_ns is None else self.horizon_ns + 1
        if workload.concurrency is not None:
            self._send_later(self.clients.first())
        elif self.observed:
            arrivals = self._arrivals()
            self.on_arrival.append(arrivals.send)
            next(arrivals)
        else:
            opening = self.clients.opening
            self._open_loop(opening[: int(np.searchsorted(workload.arrival_ns[opening], end))], end)
        if self.horizon_ns is None:
            self.env.run()
            if self.inside:
                raise InputError(TOO_LONG)
        else:
            self.env.run(until=end)
        for request in self.inside.values():
            request.tags = request.tags._replace(
                ready_ns=min(request.tags.ready_ns, END_OF_TIME)
            )  # what a column holds
            self.requests.close(request, Status.IN_FLIGHT, -1)
        self._advance(end)
        for replica in self.replicas:
            if self.horizon_ns is None and replica.has_work:
                raise InputError("the run lasts longer than the clock can count (146 years); are the step costs right?")
            replica.close_open(end)

    def _advance(self, end: int) -> None:
        """All replicas run what ends and starts before `end`."""
        for replica in self.replicas:
            replica.advance(end)

    def _arrivals(self) -> Generator[None, Event, None]:
        """Sends the requests of an open loop: a process, but for its one event that comes again and again. (SimPy's own, with
        a timeout an arrival, would cost as much as a leap.)"""
        now = 0
        arrival = Event(self.env)
        arrival._ok, arrival._value = True, None
        for i, at in self.clients.first():
            if at > now:
                arrival.callbacks = self.on_arrival
                self.env.schedule(arrival, NORMAL, at - now)
                yield
                now = at
            self.send(i, now)
        yield

    def _open_loop(self, rows: NDArray[np.int64], end: int) -> None:
        """Sends requests `rows`, in order, when nobody reacts to finishes: without any other event no heap is needed."""
        if not self.plain:
            self._open_front(rows, end)
            return
        fits = self.fits[0]
        only = self.replicas[0] if len(self.replicas) == 1 else None
        for request in self._asked(rows):
            now = request.arrival_ns
            if only is not None and fits[request.index]:  # what `route` comes to
                only.advance(now)
                only.submit(request, now)
            else:
                self.route(request, now, self.everywhere)

    def _asked(self, rows: NDArray[np.int64]) -> Iterator[Request]:
        """Requests `rows` of an open loop, one after the other."""
        return self.workload.requests(rows)

    def _open_front(self, rows: NDArray[np.int64], end: int) -> None:
        """The same, past a front end, a ladder or limits."""
        requests = self._asked(rows)
        if self.front_end is None:
            for request in requests:
                self.enter(request, request.arrival_ns)
            return
        for request in self.front_end.passed(requests):
            if request.tags.ready_ns < end:
                self.enter(request, request.tags.ready_ns)
            else:
                self.inside[request.index] = request

    # -- a request's way to a replica ----------------------------------------------------------------------------------

    def send(self, i: int, now: int) -> None:
        """A client sends request i now."""
        request = self.workload.request(i, now)
        if self.plain:
            self.route(request, now, self.everywhere)
        else:
            self.arrive(request, now)

    def arrive(self, request: Request, now: int) -> None:
        """A request was sent now."""
        if self.cut_answers:
            requote(request, self.cut_answers, self.workload)
        if self.front.times_out:
            self.held[request.index] = None
            if self.front.patience is not None:
                self._lose_patience(request, now)
        if self.front_end is None:
            self.enter(request, now)
        else:
            ready = self.front_end.take(request, now)
            self.inside[request.index] = request
            self.events.after(ready - now, NORMAL, partial(self._leave_front_end, request, ready))

    def _leave_front_end(self, request: Request, now: int) -> None:
        if self.inside.pop(request.index, None) is not None:  # else its client has left meanwhile
            self.enter(request, now)

    def enter(self, request: Request, now: int) -> None:
        """The front end hands a request on: it is degraded, and goes to a replica of the pool that is left to it."""
        among: Sequence[int] = self.everywhere
        if self.ladder is not None:
            level = self.ladder.look([self.load(number, now) for number in self.watched], now)
            if level:
                effects = self.ladder.effects[level]
                degrade(request, self.workload, effects, level)
                cause = effects.refuses(request)
                if cause is not Cause.NONE:
                    self.refuse(request, now, cause)
                    return
                if effects.pool is not None:
                    small = [number for number, home in enumerate(self.homes) if home.name == effects.pool]
                    among = [number for number in small if self._fits(request, number)] or among
        self.route(request, now, among)

    def load(self, number: int, now: int) -> Load:
        """What a replica has to do now."""
        replica = self.replicas[number]
        replica.advance(now)
        return replica.load(now)

    def route(self, request: Request, now: int, among: Sequence[int]) -> None:
        """A request is rejected for good, or goes to one of the replicas `among`."""
        able = self._able(request, among)
        if not able:
            self._reject(request, now, among[0])
            return
        number = able[0]
        if len(able) > 1:
            replicas = self.replicas if able is self.everywhere else [self.replicas[k] for k in able]
            if self.router.reads_state:
                for replica in replicas:
                    replica.advance(now)
            number = able[self.router.choose(request, replicas, now)]
        if self.admission is None or self._admit(request, number, now):
            self.hand_over(request, self.replicas[number], now)

    def _able(self, request: Request, among: Sequence[int]) -> Sequence[int]:
        """Those of the replicas `among` that could hold it when they are empty."""
        if self.plain and self.fits_all[request.index % len(self.workload)]:
            return among
        return [number for number in among if self._fits(request, number)]

    def _fits(self, request: Request, number: int) -> bool:
        """Whether an empty replica could hold it."""
        if self.plain:
            return self.fits[number][request.index % len(self.workload)]
        engine = self.homes[number].engine  # the ladder may have made it shorter
        return engine.why_it_can_never_run(request.prompt_tokens, request.max_tokens) is None

    def _admit(self, request: Request, number: int, now: int) -> bool:
        """Whether the replica's queue takes it; those that it pushes out of there have ended then."""
        assert self.admission is not None
        load = self.load(number, now) if self.admission.reads_state else None
        cause, pushed_out = self.admission.decide(request, load, now)
        if cause is not Cause.NONE:
            self.refuse(request, now, cause)
            return False
        for victim in pushed_out:
            self._interrupt(self.replicas[number], now)
            self.held.pop(victim.index, None)
            self.replicas[number].abort(victim, now, Status.REJECTED, Cause.SHED)
            self._unanswered(victim, now, refused=True)
        return True

    def hand_over(self, request: Request, chosen: AnyReplica, now: int) -> None:
        """A replica takes it."""
        chosen.advance(now)
        if self.observed:
            if chosen.ends is None:
                self.events.start_later(chosen)
            else:
                self._interrupt(chosen, now)
            if self.front.times_out:
                self.held[request.index] = chosen
                limit = self.front.queue_timeout_ns
                if limit is not None:
                    self.events.after(limit, TIME_OUT, partial(self._queue_times_out, request, now + limit))
        if self.escalation is not None:
            self.homes_of[request.index] = chosen.pool
        chosen.submit(request, now)

    def _interrupt(self, replica: AnyReplica, now: int) -> None:
        """What is decided next must know of something new: a leap ends with the step that runs now."""
        if self.observed and replica.ends is not None and replica.cut(now):
            self.events.end_later(replica)

    # -- ends without an answer ----------------------------------------------------------------------------------------

    def _reject(self, request: Request, now: int, number: int) -> None:
        """Replica `number` could never run it."""
        reason = self.homes[number].engine.why_it_can_never_run(request.prompt_tokens, request.max_tokens)
        self.held.pop(request.index, None)
        self.requests.reject(request, str(reason), now)
        self._send_later(self.clients.gave_up(now))

    def refuse(self, request: Request, now: int, cause: Cause) -> None:
        """It could be run, but is not to be."""
        self.held.pop(request.index, None)
        self.requests.reject(request, REFUSED[cause], now, cause)
        self._unanswered(request, now, refused=True)

    def _lose_patience(self, request: Request, now: int) -> None:
        """Its client will leave when there is no first token, or no answer, in time."""
        patience = self.front.patience
        assert patience is not None
        for limit, check in (
            (patience.first_token_ns, self._client_sees_nothing),
            (patience.answer_ns, self._client_leaves),
        ):
            if limit is not None:
                self.events.after(limit, TIME_OUT, partial(check, request, now + limit))

    def _client_sees_nothing(self, request: Request, now: int) -> None:
        if not 0 <= request.first_token_ns <= now:
            self._client_leaves(request, now)

    def _client_leaves(self, request: Request, now: int) -> None:
        self._end_early(request, now, Status.ABORTED, Cause.CLIENT_TIMEOUT)

    def _queue_times_out(self, request: Request, now: int) -> None:
        if not 0 <= request.first_scheduled_ns < now:
            self._end_early(request, now, Status.TIMED_OUT, Cause.QUEUE_TIMEOUT)

    def _end_early(self, request: Request, now: int, status: Status, cause: Cause) -> None:
        """A request is given up, unless it has ended by now."""
        if request.index not in self.held:
            return
        replica = self.held.pop(request.index)
        if replica is None:
            del self.inside[request.index]
            self.requests.close(request, status, now, cause=cause)
        else:
            self._interrupt_after_ends(replica, now)
            replica.abort(request, now, status, cause)
        self._unanswered(request, now, refused=False)

    def _interrupt_after_ends(self, replica: AnyReplica, now: int) -> None:
        """`_interrupt` by what comes after the step ends of this instant."""
        if replica.ends is not None and replica.cut(now):
            if replica.ends == now:
                replica.complete()
                self.events.start_later(replica)
            else:
                self.events.end_later(replica)

    def _unanswered(self, request: Request, now: int, refused: bool) -> None:
        """Its client tries again, or does without."""
        again = [] if self.retries is None else self.retries.after(request.index, now, refused)
        self._send_later(again or self.clients.gave_up(now))

    # -- clients that react to finishes --------------------------------------------------------------------------------

    def react(self, request: Request, now: int) -> None:
        """The answer of `request` is complete: its client sends what depends on it."""
        self.held.pop(request.index, None)
        row = request.index % len(self.workload)
        if request.tags.rung or self.cut_answers:
            note_answer(self.cut_answers, request, self.workload)
        if self.escalation is None or not self._judge(request, now):
            self._answer(row, now)

    def _answer(self, row: int, now: int) -> None:
        self._send_later(self.clients.answered(row, now))

    def _judge(self, request: Request, now: int) -> bool:
        """A judge reads the answer before its client does, unless there is no larger model to ask. What it rejects is sent on."""
        assert self.escalation is not None
        assert self.judged_ns is not None
        assert isinstance(self.router, Cascade)
        pool = self.homes_of.pop(request.index)
        larger = self.router.after(request, pool)
        if not any(home.pool in larger and self._fits(request, home.number) for home in self.replicas):
            return False
        row, at = request.index % len(self.workload), now + self.escalation.latency_ns
        self.judged_ns[request.index] = at
        priority = NORMAL if at > now else REACTION
        if self.escalation.rejected[pool, row]:
            self.router.escalate(request, pool)
            self.events.after(at - now, priority, partial(self.send, request.index + len(self.workload), at))
        else:
            self.events.after(at - now, priority, partial(self._answer, row, at))
        return True

    def _send_later(self, sends: Sends) -> None:
        for i, at in sends:
            delay = at - int(self.env.now)
            # A reaction without a pause belongs to the instant of the step end that caused it, before any step starts.
            self.events.after(delay, NORMAL if delay else REACTION, partial(self.send, i, at))
