"""Runs every study of the question library in full, and says which figures of the answers do not come out: `python bench/questions.py
[NAME ...]`. Exit code 1 if one does not, or an expectation does not hold."""

from __future__ import annotations

import sys
import time

from studies import questions
from studies.reports import written


def main(names: list[str]) -> int:
    """Prints a line a study, and one a figure that differs."""
    wrong = 0
    for name in names or [each for topic in questions.TOPICS.values() for each in topic]:
        begun = time.perf_counter()
        found = questions.ask(name)
        print(f"{name}: {len(found.rows)} runs in {time.perf_counter() - begun:.1f} s", flush=True)
        for expected, first, second, holds in found.outcome:
            if not holds:
                wrong += 1
                print(f"  does not hold: {expected} ({first} against {second})")
        for shown, interval, same in found.figures:
            if not same:
                wrong += 1
                print(f"  stated {shown.say}, found {written.plus_minus(interval)}: {shown}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
