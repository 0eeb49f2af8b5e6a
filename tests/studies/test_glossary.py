"""Every figure that a run exports is explained once; any tool's word finds ours; docs/metrics.md is what the entries say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import scenarios
import studies
from cli import main
from scenarios.errors import InputError
from studies import glossary

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
KINDS_OF_RUNS = {
    "plain": [],
    "with drafts": ["engine.speculation={method: ngram, k: 3, acceptance: 0.6}"],
    "with swapping": ["engine.preemption=swap"],
    "without a prefix cache": ["engine.enable_prefix_caching=false"],
}


@pytest.mark.parametrize("changes", KINDS_OF_RUNS.values(), ids=KINDS_OF_RUNS)
def test_every_exported_figure_is_explained_by_one_entry(changes):
    keys = studies.simulate(scenarios.load("demo", overrides=changes)).summary
    explained = {key: [found.term for found in glossary.entries() if found.holds(key)] for key in keys}
    assert {key: terms for key, terms in explained.items() if len(terms) != 1} == {}


def test_no_two_entries_share_a_name():
    names = Counter(name.lower() for found in glossary.entries() for name in (found.term, found.name))
    assert [name for name, count in names.items() if count > 1] == []


def test_what_an_entry_says_to_read_next_is_there():
    terms = {found.term for found in glossary.entries()}
    for found in glossary.entries():
        assert set(found.see) <= terms - {found.term}, found.term


def test_every_entry_is_in_a_group_that_is_told():
    assert [e for found in glossary.groups().values() for e in found if e not in glossary.entries()] == []
    assert sum(map(len, glossary.groups().values())) == len(glossary.entries())


@pytest.mark.parametrize(
    ("asked", "term"),
    [
        ("ttft", "TTFT"),
        ("p95_ttft_ms", "TTFT"),
        ("time per output token", "TPOT"),
        ("in-flight batching", "continuous batching"),
        ("generation phase", "decode"),
        ("chunked context", "chunked prefill"),
        ("usd_per_1m_output_tokens", "cost per 1M tokens"),
        ("output speed", "interactivity"),
        ("bottleneck", "binding resource"),
    ],
)
def test_any_word_finds_ours(asked, term):
    assert glossary.search(asked)[0].term == term


def test_a_figure_of_a_class_is_explained_as_the_figure():
    found = glossary.of_key("by_class.chat.p95_ttft_ms")
    assert found is not None
    assert found.term == "TTFT"


def test_inter_token_latency_of_other_tools_is_told_apart():
    meant = {other.tool: found.term for found in glossary.entries() for other in found.others if other.same}
    rows = {(row[0], row[1]): (row[2], row[3]) for row in glossary.words_of_others().rows}
    assert rows["AIPerf / GenAI-Perf", "inter token latency (ITL)"] == ("TPOT", "yes")
    assert rows["GuideLLM", "time per output token"] == ("TPOT", "no")
    assert meant["AIPerf / GenAI-Perf"]


def test_a_term_that_there_is_not_names_those_that_are_near():
    with pytest.raises(InputError, match=r"no such term; did you mean KV capacity"):
        glossary.entry("capacity")
    with pytest.raises(InputError, match="unknown term"):
        glossary.entry("zzz")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    found = capsys.readouterr()
    return ended.value.code, " ".join(found.out.split()), found.err


def test_the_command_tells_a_term_and_lists_all(capsys):
    code, text, _ = run(capsys, "glossary", "inter chunk latency")
    assert (code, "gaps between two deliveries" in text) == (0, True)
    code, text, _ = run(capsys, "glossary", "--json")
    assert (code, len(json.loads(text))) == (0, len(glossary.entries()))
    code, _, said = run(capsys, "glossary", "zzz")
    assert (code, "unknown term" in said) == (2, True)


def test_the_page_is_what_the_entries_say():
    # python -c "from studies import glossary; open('docs/metrics.md', 'w').write(glossary.page())" writes it anew.
    assert PAGE.read_text(encoding="utf-8") == glossary.page()
