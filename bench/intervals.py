"""How often intervals hold the truth: batch means of one series, against what they say.

Series of known mean: independent values, autoregressive ones, and waiting times of M/M/1. Of those that are not refused, the part
whose 95 % interval holds the mean; and the part of all whose interval misses it, which is what a reader is misled by.

    python bench/intervals.py [--trials N] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from studies.statistics import intervals
from studies.statistics.batch_means import batch_means
from tests.studies.statistics.series import Floats, autoregressive, waits

Draw = Callable[[np.random.Generator, int], Floats]
SERIES: dict[str, tuple[Draw, float]] = {
    "independent": (lambda rng, n: autoregressive(rng, n, 0.0), 0.0),
    "AR(1), 0.5": (lambda rng, n: autoregressive(rng, n, 0.5), 0.0),
    "AR(1), 0.9": (lambda rng, n: autoregressive(rng, n, 0.9), 0.0),
    "AR(1), 0.99": (lambda rng, n: autoregressive(rng, n, 0.99), 0.0),
    "M/M/1, load 0.5": (lambda rng, n: waits(rng, n, 0.5), 1.0),
    "M/M/1, load 0.8": (lambda rng, n: waits(rng, n, 0.8), 4.0),
}
LENGTHS = (300, 1_000, 3_000, 20_000)


def row(draw: Draw, truth: float, n: int, trials: int) -> dict[str, float | None]:
    """Parts of `trials` series of n values."""
    refused = held = as_if = 0
    for seed in range(trials):
        values = draw(np.random.default_rng((n, seed)), n)
        found, naive = batch_means(values), intervals.mean(values.tolist())
        refused += found.low is None
        held += found.low is not None and found.low <= truth <= (found.high or 0)
        as_if += naive.low is not None and naive.low <= truth <= (naive.high or 0)
    given = trials - refused
    return {
        "refused": refused / trials,
        "held": held / given if given else None,
        "missed": (given - held) / trials,
        "held_as_if_independent": as_if / trials,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    found = [
        {"series": name, "values": n, **row(draw, truth, n, options.trials)}
        for name, (draw, truth) in SERIES.items()
        for n in LENGTHS
    ]
    if options.json:
        print(json.dumps(found))
        return
    head = f"{'series':<16} {'values':>7} {'refused':>8} {'held':>6} {'missed':>7} {'as if independent':>18}"
    print(head)
    for one in found:
        held = "-" if one["held"] is None else f"{one['held']:.0%}"
        print(
            f"{one['series']:<16} {one['values']:>7,} {one['refused']:>8.0%} {held:>6} {one['missed']:>7.1%} "
            f"{one['held_as_if_independent']:>18.0%}"
        )


if __name__ == "__main__":
    main()
