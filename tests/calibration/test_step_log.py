"""Fitting an engine's own step log: contexts from counts, only the rows that are asked for, slow minutes apart from costs."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.features import steps_to_shapes
from calibration.fit import Fitter
from calibration.fit_log import fit_log, fit_own_steps, lag_one
from calibration.measured.checked import measured
from calibration.step_log import COLUMNS, read_iterations, shapes
from scenarios import InputError
from serving.config import EngineConfig
from sim.cluster import simulate
from sim.profile_cost import ProfileCost
from sim.profiles import load_profile

COST = ProfileCost(load_profile("cpu-avx2-qwen3-tiny"))
ENGINE = EngineConfig(num_gpu_blocks=2000, block_size=16, max_num_batched_tokens=300, max_num_seqs=32)
MADE = {"name": "log", "model": "qwen3-tiny", "dtype": "bfloat16", "kv_dtype": "bfloat16", "device": "cpu"}


@pytest.fixture(scope="module")
def steps():
    """Steps of prompts of 100 tokens and answers of 40, alone and in crowds, some prompts cut at the budget."""
    rng = np.random.default_rng(5)
    arrival = np.concatenate([np.arange(20) * 3.0, 60 + np.sort(rng.uniform(0, 8, 120))])
    n = len(arrival)
    run = measured(
        "run", "memory", arrival=arrival, input_tokens=[100] * n, output_tokens=[40] * n, origin="engine"
    )  # fmt: skip
    return simulate(ENGINE, run.workload(), COST).steps


def written(path, steps, ms=None):
    """The log as an engine would write it: counts and milliseconds."""
    ms = (steps["end_ns"] - steps["start_ns"]) / 1e6 if ms is None else ms
    names = ("step", "prefill_sequences", "prefill_tokens", "decode_sequences", "decode_sequences")
    rows = zip(*(steps[name].tolist() for name in names), ms.tolist(), strict=True)
    path.write_text("\n".join([",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_contexts_are_reconstructed_from_counts_alone(tmp_path, steps):
    log = read_iterations(written(tmp_path / "steps.csv", steps))
    found = shapes(log, budget=300, block_size=16)
    assert (steps["prefill_tokens"] + steps["decode_sequences"]).max() == 300
    assert [s._replace(prefill=()) for s in found] == [s._replace(prefill=()) for s in steps_to_shapes(steps)]
    assert [s.prefill_attention for s in found] == steps["prefill_attention"].tolist()


def test_a_log_that_starts_in_the_middle_leaves_rows_out_until_all_are_known(tmp_path, steps):
    log = read_iterations(written(tmp_path / "steps.csv", steps)).take("10:")
    found = shapes(log, budget=300, block_size=16)
    assert found[0] is None
    assert None not in found[60:]
    assert [s.decode_context for s in found[60:]] == steps["decode_context"][70:].tolist()


def test_short_prompts_below_the_budget_found_their_beginning_cached(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(f"{','.join(COLUMNS)}\n0,1,64,0,0,9\n1,0,0,1,1,5\n2,1,32,1,1,9\n3,0,0,2,2,5\n")
    found = shapes(read_iterations(path), input_tokens=64, budget=300, block_size=16)
    assert found[2].prefill == ((32, 32),)
    assert found[3].decode_context == 66 + 64


def test_the_fit_predicts_what_the_engine_took(tmp_path, steps):
    log = read_iterations(written(tmp_path / "steps.csv", steps))
    profile = fit_log(log, budget=300, **MADE)
    assert profile.cv_error["all"].mape < 0.02
    assert profile.domain.tokens.max == 300
    assert profile.source.details["rows"].startswith(f"{len(log)} of {len(log)}")


def test_rows_that_are_not_asked_for_change_nothing(tmp_path, steps):
    ms = (steps["end_ns"] - steps["start_ns"]) / 1e6
    other = ms.copy()
    other[:500] *= 7
    fits = []
    for name, durations in (("a.csv", ms), ("b.csv", other)):
        log = read_iterations(written(tmp_path / name, steps, durations)).take("500:")
        fits.append(fit_log(log, budget=300, **MADE))
    a, b = ({**fit.model_dump(), "source": None} for fit in fits)
    assert a == b


def test_a_rare_shape_that_was_only_seen_in_slow_moments_does_not_become_dear(tmp_path):
    """A prompt beside a decode, five times in all, each time while everything around it took 1.4 times as long."""
    arrival = np.concatenate([np.arange(40) * 3.0, np.arange(0, 40, 8) * 3.0 + 0.2])
    n = len(arrival)
    run = measured("run", "memory", arrival=arrival, input_tokens=[100] * n, output_tokens=[40] * n, origin="engine")
    steps = simulate(ENGINE, run.workload(), COST).steps
    rare = np.flatnonzero((steps["prefill_tokens"] > 0) & (steps["decode_sequences"] > 0))
    assert len(rare) == 5
    slow = np.ones(len(steps["step"]))
    for at in rare.tolist():
        slow[at - 8 : at + 9] = 1.4
    log = read_iterations(written(tmp_path / "steps.csv", steps, (steps["end_ns"] - steps["start_ns"]) / 1e6 * slow))
    shaped = [shape for shape in shapes(log, budget=300, block_size=16) if shape is not None]
    truth = COST.step_ns(shaped[rare[0]])
    plain = Fitter(folds=2).fit(shaped, log.elapsed_ns).predict([shaped[rare[0]]])[0]
    ours = ProfileCost(fit_log(log, budget=300, **MADE)).step_ns(shaped[rare[0]])
    assert plain / truth > 1.25
    assert ours / truth - 1 < 0.7 * (plain / truth - 1)


def test_lag_one_of_independent_values_is_small_and_of_a_slow_drift_is_not():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=20_000)
    drift = np.empty_like(noise)
    drift[0] = 0
    for i in range(1, len(noise)):
        drift[i] = 0.8 * drift[i - 1] + noise[i]
    assert abs(lag_one(noise)) < 0.03
    assert lag_one(drift) == pytest.approx(0.8, abs=0.02)
    assert lag_one(np.ones(10)) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iteration,prefill_requests\n1,2\n", r"line 1: no column prefill_tokens, decode_requests"),
        (f"{','.join(COLUMNS)}\n1,0,0,1,1,0\n", r"line 2: elapsed_ms: found '0', but a duration above 0"),
        (f"{','.join(COLUMNS)}\n1,0,0,1,1,nan\n", r"line 2: elapsed_ms: found 'nan'"),
        (f"{','.join(COLUMNS)}\n1,0,0,1,1,5\n1,0,0,1,1,5\n", r"line 3: iteration: found 1 after 1"),
        (f"{','.join(COLUMNS)}\n1,0,0,0,0,5\n", r"0 in every iteration; .* that had work"),
        (f"{','.join(COLUMNS)}\n1,0,0,1,3,5\n", r"line 2: decode_tokens: found 3 of 1 decodes"),
        (f"{','.join(COLUMNS)}\n1,0,0,-1,-1,5\n", r"line 2: decode_requests: found '-1'"),
        ("", r"the file is empty"),
    ],
)
def test_a_wrong_log_is_refused_with_line_and_column(tmp_path, text, message):
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_iterations(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("all", "FROM:TO is needed"),
        (":", "FROM:TO"),
        ("99999:", "the log has iterations"),
        ("9" * 5000 + ":", "FROM:TO"),
    ],
)
def test_rows_are_a_range_of_iterations_that_is_there(tmp_path, steps, rows, message):
    log = read_iterations(written(tmp_path / "steps.csv", steps))
    with pytest.raises(InputError, match=message):
        log.take(rows)


def test_a_servers_own_log_is_read_as_the_table(tmp_path):
    line = "(EngineCore_DP0 pid=1) INFO 11-30 00:53:11 [core.py:359] Iteration({}): {} context requests, {} context tokens, {} "
    line += "generation requests, {} generation tokens, iteration elapsed time: {} ms, GPU KV cache usage: 0.1%"
    rows = [(0, 1, 64, 0, 0, "20.50"), (1, 0, 0, 1, 1, "5.25"), (2, 1, 64, 1, 1, "21.00")]
    log, table = tmp_path / "server.log", tmp_path / "steps.csv"
    log.write_text("\n".join(["INFO Started.", *(line.format(*row) for row in rows), "INFO Stopped."]))
    table.write_text("\n".join([",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]))
    assert read_iterations(log).hash() == read_iterations(table).hash()
    log.write_text(log.read_text() + "\nIteration(3): nothing")
    with pytest.raises(InputError, match=r"line 6: found 'Iteration\(3\): nothing'"):
        read_iterations(log)


def test_too_few_known_rows_are_refused(tmp_path, steps):
    log = read_iterations(written(tmp_path / "steps.csv", steps)).take(":5")
    with pytest.raises(InputError, match="too few to fit"):
        fit_log(log, input_tokens=100, **MADE)


def test_the_log_of_a_run_of_ours_holds_its_contexts(tmp_path, steps):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table(steps), tmp_path / "steps.parquet")
    profile = fit_own_steps(tmp_path, **MADE)
    assert profile.cv_error["all"].mape < 0.02
    assert profile.noise is not None
    parquet.write_table(pa.table({"step": steps["step"]}), tmp_path / "steps.parquet")
    with pytest.raises(InputError, match=r"steps\.parquet: no column replica"):
        fit_own_steps(tmp_path, **MADE)
    with pytest.raises(InputError, match="there is no such file"):
        fit_own_steps(tmp_path / "elsewhere.parquet", **MADE)
