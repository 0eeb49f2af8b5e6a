"""Every shipped ablation moves the outcome as it should; files that cannot be run are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.errors import InputError
from studies import ablations
from tests.studies import strategies_page

TEXT = """
question: Does it run?
because: It is the smallest there is.
base: demo
variants: {a: [], b: [workload.requests=20]}
expect: [{metric: completed, lower: b, than: a}]
"""


@pytest.mark.parametrize("name", ablations.names())
def test_the_outcome_moves_as_expected(name: str) -> None:
    found = ablations.run(name)
    assert found.holds, found.to_dict()
    # docs/strategies.md shows the same figures: python -m tests.studies.strategies_page NAME writes them anew.
    assert strategies_page.written_row(name) == strategies_page.row(found)


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_a_file_of_ones_own_is_run(tmp_path: Path) -> None:
    found = ablations.run(write(tmp_path, TEXT))
    assert found.holds
    assert found.to_dict()["expectations"][0]["b"] == 20


def test_an_expectation_that_does_not_hold_is_told(tmp_path: Path) -> None:
    assert not ablations.run(write(tmp_path, TEXT.replace("lower", "higher"))).holds


@pytest.mark.parametrize(("by", "holds"), [(4.9, False), (5.1, True)])
def test_figures_are_alike_within_a_factor(tmp_path: Path, by: float, holds: bool) -> None:
    found = ablations.run(write(tmp_path, TEXT.replace("lower: b, than: a", f"alike: b, than: a, by: {by}")))
    assert found.holds is holds
    assert f"completed: b as a, within {by} times" in found.to_dict()["expectations"][0]["expected"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("than: a", "than: c"), "expect[0].than: unknown variant 'c'"),
        (("base: demo", ""), "scenario: needs a scenario or a base"),
        (("metric: completed", "metric: completd"), "did you mean 'completed'"),
        (("lower: b", "lower: b, higher: a"), "expect[0].lower: needs one of lower, higher and alike"),
        (("lower: b", "alike: b"), "expect[0].by: is missing; say how many times apart is still alike"),
        (("workload.requests=20", "workload.requets=20"), "workload.requets"),
        (("metric: completed,", "metric: mean_ttft_ms, of_class: gold,"), "unknown class 'gold'"),
        (
            ("workload.requests=20", "workload.requests=0"),
            "mine.yaml: variant b: workload.requests=0: workload.requests: found 0",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        ablations.run(write(tmp_path, TEXT.replace(*change)))
    assert message in str(refused.value)


def test_any_figure_of_a_class_may_be_expected_and_its_percentiles_are_not_refused(tmp_path: Path) -> None:
    gold = "'workload.classes=[{name: gold}]'"
    text = TEXT.replace("a: []", f"a: [{gold}]").replace("workload.requests=20", f"workload.requests=20, {gold}")
    for metric in ("completed", "p99_ttft_ms"):
        found = ablations.run(write(tmp_path, text.replace("metric: completed", f"metric: {metric}, of_class: gold")))
        assert found.holds, found.to_dict()
    assert found.runs["b"].summary["by_class"]["gold"]["p99_ttft_ms"] is None
    with pytest.raises(InputError, match=r"expect\[0\]\.metric: unknown metric 'mean_itl_ms'.* Allowed: submitted"):
        ablations.run(write(tmp_path, text.replace("metric: completed", "metric: mean_itl_ms, of_class: gold")))


def test_a_name_that_is_not_shipped_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'prefix_cache'"):
        ablations.read("prefix_cach")


def test_without_a_small_form_nothing_is_executed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="execution: is missing"):
        ablations.run(write(tmp_path, TEXT), device="cpu")
