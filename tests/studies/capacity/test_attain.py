"""Whether objectives hold is told by as many seeds as it takes, and by runs as long as it takes."""

import pytest

from scenarios.errors import InputError
from scenarios.objectives import parse_objective
from studies.capacity.attain import attain
from studies.capacity.attainment import BACKLOG, TURNED_AWAY
from studies.capacity.look import PILES_UP
from studies.capacity.objectives import parse
from tests.studies.capacity.conftest import SERVICE


def waits(limit: float) -> str:
    return f"queue_mean<={limit * 1e3:.3f}ms"


def md1_wait(load: float) -> float:
    """Mean wait in seconds of M/D/1 (Pollaczek and Khinchine)."""
    return load * SERVICE / (2 * (1 - load))


def found(scenario, slo: str, **options):
    return attain(scenario, parse(slo), processes=1, **options)


def test_a_clear_case_takes_the_fewest_seeds(one_server):
    done = found(one_server(), waits(3 * md1_wait(0.5)))
    assert (done.met, done.sustained, done.why) == (True, True, "")
    assert len(done.seeds) == len(done.rows) == done.runs == 6
    (span,) = done.intervals.values()
    assert span.low < md1_wait(0.5) * 1e3 < span.high


def test_a_closer_case_takes_more_seeds(one_server):
    far, near = (found(one_server(), waits(k * md1_wait(0.5))) for k in (0.4, 0.9))
    assert far.met is near.met is False
    assert len(near.seeds) > len(far.seeds) == 6


def test_a_broken_objective_is_named(one_server):
    done = found(one_server(), f"{waits(0.4 * md1_wait(0.5))}, ttft_p99<=10s")
    assert done.met is False
    assert done.why == "queue_mean <= 2ms is broken"
    assert done.binding.objective == "queue_mean <= 2ms"


def test_what_is_not_far_from_its_limit_is_met_only_if_longer_runs_say_the_same(one_server):
    far, near = (found(one_server(), waits(k * md1_wait(0.5))) for k in (3, 1.6))
    assert far.met is near.met is True
    assert (far.requests, near.requests) == (3000, 6000)


def test_a_tail_of_rare_busy_times_is_not_met_because_short_runs_have_none(one_server):
    """At 99 % of its capacity a server has a backlog of minutes now and then; most short runs see none of it (M/D/1: the mean wait
    alone is 0.5 s)."""
    done = found(one_server("workload.arrivals.rate=99"), f"queue_mean<={0.45e3}ms", requests=1000)
    assert done.met is not True


def test_what_cannot_be_told_stays_open(one_server):
    done = found(one_server(), waits(md1_wait(0.5)), most=6)
    assert done.met is None
    assert "too close to its limit to tell with 6 seeds" in done.why


def test_what_more_seeds_are_not_likely_to_tell_is_given_up(one_server):
    twelve = found(one_server(), waits(md1_wait(0.5)), requests=400, most=12)
    (span,) = twelve.intervals.values()
    done = found(one_server(), f"queue_mean<={span.estimate:.6f}ms", requests=400)
    assert (done.met, done.runs) == (None, 12)


def test_each_look_spends_half_of_what_is_left(one_server):
    done = found(one_server(), waits(3 * md1_wait(0.5)))
    assert next(iter(done.intervals.values())).confidence == pytest.approx(0.975)
    done = found(one_server(), waits(0.9 * md1_wait(0.5)), most=12)
    assert next(iter(done.intervals.values())).confidence == pytest.approx(0.9875)


def test_an_overloaded_run_is_not_sustained_however_short(one_server):
    """Each answer has one token, so that TPOT is undefined, E2E is far from its limit, and only the backlog tells."""
    done = found(one_server("workload.arrivals.rate=130"), "e2e_p99<=1h")
    assert (done.met, done.sustained) == (False, False)
    assert done.binding.objective == BACKLOG
    assert done.growth.low > PILES_UP
    assert done.growth.estimate == pytest.approx(1 - 100 / 130, abs=0.01)
    assert done.binding.resource == "max_num_seqs"
    assert done.runs == 12, "growth is confirmed by longer runs"


