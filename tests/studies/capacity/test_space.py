"""A space of configurations: which can be, what they cost, and what is wrong with a file."""

import pytest
import yaml

from scenarios.errors import InputError
from studies.capacity import space
from tests.studies.capacity.judged import azure

AXES = {"hardware": ["H100", "L40S"], "engine.tensor_parallel_size": [1, 2, 4]}


def of(axes, *overrides, **more):
    return space.space({"axes": axes} | more, azure(*overrides), "space.yaml")


def test_an_hour_costs_what_all_devices_cost():
    found = of(AXES | {"replicas": [1, 3]})
    prices = {c.name: c.usd_per_hour for c in found.candidates()}
    assert prices["hardware H100, tensor_parallel_size 2, replicas 3"] == pytest.approx(18.0)
    assert prices["hardware L40S, tensor_parallel_size 1, replicas 1"] == pytest.approx(1.2)
    assert len(prices) == found.size == 12


def test_an_hour_costs_at_least_what_devices_draw_while_idle():
    found = of(AXES, "prices.energy={usd_per_kwh: 0.2, busy_watts: 700, idle_watts: 100}")
    first = next(found.candidates())
    assert first.usd_per_hour == pytest.approx(3.0 + 0.02)


def test_what_does_not_fit_is_refused_with_the_reason():
    found = of(AXES, "model=Llama-3.1-70B", "engine.tensor_parallel_size=4")
    refused = {c.name: c.refused for c in found.candidates() if c.scenario is None}
    assert set(refused) == {
        "hardware H100, tensor_parallel_size 1",
        "hardware L40S, tensor_parallel_size 1",
        "hardware L40S, tensor_parallel_size 2",
    }
    assert refused["hardware H100, tensor_parallel_size 1"].startswith("model: Llama-3.1-70B in bfloat16 does not fit")


def test_what_has_no_price_is_refused():
    free, paid = of({"prices.gpu_hour": [0, 1]}).candidates()
    assert free.refused == "space.yaml: gpu_hour 0: H100 has no price; state one as prices.gpu_hour"
    assert paid.usd_per_hour == 1


def test_a_choice_in_every_dimension_is_the_point_of_that_index():
    found = space.space(
        {
            "axes": [
                {"grid": AXES},
                {"zip": {"engine.dtype": ["bfloat16", "fp8"], "engine.kv_cache_dtype": ["auto", "fp8"]}},
                {"variants": {"plain": [], "small": ["engine.max_num_seqs=64", "engine.max_num_batched_tokens=2048"]}},
            ]
        },
        azure(),
    )
    dimensions = found.dimensions()
    assert [d.size for d in dimensions] == [2, 3, 2, 2]
    assert [d.ordered for d in dimensions] == [False, True, False, False]
    every = list(found.candidates())
    for choices in ((0, 0, 0, 0), (1, 2, 1, 0), (0, 1, 0, 1)):
        chosen = found.at(choices)
        same = every[chosen.point.index]
        assert chosen.point.values == same.point.values
        assert chosen.scenario.hash() == same.scenario.hash()


def test_random_axes_have_one_dimension():
    found = of([{"random": {"points": 4, "of": {"engine.max_num_seqs": {"from": 8, "to": 64, "integer": True}}}}])
    assert [found.at((k,)).point.values for k in range(4)] == [c.point.values for c in found.candidates()]


def test_requests_that_no_engine_could_hold_are_counted():
    assert space.turned_away(azure()) == (0, 50)
    assert 0 < space.turned_away(azure("engine.max_model_len=1000"))[0] < 50


def test_a_space_is_read_from_a_file(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(yaml.safe_dump({"axes": AXES, "set": ["engine.max_num_seqs=32"]}))
    found = space.read(file, azure())
    assert {c.scenario.engine.max_num_seqs for c in found.candidates()} == {32}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "space.yaml: axes: is required, such as"),
        ({"axes": AXES, "seeds": 5}, "space.yaml: unknown field 'seeds'"),
        ({"axes": AXES, "base": "demo"}, "space.yaml: base: a space has none"),
        ({"axes": {"hardware": []}}, "space.yaml: axes"),
        ({"axes": AXES, "set": ["engine.max_num_sqs=3"]}, "did you mean 'max_num_seqs'"),
        ({"axes": AXES, "set": ["prices.gpu_hour=3"]}, "hardware is varied, but prices.gpu_hour is stated as 3"),
    ],
)
def test_a_wrong_file_is_refused_in_its_own_words(data, message):
    with pytest.raises(InputError) as error:
        space.space(data, azure(), "space.yaml")
    assert message in str(error.value)


def test_prices_may_be_varied_with_the_hardware():
    found = of([{"zip": {"hardware": ["H100", "L40S"], "prices.gpu_hour": [2.0, 0.5]}}], "prices.gpu_hour=3")
    assert [c.usd_per_hour for c in found.candidates()] == [2.0, 0.5]
