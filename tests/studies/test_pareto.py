"""Who dominates whom, where intervals say so."""

import pytest

import scenarios
from studies import pareto, simulate
from studies.aspects import per_device
from studies.sweeps.cells import figures

TAIL, COST = "p99_ttft_ms", "usd_per_1m_output_tokens"


def policy(tail, cost):
    """Figures of five seeds, of one value each that seeds move by a little, or as they are."""
    moved = (0.0, 0.3, -0.2, 0.1, -0.1)

    def by_seed(found):
        values = found if isinstance(found, (list, tuple)) else [found + step for step in moved]
        return dict(enumerate(values))

    return {TAIL: by_seed(tail), COST: by_seed(cost)}


def marks(policies, keys=(TAIL, COST)):
    return {name: standing.mark for name, standing in pareto.standings(policies, keys).items()}


def test_what_is_worse_in_everything_is_dominated_by_name():
    found = pareto.standings({"a": policy(100, 5), "b": policy(150, 9)}, (TAIL, COST))
    assert found["a"] == pareto.Standing("on the front")
    assert found["b"] == pareto.Standing("dominated", ("a",))
    assert found["b"].to_dict() == {"mark": "dominated", "dominated_by": ["a"]}


def test_who_is_better_in_one_figure_and_worse_in_another_is_on_the_front():
    assert set(marks({"a": policy(100, 9), "b": policy(150, 5)}).values()) == {"on the front"}


def test_a_difference_that_no_interval_shows_dominates_nobody():
    noisy = [5.2, 4.7, 5.4, 4.6, 5.3]
    assert marks({"a": policy(100, 5), "b": policy(150, noisy)}) == {"a": "on the front", "b": "open"}


def test_a_figure_that_is_exactly_the_same_does_not_protect():
    same = [3.0] * 5
    assert marks({"a": policy(100, same), "b": policy(150, same)}) == {"a": "on the front", "b": "dominated"}
    assert set(marks({"a": policy(100, same), "b": policy(100, same)}).values()) == {"on the front"}


def test_few_seeds_decide_nothing():
    assert set(marks({"a": policy([1, 2], [1, 2]), "b": policy([9, 8], [9, 8])}).values()) == {"open"}


def test_what_lacks_a_figure_is_not_placed_and_dominates_nobody():
    found = marks({"a": policy([1, 2, 1, 2, None], 1), "b": policy(9, 9)})
    assert found == {"a": "not placed", "b": "on the front"}


def test_more_is_better_where_it_is():
    keys = ("output_throughput_per_gpu", "output_token_throughput_per_user")
    slow, fast = ({key: {s: base + s / 100 for s in range(5)} for key in keys} for base in (1.0, 2.0))
    assert marks({"slow": slow, "fast": fast}, keys) == {"slow": "dominated", "fast": "on the front"}


def test_a_figure_of_which_neither_direction_is_better_is_refused():
    with pytest.raises(ValueError, match="steps"):
        pareto.standings({"a": {"steps": {0: 1}}}, ("steps",))


def test_figures_by_device_count_every_replica_and_its_devices():
    small = ["workload.requests=20"]
    one = scenarios.load("azure-conversation", overrides=small)
    wide = scenarios.load("azure-conversation", overrides=[*small, "replicas=2", "engine.tensor_parallel_size=2"])
    a, b = (per_device.figures(simulate(s).summary, per_device.devices(s)) for s in (one, wide))
    assert (a["devices"], b["devices"]) == (1, 4)
    assert b["usd_per_hour"] == pytest.approx(4 * a["usd_per_hour"])
    assert a["usd_per_hour"] == pytest.approx(one.prices.gpu_hour)


def test_of_several_pools_there_is_no_one_cause():
    run = simulate(scenarios.load("cascade", overrides=["workload.requests=20"]))
    found = figures(run)
    assert found["binding.cause"] is None
    assert found["devices"] == sum(
        pool["replicas"] * pool["engine"]["tensor_parallel_size"] for pool in run.info["pools"]
    )
