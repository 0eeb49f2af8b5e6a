"""Sessions of agents: a model that calls tools, waits for their results, hands tasks to sub-agents, and goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from scenarios.arrivals import NO_PAUSE, Pause, draw_pauses
from scenarios.contexts import Said, write_prompt
from scenarios.errors import misplaced
from scenarios.fields import Section
from scenarios.layouts import Conversations, Ints, Layout, Segments, Streams
from scenarios.lengths import Fixed, Lengths
from scenarios.workload import Role

_ONE = Fixed(distribution="fixed", tokens=1)


class SubAgents(Section):
    """Some tool calls hand tasks to sub-agents, which work at the same time; the agent goes on when all are done, with their last
    answers as its tool result.

    Args:
        share: of the tool calls that do so.
        count: sub-agents that one call starts.
        steps: requests of each, as the agent's own: between them it calls tools.
        task: tokens that each is told.
        fork: what it begins with: only the system prompt, or the agent's whole context (so that it shares all of its KV).
    """

    share: float = Field(default=1.0, gt=0, le=1)
    count: Lengths = _ONE
    steps: Lengths = _ONE
    task: Lengths
    fork: Literal["system", "context"] = "system"


@dataclass
class _Rows:
    """Requests of all sessions, in the order in which they can be sent: nobody waits for a later one."""

    segments: Segments = field(default_factory=Segments)
    session: list[int] = field(default_factory=list)
    follows: list[int] = field(default_factory=list)
    think_ns: list[int] = field(default_factory=list)
    joins: list[tuple[int, int]] = field(default_factory=list)


class Agents(Conversations):
    """Agentic sessions. In a turn a person asks something, and the agent sends `steps` requests: after each but the last it calls a
    tool, which takes `tool_time`; the next request repeats all before it and adds the tool's result. Arrivals are those of first
    requests; `input` is what a person says, `output` the answer of every request.

    Args:
        turns: of a session.
        steps: requests of a turn.
        tool_time: how long a tool takes. tool_result: tokens that it gives back.
        sub_agents: what some of the tool calls start instead of a tool.
        think_time: from the answer to the last step to the person's next turn.
        system: shared system prompts and tool descriptions that sessions begin with; none if not given.
        history: how much of an answer comes back unchanged in later prompts.
    """

    kind: Literal["agents"]
    turns: Lengths = _ONE
    steps: Lengths
    tool_time: Pause = NO_PAUSE
    tool_result: Lengths | None = None
    sub_agents: SubAgents | None = None

    @model_validator(mode="after")
    def _calls_tools(self) -> Agents:
        single = isinstance(self.steps, Fixed) and self.steps.tokens == 1
        for name in ("tool_result", "sub_agents"):
            if single and getattr(self, name) is not None:
                raise misplaced("an agent of a single step calls no tool; raise steps, or leave this out", name)
        sub = self.sub_agents
        only_sub = sub is not None and sub.share == 1 and isinstance(sub.steps, Fixed) and sub.steps.tokens == 1
        if self.tool_result is None and not single and not only_sub:
            raise misplaced("is required and missing; agents of several steps call tools", "tool_result")
        return self

    def sizes(self, n: int, streams: Streams) -> Ints:
        plans = self._plans(n, streams)
        return np.array([sum(1 + sum(kids) for turn in plan for kids in turn) for plan in plans], dtype=np.int64)

    def _plans(self, n: int, streams: Streams) -> list[list[list[list[int]]]]:
        """Of each of n sessions, each turn, each step: the steps of each sub-agent that it starts, none for a tool's call."""
        turns = self.turns.draw(n, streams("turns"))
        steps = self.steps.draw(int(turns.sum()), streams("steps"))
        kids: list[list[int]] = [[] for _ in range(int(steps.sum()))]
        if self.sub_agents is not None:
            calls = np.ones(len(kids), dtype=np.bool_)
            calls[np.cumsum(steps) - 1] = False  # the last step of a turn is its answer
            starts = calls & (streams("sub_agents").random(len(kids)) < self.sub_agents.share)
            count = np.where(starts, self.sub_agents.count.draw(len(kids), streams("sub_agent_count")), 0)
            work = iter(self.sub_agents.steps.draw(int(count.sum()), streams("sub_agent_steps")).tolist())
            kids = [[next(work) for _ in range(k)] for k in count.tolist()]
        step = iter(kids)
        turn = iter(steps.tolist())
        return [[[next(step) for _ in range(next(turn))] for _ in range(k)] for k in turns.tolist()]

    def lay_out(self, new: Ints, answers: Ints, turns: Ints, streams: Streams) -> Layout:
        """`turns`, `(sessions,)`: requests of each, which sum to all; the last may have fewer than it meant to send."""
        n = len(new)
        draw = _Drawn(self, n, new.tolist(), answers.tolist(), streams)
        opening = [] if self.system is None else self.system.opening(len(turns), streams)
        rows = _Rows()
        end = 0
        for s, (plan, size) in enumerate(zip(self._plans(len(turns), streams), turns.tolist(), strict=True)):
            end += size
            system = [Said(opening[s][0], -1, opening[s][1], Role.SYSTEM, 0)] if opening else []
            self._session(s, plan, system, rows, draw, end)
        joins = np.array(rows.joins, dtype=np.int64).reshape(-1, 2)
        session, follows, think = (np.array(c, dtype=np.int64) for c in (rows.session, rows.follows, rows.think_ns))
        return rows.segments.layout(session, follows, think, joins if len(joins) else None)

    def _session(
        self, number: int, plan: list[list[list[int]]], system: list[Said], rows: _Rows, draw: _Drawn, end: int
    ) -> None:
        """Writes the requests of a session, up to row `end`."""
        context = list(system)
        after: list[int] = []
        pause = 0
        for turn, steps in enumerate(plan):
            for step, kids in enumerate(steps):
                row = len(rows.session)
                if row == end:
                    return
                if step == 0:
                    context.append(Said(f"p{row}", -1, draw.new[row], Role.USER, turn))
                    pause = draw.think[row] if turn else 0
                self._send(rows, number, context, turn, after, pause)
                context.append(Said("", row, draw.answers[row], Role.ANSWER, turn))
                after = [row]
                if kids and self.sub_agents is not None:
                    start = [*(context if self.sub_agents.fork == "context" else system)]
                    after, results = self._sub_agents(number, turn, kids, start, row, rows, draw, end)
                    context += results
                    pause = 0
                elif step < len(steps) - 1:
                    context.append(Said(f"t{row}", -1, draw.result[row], Role.TOOL, turn))
                    pause = draw.tool[row]

    def _sub_agents(
        self,
        number: int,
        turn: int,
        kids: list[int],
        start: list[Said],
        caller: int,
        rows: _Rows,
        draw: _Drawn,
        end: int,
    ) -> tuple[list[int], list[Said]]:
        """Writes the requests of sub-agents that begin with `start`: their last rows, and what they give back to the caller."""
        last: list[int] = []
        for steps in kids:
            if len(rows.session) == end:
                break
            context = [*start, Said(f"a{len(rows.session)}", -1, draw.task[len(rows.session)], Role.TASK, turn)]
            before, pause = caller, 0
            for step in range(steps):
                row = len(rows.session)
                if row == end:
                    break
                self._send(rows, number, context, turn, [before], pause)
                context.append(Said("", row, draw.answers[row], Role.ANSWER, turn))
                if step < steps - 1:
                    context.append(Said(f"t{row}", -1, draw.result[row], Role.TOOL, turn))
                before, pause = row, draw.tool[row]
            last.append(before)
        # Its turn is over: where reasoning is not sent back, the caller gets the final part alone.
        return last, [Said("", row, draw.answers[row], Role.TOOL, -1) for row in last]

    def _send(self, rows: _Rows, session: int, context: list[Said], turn: int, after: list[int], pause: int) -> None:
        row = len(rows.session)
        write_prompt(rows.segments, context, turn, self.history)
        rows.session.append(session)
        rows.follows.append(after[0] if after else -1)
        rows.joins += [(row, other) for other in after[1:]]
        rows.think_ns.append(pause)


class _Drawn:
    """What each of n requests says and waits, whether it needs it or not: so that changing one axis moves no other."""

    def __init__(self, agents: Agents, n: int, new: list[int], answers: list[int], streams: Streams) -> None:
        self.new, self.answers = new, answers
        self.think = draw_pauses(agents.think_time, n, streams("think")).tolist()
        self.tool = draw_pauses(agents.tool_time, n, streams("tool_time")).tolist()
        result = _ONE if agents.tool_result is None else agents.tool_result
        self.result = result.draw(n, streams("tool_result")).tolist()
        task = _ONE if agents.sub_agents is None else agents.sub_agents.task
        self.task = task.draw(n, streams("sub_agent_task")).tolist()
