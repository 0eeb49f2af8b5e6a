"""Every launch that a kernel file lists compiles for sm_80 and sm_90 within the chip's limits and with the instructions meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from gpu_backend.kernels.compiled import CAPABILITIES, markdown, occupancy, specialisations

LAUNCHES = [
    pytest.param(capability, module, entry, id=f"sm_{capability}-{module}-{entry.name}")
    for module, entry in specialisations()
    for capability in entry.capabilities
]


@cache
def compiled() -> dict[tuple[int, str, str], dict[str, Any]]:
    """One process a capability, without the interpreter that this one runs kernels with."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "gpu_backend.kernels.compiled", "--capability"]
    running = [
        subprocess.Popen([*command, str(c)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in CAPABILITIES
    ]
    answers = [process.communicate() for process in running]
    for process, (out, errors) in zip(running, answers, strict=True):
        assert out, f"exit status {process.returncode}: {errors}"
    rows = [row for out, _ in answers for row in json.loads(out)]
    return {(row["capability"], row["file"], row["name"]): row for row in rows}


@pytest.mark.parametrize(("capability", "module", "entry"), LAUNCHES)
def test_launch_fits_the_chip_with_the_instructions_meant(capability: int, module: str, entry: Any) -> None:
    row = compiled()[capability, module, entry.name]
    assert not row["faults"]
    assert row["spills"] == 0
    assert row["shared"] <= {80: 166912, 90: 232448}[capability]
    assert row["occupancy"] > 0
    assert row["bound"] > 0, "a launch says what it moves and computes at least"


def test_launches_of_a_file_have_names_of_their_own() -> None:
    names = [(module, entry.name, c) for module, entry in specialisations() for c in entry.capabilities]
    assert len(names) == len(set(names))


def test_table_has_a_row_for_every_launch() -> None:
    table = markdown(list(compiled().values()))
    assert table.count("| silu_mul |") >= 2
    assert table.count("\n| ") - 2 * table.count("## sm_") + table.count("\n|---") == len(LAUNCHES)


@pytest.mark.parametrize(
    ("capability", "registers", "shared", "warps", "share"),
    [
        (80, 32, 0, 4, 1.0),
        (80, 64, 0, 8, 0.5),
        (90, 255, 0, 4, 0.125),
        (90, 168, 0, 4, 0.1875),
        (90, 40, 100 * 1024, 4, 0.125),
        (80, 40, 100 * 1024, 4, 0.0625),
        (90, 16, 0, 1, 0.5),
    ],
)
def test_occupancy_is_that_of_the_calculator(
    capability: int, registers: int, shared: int, warps: int, share: float
) -> None:
    assert occupancy(capability, registers, shared, warps) == share
