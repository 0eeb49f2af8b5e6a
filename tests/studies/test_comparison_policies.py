"""What is compared: policies by name, from scenarios, variants, studies and ablations."""

from pathlib import Path

import pytest

import scenarios
from scenarios import InputError
from studies import ablations
from studies.comparison.policies import gather, variant, variants
from studies.sweeps import study

SMALL = ["workload.requests=20"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fp8=engine.kv_cache_dtype=fp8", ("engine.kv_cache_dtype=fp8",)),
        ("a=x.y=1,x.z=2", ("x.y=1", "x.z=2")),
        ("a=x.y=1, x.z=2", ("x.y=1", "x.z=2")),
        ("a=slo={ttft: 1s, tpot: 2s},x=1", ("slo={ttft: 1s, tpot: 2s}", "x=1")),
        ("a=list=[1, 2],x[0].y=3", ("list=[1, 2]", "x[0].y=3")),
        ('a=name="b,c=d",x=1', ('name="b,c=d"', "x=1")),
        ("a=text=one,two", ("text=one,two",)),
    ],
)
def test_a_variant_is_a_name_and_overrides_between_commas_that_no_value_holds(text, expected):
    assert variant(text) == (text.partition("=")[0], expected)


@pytest.mark.parametrize("text", ["fp8", "fp8=", "fp8=fp8", "=a=1", ""])
def test_a_variant_without_a_name_or_an_override_is_refused(text):
    with pytest.raises(InputError, match=r"small=engine\.max_num_seqs=64"):
        variant(text)


def test_two_variants_of_one_name_are_refused():
    with pytest.raises(InputError, match="all of its overrides at once"):
        variants(["a=replicas=1", "a=replicas=2"])


def test_variants_stand_beside_the_scenario_as_it_is():
    found = gather("demo", overrides=SMALL, variants={"two": ["replicas=2"], "three": ["replicas=3"]})
    assert {name: s.replicas for name, s in found.scenarios.items()} == {"demo": 1, "two": 2, "three": 3}
    assert {s.workload.requests for s in found.scenarios.values()} == {20}
    assert not found.seeds


def test_variants_of_several_scenarios_bear_both_names():
    found = gather(["demo", "closed-loop"], variants={"two": ["replicas=2"]})
    assert list(found.scenarios) == ["demo", "demo, two", "closed-loop", "closed-loop, two"]


def test_a_variant_changes_a_loaded_scenario_too():
    found = gather(scenarios.load("demo", overrides=SMALL), variants={"two": ["replicas=2"]})
    assert found.scenarios["two"].replicas == 2
    assert found.scenarios["two"].workload.requests == 20


def test_names_may_be_given():
    assert list(gather({"a": "demo", "b": "demo"}).scenarios) == ["a", "b"]


def test_a_wrong_variant_is_blamed_by_its_name():
    with pytest.raises(InputError, match=r"--variant wide: engine.max_num_seqz=3: .*max_num_seqs"):
        gather("demo", variants={"wide": ["engine.max_num_seqz=3"]})
    with pytest.raises(InputError, match="choose another name"):
        gather("demo", variants={"demo": ["replicas=2"]})


def test_an_ablation_gives_its_variants_and_what_it_is_about():
    found = gather("batching", overrides=SMALL)
    assert list(found.scenarios) == list(ablations.read("batching").variants)
    assert found.metrics == ("output_throughput", "mean_ttft_ms", "p90_itl_ms")
    assert found.question.startswith("What do batches cost")
    assert {s.workload.requests for s in found.scenarios.values()} == {20}


def test_figures_of_a_class_are_named_with_it():
    assert "by_class.interactive.p90_ttft_ms" in gather("priority_classes").metrics


def test_a_shipped_study_gives_its_variants_and_seeds():
    name = "benchmarking_at_concurrency_one"
    found = gather(name, overrides=SMALL)
    own = study.read(name)
    assert len(found.scenarios) == len(own.points())
    assert "concurrency_one" in found.scenarios
    assert found.seeds == own.seed_list()
    assert found.question == own.question


def test_a_file_is_told_by_what_it_holds(tmp_path):
    Path(tmp_path / "grid.yaml").write_text(
        "base: demo\naxes: {engine.max_num_seqs: [4, 8], replicas: [1]}\nseeds: [3, 5]\n"
    )
    found = gather(tmp_path / "grid.yaml")
    assert list(found.scenarios) == ["max_num_seqs 4, replicas 1", "max_num_seqs 8, replicas 1"]
    assert found.seeds == (3, 5)
    Path(tmp_path / "mine.yaml").write_text(scenarios.template("demo"))
    assert list(gather(tmp_path / "mine.yaml").scenarios) == ["demo"]


def test_a_trace_is_replayed_by_every_policy(tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n")
    for source in ("demo", "batching", "benchmarking_at_concurrency_one"):
        for scenario in gather(source, trace=trace).scenarios.values():
            assert scenario.workload.trace.path == str(trace)


def test_what_there_is_not_is_answered_with_the_nearest_of_all_kinds():
    with pytest.raises(InputError, match="did you mean 'batching'"):
        gather("batchin")
    with pytest.raises(InputError, match="Shipped scenarios: agents"):
        gather("qqqqqqqq")
    with pytest.raises(InputError, match="nothing to compare"):
        gather([])


def test_variants_of_what_has_its_own_are_refused():
    with pytest.raises(InputError, match="variants of its own"):
        gather("batching", variants={"a": ["replicas=2"]})


def test_more_policies_than_a_table_shows_are_for_a_sweep(tmp_path):
    (tmp_path / "wide.yaml").write_text(f"base: demo\naxes: {{engine.max_num_seqs: {list(range(1, 102))}}}\n")
    with pytest.raises(InputError, match="101 policies, but a comparison shows at most 100; servetwin sweep"):
        gather(tmp_path / "wide.yaml")


def test_no_two_kinds_of_shipped_files_share_a_name():
    names = [*scenarios.names(), *ablations.names(), *study.names()]
    assert len(set(names)) == len(names)
