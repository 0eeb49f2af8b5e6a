"""JSON of results: what every reader can read, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def dumps(value: Any) -> str:
    """Strict JSON: numpy numbers are unpacked, NaN and infinity are refused."""
    return json.dumps(value, indent=1, allow_nan=False, default=plain)


def plain(value: Any) -> Any:
    """What JSON has for a numpy value or a path."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
