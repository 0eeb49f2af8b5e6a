"""When the steps of replicas start and end, where somebody acts upon that: events on SimPy's heap (integer nanoseconds).

At one instant: arrivals (SimPy's NORMAL is 1), step ends in the order of the replicas' numbers, time-outs, reactions, step starts.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy
from simpy.events import Event, EventPriority

from sim.replica import AnyReplica

END_OF_TIME = 1 << 62
_STEP_END = 2
TIME_OUT, REACTION, _STEP_START = (EventPriority((1 << 30) + k) for k in range(3))


class StepEvents:
    """env: the clock. starting: idle replicas whose next step starts at the end of this instant."""

    def __init__(self) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.starting: set[AnyReplica] = set()

    def after(self, delay: int, priority: EventPriority, action: Callable[[], None]) -> None:
        event = Event(self.env)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: action())
        self.env.schedule(event, priority, delay)

    def start_later(self, replica: AnyReplica) -> None:
        """The idle replica starts its next step at the end of this instant."""
        if replica in self.starting:
            return
        self.starting.add(replica)

        def start() -> None:
            self.starting.remove(replica)
            if replica.ends is None and replica.has_work:
                replica.begin(END_OF_TIME)
                self._go_on_alone(replica)
                if replica.ends is not None:
                    self.end_later(replica)

        self.after(0, _STEP_START, start)

    def _go_on_alone(self, replica: AnyReplica) -> None:
        """Ends and starts that nobody reacts to, before anything else happens, need no events."""
        until = self.env.peek()
        while replica.ends_quietly and replica.ends is not None and replica.ends < until:
            replica.complete()
            replica.begin(END_OF_TIME)

    def end_later(self, replica: AnyReplica) -> None:
        """When the step in flight ends its tokens are out. A leap that was cut meanwhile ends at another time."""
        ends = replica.ends
        assert ends is not None

        def end() -> None:
            if replica.ends == ends:
                replica.complete()
                self.start_later(replica)

        self.after(ends - int(self.env.now), EventPriority(_STEP_END + replica.number), end)
