"""Transforms of a workload: what they change, what they say of it, and what of the prompts is still found in the cache."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from scenarios import InputError, Scenario, generate
from scenarios.errors import one_message
from scenarios.workload import Workload
from serving.records import Records
from sim.cluster import simulate
from sim.roofline import Roofline
from tests.scenarios.conftest import MINIMAL

TALK = {"kind": "sessions", "turns": 6, "system": {"prefix_tokens": 320}}
AGENT = {"kind": "agents", "steps": 4, "tool_result": 160, "tool_time": "1s", "system": {"prefix_tokens": 320}}


def scenario(prompts: Any = "unique", *transforms: Any, **fields: Any) -> Scenario:
    section: dict[str, Any] = {"requests": 6, "arrivals": "all_at_once", "input": 160, "output": 80, "prompts": prompts}
    section |= {"transforms": list(transforms)} if transforms else {}
    return Scenario.model_validate(MINIMAL | {"engine": {"block_size": 16}, "workload": section | fields})


def workload(prompts: Any = "unique", *transforms: Any, **fields: Any) -> Workload:
    return generate(scenario(prompts, *transforms, **fields))


def simulated(sent: Workload) -> Records:
    case = scenario()
    return simulate(case.engine_config(), sent, Roofline(case.model, case.hardware, dtype="bfloat16"))


def hit_share(sent: Workload) -> float:
    requests = simulated(sent).requests
    return float(requests["cached_tokens"].sum() / requests["prompt_tokens"].sum())


def test_a_capped_answer_is_shorter_in_the_prompts_that_quote_it_too() -> None:
    sent = workload(TALK, {"kind": "cap_output", "tokens": 32})
    assert sent.max_tokens.tolist() == [32] * 6
    assert sent.output_tokens.tolist() == [80] * 6
    assert sent.prompt(2)[:5] == (("sys:0", 320), ("p0", 160), ("out:0", 32), ("p1", 160), ("out:1", 32))
    [change] = sent.changes
    assert change == {
        "transform": "cap_output to 32 tokens",
        "requests_changed": 6,
        "prompt_tokens_saved": 48 * (1 + 2 + 3 + 4 + 5),
        "output_tokens_saved": 48 * 6,
        "prompt_tokens": int(workload(TALK).prompt_tokens.sum()) - 48 * 15,
        "output_tokens": 32 * 6,
    }
    assert simulated(sent).requests["output_tokens"].tolist() == [32] * 6


def test_dropping_stale_turns_saves_prompt_tokens_and_loses_the_cache() -> None:
    whole, dropped = workload(TALK), workload(TALK, {"kind": "drop_stale_turns", "keep_last": 1})
    batched = workload(TALK, {"kind": "drop_stale_turns", "keep_last": 1, "above": 3})
    assert dropped.prompt_tokens.tolist() == [480, 720, 720, 720, 720, 720]
    assert batched.prompt_tokens.tolist() == [480, 720, 960, 1200, 720, 960]
    assert dropped.changes[0]["prompt_tokens_saved"] == 240 * (1 + 2 + 3 + 4)
    assert dropped.changes[0]["requests_changed"] == 4
    # Nothing but the system prompt is found once a turn was dropped, where turns go one by one.
    found = [simulated(sent).requests["cached_tokens"].tolist() for sent in (whole, dropped, batched)]
    assert found[0] == [0, 544, 784, 1024, 1264, 1504]
    assert found[1] == [0, 544, 320, 320, 320, 320]
    assert found[2] == [0, 544, 784, 1024, 320, 784]


def test_trimmed_tool_results_are_shorter_and_still_found() -> None:
    whole, cut = (workload(AGENT, *t, requests=4) for t in ((), ({"kind": "trim_tool_results", "tokens": 16},)))
    assert (whole.prompt_tokens - cut.prompt_tokens).tolist() == [0, 144, 288, 432]
    assert cut.changes[0]["prompt_tokens_saved"] == 864
    # After a tool's call all is found that was sent before it and answered, but for the block in which the new text begins.
    assert simulated(cut).requests["cached_tokens"].tolist() == [0, 544, 640, 736]
    cleared = workload(AGENT, {"kind": "trim_tool_results", "keep_last": 1, "stub_tokens": 16}, requests=4)
    assert simulated(cleared).requests["cached_tokens"].tolist()[2:] == [560, 656]


@pytest.mark.parametrize(("at", "found"), [(0, 0), (160, 160)])
def test_a_timestamp_in_the_system_prompt_takes_all_hits_behind_it(at: int, found: int) -> None:
    stamped = workload(TALK, {"kind": "break_prefix", "tokens": 16, "at": at})
    assert stamped.prompt_tokens.tolist() == (workload(TALK).prompt_tokens + 16).tolist()
    assert set(simulated(stamped).requests["cached_tokens"].tolist()[1:]) == {found}
    assert stamped.changes[0]["prompt_tokens_saved"] == -16 * 6


def test_stabilised_the_prefix_is_found_again() -> None:
    broken = {"kind": "break_prefix", "tokens": 16}
    sent = workload(TALK, broken, "stabilise")
    assert hit_share(workload(TALK, broken)) == 0
    # But for each last answer: it stands behind the timestamp, which the next prompt has somewhere else.
    assert 0.9 * hit_share(workload(TALK)) < hit_share(sent) < hit_share(workload(TALK))
    assert [change["transform"] for change in sent.changes] == [
        "break_prefix with 16 tokens a request behind 0",
        "stabilise",
    ]


def test_a_name_in_the_system_prompt_is_found_in_its_own_session_only() -> None:
    named = workload(TALK, {"kind": "break_prefix", "tokens": 16, "per": "session"}, requests=12)
    found = simulated(named).requests["cached_tokens"].tolist()
    assert [found[0], found[6]] == [0, 0]
    assert found[1] > 480
    stable = workload(TALK, {"kind": "break_prefix", "tokens": 16, "per": "session"}, "stabilise", requests=12)
    assert stable.prompt(7)[:2] == (("sys:0", 320), ("now:s1", 16))
    assert [change["requests_changed"] for change in stable.changes] == [12, 12]


def test_more_is_sent_at_the_same_time() -> None:
    closed = workload(
        "unique",
        {"kind": "raise_concurrency", "factor": 2.5},
        arrivals={"process": "closed_loop", "concurrency": 2},
    )
    assert closed.concurrency == 5
    rate = {"process": "constant", "rate": 1}
    open_loop = workload("unique", {"kind": "raise_concurrency", "factor": 2}, arrivals=rate)
    assert np.array_equal(open_loop.arrival_ns, workload(arrivals=rate).arrival_ns // 2)


def test_transforms_draw_nothing_and_leave_hashes_of_scenarios_without_any_alone() -> None:
    plain, capped = workload(TALK), workload(TALK, {"kind": "cap_output", "tokens": 8})
    assert np.array_equal(plain.output_tokens, capped.output_tokens)
    assert np.array_equal(plain.follows, capped.follows)
    assert scenario(TALK).hash() == scenario(TALK, transforms=[]).hash()
    assert scenario(TALK).hash() != scenario(TALK, {"kind": "cap_output", "tokens": 8}).hash()


@pytest.mark.parametrize(
    ("prompts", "transform", "place", "why"),
    [
        (TALK, {"kind": "cap_output", "tokens": 99_999_999}, "tokens", "it would cap nothing"),
        (TALK, {"kind": "trim_tool_results", "tokens": 9}, "transforms", "hold no tool results"),
        ("unique", {"kind": "drop_stale_turns", "keep_last": 1}, "transforms", "no earlier turns"),
        (AGENT, {"kind": "drop_stale_turns", "keep_last": 1}, "transforms", "no earlier turns"),
        (TALK, "stabilise", "transforms", "put break_prefix before it"),
        (TALK, {"kind": "drop_stale_turns", "keep_last": 3, "above": 2}, "above", "below keep_last 3"),
        (AGENT, {"kind": "trim_tool_results"}, "tokens", "needs tokens"),
        (AGENT, {"kind": "trim_tool_results", "tokens": 5, "stub_tokens": 5}, "stub_tokens", "keep_last"),
        (TALK, {"kind": "raise_concurrency", "factor": 1}, "factor", "1"),
        (TALK, "stabilize", "transforms", "stabilise"),
    ],
)
def test_transforms_that_would_change_nothing_are_refused(prompts: Any, transform: Any, place: str, why: str) -> None:
    section = {"requests": 6, "arrivals": "all_at_once", "input": 160, "output": 80, "prompts": prompts}
    section |= {"transforms": [transform]}
    with pytest.raises(ValidationError) as refused:
        Scenario.model_validate(MINIMAL | {"workload": section})
    path, problem = one_message(refused.value, MINIMAL | {"workload": section})
    assert place in path
    assert why in problem


def test_a_cap_above_what_clients_declare_is_refused() -> None:
    with pytest.raises(ValidationError, match="clients declare no more than max_tokens 50"):
        scenario(TALK, {"kind": "cap_output", "tokens": 50}, max_tokens=50)


def test_a_trace_that_does_not_say_what_prompts_are_made_of_keeps_its_turns(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival,prompt_tokens,output_tokens\n0,100,10\n1,100,30\n")
    trace = {"path": str(file), "time_unit": "s"}

    def replayed(*transforms: Any) -> Workload:
        section = {"trace": trace, "transforms": list(transforms)}
        return generate(Scenario.model_validate(MINIMAL | {"workload": section}))

    with pytest.raises(InputError, match="drop_stale_turns needs to know what the parts of a prompt are"):
        replayed({"kind": "drop_stale_turns", "keep_last": 1})
    assert replayed({"kind": "cap_output", "tokens": 20}).max_tokens.tolist() == [10, 20]
    assert replayed({"kind": "break_prefix"}).prompt_tokens.tolist() == [112, 112]
