"""What the dashboard's processes do about studies and kept runs: open them, and run small ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from studies import results
from studies.results import Run
from studies.sweeps import run
from studies.sweeps import study as studies_of
from studies.sweeps.results import Sweep, load_sweep

if TYPE_CHECKING:
    from dashboard.worker import Tell

FEW = 12
"""Cells up to which other processes would not be worth their start."""
PAUSE = 1.0
"""Seconds between two looks at what there is already; ten times as long as a look takes, if that is more."""


def open_sweep(tell: Tell, folder: Path) -> Sweep:
    """The study of a folder."""
    return load_sweep(folder, lambda part: tell("reading the finished cells", part))


def open_run(tell: Tell, folder: Path) -> Run:
    """The run of a folder."""
    tell("reading", 0.0)
    return results.load(folder)


def sweep(tell: Tell, file: Path, folder: Path) -> Sweep:
    """Runs the cells of a study that its folder has not; cells that cannot be run become failed rows."""
    asked = studies_of.read(file)
    next_look = time.monotonic() + PAUSE

    def told(done: int, total: int, failed: int) -> None:
        nonlocal next_look
        tell(f"{done:,} of {total:,} cells" + (f", {failed:,} failed" if failed else ""), done / total)
        began = time.monotonic()
        if 0 < done < total and began >= next_look:
            tell.partial(load_sweep(folder))
            now = time.monotonic()
            next_look = now + max(PAUSE, 10 * (now - began))

    tell("checking every cell", 0.0)
    processes = 1 if asked.cell_count <= FEW else None
    return run.sweep(asked, out=folder, processes=processes, allow_bad=True, progress=told)
