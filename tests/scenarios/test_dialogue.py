"""What an application may leave out of a prompt, and what that does to the beginning that it shares with the one before."""

from itertools import pairwise

import pytest

from scenarios.dialogue import (
    Dialogue,
    break_prefix,
    cap_output,
    drop_stale_turns,
    quote_what_was_said,
    stabilise,
    trim_tool_results,
    turn_starts,
)
from scenarios.workload import Role

USER, SYSTEM, HISTORY, ANSWER, TOOL = Role.USER, Role.SYSTEM, Role.HISTORY, Role.ANSWER, Role.TOOL


def conversation(turn: int) -> Dialogue:
    """The prompt of a turn: a system prompt, then every earlier turn with one tool call, then what is new."""
    segments, roles = [("sys", 100)], [SYSTEM]
    for k in range(turn):
        segments += [(f"p{k}", 10), (f"call{k}", 5), (f"tool{k}", 200), (f"out{k}", 20)]
        roles += [HISTORY, ANSWER, TOOL, ANSWER]
    return Dialogue((*segments, (f"p{turn}", 10)), (*roles, USER))


def shared(one: Dialogue, other: Dialogue) -> int:
    """Tokens of the beginning that two prompts have in common."""
    tokens = 0
    for a, b in zip(one.segments, other.segments, strict=False):
        if a[0] != b[0]:
            return tokens
        tokens += min(a[1], b[1])
        if a[1] != b[1]:
            return tokens
    return tokens


def test_a_turn_is_what_the_user_said_with_all_that_came_of_it() -> None:
    assert turn_starts(conversation(2).roles) == [1, 5, 9]
    assert turn_starts((SYSTEM, USER, ANSWER, TOOL, ANSWER, TOOL)) == [1]
    assert turn_starts((SYSTEM, HISTORY, HISTORY, ANSWER, USER)) == [1, 4]


def test_dropping_stale_turns_keeps_the_system_prompt_and_the_last_turns_whole() -> None:
    kept = drop_stale_turns(conversation(3), keep_last=1)
    assert [key for key, _ in kept.segments] == ["sys", "p2", "call2", "tool2", "out2", "p3"]
    assert kept.roles == (SYSTEM, HISTORY, ANSWER, TOOL, ANSWER, USER)
    assert drop_stale_turns(conversation(3), keep_last=0).segments == (("sys", 100), ("p3", 10))
    assert drop_stale_turns(conversation(3), keep_last=3) == conversation(3)


def test_dropping_a_turn_with_every_new_one_shares_only_the_system_prompt() -> None:
    prompts = [drop_stale_turns(conversation(turn), keep_last=2) for turn in range(6)]
    assert [shared(a, b) for a, b in pairwise(prompts[2:])] == [100, 100, 100]


def test_dropping_many_at_once_shares_the_beginning_between() -> None:
    prompts = [drop_stale_turns(conversation(turn), keep_last=1, above=3) for turn in range(12)]
    turns = [len(turn_starts(p.roles)) - 1 for p in prompts]
    assert turns == [0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]
    lost = [shared(a, b) == 100 for a, b in pairwise(prompts[1:])]
    assert lost == [False, False, True, False, False, True, False, False, True, False]


def test_a_tool_result_that_is_cut_when_it_comes_leaves_the_beginning_alone() -> None:
    cut = [trim_tool_results(conversation(turn), tokens=50) for turn in (2, 3)]
    assert [size for key, size in cut[1].segments if key.startswith("tool")] == [50, 50, 50]
    assert shared(*cut) == cut[0].tokens


def test_old_tool_results_that_are_cleared_later_break_the_beginning() -> None:
    cleared = [trim_tool_results(conversation(turn), keep_last=1, stub_tokens=8) for turn in (2, 3)]
    assert [size for _, size in cleared[1].segments] == [100, 10, 5, 8, 20, 10, 5, 8, 20, 10, 5, 200, 20, 10]
    assert cleared[0].tokens < conversation(2).tokens
    assert shared(*cleared) == 100 + 10 + 5 + 8 + 20 + 10 + 5
    assert trim_tool_results(conversation(1), keep_last=0).segments == (
        ("sys", 100),
        ("p0", 10),
        ("call0", 5),
        ("out0", 20),
        ("p1", 10),
    )


def test_an_answer_that_was_cut_is_quoted_as_long_as_it_became() -> None:
    quoted = quote_what_was_said(conversation(1), {"out0": 7, "call0": 0})
    assert quoted.segments == (("sys", 100), ("p0", 10), ("tool0", 200), ("out0", 7), ("p1", 10))
    assert (cap_output(500, 20), cap_output(10, 20)) == (20, 10)


@pytest.mark.parametrize(("at", "common"), [(0, 0), (30, 30), (100, 100), (500, 100)])
def test_a_timestamp_breaks_the_prefix_where_it_stands(at: int, common: int) -> None:
    stamped = [break_prefix(conversation(turn), f"now{turn}", 12, at) for turn in (1, 2)]
    assert shared(*stamped) == common
    assert [p.tokens for p in stamped] == [conversation(turn).tokens + 12 for turn in (1, 2)]
    same = [break_prefix(conversation(turn), "today", 12, at) for turn in (1, 2)]
    assert shared(*same) == conversation(1).tokens + 12


def test_a_prompt_that_is_all_system_prompt_is_stamped_at_its_end() -> None:
    assert break_prefix(Dialogue((("s", 5),), (SYSTEM,)), "now", 2, 9).segments == (("s", 5), ("now", 2))


def test_stabilised_what_changes_with_every_prompt_stands_behind_everything() -> None:
    stamped = [break_prefix(conversation(turn), f"now{turn}", 12, 30) for turn in (1, 2)]
    stable = [stabilise(p, {"sys": 2, "sys@30": 2, "now1": 0, "now2": 0}) for p in stamped]
    assert shared(*stable) == conversation(1).tokens
    assert stable[0].segments[-1] == ("now1", 12)
    assert [p.tokens for p in stable] == [p.tokens for p in stamped]


def test_stabilised_what_a_conversation_keeps_stands_behind_what_all_share() -> None:
    prompt = break_prefix(conversation(0), "name", 12, 30)
    assert stabilise(prompt, {"name": 1}).segments == (("sys", 30), ("sys@30", 70), ("name", 12), ("p0", 10))
