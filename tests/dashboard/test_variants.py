"""Variants as they stand in links, rows and on command lines."""

from __future__ import annotations

import shlex

import pytest

import scenarios
from dashboard.compare import variants
from dashboard.compare.variants import Variant, checked
from dashboard.settings import Settings
from studies.comparison import policies

SET = Settings("demo", {"replicas": "2", "engine.max_num_seqs": "64"})


@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("a: x.y=1", "a", "x.y=1"),
        ("a: x.y=1, x.z={b: 2, c: 3}", "a", "x.y=1, x.z={b: 2, c: 3}"),
        ("vllm@0.12: x=1", "vllm@0.12", "x=1"),
        ("a=x.y=1,x.z=2", "a", "x.y=1,x.z=2"),
        ("x.y=1, x.z=2", "", "x.y=1, x.z=2"),
        ("prices={gpu_hour: 2}", "", "prices={gpu_hour: 2}"),
        (": x=1", "", "x=1"),
        ("a", "a", ""),
        ("a:", "a", ""),
        ("", "", ""),
    ],
)
def test_a_link_gives_a_name_and_changes_or_either_alone(text, name, changes):
    assert variants.read(text) == Variant(name, changes)


@pytest.mark.parametrize(
    "variant", [Variant("a", "x=1, y={b: 2, c: 3}"), Variant("a b"), Variant("", "x=1"), Variant("")]
)
def test_what_is_written_into_a_link_is_read_as_it_was(variant):
    assert variants.read(variant.text()) == variant


def test_commas_within_a_value_do_not_end_it():
    found = Variant("a", "prices.sheet={input: 1, output: 4}, replicas=2").overrides()
    assert [(o.path, o.value) for o in found] == [("prices.sheet", {"input": 1, "output": 4}), ("replicas", 2)]


def test_a_variant_is_what_is_set_with_its_changes_on_top():
    found = checked(SET, [Variant("a"), Variant("b", "engine.max_num_seqs=8")]).policies
    assert [(s.replicas, s.engine.max_num_seqs) for s in found.values()] == [(2, 64), (2, 8)]


def test_a_variant_that_cannot_be_is_told_by_name_and_the_others_stay():
    found = checked(SET, [Variant("a"), Variant("b", "engine.max_num_sequences=8"), Variant("c", "replicas=3")])
    assert list(found.policies) == ["a", "c"]
    (said,) = found.told
    assert said.startswith("Left out: b: engine.max_num_sequences=8")
    assert "max_num_seqs" in said


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Variant("a", "replicas=3"), "Two variants are called a"),
        (Variant("b", "replicas=2"), "b is the same as a, the baseline"),
        (Variant("", "replicas=3"), "called replicas 3 here"),
        (Variant("b", "nonsense"), "write a path and a value"),
        (Variant("b", "replicas=[1"), "b: replicas=[1"),
    ],
)
def test_every_slip_has_its_sentence(second, said):
    assert said in " ".join(checked(SET, [Variant("a"), second]).told)


def test_a_seventh_is_left_out_by_name():
    found = checked(SET, [Variant(f"n{k}", f"replicas={k}") for k in range(1, 8)])
    assert len(found.policies) == variants.MOST
    assert found.told == ["At most 6 variants stand side by side; left out: n7."]


def test_the_same_as_an_earlier_one_is_no_variant():
    found = checked(SET, [Variant("a"), Variant("b", "replicas=3"), Variant("c", "replicas=3")])
    assert "c is the same as b, an earlier one" in found.told[0]


def test_who_changed_something_compares_it_with_the_scenario_as_it_is():
    base, changed = checked(SET, variants.natural(SET)).policies.items()
    assert base[0] == "demo"
    assert base[1].hash() == scenarios.load("demo").hash()
    assert (changed[0], changed[1].hash()) == ("changed", SET.scenario().hash())


def test_one_change_names_its_variant():
    assert [v.name for v in variants.natural(Settings("demo", {"replicas": "2"}))] == ["demo", "replicas 2"]


@pytest.mark.parametrize("name", scenarios.names())
@pytest.mark.parametrize(
    "changes",
    [
        {"slo.ttft": "77ms"},
        {"engine.max_num_batched_tokens": "1000", "engine": "{preset: sglang}"},
        {"prices.sheet": "{input: 1, output: 4}"},
        {"admission.queue_timeout": "3s"},
        {"seed": "12"},
    ],
)
def test_every_change_can_be_taken_back(name, changes):
    settings = Settings(name, changes)
    base = variants.as_it_is(settings)
    assert base is not None
    assert settings.scenario(base.overrides()).hash() == scenarios.load(name).hash()


def test_moving_changes_into_a_variant_compares_the_same():
    before = checked(SET, variants.natural(SET)).policies
    after = checked(Settings("demo"), variants.moved(SET)).policies
    assert [s.hash() for s in before.values()] == [s.hash() for s in after.values()]


def test_without_changes_there_is_the_scenario_alone():
    assert variants.natural(Settings("demo")) == [Variant("demo")]


@pytest.mark.parametrize("name", ["demo", "azure-conversation"])
def test_ready_sets_fit_or_say_why_not(name):
    settings = Settings(name)
    for title, found in variants.ready(settings.scenario()).items():
        done = checked(settings, found)
        assert len(done.policies) + len(done.told) == len(found), title
        assert all(any(v.name in said for v in found) for said in done.told), done.told
        assert len(done.policies) > 1


def test_routers_are_compared_over_several_replicas():
    one, three = (variants.ready(Settings("demo", {"replicas": n}).scenario())["Routers"] for n in ("1", "3"))
    assert all("replicas=4" in v.changes for v in one)
    assert not any("replicas" in v.changes for v in three)


@pytest.mark.parametrize(
    "rows",
    [
        variants.natural(SET),
        variants.ready(scenarios.load("demo"))["Engines"],
        [Variant("a", "replicas=3"), Variant("b", "engine.max_num_seqs=8, replicas=3")],
        [
            Variant("a", "engine.max_num_seqs=4"),
            Variant("b", "slo={ttft: 1s, tpot: 80ms}"),
            Variant("c d", "replicas=5"),
        ],
    ],
)
def test_the_command_line_compares_the_same_with_the_same_baseline(rows):
    found = checked(SET, rows)
    words = shlex.split(variants.command(SET, found.variants, 5, ["mean_ttft_ms"]))
    assert words[:3] == ["servetwin", "compare", "demo"]
    given: dict[str, list[str]] = {}
    for flag, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault(flag, []).append(value)
    told = policies.gather("demo", overrides=given.get("--set", []), variants=policies.variants(given["--variant"]))
    ours = {name: scenario.hash() for name, scenario in found.policies.items()}
    assert ours.items() <= {name: scenario.hash() for name, scenario in told.scenarios.items()}.items()
    assert given.get("--baseline", [next(iter(told.scenarios))]) == [next(iter(found.policies))]
