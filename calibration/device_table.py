"""The device check as one table: ceilings, kernels right and how fast, steps, profile, and the live run beside its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.resumable import Result, Row
from calibration.validate import HEADLINES


def text(results: Mapping[str, Result]) -> str:
    """All sections that have results, then what was skipped or failed."""
    makers = {
        "environment": _environment,
        "ceilings": _ceilings,
        "kernels": _kernels,
        "kernel_times": _kernel_times,
        "steps": _steps,
        "grid": _grid,
        "live": _live,
    }
    lines: list[str] = []
    for name, maker in makers.items():
        result = results.get(name)
        if result is None:
            continue
        lines += ["", f"== {name} ({result.seconds:.1f} s)", *maker(result.rows)]
        for kind, found in (("skipped", result.skipped), ("failed", result.failed)):
            lines += [f"{kind}: {_summed(items)}: {reason}" for reason, items in _by_reason(found).items()]
    return "\n".join(lines[1:])


def _by_reason(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Items by why; those that the budget leaves no time for differ in seconds only, and the first speaks for them."""
    by_reason: dict[str, list[str]] = {}
    budget = None
    for item, reason in found.items():
        if "of the budget of" in reason:
            reason = budget = budget or reason
        by_reason.setdefault(reason, []).append(item)
    return by_reason


def _summed(items: list[str]) -> str:
    return "; ".join(items[:4]) + (f"; and {len(items) - 4} more" if len(items) > 4 else "")


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _environment(rows: Mapping[str, Row]) -> Iterator[str]:
    for name, row in rows.items():
        if name == "compiled":
            yield f"kernels compiled in {row['seconds']:.0f} s by {row['processes']} processes, {row['failed'] + row['ended']} of them not to the end"
            continue
        yield ", ".join(f"{name} {value}" for name, value in row.items())


def _ceilings(rows: Mapping[str, Row]) -> Iterator[str]:
    if "copy" in rows:
        yield f"copy    {rows['copy']['bytes_per_s'] / 1e12:.4g} TB/s (read and written)"
    if "matmul" in rows:
        yield f"matmul  {rows['matmul']['flop_per_s'] / 1e12:.4g} TFLOP/s ({rows['matmul']['dtype']})"


def _kernels(rows: Mapping[str, Row]) -> Iterator[str]:
    dtypes = sorted({row["dtype"] for row in rows.values()})
    table = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows.values()):
        mine = [row for row in rows.values() if row["kernel"] == kernel]
        right = sum(row["correct"] for row in mine)
        errors = [max((row.get("error") or 0.0 for row in mine if row["dtype"] == d), default=0.0) for d in dtypes]
        marks = [f"{error:.1e}" if error else "" for error in errors]
        table.append((kernel, f"{right} of {len(mine)}", "yes" if right == len(mine) else "NO", *marks))
    yield from _columns(("kernel", "checks", "correct", *(f"error {d}" for d in dtypes)), table)
    wrong = [row for row in rows.values() if not row["correct"]]
    for row in wrong[:20]:
        yield f"WRONG {row['kernel']}: {row['case']}, {row['dtype']}, seed {row['seed']}: {'; '.join(row['problems'])[:300]}"


def _kernel_times(rows: Mapping[str, Row]) -> Iterator[str]:
    table = []
    for row in rows.values():
        torchs = "fails" if "torch_fails" in row else _us(row.get("torch_seconds"))
        speedup = f"{row['speedup']:.2f}x" if "speedup" in row else ""
        cells = (_us(row["seconds"]), _us(row["floor"]), f"{row['of_floor']:.0%}", row["bound"], torchs, speedup)
        table.append((f"{row['kernel']}: {row['case']}", *cells, row.get("against") or ""))
    yield from _columns(("us", "ours", "floor", "of floor", "bound by", "torch", "faster", "torch runs"), table)
    cached = [name for name, row in rows.items() if not row["beyond_l2"]]
    if cached:
        yield f"inputs may stay in the L2: {_summed(cached)}"


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def _steps(rows: Mapping[str, Row]) -> Iterator[str]:
    """Milliseconds of each precision, with the share of the floor."""
    for model in dict.fromkeys(row["model"] for row in rows.values()):
        mine = [row for row in rows.values() if row["model"] == model]
        precisions = list(dict.fromkeys(row["precision"] for row in mine))
        found = {(row["step"], row["precision"]): row for row in mine}
        table = []
        for step in dict.fromkeys(row["step"] for row in mine):
            cells = []
            for precision in precisions:
                row = found.get((step, precision))
                cells += [f"{row['seconds'] * 1e3:.3f}", f"{row['of_floor']:.0%}"] if row else ["", ""]
            table.append((step, *cells))
        yield from _columns((f"{model}, ms", *(c for p in precisions for c in (p, "of floor"))), table)


def _grid(rows: Mapping[str, Row]) -> Iterator[str]:
    rounds = [row for row in rows.values() if "ns" in row]
    if rounds:
        yield f"{len(rounds[0]['ns'])} step shapes, {max(0, len(rounds) - 1)} rounds beside the one that warms up"
    for row in rows.values():
        if "profile" in row:
            errors = row["profile"]["cv_error"]
            kinds = ", ".join(f"{kind} {found['mape']:.1%}" for kind, found in errors.items())
            yield f"profile {row['profile']['name']} ({row['hash']}); cross-validated error {kinds}"


def _live(rows: Mapping[str, Row]) -> Iterator[str]:
    for name, row in rows.items():
        if "schedule" in row:
            same = "identical" if row["schedule"]["identical"] else f"DIFFERENT ({row['schedule']['first_difference']})"
            yield f"{name}: {row['summary']['completed']} requests; schedule of {row['schedule']['steps']} steps replayed: {same}"
    for name, row in rows.items():
        if "outcome" not in row:
            continue
        table = [_headline(line) for line in row["outcome"] if line["metric"] in HEADLINES]
        yield from _columns((name, "live", "simulated", "error", "noise", "verdict"), table)
        parts = (
            f"{kind} {found['total']:+.1%} (MAPE {found['mape']:.1%}, {found['steps']} steps)"
            for kind, found in row["steps"].items()
        )
        yield "time of steps: " + ", ".join(parts)
        yield f"verdict: {row['verdict']}; {row['extrapolated_steps']} steps outside what was measured"


def _headline(line: Mapping[str, Any]) -> tuple[str, ...]:
    noise = "" if line["noise"] is None else f"{line['noise']:.1%}"
    return (
        line["metric"],
        f"{line['live']:.4g}",
        f"{line['simulated']:.4g}",
        f"{line['error']:+.1%}",
        noise,
        line["verdict"],
    )
