"""What prompts of conversations are made of: which texts they repeat, what comes back changed, who waits for whom."""

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from scenarios import Scenario, generate
from scenarios.errors import one_message
from scenarios.history import History, shorter
from scenarios.workload import Role, Workload
from serving.metrics import summary
from serving.records import Records
from sim.cluster import simulate
from sim.roofline import Roofline
from tests.scenarios.conftest import MINIMAL

USER, SYSTEM, HISTORY, ANSWER, TOOL = Role.USER, Role.SYSTEM, Role.HISTORY, Role.ANSWER, Role.TOOL


def scenario(**fields: Any) -> Scenario:
    return Scenario.model_validate(MINIMAL | {"engine": {"block_size": 16}} | fields)


def workload(prompts: dict[str, Any], n: int = 4, **fields: Any) -> Workload:
    section = {"requests": n, "arrivals": "all_at_once", "input": 100, "output": 50, "prompts": prompts}
    return generate(scenario(workload=section | fields))


def roles(sent: Workload, i: int) -> list[int]:
    assert sent.segment_role is not None
    assert sent.segment_offset is not None
    return sent.segment_role[sent.segment_offset[i] : sent.segment_offset[i + 1]].tolist()


def simulated(sent: Workload) -> Records:
    case = scenario()
    return simulate(case.engine_config(), sent, Roofline(case.model, case.hardware, dtype="bfloat16"))


def test_case_14_sessions() -> None:
    """Inputs 100, 250, 400, 550; round two finds 144 of the 149 tokens that were written."""
    sent = workload({"kind": "sessions", "turns": 4})
    records = simulated(sent)
    assert records.requests["prompt_tokens"].tolist() == [100, 250, 400, 550]
    assert records.requests["cached_tokens"].tolist() == [0, 144, 288, 448]
    with_system = workload({"kind": "sessions", "turns": 4, "system": {"prefix_tokens": 1000}})
    assert [[key for key, _ in with_system.prompt(i)].count("sys:0") for i in range(4)] == [1] * 4
    assert roles(with_system, 2) == [SYSTEM, HISTORY, ANSWER, HISTORY, ANSWER, USER]


@pytest.mark.parametrize(
    ("intact", "hits"),
    [
        # Each turn finds what was sent before it, in blocks of 16, but not what follows the first changed token.
        (1.0, [0, 144, 288, 448]),
        (0.5, [0, 112, 272, 416]),  # 125 of the 150 tokens before turn two are as cached, then 275, then 425
        (0.0, [0, 96, 240, 400]),  # the first 100; then the 250 that turn two computed
    ],
)
def test_a_retokenised_answer_is_found_up_to_its_first_changed_token(intact: float, hits: list[int]) -> None:
    sent = workload({"kind": "sessions", "turns": 4, "history": {"kind": "retokenised", "intact": intact}})
    records = simulated(sent)
    assert records.requests["prompt_tokens"].tolist() == [100, 250, 400, 550]
    assert records.requests["cached_tokens"].tolist() == hits


def test_stripped_reasoning_shortens_prompts_and_diverges_at_the_answer() -> None:
    history = {"kind": "reasoning_stripped", "reasoning": 0.8}
    sent = workload({"kind": "sessions", "turns": 4, "history": history})
    assert sent.prompt_tokens.tolist() == [100, 210, 320, 430]
    assert sent.prompt(2) == (("p0", 100), ("fin:0", 10), ("p1", 100), ("fin:1", 10), ("p2", 100))
    assert simulated(sent).requests["cached_tokens"].tolist() == [0, 96, 208, 320]


