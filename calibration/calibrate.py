"""From a machine that can run steps to a profile: measure, fit, cross-validate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from calibration.fit import Fitter
from calibration.measure import Grid, Progress, Rounds, Stepper, grid
from serving.config import EngineConfig
from serving.plan import StepShape
from sim.profile import Measurement, Outlier, Profile, data_hash
from sim.profile_parts import Domain, Range, Source


class Calibration:
    """A profile in the making: measured a step at a time, then fitted.

    A validation on a shared machine measures between the steps of the live run that it will be compared with, so that both
    meet the same fast and slow moments (step times drift by a fifth within minutes there). `run` does it all at once.

    Args:
        name: of the profile. model: name of the architecture that `stepper` runs.
        engine: its settings; they bound the grid.
        shapes: a grid by name, or the shapes themselves.
    """

    def __init__(
        self,
        stepper: Stepper,
        *,
        name: str,
        model: str,
        engine: EngineConfig,
        shapes: Grid | Sequence[StepShape] = "standard",
        seed: int = 0,
    ) -> None:
        self.name, self.model, self.engine, self.seed = name, model, engine, seed
        self._rounds = Rounds(stepper, grid(engine, shapes) if isinstance(shapes, str) else shapes, seed)

    @property
    def steps(self) -> int:
        """Steps of one round, which measures every shape once. The first round warms up and does not count."""
        return len(self._rounds.shapes)

    def step(self) -> None:
        """Measures the next shape."""
        self._rounds.step()

    def run(self, repeats: int = 5, progress: Progress | None = None) -> Profile:
        """Measures every shape `repeats` times after a warm-up, with nothing in between, and fits.

        Args:
            progress: called with (steps done, steps in all) after each step.
        """
        total = self.steps * (repeats + 1)
        for done in range(1, total + 1):
            self.step()
            if progress is not None:
                progress(done, total)
        return self.profile()

    def profile(self) -> Profile:
        """Fits what was measured in whole rounds."""
        measurements, outliers = self._rounds.result()
        return profile_of(
            measurements,
            outliers,
            name=self.name,
            model=self.model,
            info=self._rounds.stepper.info(),
            block_size=self.engine.block_size,
            seed=self.seed,
        )


def profile_of(
    measurements: Sequence[Measurement],
    outliers: Sequence[Outlier] = (),
    *,
    name: str,
    model: str,
    info: Mapping[str, object],
    block_size: int | None = None,
    seed: int = 0,
    created: str | None = None,
) -> Profile:
    """Fits a profile to what was measured; `info` is `Stepper.info()`."""
    fitted = Fitter(seed=seed).fit([m.shape for m in measurements], [float(m.ns) for m in measurements])
    residuals = np.percentile(fitted.residuals_, np.arange(101))
    return Profile(
        name=name,
        created=created or datetime.now(UTC).isoformat(timespec="seconds"),
        source=_source(info),
        model=model,
        dtype=str(info.get("dtype", "unknown")),
        kv_dtype=str(info.get("kv_dtype", "unknown")),
        block_size=block_size,
        domain=_domain([m.shape for m in measurements]),
        dense=fitted.dense_,
        coefficients=fitted.coefficients_,
        jumps=fitted.jumps_,
        residuals=tuple(residuals.tolist()),
        cv_error=fitted.cv_error_,
        outliers=tuple(outliers),
        measurements=tuple(measurements),
        data_hash=data_hash(measurements),
    )


def _source(info: Mapping[str, object]) -> Source:
    """What has a place of its own in the schema goes there, the rest stays by name."""
    known = ("device", "clock", "threads", "dtype", "kv_dtype", "model")
    threads = info.get("threads")
    return Source(
        device=str(info.get("device", "unknown")),
        clock=str(info.get("clock", "unknown")),
        threads=threads if isinstance(threads, int) else None,
        details={name: str(value) for name, value in info.items() if name not in known},
    )


def _domain(shapes: Sequence[StepShape]) -> Domain:
    def span(values: Sequence[int]) -> Range:
        return Range(min=min(values, default=0), max=max(values, default=0))

    chunks = [chunk for shape in shapes for chunk in shape.prefill]
    return Domain(
        tokens=span([s.tokens for s in shapes]),
        prefill_query=span([q for q, _ in chunks]),
        prefill_context=span([c for _, c in chunks]),
        decode_sequences=span([s.decode_sequences for s in shapes]),
        decode_context=span([s.decode_context for s in shapes]),
        sampled=span([s.sampled for s in shapes]),
    )