def test_a_busy_server_that_keeps_up_is_sustained(one_server):
    done = found(one_server("workload.arrivals.rate=85"), "e2e_p99<=1h")
    assert (done.met, done.sustained) == (True, True)
    assert done.growth.high < PILES_UP


def test_a_tail_that_a_run_does_not_carry_makes_it_longer(one_server):
    done = found(one_server(), "queue_p99<=1s", requests=40)
    assert done.met is True
    assert done.requests >= 80


def test_a_tail_that_no_run_may_carry_stays_open(one_server):
    done = found(one_server(), "queue_p99<=1s", requests=40, longest=40, most=6)
    assert done.met is None
    assert "of the independent samples" in done.why


def test_who_is_turned_away_counts(one_server):
    """The two requests that may wait do so briefly, but a fifth of all is turned away."""
    done = found(one_server("workload.arrivals.rate=110", "admission.max_queue_requests=2"), "ttft_p99<=1s")
    assert (done.met, done.sustained) == (False, False)
    assert done.binding.objective == TURNED_AWAY
    assert "turned away" in done.why


def test_where_the_seed_changes_nothing_one_run_says_all(one_server):
    done = found(one_server("workload.arrivals={process: constant, rate: 90}"), "ttft_p99<=11ms")
    assert done.met is True
    assert done.alike
    assert len(done.rows) == 1
    (span,) = done.intervals.values()
    assert (span.estimate, span.low) == (pytest.approx(10.0), None)
    assert "seed changes nothing" in span.refused


def test_stages_are_judged_as_a_whole(one_server):
    stages = "{process: staged, within: poisson, stages: [{rate: 20, duration: 20s}, {rate: 130, duration: 10s}, {rate: 20, duration: 20s}]}"
    scenario = one_server(f"workload.arrivals={stages}", "workload.requests=null")
    done = found(scenario, "ttft_p99<=10s")
    assert done.met is True
    assert done.sustained is None
    assert done.requests == pytest.approx(2100, rel=0.1)
    assert found(scenario, "ttft_p90<=500ms").met is False


def test_clients_that_wait_for_answers_have_no_backlog(one_server):
    done = found(one_server("workload.arrivals={process: closed_loop, concurrency: 8}"), "e2e_p99<=1s")
    assert done.met is True
    assert done.growth.estimate is None


def test_the_answer_does_not_depend_on_processes(one_server):
    alone, together = (
        attain(one_server(), parse(waits(1.3 * md1_wait(0.5))), processes=n, requests=600) for n in (1, 2)
    )
    assert alone == together


def test_a_fraction_of_good_requests(one_server):
    scenario = one_server("slo.ttft=30ms")
    assert found(scenario, "good_request_fraction>=0.9").met is True
    done = found(scenario, "good_request_fraction>=0.999")
    assert done.met is False
    assert done.binding.objective == "good_request_fraction >= 0.999"


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ("", "objectives are needed"),
        ("ttft:500", "reads like"),
        ("tfft_p99<=500ms", "did you mean 'ttft_p99'"),
        ("ttft_p99<=500", "unit"),
        ("ttft_p99<=1s, ttft_p99>=2s", "contradict"),
        ("ttft_p50>=2s, ttft_p99<=1s", "contradict"),
        ("good_request_fraction>=1.5", "at most 1"),
    ],
)
def test_objectives_that_cannot_be_are_refused(slo, said):
    with pytest.raises(InputError, match=said):
        parse(slo)


def test_objectives_that_agree_are_taken():
    assert len(parse("ttft_p50<=1s, ttft_p99<=1s; ttft_p99>=1ms, ttft_p99>=1ms")) == 3


def test_a_goodput_without_promises_is_refused(one_server):
    with pytest.raises(InputError, match="makes none"):
        attain(one_server(), [parse_objective("request_goodput>=5")])


def test_a_scenario_without_objectives_is_told_how_to_say_them(one_server):
    with pytest.raises(InputError, match="--slo"):
        attain(one_server())


def test_fewer_seeds_than_an_interval_needs_are_refused(one_server):
    with pytest.raises(ValueError, match="5 seeds"):
        attain(one_server(), parse("ttft_p99<=1s"), most=4)
