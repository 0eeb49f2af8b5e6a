"""Features of steps: the same numbers from shapes and from a step log."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calibration.features import Observations, shapes_to_observations, steps_to_observations, steps_to_shapes
from calibration.fit import Fitter
from serving.plan import StepPlan, StepShape
from serving.records import StepLog
from tests.calibration.synthetic import SyntheticStepper


def logged(shapes: list[StepShape], durations: list[int]) -> dict[str, np.ndarray]:
    log, now = StepLog(), 0
    for i, (shape, ns) in enumerate(zip(shapes, durations, strict=True)):
        log.add(StepPlan(i, [], shape), now, now, now + ns, 0)
        now += ns
    return log.arrays()


def columns(seen: Observations) -> np.ndarray:
    names = ("tokens", "chunks", "pairs", "prefill_context", "decode_sequences", "decode_context", "sampled")
    return np.column_stack([getattr(seen, name) for name in names])


@given(
    st.lists(
        st.tuples(st.integers(0, 600), st.integers(0, 4000), st.integers(0, 40), st.integers(0, 900)).filter(
            lambda row: row[0] + row[2] > 0
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_log_of_steps_with_one_chunk_gives_the_features_of_its_shapes(rows):
    shapes = [
        StepShape(((query, context),) if query else (), n, n * mean, mean if n else 0, n + (query > 0))
        for query, context, n, mean in rows
    ]
    steps = logged(shapes, [1000] * len(shapes))
    assert steps_to_shapes(steps) == shapes
    seen, durations = steps_to_observations(steps)
    assert (columns(seen) == columns(shapes_to_observations(shapes))).all()
    assert (durations == 1000).all()


def test_several_chunks_keep_their_sums():
    shape = StepShape(((300, 128), (40, 0), (7, 0)), 5, 600, 200, 7)
    (back,) = steps_to_shapes(logged([shape], [1]))
    assert len(back.prefill) == 3
    assert back.tokens == shape.tokens
    assert abs(back.prefill_attention - shape.prefill_attention) <= shape.tokens
    assert back[1:] == shape[1:]


def test_steps_whose_chunks_are_unknown_are_not_fitted_on():
    shapes = [StepShape(((8, 0), (9, 0)), sampled=2), StepShape(((8, 0),), sampled=1)]
    seen, durations = steps_to_observations(logged(shapes, [70, 80]))
    assert len(seen) == 1
    assert durations.tolist() == [80.0]


def test_a_step_log_can_be_fitted():
    stepper, rng = SyntheticStepper(noise=0.01), np.random.default_rng(3)
    shapes = []
    for _ in range(600):
        n, mean = int(rng.integers(0, 16)), int(rng.integers(20, 400))
        chunk = ((int(rng.integers(1, 256)), int(rng.integers(0, 300))),) if rng.random() < 0.4 or n == 0 else ()
        shapes.append(StepShape(chunk, n, n * mean, mean, n + len(chunk)))
    seen, durations = steps_to_observations(logged(shapes, [stepper.measure(s) for s in shapes]))
    fitted = Fitter().fit(seen, durations)
    exact = np.array([stepper.exact(s) for s in shapes])
    assert np.abs(fitted.predict(shapes) / exact - 1).mean() < 0.01


def test_a_chunk_of_one_token_counts_as_a_decode():
    as_chunk, as_decode = StepShape(((1, 300), (8, 0)), 4, 1200, 300, 5), StepShape(((8, 0),), 5, 1500, 300, 5)
    assert (columns(shapes_to_observations([as_chunk])) == columns(shapes_to_observations([as_decode]))).all()