@pytest.mark.parametrize(
    "history", ["exact", "retokenised", "reasoning_stripped", {"kind": "retokenised", "intact": 0.3}]
)
@pytest.mark.parametrize(("came", "whole"), [(1, 7), (7, 20), (100, 350)])
def test_an_answer_that_ended_early_is_quoted_as_a_shorter_one(history: Any, came: int, whole: int) -> None:
    kind = TypeAdapter(History).validate_python(history)
    pieces = {key.partition(":")[0]: tokens for key, tokens in kind.quote(3, whole)}
    expected = {key.partition(":")[0]: tokens for key, tokens in kind.quote(3, came)}
    found = {kind: tokens for kind, tokens in shorter(pieces, came, whole).items() if tokens}
    assert found.keys() == expected.keys() or sum(found.values()) == sum(expected.values())
    assert all(abs(found.get(kind, 0) - tokens) <= 1 for kind, tokens in expected.items())
    assert sum(found.values()) <= came


def test_history_modes_draw_the_same_conversations() -> None:
    modes = [
        workload({"kind": "sessions", "turns": {"distribution": "uniform", "min": 1, "max": 5}, "history": history}, 40)
        for history in ("exact", "retokenised", "reasoning_stripped")
    ]
    for other in modes[1:]:
        assert np.array_equal(other.follows, modes[0].follows)
        assert np.array_equal(other.output_tokens, modes[0].output_tokens)
    assert np.array_equal(modes[1].prompt_tokens, modes[0].prompt_tokens)


AGENT = {
    "kind": "agents",
    "steps": 3,
    "tool_time": "2s",
    "tool_result": 30,
    "system": {"prefix_tokens": 200},
}


def test_an_agent_repeats_all_before_and_adds_its_tools_result() -> None:
    sent = workload(AGENT, 3)
    assert sent.prompt(2) == (("sys:0", 200), ("p0", 100), ("out:0", 50), ("t0", 30), ("out:1", 50), ("t1", 30))
    assert roles(sent, 2) == [SYSTEM, USER, ANSWER, TOOL, ANSWER, TOOL]
    assert sent.follows.tolist() == [-1, 0, 1]
    assert sent.think_ns.tolist() == [0, 2_000_000_000, 2_000_000_000]
    assert sent.session.tolist() == [0, 0, 0]
    assert sent.joins is None


def test_a_new_turn_of_a_person_makes_history_of_the_one_before() -> None:
    sent = workload(AGENT | {"turns": 2, "steps": 2, "think_time": "9s"}, 4)
    assert [key for key, _ in sent.prompt(2)] == ["sys:0", "p0", "out:0", "t0", "out:1", "p2"]
    assert roles(sent, 2) == [SYSTEM, HISTORY, ANSWER, TOOL, ANSWER, USER]
    assert sent.think_ns.tolist() == [0, 2_000_000_000, 9_000_000_000, 2_000_000_000]


def test_reasoning_stays_while_tools_are_called_and_goes_when_a_person_speaks() -> None:
    sent = workload(AGENT | {"turns": 2, "steps": 2, "history": "reasoning_stripped"}, 4)
    assert sent.prompt(1)[2] == ("out:0", 50)
    assert sent.prompt(2)[2] == ("fin:0", 25)
    assert sent.prompt(3) == (
        ("sys:0", 200),
        ("p0", 100),
        ("fin:0", 25),
        ("t0", 30),
        ("fin:1", 25),
        ("p2", 100),
        ("out:2", 50),
        ("t2", 30),
    )


