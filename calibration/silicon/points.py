"""Measured end-to-end points of data-centre GPUs: the rows of `systems/silicon_sample.csv` in the package aiconfigurator-core.

A row is a closed loop: so many clients, each of whom sends its next request when the answer to the last is complete, and the
mean TTFT and TPOT that they saw. The file mixes what several people measured; `calibration.silicon.scope` tells them apart.

What a figure may be fitted on is decided by the configuration alone (`half_of`): rows that differ in nothing but their
measured values are always in the same half.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from calibration.operators.aiconfigurator import systems_folder
from scenarios.errors import InputError, unknown

Half = Literal["fitted", "held-out"]

FILE = "silicon_sample.csv"
_MEASURED = ("silicon_ttft_ms", "silicon_tpot_ms")
_NOT_CONFIGURATION = ("id", "silicon_data_source", *_MEASURED)
_ROUNDING = 1e-4  # values that agree to this are copies of one measurement, rounded once more
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")
_NEEDED = (
    *_NOT_CONFIGURATION, "backend", "backend_version", "model_path", "system", "mode", "isl", "osl", "gemm_quant_mode",
    "moe_quant_mode", "batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One measured point.

    Args:
        row: line of the file, the header being line 1.
        configuration: SHA-1 (hex) of what was run, without what was measured.
        model: as the file has it, organisation included.
        gemm, moe: precision of the weights as the file names it; empty: not quantised.
        batch_size: requests at once in one engine; None where the row has several kinds of engines.
        tensor_parallel, expert_parallel, ...: 1 where the row says nothing.
        concurrency: clients; of all engines, where there are several.
        ttft, tpot: measured means, seconds.
    """

    row: int
    id: str
    source: str
    configuration: str
    engine: str
    version: str
    model: str
    system: str
    disaggregated: bool
    gemm: str
    moe: str
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_tensor_parallel: int
    expert_parallel: int
    batch_size: int | None
    input_tokens: int
    output_tokens: int
    concurrency: int | None
    ttft: float
    tpot: float

    @property
    def half(self) -> Half:
        return half_of(self.configuration)

    @property
    def precision(self) -> str:
        """Of the weights, for grouping: `bf16`, `fp8`, `fp8_block`, `nvfp4`, ..."""
        return self.gemm or self.moe or "bf16"

    @property
    def short_model(self) -> str:
        return self.model.rsplit("/", 1)[-1]

    @property
    def label(self) -> str:
        """What was run, in a line."""
        return (
            f"{self.short_model} {self.precision} on {self.system}, {self.engine} {self.version}".rstrip()
            + f", TP {self.tensor_parallel}, {self.input_tokens} in / {self.output_tokens} out, {self.concurrency} clients"
        )


class Remeasured(NamedTuple):
    """How far measurements of one configuration differ, relative to their mean: the floor of any prediction's error."""

    configurations: int
    ttft_median: float
    ttft_p90: float
    tpot_median: float
    tpot_p90: float


def configuration_of(fields: Mapping[str, str]) -> str:
    """SHA-1 (hex) of a row's raw fields in the file's order, joined by commas, without `id`, `silicon_data_source` and the two
    measured values."""
    text = ",".join(value for name, value in fields.items() if name not in _NOT_CONFIGURATION)
    return hashlib.sha1(text.encode()).hexdigest()  # a label for a split that others can recompute, nothing secret


def half_of(configuration: str) -> Half:
    """`fitted` where the first hex digit is even: constants may be fitted there. `held-out`: only ever validated on."""
    return "fitted" if int(configuration[0], 16) % 2 == 0 else "held-out"


def find_file() -> Path:
    """The file in the installed package.

    Raises:
        InputError: the package is not installed, or of another version than the tested one.
    """
    return systems_folder() / FILE


def read_points(path: Path) -> list[Point]:
    """All rows of the file, in its order; those that repeat an earlier one in everything but id and source are left out.

    Raises:
        InputError: the file has other columns, or a value that is no number or not positive; names file and line.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or ()
        for name in _NEEDED:
            if name not in columns:
                raise InputError(f"{path}: line 1: {unknown('column', name, columns)}; is it {FILE}?")
        seen: set[tuple[str, ...]] = set()
        points = []
        for row in reader:
            if None in row or None in row.values():
                raise InputError(
                    f"{path}: line {reader.line_num}: found another number of fields than line 1 has columns"
                )
            key = tuple(value for name, value in row.items() if name not in ("id", "silicon_data_source"))
            if key not in seen:
                seen.add(key)
                points.append(_point(row, reader.line_num, path))
    if not points:
        raise InputError(f"{path}: there is a header, but not one point")
    return points


def remeasured(points: Iterable[Point]) -> Remeasured | None:
    """The noise floor: relative differences of configurations measured more than once; None if there are none."""
    by: dict[tuple[str, int | None], list[Point]] = defaultdict(list)
    for point in points:
        by[point.configuration, point.concurrency].append(point)  # some rows name their clients in the source alone
    spreads = [(_spread([p.ttft for p in same]), _spread([p.tpot for p in same])) for same in by.values()]
    measured = np.array([pair for pair in spreads if max(pair) > _ROUNDING])
    if not len(measured):
        return None
    (ttft, tpot), (ttft_p90, tpot_p90) = np.quantile(measured, (0.5, 0.9), axis=0).tolist()
    return Remeasured(len(measured), ttft, ttft_p90, tpot, tpot_p90)


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / (sum(values) / len(values))


def _point(row: Mapping[str, str], line: int, path: Path) -> Point:
    def whole(name: str, empty: int | None = None) -> int | None:
        text = row[name].strip()
        # Some rows write 0 where a way of splitting the model does not apply.
        if not text or (text == "0" and empty is not None):
            return empty
        if not text.isdigit() or text == "0":
            raise InputError(f"{path}: line {line}: {name}: found {text!r}, but a whole number above 0 is needed")
        return int(text)

    def seconds(name: str) -> float:
        try:
            value = float(row[name])
        except ValueError:
            value = math.nan
        if not 0 < value < 1e9:
            raise InputError(f"{path}: line {line}: {name}: found {row[name]!r}, but milliseconds above 0 are needed")
        return value / 1e3

    if row["mode"] not in ("agg", "disagg"):
        raise InputError(f"{path}: line {line}: mode: {unknown('value', row['mode'], ('agg', 'disagg'))}")
    stated = _CONCURRENCY.search(row["silicon_data_source"])
    batch = whole("batch_size")
    lengths = whole("isl"), whole("osl")
    if lengths[0] is None or lengths[1] is None:
        raise InputError(f"{path}: line {line}: isl, osl: found nothing, but lengths are needed")
    return Point(
        row=line,
        id=row["id"],
        source=row["silicon_data_source"],
        configuration=configuration_of(row),
        engine=row["backend"],
        version=row["backend_version"],
        model=row["model_path"],
        system=row["system"],
        disaggregated=row["mode"] == "disagg",
        gemm=row["gemm_quant_mode"],
        moe=row["moe_quant_mode"],
        tensor_parallel=whole("tp_size", 1) or 1,
        pipeline_parallel=whole("pp_size", 1) or 1,
        data_parallel=whole("attention_dp_size", 1) or 1,
        expert_tensor_parallel=whole("moe_tp_size", 1) or 1,
        expert_parallel=whole("moe_ep_size", 1) or 1,
        batch_size=batch,
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        concurrency=int(stated[1]) if stated else batch,
        ttft=seconds("silicon_ttft_ms"),
        tpot=seconds("silicon_tpot_ms"),
    )
