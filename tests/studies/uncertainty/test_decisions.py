"""Laws of decisions in many worlds: what nothing is known against is certain, and what is the same decides nothing."""

from __future__ import annotations

import numpy as np
import pytest

import scenarios
from scenarios.errors import InputError
from studies.reports.strict_json import dumps
from studies.run import simulated_figures
from studies.uncertainty.decision import decide
from studies.uncertainty.words import sentences
from studies.uncertainty.worlds import applied

STATED = [
    "workload.requests=60", "workload.arrivals={process: constant, rate: 20}", "workload.input=200", "workload.output=20",
    "engine.num_gpu_blocks=2000",
]  # fmt: skip
"""Every request as the next, and nothing that is not stated: a roofline has no errors of its own."""
MEASURED = ["workload.requests=30", "workload.arrivals.rate=8", "cost.profile=auto"]
MEAN = "mean_ttft_ms"


def scenario(*overrides: str):
    return scenarios.load("azure-conversation", overrides=overrides)


def measured(*more: str):
    return scenario(*MEASURED, *more)


def test_without_uncertainty_a_decision_is_certain():
    found = decide(scenario(*STATED), scenario(*STATED, "hardware=A100-80G"), "mean_tpot_ms", worlds=20, processes=1)
    assert found.certain
    assert len(found.worlds) == 1
    first, second = found.first(), found.second()
    assert (first.estimate, first.low, first.high) == (1.0, 1.0, 1.0)
    assert (second.estimate, second.low, second.high) == (0.0, 0.0, 0.0)
    assert "decides" not in sentences(found)[0]


def test_a_scenario_against_itself_decides_nothing():
    found = decide(measured(), measured(), MEAN, worlds=20, names=("one", "other"), processes=1)
    assert len(set(found.values[:, 0].tolist())) == 20, "the worlds differ"
    assert found.same() == 1
    assert found.first().estimate == found.second().estimate == 0
    assert found.settled() is None
    assert "decides nothing" in sentences(found)[0]


def test_the_same_seed_gives_the_same_bytes_however_many_processes():
    pair = measured(), measured("engine.max_num_batched_tokens=1024")
    one, two = (dumps(decide(*pair, MEAN, worlds=20, processes=n).to_dict()) for n in (1, 2))
    assert one == two
    assert one != dumps(decide(*pair, MEAN, worlds=20, seed=1, processes=1).to_dict())


def test_the_order_of_the_two_changes_nothing_but_the_sign():
    a, b = measured(), measured("engine.max_num_batched_tokens=1024")
    there, back = (decide(*pair, MEAN, worlds=20, processes=1) for pair in ((a, b), (b, a)))
    assert there.first() == back.second()
    assert there.second() == back.first()
    np.testing.assert_array_equal(there.values, back.values[:, ::-1])


def test_both_see_the_same_world():
    """What they share is as fast in both, and the difference is what is left: more certain than two worlds apart."""
    found = decide(measured(), measured("workload.output=200"), "mean_tpot_ms", worlds=24, processes=1)
    a, b = found.values.T
    assert np.corrcoef(a, b)[0, 1] > 0.9
    assert np.std(np.log(a / b)) < np.std(np.log(a)) / 2


def test_a_better_device_is_better_in_every_world():
    found = decide(measured("hardware=A100-80G"), measured(), "mean_tpot_ms", worlds=24, processes=1)
    assert found.second().estimate == 1
    assert found.second().low > 0.8
    assert found.settled() == 1
    assert "is better in 100 %" in sentences(found)[0]


def test_the_input_that_decides_is_named():
    """A second device halves the kernels but not the host; two engines share the requests and the host's work for them."""
    shared = measured("workload.arrivals.rate=30", "engine.tensor_parallel_size=2")
    apart = measured("workload.arrivals.rate=30", "replicas=2")
    ranges = {"host": (0.2, 8.0)}
    found = decide(shared, apart, "mean_tpot_ms", worlds=100, ranges=ranges, names=("shared", "apart"), processes=1)
    leading = found.influences.ranked[0]
    assert leading.group == "host time on H100"
    assert leading.share.low > 0.4
    assert "Host time on H100" in sentences(found)[1]


def test_a_higher_figure_may_be_the_better_one():
    a, b = scenario(*STATED), scenario(*STATED, "workload.output=40")
    assert decide(a, b, "output_throughput", worlds=20, processes=1).second().estimate == 1
    assert decide(a, b, "output_throughput", worlds=20, prefer="lower", processes=1).second().estimate == 0


def test_what_requests_do_is_told_from_what_inputs_do():
    found = decide(measured(), measured("engine.max_num_batched_tokens=512"), MEAN, worlds=48, processes=1)
    assert found.requests_differ
    assert found.influences.requests is not None
    explained = sum(one.share.estimate or 0 for one in found.influences.ranked)
    assert explained + found.influences.requests + found.influences.rest == pytest.approx(1)


def test_figures_of_services_classes_are_compared_too():
    classes = "workload.classes=[{name: chat, weight: 1}, {name: batch, weight: 1}]"
    pair = measured(classes), measured(classes, "engine.max_num_batched_tokens=512")
    assert decide(*pair, "by_class.chat.mean_ttft_ms", worlds=20, processes=1).metric == "by_class.chat.mean_ttft_ms"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metric": "mean_tfft_ms"}, "did you mean 'mean_ttft_ms'"),
        ({"metric": "p99_ttft_ms"}, "needs 299"),
        ({"metric": "steps"}, "which way it is better"),
        ({"metric": "completed.much"}, "unknown metric"),
        ({"metric": "completed", "worlds": 3}, "--worlds: found 3"),
        ({"ranges": {"hots": (0.5, 2)}}, "did you mean 'host'"),
        ({"ranges": {"kv-capacity": (0.5, 2)}}, "unknown input"),
    ],
)
def test_what_cannot_be_decided_is_refused_before_any_world(options, said):
    with pytest.raises(InputError, match=said):
        decide(measured(), measured(), **{"processes": 1, **options})


def test_an_efficiency_above_one_is_refused():
    with pytest.raises(InputError, match=r"at most 1\.25"):
        decide(scenario(*STATED), scenario(*STATED), ranges={"memory-efficiency": (0.8, 1.3)}, processes=1)


def test_shares_agree_with_freezing_all_other_inputs():
    """The variance that an input alone makes, all others as assumed, is the share that the fit finds in worlds where all differ."""
    pair = (
        scenario(*STATED, "cost.profile=auto", "engine.tensor_parallel_size=2"),
        scenario(*STATED, "cost.profile=auto"),
    )
    options = {"worlds": 120, "ranges": {"host": (0.6, 1.4)}, "processes": 1}
    found = decide(*pair, "mean_tpot_ms", **options)
    total = np.var(np.log(found.values[:, 1] / found.values[:, 0]))
    for one in found.influences.ranked:
        if one.share.estimate < 0.05:
            continue
        alone = []
        for world in range(120):
            values = found.worlds.values(world)
            kept = {each.key: values[each.key] for each in one.inputs}
            a, b = (simulated_figures(*applied(each, kept, 0))[0]["mean_tpot_ms"] for each in pair)
            alone.append(np.log(b / a))
        assert np.var(alone) / total == pytest.approx(one.share.estimate, abs=0.12), one.group
