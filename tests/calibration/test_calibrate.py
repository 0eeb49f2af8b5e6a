"""Calibration of a machine with known costs."""

import numpy as np
import pytest

from calibration.calibrate import Calibration, profile_of
from calibration.measure import Grid, Rounds, grid, steady
from serving.config import EngineConfig
from serving.plan import StepShape
from sim.profile import Profile
from sim.profile_cost import ProfileCost
from sim.profile_parts import Source
from tests.calibration.synthetic import SyntheticStepper

ENGINE = EngineConfig(num_gpu_blocks=1025, max_model_len=1024, max_num_seqs=32, max_num_batched_tokens=512)


def unseen(count: int = 200) -> list[StepShape]:
    """Random shapes inside the domain of ENGINE's grid."""
    rng = np.random.default_rng(5)
    shapes = []
    for _ in range(count):
        n = int(rng.integers(0, 32))
        mean = int(rng.integers(20, 400))
        chunks = tuple((int(rng.integers(1, 200)), int(rng.integers(0, 500))) for _ in range(rng.integers(n == 0, 3)))
        shapes.append(StepShape(chunks, n, n * mean, mean, n + len(chunks)))
    return shapes


def calibration(stepper: SyntheticStepper, shapes: Grid | list[StepShape] = "standard") -> Calibration:
    return Calibration(stepper, name="p", model="m", engine=ENGINE, shapes=shapes)


def measured(stepper: SyntheticStepper, shapes: list[StepShape], rounds: int = 6):
    campaign = Rounds(stepper, shapes)
    for _ in range(rounds * len(shapes)):
        campaign.step()
    return campaign.result()


def errors(profile: Profile, stepper: SyntheticStepper) -> np.ndarray:
    cost = ProfileCost(profile)
    return np.array([cost.step_ns(s) / stepper.exact(s) - 1 for s in unseen()])


def test_exact_costs_are_recovered_on_shapes_that_were_not_measured():
    stepper = SyntheticStepper()
    profile = calibration(stepper).run(1)
    assert np.abs(errors(profile, stepper)).max() < 1e-3
    assert profile.coefficients.pair == pytest.approx(stepper.pair, rel=0.01)
    assert profile.coefficients.decode_context == pytest.approx(stepper.decode_context, rel=0.01)
    assert profile.coefficients.prefill_context == pytest.approx(stepper.prefill_context, rel=0.02)
    assert profile.coefficients.chunk == pytest.approx(stepper.chunk, rel=0.02)
    assert profile.cv_error["all"].mape < 1e-3


def test_noise_of_three_percent_and_slow_repeats_leave_a_fit_within_two_percent():
    stepper = SyntheticStepper(noise=0.03, slow=0.03)
    profile = calibration(stepper).run()
    off = errors(profile, stepper)
    assert np.abs(off).mean() < 0.02
    assert abs(off.mean()) < 0.01
    assert profile.cv_error["all"].mape < 0.04


def test_quick_grid_is_at_most_half_of_the_standard_one_and_still_fits():
    stepper = SyntheticStepper(noise=0.02)
    profile = calibration(stepper, "quick").run()
    assert len(profile.measurements) <= len(grid(ENGINE, "standard")) / 2
    assert np.abs(errors(profile, stepper)).mean() < 0.03


def test_a_step_in_latency_is_kept_and_named():
    def dense(tokens: int) -> float:
        return 6e6 + 40_000.0 * tokens + (5e6 if tokens > 16 else 0.0)

    stepper = SyntheticStepper(dense)
    profile = calibration(stepper).run(1)
    (jump,) = [j for j in profile.jumps if j.kind == "step"]
    assert (jump.tokens_from, jump.ns) == (16, pytest.approx(5e6, rel=0.1))
    cost = ProfileCost(profile)
    rise = cost.decode_ns(jump.tokens_to, 0, 0) - cost.decode_ns(16, 0, 0)
    assert rise > 4.5e6


def test_a_dip_is_ironed_out_of_the_costs_but_reported():
    def dense(tokens: int) -> float:
        return 6e6 + 40_000.0 * tokens - (1.2e6 if tokens >= 24 else 0.0)

    profile = calibration(SyntheticStepper(dense)).run(1)
    assert [(j.tokens_from, j.tokens_to) for j in profile.jumps if j.kind == "dip"] == [(17, 24)]
    cost = ProfileCost(profile)
    steps = [cost.decode_ns(n, 32 * 100, 0) for n in range(1, 33)]
    assert steps == sorted(steps)


def test_a_slow_repeat_is_reported_with_its_shape_and_does_not_move_the_median():
    shapes = grid(ENGINE, "quick")

    class Hiccup(SyntheticStepper):
        def measure(self, shape: StepShape) -> int:
            ns = super().measure(shape)
            return 10 * ns if shape == shapes[3] and self.calls.count(shape) == 4 else ns

    stepper = Hiccup()
    measurements, outliers = measured(stepper, shapes)
    (outlier,) = outliers
    assert outlier.shape.shape == shapes[3]
    assert outlier.ns == 10 * round(stepper.exact(shapes[3]))
    assert measurements[3].ns == round(stepper.exact(shapes[3]))
    assert measurements[3].spread == pytest.approx(9.0)


