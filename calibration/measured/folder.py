"""Which layout a folder of measured runs has, and its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from calibration.measured.csv_run import LAYOUT as CSV_LAYOUT
from calibration.measured.csv_run import is_csv_run, read_csv_run
from calibration.measured.run import MeasuredRun
from calibration.measured.vllm_bench import is_vllm_bench, read_vllm_bench
from scenarios.errors import InputError, unknown
from scenarios.trace_options import TimeUnit

Layout = Literal["llmservingsim", "vllm bench", "csv"]

LAYOUTS = f"""A folder of measured runs has one of three layouts:
  LLMServingSim   requests.jsonl and meta.json, with workload.jsonl and kernels/ where there are some
  vllm bench      one .json (or .json.gz) a run, written by vllm bench serve --save-result --save-detailed
  CSV             one .csv (or .csv.gz) a run, a line a request: {CSV_LAYOUT}"""


@dataclass(frozen=True)
class Found:
    """What a folder holds. runs: by name. ignored: JSON and CSV files that hold no run, by name."""

    layout: Layout
    folder: Path
    runs: dict[str, MeasuredRun]
    ignored: tuple[str, ...] = ()


def read_folder(folder: Path | str, *, unit: TimeUnit | None = None, only: Sequence[str] = ()) -> Found:
    """All runs of a folder, or those named `only`; a single file is a folder of one run.

    Raises:
        InputError: no such folder, none of the three layouts, or a run that is wrong.
    """
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"{folder}: there is no such folder")
    files = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    names = {file.name for file in files}
    if folder.is_dir() and {"requests.jsonl", "meta.json"} <= names:
        from calibration.measured.llmservingsim import read_llmservingsim

        run = read_llmservingsim(folder)
        return Found("llmservingsim", folder, _chosen({run.name: run}, only))
    benches = [file for file in files if _ends(file, ".json") and is_vllm_bench(file)]
    tables = [file for file in files if _ends(file, ".csv") and is_csv_run(file)]
    if benches and tables:
        raise InputError(
            f"{folder}: found {benches[0].name} (vllm bench) and {tables[0].name} (CSV), but a folder holds runs of one "
            f"layout; move one of them away, or give the file"
        )
    ignored = tuple(f.name for f in files if f not in benches + tables and (_ends(f, ".json") or _ends(f, ".csv")))
    if benches:
        return Found("vllm bench", folder, _chosen(_named(map(read_vllm_bench, benches)), only), ignored)
    if tables:
        read = partial(read_csv_run, unit=unit)
        return Found("csv", folder, _chosen(_named(map(read, tables)), only), ignored)
    if len(files) == 1 and files[0].is_file() and _ends(files[0], ".json"):
        read_vllm_bench(files[0])  # says what it lacks
    if len(files) == 1 and files[0].is_file() and _ends(files[0], ".csv"):
        read_csv_run(files[0], unit=unit)
    shown = ", ".join(sorted(names)[:8]) or "nothing"
    raise InputError(f"{folder}: no measured run here; found {shown}.\n{LAYOUTS}")


def same_load(runs: Sequence[MeasuredRun]) -> list[list[MeasuredRun]]:
    """Runs of one load together: the same lengths in the same order, and arrivals within a hundredth of the whole time."""
    groups: list[list[MeasuredRun]] = []
    for run in runs:
        for group in groups:
            if _repeats(group[0], run):
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _repeats(a: MeasuredRun, b: MeasuredRun) -> bool:
    if len(a) != len(b):
        return False
    if (a.input_tokens != b.input_tokens).any() or (a.output_tokens != b.output_tokens).any():
        return False
    span = max(int(a.arrival_ns[-1]), 1)
    return bool(np.abs(a.arrival_ns - b.arrival_ns).max() <= 0.01 * span)


def _ends(file: Path, ending: str) -> bool:
    return file.name.removesuffix(".gz").endswith(ending)


def _named(runs: Iterable[MeasuredRun]) -> dict[str, MeasuredRun]:
    found: dict[str, MeasuredRun] = {}
    for run in runs:
        if run.name in found:
            raise InputError(
                f"{found[run.name].source} and {run.source}: two runs of one name; move or rename one of them"
            )
        found[run.name] = run
    return found


def _chosen(runs: dict[str, MeasuredRun], only: Sequence[str]) -> dict[str, MeasuredRun]:
    for name in only:
        if name not in runs:
            raise InputError(f"--only: {unknown('run', name, runs)}")
    return {name: run for name, run in runs.items() if not only or name in only}
