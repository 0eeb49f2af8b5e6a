"""The cheapest configuration: what is looked at, what is left out, and who wins."""

import pytest

from scenarios.errors import InputError
from studies.capacity import cheapest as searching
from studies.capacity.cheapest import cheapest
from studies.capacity.space import space
from tests.studies.capacity.judged import KnowingJudge, azure

SPEED = {"H100": 1.0, "L40S": 0.35, "H200": 1.2}
AXES = {"hardware": ["H100", "H200", "L40S"], "replicas": [1, 2, 3, 4, 5, 6]}


def worst(scenario):
    """Three H100s are needed, or what is as fast."""
    return 2.5 / (scenario.replicas * SPEED[scenario.hardware.name])


def search(judge, axes=AXES, **more):
    return cheapest(space({"axes": axes}, azure(), "space.yaml"), judge, **more)


def test_the_cheapest_that_meets_the_objectives_wins():
    found = search(KnowingJudge(worst))
    # 3 x 3.0 of H100, 3 x 3.8 of H200; six L40S are too slow.
    assert found.best.candidate.name == "hardware H100, replicas 3"
    assert found.best.usd == 9.0
    assert found.runner_up.candidate.name == "hardware H200, replicas 3"
    assert found.dearer().relative.estimate == pytest.approx(11.4 / 9.0 - 1)
    assert found.dearer().relative.low is None  # prices are no sample


def test_what_costs_more_than_the_runner_up_is_not_run():
    judge = KnowingJudge(worst)
    found = search(judge)
    assert {j.candidate.name for j in found.of("dearer")} == {
        "hardware H100, replicas 4",
        "hardware H100, replicas 5",
        "hardware H100, replicas 6",
        "hardware H200, replicas 4",
        "hardware H200, replicas 5",
        "hardware H200, replicas 6",
    } - {j.candidate.name for j in found.met}
    assert all(scenario.prices.gpu_hour * scenario.replicas <= 12.0 for scenario in judge.asked)
    assert len(found.judged) == 18


def test_all_are_run_where_that_is_asked_for():
    found = search(KnowingJudge(worst), every=True)
    assert not found.of("dearer")
    assert found.best.usd == 9.0


def test_of_the_equally_cheap_the_one_farthest_from_its_limits_wins():
    axes = {"engine.max_num_seqs": [16, 64, 256]}
    found = search(KnowingJudge(lambda s: {16: 1.4, 64: 0.9, 256: 0.6}[s.engine.max_num_seqs]), axes)
    assert found.best.candidate.point.values == {"engine.max_num_seqs": 256}
    assert found.runner_up.candidate.point.values == {"engine.max_num_seqs": 64}
    assert found.dearer().relative.estimate == 0


def test_what_few_seeds_do_not_decide_gets_more_only_while_it_may_win():
    def near(s):
        return {1: 1.05, 2: 0.95, 3: 0.5, 4: 0.4}[s.replicas]

    judge = KnowingJudge(near, unsure=0.1)
    found = search(judge, {"replicas": [1, 2, 3, 4]})
    assert found.best.candidate.point.values == {"replicas": 2}
    assert len(found.best.costs) == judge.enough
    outcomes = {j.candidate.point.values["replicas"]: j.outcome for j in found.judged}
    assert outcomes == {1: "not met", 2: "met", 3: "met", 4: "met"}
    # Equally dear, but farther from the limit than both: never settled.
    judge = KnowingJudge(lambda s: {8: 0.95, 16: 0.5, 32: 0.4}[s.engine.max_num_seqs], unsure=0.1)
    found = search(judge, {"engine.max_num_seqs": [8, 16, 32]})
    assert [j.outcome for j in found.judged] == ["not decided", "met", "met"]


def test_the_winner_is_seen_again_with_fresh_seeds():
    judge = KnowingJudge(worst)
    found = search(judge)
    assert found.best.confirmed.met is True
    assert judge.asked[-1].seed == searching.FRESH
    unlucky = search(KnowingJudge(worst, unlucky=True), {"replicas": [3, 4]})
    assert unlucky.best is None
    assert [j.outcome for j in unlucky.judged] == ["not confirmed", "not confirmed"]