def test_each_round_visits_every_shape_in_an_order_of_its_own():
    stepper, ticks = SyntheticStepper(), []
    shapes = grid(ENGINE, "quick")
    calibration(stepper, shapes).run(2, lambda done, total: ticks.append((done, total)))
    n = len(shapes)
    rounds = [stepper.calls[i : i + n] for i in (0, n, 2 * n)]
    assert all(sorted(r) == sorted(shapes) for r in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    assert ticks[-1] == (3 * n, 3 * n)


def test_same_measurements_give_the_same_profile():
    measurements, outliers = measured(SyntheticStepper(noise=0.05), grid(ENGINE, "quick"))
    info = SyntheticStepper().info()
    a, b = (profile_of(measurements, outliers, name="p", model="m", info=info, created="t") for _ in range(2))
    assert a.model_dump_json() == b.model_dump_json()
    assert a.hash() == b.hash()


def test_profile_keeps_source_domain_and_residuals():
    profile = calibration(SyntheticStepper(noise=0.05)).run()
    assert profile.source == Source(device="formula", clock="cpu", threads=1, details={"seed": "7"})
    assert profile.block_size == 16
    assert (profile.domain.tokens.min, profile.domain.tokens.max) == (1, 512)
    assert profile.domain.decode_sequences.max == 32
    assert profile.domain.prefill_query.max == 512
    assert len(profile.residuals) == 101
    assert profile.residuals[0] < 0 < profile.residuals[100]
    assert abs(profile.residuals[50]) < 0.02
    assert set(profile.cv_error) == {"all", "decode", "prefill", "mixed"}


@pytest.mark.parametrize("size", ["quick", "standard"])
@pytest.mark.parametrize(
    "engine",
    [
        ENGINE,
        EngineConfig(num_gpu_blocks=65, max_model_len=256, max_num_seqs=64, max_num_batched_tokens=2048),
        EngineConfig(num_gpu_blocks=4097, max_model_len=4096, max_num_seqs=256, max_num_batched_tokens=8192),
        EngineConfig(num_gpu_blocks=9, max_model_len=100, max_num_seqs=1, max_num_batched_tokens=16),
    ],
)
def test_grid_holds_only_what_the_engine_could_run(engine, size):
    shapes = grid(engine, size)
    assert len(shapes) == len(set(shapes)) >= 8
    assert len(shapes) <= (240 if size == "standard" else 90)
    for shape in shapes:
        assert 1 <= shape.tokens <= engine.max_num_batched_tokens
        assert shape.decode_sequences + len(shape.prefill) <= engine.max_num_seqs
        assert all(q + c < engine.max_model_len for q, c in shape.prefill)
        assert shape.decode_max_context < engine.max_model_len
        assert shape.decode_context + shape.tokens <= engine.usable_blocks * engine.block_size
        assert shape.decode_sequences <= shape.sampled <= shape.decode_sequences + len(shape.prefill)


def test_slow_moments_of_the_machine_are_taken_out():
    rng = np.random.default_rng(0)
    true = rng.uniform(10e6, 90e6, 80)
    order = np.array([rng.permutation(80) for _ in range(5)])
    # Slow spells of about twenty steps, 25 % each, and 2 % of noise of every step.
    spell = np.repeat(rng.random(20) < 0.4, 20)
    times = np.zeros((5, 80), dtype=np.int64)
    for k, (turn, i) in enumerate(zip(np.repeat(np.arange(5), 80), order.ravel(), strict=True)):
        times[turn, i] = true[i] * (1.25 if spell[k] else 1.0) * np.exp(0.02 * rng.standard_normal())

    def spread_of(ns: np.ndarray) -> float:
        return float(np.std(np.log(np.median(ns, axis=0) / true)))

    assert spread_of(steady(times, order)) < spread_of(times) / 2


def test_a_steady_machine_is_left_alone():
    rng = np.random.default_rng(0)
    order = np.array([rng.permutation(30) for _ in range(5)])
    times = np.tile(np.arange(1, 31) * 1_000_000, (5, 1))
    assert steady(times, order) == pytest.approx(times)


def test_steps_may_be_spread_over_other_work_and_a_part_of_a_round_does_not_count():
    stepper = SyntheticStepper(noise=0.02)
    made = calibration(stepper, "quick")
    with pytest.raises(ValueError, match="too few"):
        made.profile()
    for _ in range(made.steps * 4 + 7):
        made.step()
        stepper.measure(StepShape((), 1, 10, 10, 1))  # a live step in between
    profile = made.profile()
    assert {m.repeats for m in profile.measurements} == {3}
    assert np.abs(errors(profile, stepper)).mean() < 0.03
