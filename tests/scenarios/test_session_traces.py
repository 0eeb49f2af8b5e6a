"""Traces of sessions: who waits for whom, what prompts repeat, and how malformed files are refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios import InputError, Scenario, generate
from scenarios.workload import Role, Workload
from sim.cluster import simulate
from sim.roofline import Roofline
from tests.scenarios.conftest import MINIMAL

LINES = [
    {
        "session": "a",
        "call": "1",
        "time": 5,
        "system": "v2",
        "system_tokens": 600,
        "user_tokens": 80,
        "output_tokens": 60,
    },
    {"session": "a", "call": "2", "parent": "1", "pause": 3.5, "tool_tokens": 90, "output_tokens": 40},
    {
        "session": "b",
        "call": "1",
        "time": 2,
        "system": "v2",
        "system_tokens": 600,
        "user_tokens": 10,
        "output_tokens": 5,
    },
    {"session": "a", "call": "2.1", "parent": "2", "fork": "system", "task_tokens": 15, "output_tokens": 30},
    {"session": "a", "call": "2.2", "parent": "2", "fork": "system", "task_tokens": 12, "output_tokens": 25},
    {"session": "a", "call": "3", "parent": "2", "results": ["2.1", "2.2"], "output_tokens": 9},
    {"session": "a", "call": "4", "parent": "3", "pause": 20, "user_tokens": 7, "output_tokens": 3},
]


def written(folder: Path, rows: list[Any]) -> Path:
    file = folder / "sessions.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return file


def replayed(file: Path, options: dict[str, Any] | None = None, **fields: Any) -> Workload:
    workload = {"trace": {"path": str(file)} | (options or {})} | fields
    return generate(Scenario.model_validate(MINIMAL | {"engine": {"block_size": 16}, "workload": workload}))


def refusal(file: Path, options: dict[str, Any] | None = None, **fields: Any) -> str:
    with pytest.raises(InputError) as refused:
        replayed(file, options, **fields)
    return str(refused.value)


def test_sessions_start_when_they_say_and_calls_wait_for_those_before_them(tmp_path: Path) -> None:
    sent = replayed(written(tmp_path, LINES))
    # Session b starts first.
    assert sent.arrival_ns.tolist() == [0, 3_000_000_000, -1, -1, -1, -1, -1]
    assert sent.follows.tolist() == [-1, -1, 1, 2, 2, 2, 5]
    assert sent.joins is not None
    assert sent.joins.tolist() == [[5, 3], [5, 4]]
    assert sent.think_ns.tolist() == [0, 0, 3_500_000_000, 0, 0, 0, 20_000_000_000]
    assert sent.session.tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert "7 of 7 requests in 2 sessions" in sent.source


def test_prompts_repeat_their_parents_and_tell_results(tmp_path: Path) -> None:
    sent = replayed(written(tmp_path, LINES))
    assert sent.prompt(0)[0] == sent.prompt(1)[0] == ("sys:v2", 600)
    assert sent.prompt(2) == (("sys:v2", 600), ("p:0/1", 80), ("out:1", 60), ("t:0/2", 90))
    assert sent.prompt(3) == (("sys:v2", 600), ("a:0/2.1", 15))
    assert sent.prompt(5)[4:] == (("out:2", 40), ("out:3", 30), ("out:4", 25))
    assert sent.prompt_tokens.tolist() == [610, 680, 830, 615, 612, 925, 941]
    assert sent.segment_role is not None
    assert sent.segment_offset is not None
    last = sent.segment_role[sent.segment_offset[6] :].tolist()
    assert last == [
        Role.SYSTEM,
        Role.HISTORY,
        Role.ANSWER,
        Role.TOOL,
        Role.ANSWER,
        Role.TOOL,
        Role.TOOL,
        Role.ANSWER,
        Role.USER,
    ]
    case = Scenario.model_validate(MINIMAL | {"engine": {"block_size": 16}})
    records = simulate(case.engine_config(), sent, Roofline(case.model, case.hardware, dtype="bfloat16"))
    assert (records.requests["finish_ns"] > 0).all()
    assert records.requests["cached_tokens"].tolist()[2:] == [736, 592, 592, 864, 928]


def test_history_caps_and_transforms_hold_for_recorded_sessions_too(tmp_path: Path) -> None:
    file = written(tmp_path, LINES)
    stripped = replayed(file, {"history": "reasoning_stripped"})
    assert ("fin:1", 30) in stripped.prompt(6)
    assert ("out:1", 60) in stripped.prompt(2)
    capped = replayed(file, transforms=[{"kind": "cap_output", "tokens": 20}])
    assert ("out:1", 20) in capped.prompt(2)
    assert capped.changes[0]["output_tokens_saved"] == 40 + 20 + 10 + 5
    trimmed = replayed(file, transforms=[{"kind": "trim_tool_results", "tokens": 16}])
    assert ("t:0/2", 16) in trimmed.prompt(2)


def test_starts_that_the_trace_does_not_say_are_generated(tmp_path: Path) -> None:
    file = written(tmp_path, [{k: v for k, v in row.items() if k != "time"} for row in LINES])
    assert "do not say when they start; say it in workload.arrivals" in refusal(file)
    sent = replayed(file, arrivals={"process": "constant", "rate": 0.5})
    assert sent.arrival_ns.tolist() == [0, -1, -1, -1, -1, -1, 2_000_000_000]
    faster = replayed(file, {"speedup": 4}, arrivals={"process": "constant", "rate": 0.5})
    assert faster.arrival_ns.tolist() == [0, -1, -1, -1, -1, -1, 500_000_000]
    assert faster.think_ns.tolist() == sent.think_ns.tolist()
    short = {"process": "staged", "stages": [{"rate": 1, "duration": "1s"}]}
    assert "holds 1 starts, but there are 2 sessions; lengthen it" in refusal(file, arrivals=short)


def test_a_call_that_failed_is_not_sent_and_nobody_waits_for_it(tmp_path: Path) -> None:
    rows = [dict(row) for row in LINES]
    rows[1]["output_tokens"] = 0
    sent = replayed(written(tmp_path, rows))
    assert len(sent) == 6
    assert "1 calls without an answer are not sent (line 2)" in sent.source
    # Its sub-agents wait for its own parent, and for the tool that it waited for.
    assert sent.follows.tolist() == [-1, -1, 1, 1, 1, 4]
    assert sent.think_ns.tolist()[2:5] == [3_500_000_000] * 3
    assert [key for key, _ in sent.prompt(4)] == ["sys:v2", "p:0/1", "out:1", "t:0/2", "out:2", "out:3"]


def test_lengths_are_scaled_to_fit_and_prefixes_stay(tmp_path: Path) -> None:
    file = written(tmp_path, LINES)
    workload = {"trace": {"path": str(file), "length_scale": "fit"}}
    engine = {"block_size": 16, "max_model_len": 300}
    sent = generate(Scenario.model_validate(MINIMAL | {"engine": engine, "workload": workload}))
    assert (sent.prompt_tokens + sent.output_tokens).max() <= 300
    assert (sent.prompt_tokens + sent.output_tokens).max() > 280
    assert sent.prompt(6)[:4] == sent.prompt(2)
    assert replayed(file, {"limit": 3}).follows.tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        (2, {"parent": "9"}, "line 2: parent: found '9', but an earlier call of the same session"),
        (2, {"parent": None}, "line 2: parent: found nothing"),
        (2, {"time": 3}, "line 2: time: found 3, but only the first call of a session has it; leave it out"),
        (1, {"pause": 3}, "line 1: pause: found 3, but the first call of a session waits for none; leave it out"),
        (2, {"call": "1"}, "line 2: call: found '1', but a name that no other call of its session has is needed"),
        (2, {"tool_tokens": -1}, "line 2: tool_tokens: found -1, but a whole number, 0 or more, is needed"),
        (2, {"tool_tokens": 1.5}, "line 2: tool_tokens: found 1.5"),
        (2, {"output_tokens": None}, "line 2: output_tokens: found nothing"),
        (2, {"pause": -1}, "line 2: pause: found -1, but 0 or more is needed"),
        (2, {"pause": "3s"}, "line 2: pause: found '3s', but a finite number is needed"),
        (2, {"pauze": 3}, "line 2: unknown field 'pauze': did you mean 'pause'?"),
        (4, {"fork": "all"}, "line 4: fork: found 'all', but context or system is needed"),
        (6, {"results": "2.1"}, "line 6: results: found '2.1', but a list of calls is needed"),
        (6, {"results": ["7"]}, "line 6: results: found '7', but an earlier call of the same session"),
        (1, {"system_tokens": 0}, "line 1: system: found 'v2', but a name and system_tokens above 0, or neither"),
        (3, {"time": 1e30}, "line 3: time: found 1e+30"),
    ],
)
def test_malformed_calls_are_refused_by_line_and_field(
    tmp_path: Path, line: int, change: dict[str, Any], said: str
) -> None:
    rows = [dict(row) for row in LINES]
    rows[line - 1] |= change
    message = refusal(written(tmp_path, rows), {"format": "sessions"})
    assert message.startswith(f"{tmp_path / 'sessions.jsonl'}: ")
    assert said in message


def test_a_call_without_a_name_is_still_a_call(tmp_path: Path) -> None:
    said = refusal(written(tmp_path, [{"session": "a", "time": 0, "user_tokens": 80, "output_tokens": 60}]))
    assert "line 1: call: found" in said


def test_other_malformed_sessions_are_refused(tmp_path: Path) -> None:
    rows = [dict(row) for row in LINES]
    del rows[2]["time"]
    assert "line 3: time: is missing, but other sessions have one" in refusal(written(tmp_path, rows))
    assert "line 2: not valid JSON" in refusal(written(tmp_path, [LINES[0], '{"session": "a", ']))
    rows = [{"session": "a", "call": 1, "user_tokens": 4, "output_tokens": 0}]
    assert "not one of its calls has both a prompt and an answer" in refusal(written(tmp_path, rows))
    empty = [{"session": "a", "call": 1, "output_tokens": 3}]
    assert "line 1: its prompt is empty" in refusal(written(tmp_path, empty))


def weka(*requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": list(requests)} | fields


def asked(t: float, tokens: int, output: int, first: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "t": t,
        "type": "n",
        "in": tokens,
        "out": output,
        "hash_ids": [*range(first, first + tokens // 64)],
    } | fields


STARTS = {"arrivals": {"process": "constant", "rate": 1}}


def test_recorded_coding_agents_wait_think_and_share_their_own_blocks(tmp_path: Path) -> None:
    first = weka(asked(0, 200, 9, api_time=2.0), asked(5, 260, 8, think_time=2.5), asked(9, 330, 7))
    sent = replayed(written(tmp_path, [first, first]), **STARTS)
    assert sent.follows.tolist() == [-1, 0, 1, -1, 3, 4]
    assert sent.arrival_ns.tolist() == [0, -1, -1, 1_000_000_000, -1, -1]
    # As said; where nothing is said, what is left between the recorded times.
    assert sent.think_ns.tolist()[:3] == [0, 2_500_000_000, 4_000_000_000]
    assert sent.prompt(1)[:3] == sent.prompt(0)[:3]
    assert sent.prompt(0)[0] != sent.prompt(3)[0]
    known = weka(asked(0, 200, 9), hash_id_scope="global")
    both = replayed(written(tmp_path, [known, known]), **STARTS)
    assert both.prompt(0)[0] == both.prompt(1)[0]


def test_recorded_sub_agents_work_at_once_and_failed_requests_are_left_out(tmp_path: Path) -> None:
    sub = {"type": "subagent", "t": 3.0, "requests": [asked(3, 100, 5, 50, api_time=1), asked(6, 170, 5, 50)]}
    failed = asked(11, 300, 0)
    session = weka(
        asked(0, 200, 9, api_time=2.0), sub, sub, asked(10, 290, 8, think_time=1.0), failed, asked(12, 300, 4)
    )
    sent = replayed(written(tmp_path, [session]), **STARTS)
    assert sent.follows.tolist() == [-1, 0, 1, 0, 3, 0, 5]
    assert sent.joins is not None
    assert sent.joins.tolist() == [[5, 2], [5, 4]]
    assert sent.think_ns.tolist() == [0, 1_000_000_000, 2_000_000_000, 1_000_000_000, 2_000_000_000, 0, 2_000_000_000]
    assert "1 requests without input or output are not sent (line 1)" in sent.source


@pytest.mark.parametrize(
    ("session", "said"),
    [
        (weka(asked(0, 200, 9) | {"in": -1}), "line 1: requests[0].in: found -1"),
        (
            weka(asked(0, 200, 9), asked(1, 200, 9, hash_ids=[1])),
            "line 1: requests[1].hash_ids: found 1, but one for each of 3",
        ),
        (weka(asked(0, 200, 9, think_time=-3)), "line 1: requests[0].think_time: found -3"),
        (
            weka({"type": "subagent", "t": 1}),
            "line 1: requests[0].requests: found nothing, but a list of requests is needed",
        ),
        (weka(asked(0, 200, 9), block_size=0), "line 1: block_size: found 0"),
        (
            weka(asked(0, 200, 9), hash_id_scope="here"),
            "line 1: hash_id_scope: found 'here', but local or global is needed",
        ),
    ],
)
def test_malformed_coding_agents_are_refused_by_line_and_request(tmp_path: Path, session: Any, said: str) -> None:
    assert said in refusal(written(tmp_path, [session]), **STARTS)


def test_the_public_coding_agents_are_read(data: Path) -> None:
    file = data / "traces" / "agentic" / "weka_sessions_12.jsonl.gz"
    sent = replayed(file, arrivals={"process": "poisson", "rate": 0.1})
    with gzip.open(file, "rt") as lines:
        recorded = [request for line in lines for request in json.loads(line)["requests"]]
    assert len(sent) == len(recorded)
    assert sorted(sent.prompt_tokens.tolist()) == sorted(request["in"] for request in recorded)
    assert np.isclose((sent.prompt_tokens > 90_000).mean(), 0.51, atol=0.01)


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_burstgpt_says_models_and_kinds_of_log_and_drops_failures(tmp_path: Path) -> None:
    file = tmp_path / "burst.csv"
    file.write_text(
        BURST
        + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118.5,GPT-4,417,276,693,API log\n"
    )
    sent = replayed(file)
    assert sent.arrival_ns.tolist() == [0, 113_500_000_000]
    assert sent.prompt_tokens.tolist() == [472, 417]
    assert [sent.tenants[i] for i in sent.tenant.tolist()] == ["ChatGPT", "GPT-4"]
    assert sent.service_class is not None
    assert [sent.classes[i] for i in sent.service_class.tolist()] == ["Conversation log", "API log"]
    assert "1 without output tokens (line 3)" in sent.source


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            "5,ChatGPT,472,18,500,Conversation log\n",
            "line 2: Total tokens: found 500, but request and response have 472 + 18",
        ),
        ("5,ChatGPT,x,18,490,Conversation log\n", "line 2: Request tokens: found 'x', but a number is needed"),
        ("5,ChatGPT,472,18,490\n", "line 2: found 5 values, but the header has 6"),
        ("5,ChatGPT,472,-18,454,API log\n", "line 2: Response tokens: found '-18', but a number of tokens is needed"),
    ],
)
def test_malformed_burstgpt_is_refused_by_line(tmp_path: Path, rows: str, said: str) -> None:
    file = tmp_path / "burst.csv"
    file.write_text(BURST + rows)
    assert said in refusal(file)


def test_the_public_burstgpt_rows_are_read(data: Path) -> None:
    sent = replayed(data / "traces" / "burstgpt" / "BurstGPT_1.head3.csv")
    assert sent.output_tokens.tolist() == [18, 230, 276]


def test_history_means_nothing_to_a_trace_without_answers(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrival,prompt_tokens,output_tokens\n0,100,10\n")
    message = refusal(file, {"time_unit": "s", "history": "retokenised"})
    assert "history: found retokenised, but a trace of format csv does not say which text was an answer" in message