@pytest.mark.parametrize("fork", ["system", "context"])
def test_sub_agents_work_at_once_and_the_agent_goes_on_when_all_are_done(fork: str) -> None:
    sub = {"count": 2, "steps": 2, "task": 40, "fork": fork}
    sent = workload(AGENT | {"steps": 2, "sub_agents": sub}, 6)
    # 0 calls; 1, 2 and 3, 4 are the sub-agents; 5 is the agent again.
    assert sent.follows.tolist() == [-1, 0, 1, 0, 3, 2]
    assert sent.joins is not None
    assert sent.joins.tolist() == [[5, 4]]
    assert sent.think_ns.tolist() == [0, 0, 2_000_000_000, 0, 2_000_000_000, 0]
    start = (("sys:0", 200),) if fork == "system" else (("sys:0", 200), ("p0", 100), ("out:0", 50))
    assert sent.prompt(1) == (*start, ("a1", 40))
    assert sent.prompt(4) == (*start, ("a3", 40), ("out:3", 50), ("t3", 30))
    assert sent.prompt(5) == (("sys:0", 200), ("p0", 100), ("out:0", 50), ("out:2", 50), ("out:4", 50))
    assert roles(sent, 5) == [SYSTEM, USER, ANSWER, TOOL, TOOL]
    records = simulated(sent)
    finish, arrival = records.requests["finish_ns"], records.requests["arrival_ns"]
    assert arrival[5] == max(finish[2], finish[4])
    assert arrival[1] == arrival[3] == finish[0]
    # A fork of the context finds what its agent has computed.
    found = records.requests["cached_tokens"]
    assert found[1] == (192 if fork == "system" else 336)
    # The results come back behind what the agent had: the texts are known, but not there.
    assert found[5] == 336


def test_requests_cut_the_last_session_and_nobody_waits_for_what_is_not_sent() -> None:
    sub = {"count": 3, "steps": 2, "task": 40, "share": 0.5}
    whole = workload(AGENT | {"turns": 2, "sub_agents": sub}, 60)
    for n in range(1, 30):
        cut = workload(AGENT | {"turns": 2, "sub_agents": sub}, n)
        assert len(cut) == n
        assert cut.follows.tolist() == whole.follows[:n].tolist()
        assert [cut.prompt(i) for i in range(n)] == [whole.prompt(i) for i in range(n)]
        assert cut.joins is None or cut.joins.max() < n
        assert summary(simulated(cut), (50,))["completed"] == n


def test_how_long_tools_take_moves_nothing_else() -> None:
    sub = {"count": {"distribution": "uniform", "min": 1, "max": 3}, "task": 40, "share": 0.5}
    steps = {"distribution": "uniform", "min": 1, "max": 6}
    fast, slow = (workload(AGENT | {"steps": steps, "sub_agents": sub, "tool_time": t}, 50) for t in ("1s", "60s"))
    assert fast.follows.tolist() == slow.follows.tolist()
    assert fast.segment_keys == slow.segment_keys
    assert fast.output_tokens.tolist() == slow.output_tokens.tolist()


@pytest.mark.parametrize(
    ("prompts", "place", "why"),
    [
        ({"kind": "agents", "steps": 1, "tool_result": 9}, "tool_result", "a single step calls no tool"),
        ({"kind": "agents", "steps": 1, "sub_agents": {"task": 9}}, "sub_agents", "a single step calls no tool"),
        ({"kind": "agents", "steps": 2}, "tool_result", "is required and missing"),
        ({"kind": "sessions", "turns": 2, "history": "exactly"}, "history", "exact"),
        ({"kind": "sessions", "turns": 2, "history": {"kind": "retokenised", "intact": 2}}, "intact", "1"),
        ({"kind": "sessions", "turns": 2, "history": {"kind": "reasoning_stripped", "reasoning": 1}}, "reasoning", "1"),
    ],
)
def test_contradictory_prompts_are_refused_with_the_reason(prompts: dict[str, Any], place: str, why: str) -> None:
    section = {"requests": 4, "arrivals": "all_at_once", "input": 100, "output": 50, "prompts": prompts}
    with pytest.raises(ValidationError) as refused:
        scenario(workload=section)
    path, problem = one_message(refused.value, MINIMAL | {"workload": section})
    assert place in path
    assert why in problem


def test_exact_history_leaves_the_hash_as_it_was() -> None:
    def hashed(**fields: Any) -> str:
        prompts = {"kind": "sessions", "turns": 2} | fields
        section = {"requests": 4, "arrivals": "all_at_once", "input": 100, "output": 50, "prompts": prompts}
        return scenario(workload=section).hash()

    assert hashed() == hashed(history="exact")
    assert len({hashed(), hashed(history="retokenised"), hashed(history="reasoning_stripped")}) == 3
