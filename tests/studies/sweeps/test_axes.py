from __future__ import annotations

import pytest

from studies.sweeps.axes import Axes, points, short_names


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        (
            ["engine.max_num_seqs", "workload.input.mean", "workload.output.mean", "model"],
            ["max_num_seqs", "input.mean", "output.mean", "model"],
        ),
        (
            ["pools[0].replicas", "pools[1].replicas", "engine.dtype"],
            ["pools[0].replicas", "pools[1].replicas", "dtype"],
        ),
        (["replicas", "pools[0].replicas"], ["replicas", "pools[0].replicas"]),
    ],
)
def test_axes_are_named_by_as_much_of_their_path_as_tells_them_apart(axes: list[str], names: list[str]) -> None:
    assert list(short_names(axes).values()) == names


def test_a_point_names_its_values() -> None:
    (point,) = points([Axes(grid={"workload.input.mean": [800], "workload.output.mean": [150], "model": ["m"]})])
    assert str(point) == "input.mean 800, output.mean 150, model m"
