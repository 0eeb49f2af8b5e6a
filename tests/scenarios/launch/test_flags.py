"""Flags are read in every spelling that engines take; what is not modelled is named with what it would change."""

from __future__ import annotations

import pytest

from scenarios.launch.arguments import read_arguments
from scenarios.launch.flags import integer
from scenarios.launch.sglang_flags import SGLANG
from scenarios.launch.vllm_flags import VLLM


def given(text, table=VLLM):
    return {name: said.value for name, said in read_arguments(table, text.split(), {}).given.items()}


@pytest.mark.parametrize(
    "spelling", ["--tensor-parallel-size 2", "--tensor_parallel_size=2", "-tp 2", "-tp=2", "--tensor-par 2"]
)
def test_a_flag_has_many_spellings(spelling):
    assert given(spelling) == {"tensor_parallel_size": 2}


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("--enable-prefix-caching", True),
        ("--no-enable-prefix-caching", False),
        ("--enable-prefix-caching=False", False),
        ("--enable_prefix_caching true", True),
        ("--enable-prefix-caching --no-enable-prefix-caching", False),
    ],
)
def test_switches_are_denied_as_engines_deny_them(spelling, value):
    assert given(spelling) == {"enable_prefix_caching": value}


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("25.6k", 25600), ("1M", 2**20), ("2g", 2 * 10**9)]
)
def test_whole_numbers_have_units(text, value):
    assert integer(text) == value


@pytest.mark.parametrize("text", ["", "four", "4.5", "4.5K", "1e3", "--"])
def test_other_numbers_are_refused(text):
    with pytest.raises(ValueError, match="whole number"):
        integer(text)


def test_json_may_be_given_by_dots():
    dotted = given("--speculative-config.method ngram --speculative-config.num_speculative_tokens=4")
    assert dotted == {"speculation": {"method": "ngram", "num_speculative_tokens": 4}}
    assert "compilation-config" in read_arguments(VLLM, ["-cc.mode=3"], {}).not_modelled
    assert "optimization-level" in read_arguments(VLLM, ["-O3"], {}).not_modelled


def test_a_negative_number_is_a_value_and_no_flag():
    assert given("--chunked-prefill-size -1 --tp 2", SGLANG) == {"chunked_prefill_size": -1, "tensor_parallel_size": 2}


def test_lists_end_where_a_flag_begins():
    found = read_arguments(VLLM, ["--served-model-name", "a", "b", "c", "--max-num-seqs", "3", "M"], {})
    assert found.harmless == ["--served-model-name"]
    assert found.given["max_num_seqs"].value == 3
    assert found.positional == ["M"]


def test_variables_that_are_set_are_replaced():
    assert read_arguments(VLLM, ["-tp", "${TP}"], {"TP": "4"}).given["tensor_parallel_size"].value == 4


def test_an_unknown_flag_comes_with_the_nearest_known_one():
    found = read_arguments(VLLM, ["--max-num-sequences", "4", "--frobnicate", "--my-api-key", "sk-1"], {})
    assert found.unknown == {
        "--max-num-sequences 4": "--max-num-seqs",
        "--frobnicate": None,
        "--my-api-key": "--api-key",
    }


def test_a_value_that_is_the_default_changes_nothing():
    found = read_arguments(VLLM, ["-pp", "1", "--attention-backend", "auto", "--enforce-eager", "false"], {})
    assert found.not_modelled == {}
    assert set(read_arguments(VLLM, ["-pp", "2", "--enforce-eager"], {}).not_modelled) == {
        "pipeline-parallel-size",
        "enforce-eager",
    }


@pytest.mark.parametrize("table", [VLLM, SGLANG], ids=lambda table: table.engine)
def test_every_flag_is_one_of_three_kinds(table):
    counts = table.counts()
    assert sum(counts.values()) == len(table.flags)
    assert min(counts.values()) >= 20
    for flag in table.flags:
        assert flag.sets is None or flag.effect is None
        assert flag.effect is None or len(flag.effect) > 15
