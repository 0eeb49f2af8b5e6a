"""Whether a conversation's KV is still there when its next request comes, and what the report says of it."""

from pathlib import Path
from typing import Any

import pytest

import studies
from scenarios import Scenario
from studies import results
from studies.aspects.conversations import tables_of
from studies.results import Run
from studies.run import replayed
from studies.workload_files import load_workload

AGENT = {
    "kind": "agents",
    "steps": 4,
    "tool_time": "5s",
    "tool_result": 64,
    "system": {"prefix_tokens": 256},
}


def run(prompts: dict[str, Any], blocks: int = 4000, requests: int = 12, **fields: Any) -> Run:
    workload = {"arrivals": "all_at_once", "input": 100, "output": 50, "prompts": prompts, "requests": requests}
    return studies.simulate(
        Scenario.model_validate(
            {
                "model": "qwen3-tiny",
                "hardware": "cpu",
                "engine": {"num_gpu_blocks": blocks, "block_size": 16, "max_model_len": 1200},
                "workload": workload | fields,
            }
        )
    )


def rows(found: Run) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["after"], row["pause"]): row for row in found.info["conversations"]["follow_ups"]}


def test_a_cache_with_room_keeps_everything_across_tool_pauses() -> None:
    found = run(AGENT)
    assert list(rows(found)) == [("a tool", "1 to 10 s")]
    row = rows(found)["a tool", "1 to 10 s"]
    # Three sessions; before each call all but the block in which the new text begins was sent or answered: 400, 512, 624.
    assert (row["requests"], row["known"], row["found"]) == (9, 3 * (400 + 512 + 624), 3 * (400 + 512 + 624))
    assert found.summary["kv_survival_percent"] == 100


def test_a_full_cache_forgets_what_waits_for_its_tool() -> None:
    crowded = run(AGENT, blocks=90, requests=48)
    assert crowded.summary["kv_survival_percent"] < 60


def test_pauses_of_people_and_tools_are_told_apart() -> None:
    found = run(AGENT | {"turns": 2, "steps": 2, "think_time": "100s"})
    assert list(rows(found)) == [("a person", "1 to 10 min"), ("a tool", "1 to 10 s")]


def test_an_agents_pause_lasts_as_long_as_its_sub_agents_work() -> None:
    found = run(AGENT | {"steps": 2, "sub_agents": {"count": 2, "steps": 4, "task": 30}}, requests=10)
    assert list(rows(found)) == [
        ("a tool", "1 to 10 s"),
        ("sub-agents", "10 to 60 s"),
        ("a sub-agent's task", "under 1 s"),
    ]
    assert rows(found)["sub-agents", "10 to 60 s"]["found"] == 400
    # A sub-agent that begins with the system prompt alone shares that much, another one of the same session included.
    assert rows(found)["a sub-agent's task", "under 1 s"]["known"] == 2 * 256


@pytest.mark.parametrize(("history", "share"), [("exact", 1.0), ("reasoning_stripped", 0.0)])
def test_the_report_says_how_much_of_answers_comes_back(history: str, share: float) -> None:
    found = run({"kind": "sessions", "turns": 3, "history": history}, requests=9)
    told = found.info["conversations"]
    assert told["unchanged"] == share * told["quoted"]
    [table] = tables_of(found)
    assert f"{share:.0%}".replace("%", " %").replace("0 %", "0.0 %" if not share else "0 %") in table.note


def test_what_was_stripped_is_neither_known_nor_missed() -> None:
    """The next prompt diverges at the answer: only what stands before it can be found, and it is."""
    stripped = run({"kind": "sessions", "turns": 2, "history": "reasoning_stripped"}, requests=2)
    [row] = rows(stripped).values()
    assert (row["known"], row["found"]) == (96, 96)


def test_without_conversations_nothing_is_said() -> None:
    alone = run({"kind": "unique"})
    assert alone.info["conversations"] is None
    assert "kv_survival_percent" not in alone.summary
    assert tables_of(alone) == []


def test_the_report_says_what_transforms_changed() -> None:
    found = run(AGENT, transforms=[{"kind": "trim_tool_results", "tokens": 16}, {"kind": "cap_output", "tokens": 20}])
    table = tables_of(found)[-1]
    assert table.title == "Transforms"
    assert [row[0] for row in table.rows] == ["cap_output to 20 tokens", "trim_tool_results to 16 tokens"]
    assert table.rows[0][1:] == ("12", "540", "360")
    assert table.rows[1][1:] == ("9", "864", "0")


def test_a_saved_run_knows_who_waited_for_whom_and_replays(tmp_path: Path) -> None:
    found = run(AGENT | {"steps": 3, "sub_agents": {"count": 2, "task": 30}})
    folder = results.save(found, tmp_path / "out")
    loaded, sent = results.load(folder), load_workload(folder)
    assert found.workload is not None
    assert found.workload.joins is not None
    assert sent.joins is not None
    assert sent.joins.tolist() == found.workload.joins.tolist()
    assert loaded.info["conversations"] == found.info["conversations"]
    assert replayed(loaded, sent).identical
