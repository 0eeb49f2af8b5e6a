"""The fewest replicas, or the least of any whole number, with which objectives hold."""

import pytest

from scenarios.errors import InputError
from studies.capacity import replicas
from studies.capacity.replicas import fewest
from tests.studies.capacity.judged import KnowingJudge, azure


def needs(count, per=lambda s: s.replicas):
    """Objectives hold from that many on."""
    return KnowingJudge(lambda scenario: count / per(scenario))


@pytest.mark.parametrize("start", [1, 2, 7, 8, 40])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 13])
def test_the_fewest_are_found_from_wherever_the_search_starts(start, count):
    found = fewest(azure(f"replicas={start}"), "replicas", needs(count))
    assert found.value == count
    assert found.interval == (count, count)
    assert found.usd[count] == 3.0 * count


@pytest.mark.parametrize("count", [3, 11])
def test_both_neighbours_of_the_answer_are_looked_at(count):
    found = fewest(azure(), "replicas", needs(count))
    assert found.tried[count - 1].met is False
    assert found.tried[count].met is True
    assert found.tried[count + 1].met is True
    assert not found.broken_above


def test_nothing_is_judged_twice():
    judge = needs(13)
    fewest(azure(), "replicas", judge)
    assert len({scenario.replicas for scenario in judge.asked}) == len(judge.asked)


def test_what_is_not_decided_below_the_answer_widens_the_interval():
    judge = KnowingJudge(lambda scenario: 8 / scenario.replicas, open_within=0.25)
    found = fewest(azure(), "replicas", judge)
    # 7 to 10 replicas are within a quarter of the limit, above or below.
    assert found.interval == (7, 11)


def test_a_number_with_which_more_is_not_better_is_told():
    judge = KnowingJudge(lambda s: 1.5 if s.replicas in (1, 2, 5) else 0.5)
    found = fewest(azure(), "replicas", judge)
    assert found.value == 3 or found.value == 4
    judge = KnowingJudge(lambda s: 1.5 if s.replicas in (1, 2, 4) else 0.5)
    assert fewest(azure("replicas=3"), "replicas", judge).broken_above == [4]


def test_values_that_cannot_be_are_passed_over():
    judge = needs(3, per=lambda s: s.engine.tensor_parallel_size)
    found = fewest(azure("model=Llama-3.1-70B", "engine.tensor_parallel_size=2"), "engine.tensor_parallel_size", judge)
    assert found.value == 4
    assert "3" in found.refused[3]
    assert found.interval == (4, 4)


def test_objectives_that_never_hold_are_told_without_trying_every_number():
    judge = KnowingJudge(lambda s: 2.0 + 1 / s.replicas**4)
    found = fewest(azure(), "replicas", judge)
    assert found.value is None
    assert found.interval is None
    assert "more of it is of no use" in found.why
    assert max(found.tried) <= 64


def test_the_search_ends_at_the_most_that_may_be_tried():
    found = fewest(azure(), "replicas", needs(100), most=20)
    assert found.value is None
    assert "at most 20" in found.why


def test_a_number_of_the_preset_is_where_the_search_starts():
    assert replicas.value_at(azure(), "engine.max_num_seqs") == 1024
    assert replicas.value_at(azure("replicas=3"), "replicas") == 3


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("workload.arrivals.rate", "is part of the load"),
        ("seed", "is no size of a deployment"),
        ("slo.ttft", "only whole numbers are searched"),
        ("hardware", "only whole numbers are searched"),
        ("replcas", "did you mean 'replicas'"),
        ("engine.enable_prefix_caching", "only whole numbers are searched"),
    ],
)
def test_a_path_to_no_whole_number_is_refused(path, message):
    with pytest.raises(InputError) as error:
        fewest(azure(), path, needs(1))
    assert message in str(error.value)
