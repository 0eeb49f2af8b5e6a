"""Words of forms that execute steps on this machine: grids, durations, what has to be installed."""

from __future__ import annotations

GRIDS: dict[str, str] = {"quick": "coarse", "standard": "fine"}
INSTALL = "pip install 'servetwin[gpu]'"


def duration(seconds: float) -> str:
    """In words."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
