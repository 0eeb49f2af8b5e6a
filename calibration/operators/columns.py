"""Columns of a table that somebody else wrote: read, checked, and complained of by file, row and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.operators.tables import Floats, Ints
from scenarios.errors import InputError

LEAST_SHARE, MOST_SHARE = 0.3, 60.0
"""Median of measured / roofline of large operators: what real kernels reach lies far inside; a wrong unit is a factor of 1,000."""

MOST_COUNT, MOST_NS = 1e12, 1e12
"""No operator has more rows, columns or elements, or takes longer (a quarter of an hour)."""

REPEATS = 1.5
"""Repeated rows of one shape may differ by so much; then their median counts."""


class Columns:
    """Named columns of one file. Rows are counted from 0, as Parquet does."""

    def __init__(self, file: str, data: Mapping[str, NDArray[Any]]) -> None:
        self.file, self._data = file, data
        self.count = len(next(iter(data.values()))) if data else 0

    @staticmethod
    def parquet(
        path: Path, file: str, needed: Sequence[str], optional: Mapping[str, int | str] | None = None
    ) -> Columns:
        """Reads a Parquet file.

        needed: columns that must be there. optional: others, with the value that is taken where they are missing.

        Raises:
            InputError: not a Parquet file, no rows, or a column is missing.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        try:
            here = pq.ParquetFile(path)
            names = here.schema_arrow.names
            missing = [n for n in needed if n not in names]
            if missing:
                raise InputError(
                    f"{file}: column {missing[0]!r} is missing; found: {', '.join(names)}; needed: {', '.join(needed)}. "
                    "Give it, or use the version of the source that this reader was tested with"
                )
            table = here.read([n for n in (*needed, *(optional or {})) if n in names])
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{file}: not a readable Parquet file: {error}") from None
        if not table.num_rows:
            raise InputError(f"{file}: no rows")
        data: dict[str, NDArray[Any]] = {}
        for name in table.column_names:
            column = table[name].combine_chunks()
            if column.null_count:
                row = int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])
                raise InputError(f"{file}, row {row}: {name} is empty; give it or leave the row out")
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                coded = column.dictionary_encode()
                coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
                words = np.array(coded.dictionary.to_pylist(), dtype=object)
                data[name] = words[coded.indices.to_numpy(zero_copy_only=False)]
            else:
                data[name] = column.to_numpy(zero_copy_only=False)
        for name, value in (optional or {}).items():
            if name not in data:
                data[name] = np.full(table.num_rows, value, dtype=object if isinstance(value, str) else np.int64)
        return Columns(file, data)

    def ints(self, name: str, least: int = 1) -> Ints:
        """A column of counts.

        Raises:
            InputError: a value that is no whole number of at least `least`.
        """
        raw = self._data[name]
        if raw.dtype.kind not in "iuf":
            raise InputError(f"{self.file}: column {name!r} holds {raw.dtype}; whole numbers are needed")
        bad = ~np.isfinite(raw.astype(np.float64)) | (raw < least) | (raw > MOST_COUNT) | (raw != np.round(raw))
        self._refuse(bad, name, raw, f"whole numbers from {least} to {MOST_COUNT:g}")
        return raw.astype(np.int64)

    def words(self, name: str) -> NDArray[Any]:
        return self._data[name]

    def nanoseconds(self, name: str, unit: float, least: float = 0.0, strictly: bool = True) -> Floats:
        """A column of durations, in `unit` nanoseconds.

        Raises:
            InputError: a duration that is not finite, negative, or (`strictly`) zero.
        """
        raw = self._data[name]
        if raw.dtype.kind not in "iuf":
            raise InputError(f"{self.file}: column {name!r} holds {raw.dtype}; durations are needed")
        raw = raw.astype(np.float64)
        bad = ~(raw * unit <= MOST_NS) | (raw < least) | ((raw == 0.0) & strictly)
        self._refuse(
            bad, name, raw, "durations above 0, of minutes at most" if strictly else "durations of minutes at most"
        )
        return raw * unit

    def _refuse(self, bad: NDArray[np.bool_], name: str, raw: NDArray[Any], allowed: str) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            more = f" (and {int(bad.sum()) - 1} more rows)" if bad.sum() > 1 else ""
            raise InputError(
                f"{self.file}, row {row}{more}: {name}: found {raw[row]}, allowed: {allowed}; correct the row or leave it out"
            )


def check_unit(file: str, what: str, ns: Floats, floor_ns: Floats, unit: str) -> None:
    """Refuses durations that lie far from what the sheet of the device allows: a wrong unit, or another device.

    ns, floor_ns: measured, and the least that the sheet's peak and bandwidth allow; judged by the median of the largest.

    Raises:
        InputError: the median share is impossible.
    """
    if not len(ns):
        return
    large = floor_ns >= min(20_000.0, float(np.quantile(floor_ns, 0.9)))
    share = float(np.median(ns[large] / floor_ns[large]))
    if not LEAST_SHARE <= share <= MOST_SHARE:
        raise InputError(
            f"{file}: {what} take {share:.3g} times the least that the device's peak and bandwidth allow (median of the largest, "
            f"row {int(np.flatnonzero(large)[0])} among them); allowed: {LEAST_SHARE:g} to {MOST_SHARE:g}. Durations are read as {unit}: "
            "convert them, or check that the file is of this device"
        )


def gather(
    file: str, operator: str, axes: Sequence[Ints], sizes: Sequence[Ints], ns: Floats, rows: Ints
) -> tuple[Floats, Ints]:
    """Scatters rows into a grid over `sizes`; NaN and -1 where there is none. Repeats of one place are their median.

    Raises:
        InputError: repeats of one place that do not agree.
    """
    shape = tuple(len(s) for s in sizes)
    place = np.ravel_multi_index(tuple(np.searchsorted(s, a) for s, a in zip(sizes, axes, strict=True)), shape)
    grid, where = np.full(int(np.prod(shape)), np.nan), np.full(int(np.prod(shape)), -1, dtype=np.int64)
    grid[place], where[place] = ns, rows
    first = np.full(len(grid), -1, dtype=np.int64)
    first[place[::-1]] = np.arange(len(place) - 1, -1, -1)
    for i in np.flatnonzero(first[place] != np.arange(len(place))).tolist():
        here = np.flatnonzero(place == place[i])
        if ns[here].max() > REPEATS * ns[here].min():
            found = ", ".join(f"row {int(rows[j])}: {ns[j] / 1e6:.6g} ms" for j in here[:3])
            at = ", ".join(str(int(a[i])) for a in axes)
            raise InputError(
                f"{file}: {operator} at ({at}) stands there more than once and differs: {found}; keep the right one"
            )
        grid[place[i]] = float(np.median(ns[here]))
    return grid.reshape(shape), where.reshape(shape)
