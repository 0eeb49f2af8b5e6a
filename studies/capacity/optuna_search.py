"""Large spaces: Optuna chooses which configurations are looked at (Tree-structured Parzen Estimator, seeded)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError
from studies.capacity.space import Space

if TYPE_CHECKING:
    from studies.capacity.cheapest import Judged, Search

DRAWS = 10
"""Draws a trial, at most: what was drawn before, cannot be or is known to be dearer is no trial."""
OUT = 1e12
"""USD that count for a configuration that will not do, and more the farther it is from its limits: only the order matters."""


def choose(space: Space, search: Search, trials: int) -> None:
    """Runs so many different configurations, or all if there are fewer. The same seed of the scenario chooses the same.

    Raises:
        InputError: Optuna is not installed.
    """
    optuna = _optuna()
    dimensions = space.dimensions()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=space.scenario.seed))
    for _ in range(DRAWS * trials):
        if search.run >= trials or len(search.known) == space.size:
            return
        trial = study.ask()
        choices = [
            trial.suggest_int(d.name, 0, d.size - 1)
            if d.ordered
            else trial.suggest_categorical(d.name, list(range(d.size)))
            for d in dimensions
        ]
        known = search.known.get(space.index(choices))
        judged = search.look(space.at(choices)) if known is None else known
        study.tell(trial, _value(judged))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError(
            "--trials: Optuna is not installed; pip install 'servetwin[search]', or leave --trials out, and every configuration is "
            "tried"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _value(judged: Judged) -> float:
    """What Optuna is to make small: the cost of what will do, and of what costs more than the best; else how far it is off."""
    if judged.outcome in ("met", "not confirmed"):
        return judged.usd
    if judged.outcome == "dearer":
        return judged.candidate.usd_per_hour or OUT
    off = judged.headroom if math.isfinite(judged.headroom) else 1e3
    return OUT * (1.0 + min(off, 1e3))
