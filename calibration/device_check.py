"""One command that checks and measures a device: `python -m calibration.device_check --device cuda --out DIR`.

Are the kernels right, how far are they from what the device can do and from torch, how long do steps take, a profile of step costs,
and a live run beside its prediction. It keeps to a time budget: what does not fit is skipped and named, and a second run with the same DIR
does the rest. Results are written as they come, one JSON file a section. The exit code is 0 only if every kernel was checked and is correct
and nothing failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from calibration import device_table
from calibration.device_lab import FULL, REDUCED, Size
from calibration.device_sections import NEEDS, SECTIONS, profile_of, sections
from calibration.resumable import Budget, Result, Row, earlier, run_section
from gpu_backend import DEVICES
from scenarios.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code: 0, 1 (something is wrong or was not checked), 2 (cannot run) or 130 (interrupted)."""
    parser = argparse.ArgumentParser(
        prog="python -m calibration.device_check", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--device", default="cuda", help="cuda (default), or cpu: everything at reduced size")
    parser.add_argument("--budget-s", type=float, default=300.0, help="seconds that it may take, 300 if not given")
    parser.add_argument(
        "--section", action="append", default=[], metavar="NAME",
        help=f"only this one and what it builds upon (may be repeated): {', '.join(SECTIONS)}",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder of the result files, taken up if it has some")
    asked = parser.parse_args(arguments)
    try:
        return check(asked.device, asked.budget_s, asked.section, asked.out)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def check(device: str, budget_s: float, asked: Sequence[str], out: Path, size: Size | None = None) -> int:
    """Runs the sections asked for (all if none) and prints the table; see `main`.

    Raises:
        InputError: an unknown device or section, a budget that is none, or a folder that cannot be written.
    """
    if device not in DEVICES:
        raise InputError(f"--device: found {device!r}, allowed: {', '.join(DEVICES)}")
    unknown = [name for name in asked if name not in SECTIONS]
    if unknown:
        raise InputError(f"--section: found {unknown[0]!r}, allowed: {', '.join(SECTIONS)}")
    if not budget_s > 0:
        raise InputError(f"--budget-s: found {budget_s:g}, allowed: above 0")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: {out} cannot be made: {error.strerror}") from None
    if not any(out.glob("*.json")):  # else what was measured elsewhere is taken up
        from gpu_backend import check_device

        check_device(device)
    budget = Budget(budget_s)
    results: dict[str, Result] = {}
    done: dict[str, Mapping[str, Row]] = {}
    chosen = _with_needs(asked or SECTIONS)
    every = sections(device, size or (REDUCED if device == "cpu" else FULL), done)
    try:
        for name, section in every.items():
            if name in chosen:
                _say(f"{name}: {budget.left:.0f} s of the budget are left")
                results[name] = run_section(section, out, budget, _say)
                done[name] = results[name].rows
                if name == "grid":
                    _save_profile(results[name].rows, out)
    except KeyboardInterrupt:
        left = {name: earlier(section, out) for name, section in every.items() if name in chosen}
        results |= {name: result for name, result in left.items() if result is not None}
        print(device_table.text(results))
        _say(f"interrupted; what was measured is in {out}, and the same command goes on from there")
        return 130
    print(device_table.text(results))
    wrong = _kernels_wrong(results.get("kernels") or earlier(every["kernels"], out))
    failed = [name for name, result in results.items() if result.failed]
    print()
    print(f"kernels: {wrong or 'all correct'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    live = results["live"].rows.values() if "live" in results else ()
    for row in live:
        if "verdict" in row:
            print(f"live against simulated: {row['verdict']}")
    if device == "cpu":
        print("a CPU computes by the torch references: their times say nothing about a GPU")
    print(f"result files: {out}" + ("" if all(r.complete for r in results.values()) else " (run again for the rest)"))
    return 1 if wrong or failed else 0


def _with_needs(asked: Sequence[str]) -> set[str]:
    found = set(asked)
    for name in asked:
        found |= set(NEEDS.get(name, ()))
    return found


def _kernels_wrong(result: Result | None) -> str | None:
    """What is wrong with the kernels, or not known; None if every one was checked and is correct."""
    from gpu_backend.checks.kernel_checks import LAUNCHERS

    if result is None:
        return "not checked (--section kernels)"
    rows = result.rows.values()
    found = {
        "WRONG": [name for name in LAUNCHERS if any(row["kernel"] == name and not row["correct"] for row in rows)],
        "cannot run": [name for name in LAUNCHERS if any(item.startswith(f"{name}: ") for item in result.failed)],
        "not checked": [name for name in LAUNCHERS if all(row["kernel"] != name for row in rows)],
    }
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in found.items() if names) or None


def _save_profile(rows: Mapping[str, Row], out: Path) -> None:
    """As a file of its own, to be shipped with the package."""
    profile = profile_of(rows)
    if profile is not None:
        profile.save(out / f"{profile.model}-{profile.dtype}.json")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