def test_another_figure_of_the_bill_decides_without_a_bound():
    judge = KnowingJudge(worst)
    found = search(judge, by="usd_per_1m_output_tokens")
    assert not found.of("dearer")
    assert found.dearer().relative.estimate == 0


def test_nothing_that_meets_the_objectives_is_no_error():
    found = search(KnowingJudge(lambda s: 3.0))
    assert found.best is None
    assert found.runner_up is None
    assert found.dearer() is None
    assert len(found.of("not met")) == 18


def test_a_configuration_that_turns_requests_away_cannot_win():
    found = search(KnowingJudge(lambda s: 0.5), {"engine.max_model_len": [1000, 16000]})
    refused, best = found.judged
    assert refused.outcome == "refused"
    assert "of 50 requests are too large for its empty engine" in refused.why
    assert found.best is best


def test_the_pareto_set_is_of_those_that_no_other_beats_in_both():
    found = search(KnowingJudge(worst), {"hardware": ["H100", "L40S"], "replicas": [1, 2, 3]}, every=True)
    front = searching.pareto(found.judged, "p99_ttft_ms")
    # Price an hour, and speed: each one is dearer than the one before, and faster.
    assert [(j.candidate.name, j.usd) for j in front] == [
        ("hardware L40S, replicas 1", 1.2),
        ("hardware L40S, replicas 2", 2.4),
        ("hardware H100, replicas 1", 3.0),
        ("hardware L40S, replicas 3", 3.6),
        ("hardware H100, replicas 2", 6.0),
        ("hardware H100, replicas 3", 9.0),
    ]
    slower = search(
        KnowingJudge(lambda s: worst(s) * (3 if s.replicas == 2 else 1)), {"replicas": [1, 2, 3]}, every=True
    )
    assert [j.candidate.point.values["replicas"] for j in searching.pareto(slower.judged, "p99_ttft_ms")] == [1, 3]


@pytest.mark.parametrize(
    ("axes", "more", "message"),
    [
        (AXES, {"by": "usd"}, "--by: unknown figure 'usd'"),
        ({"replicas": list(range(1, 700))}, {}, "700"),
        ({"hardware": ["RTX-4090"], "model": ["Llama-3.1-70B"]}, {}, "none of 1 configurations can be"),
    ],
)
def test_what_cannot_be_searched_is_refused(axes, more, message):
    with pytest.raises(InputError) as error:
        search(KnowingJudge(worst), axes, **more)
    assert message.replace("700", "699") in str(error.value)


LARGER = {
    "hardware": ["H100", "H200", "L40S"],
    "replicas": list(range(1, 13)),
    "engine.max_num_seqs": [16, 32, 64, 128],
}


def bent(scenario):
    """As `worst`, and 64 sequences are best."""
    return worst(scenario) * (1 + abs(scenario.engine.max_num_seqs - 64) / 64)


def optuna_finds(seed, trials=30):
    judge = KnowingJudge(bent)
    return cheapest(space({"axes": LARGER}, azure(f"seed={seed}")), judge, trials=trials), judge


@pytest.mark.parametrize("seed", range(3))
def test_optuna_finds_what_trying_all_finds_with_fewer_runs(seed):
    found, judge = optuna_finds(seed)
    whole = cheapest(space({"axes": LARGER}, azure()), KnowingJudge(bent))
    assert found.space.size == 144
    # The second best is 7 % dearer.
    assert found.best.usd <= 1.07 * whole.best.usd
    assert len({(s.hardware.name, s.replicas, s.engine.max_num_seqs) for s in judge.asked}) <= 30
    assert len(whole.judged) - len(whole.of("dearer")) > 50


def test_optuna_chooses_the_same_under_the_same_seed():
    first, *_ = optuna_finds(1)
    again, *_ = optuna_finds(1)
    assert [(j.candidate.name, j.outcome) for j in first.judged] == [
        (j.candidate.name, j.outcome) for j in again.judged
    ]


def test_optuna_looks_at_all_of_a_small_space():
    found = cheapest(space({"axes": {"replicas": [1, 2, 3, 4]}}, azure()), KnowingJudge(worst), trials=50)
    assert len(found.judged) == 4
    assert found.best.candidate.point.values == {"replicas": 3}


def test_without_optuna_the_message_says_how_to_go_on(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'servetwin\[search\]'"):
        search(KnowingJudge(worst), trials=5)
