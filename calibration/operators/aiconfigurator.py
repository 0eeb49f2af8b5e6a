"""Reads the operator tables of the package aiconfigurator-core (Apache-2.0): Parquet files by device, operator, engine, version.

Its files are read, none of its code: it says milliseconds, `step` is the cached context of a decode, and the `message_size` of
an all-reduce counts elements. GEMMs in fp8 include the scaling of their activations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.operators.columns import Columns, check_unit, gather
from calibration.operators.system_sheet import read_sheet
from calibration.operators.tables import (
    AttentionShape,
    ExpertShape,
    Floats,
    Gemm,
    Grid,
    Ints,
    Line,
    OperatorTables,
    Origin,
)
from scenarios.errors import InputError, unknown
from scenarios.hardware import CATALOG as HARDWARE
from scenarios.hardware import HardwareSpec

PACKAGE = "aiconfigurator-core"
TESTED = "0.12.0"
LICENCE = "Apache-2.0"
ENGINES = ("vllm", "sglang", "trtllm")
MILLISECOND = 1e6

SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm", "A100-80G": "a100_sxm", "L40S": "l40s"}
"""The package's name of a device of the catalog."""

_GEMM_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5}


def systems_folder() -> Path:
    """Where the installed package keeps its sheets and tables.

    Raises:
        InputError: the package is not installed, or of a version that this reader was not tested with.
    """
    spec = util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f'measured operator tables come with an extra (Python below 3.14): pip install "servetwin[profiles]", which brings {PACKAGE}=={TESTED}'
        )
    found = metadata.version(PACKAGE)
    if found != TESTED:
        raise InputError(
            f"{PACKAGE} {found} is installed, but this reader was tested with {TESTED}: pip install {PACKAGE}=={TESTED}"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "systems"


def load_tables(
    system: str, engine: str = "vllm", version: str | None = None, folder: Path | str | None = None
) -> OperatorTables:
    """The operators of one device and engine; read once, then kept.

    Args:
        system: the package's name of a device (`h200_sxm`), or the catalog's (`H200`).
        version: the engine's; the newest for which GEMMs were measured if not given. Operators that were not measured again
            for it are those of the newest version before it, or the oldest after it where there is none.
        folder: the package's `systems` folder, if it is not the installed one.

    Raises:
        InputError: no such device, engine or version; a file with a missing column, a bad value, a wrong unit.
    """
    return _load(str(folder) if folder is not None else None, system, engine, version)


@lru_cache(maxsize=8)
def _load(folder: str | None, system: str, engine: str, version: str | None) -> OperatorTables:
    root = Path(folder) if folder is not None else systems_folder()
    system = SYSTEMS.get(system, system)
    systems = sorted(p.stem for p in root.glob("*.yaml") if (root / "data" / p.stem).is_dir())
    if system not in systems:
        raise InputError(f"{root}: {unknown('system', system, systems)}")
    if engine not in ENGINES:
        raise InputError(unknown("engine", engine, ENGINES))
    reader = _Reader(root, system, engine, version)
    gemm, prefill, decode = reader.gemm(), reader.attention("context"), reader.attention("generation")
    return OperatorTables(
        system=system,
        device=reader.device,
        engine=engine,
        version=reader.versions["gemm"],
        source=f"{PACKAGE} {TESTED}" if folder is None else str(root),
        licence=LICENCE,
        gemm=gemm,
        prefill=prefill,
        decode=decode,
        experts=reader.experts(),
        all_reduce=reader.all_reduce(),
        quantize=reader.quantize(),
    )


def hardware_of(system: str, folder: Path | str | None = None) -> HardwareSpec:
    """The catalog's device, or one from the package's own sheet where the catalog does not have it.

    Raises:
        InputError: no such system.
    """
    root = Path(folder) if folder is not None else systems_folder()
    for name, known in SYSTEMS.items():
        if system in (name, known):
            return HARDWARE[name]
    path = root / f"{system}.yaml"
    if not path.is_file():
        raise InputError(f"{root}: {unknown('system', system, sorted(p.stem for p in root.glob('*.yaml')))}")
    sheet = read_sheet(path)
    try:
        return HardwareSpec(
            name=system,
            memory_bytes=sheet.memory,
            memory_bandwidth=sheet.bandwidth,
            flops={k: v for k, v in sheet.flops.items() if k in ("bfloat16", "fp8", "int8")},
            link_bandwidth=sheet.link or None,
        )
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def version_key(name: str) -> tuple[tuple[int, int], ...]:
    """Sorts `1.3.0rc20` after `1.3.0rc10` and before `1.3.0`, and `0.5.6.post2` after `0.5.6`."""
    ranks = {"dev": -3, "rc": -2, "post": 1}
    parts = re.findall(r"(dev|rc|post)?\.?(\d+)", name)
    return (*((ranks.get(word, 0), int(number)) for word, number in parts), (-1, 0))


class _Reader:
    def __init__(self, root: Path, system: str, engine: str, version: str | None) -> None:
        sheet = read_sheet(root / f"{system}.yaml")
        self._link, self._bandwidth, self._flops = sheet.link, sheet.bandwidth, sheet.flops
        self._data, self._root, self._engine, self._version = root / "data" / system, root, engine, version
        self.system, self.versions, self.device = system, {}, system  # type: str, dict[str, str], str

    def _file(self, operator: str, name: str) -> tuple[Path, str] | None:
        """The file of the wanted version, or of the newest before it."""
        folder = self._data / operator / self._engine
        there = sorted((p.parent.name for p in folder.glob(f"*/{name}")), key=version_key)
        if self._version is not None:
            older = [v for v in there if version_key(v) <= version_key(self._version)]
            if operator == "gemm" and self._version not in there:
                raise InputError(f"{folder}: {unknown('version', self._version, there)}")
            there = older or there[:1]
        if not there:
            return None
        self.versions.setdefault(operator, there[-1])
        self._version = self._version or there[-1]
        path = folder / there[-1] / name
        return path, path.relative_to(self._root / "data").as_posix()

    def _needed(self, operator: str, name: str) -> tuple[Path, str]:
        found = self._file(operator, name)
        if found is None:
            raise InputError(
                f"{self._data / operator / self._engine}: no {name}: {self.system} was not measured with {self._engine}; "
                f"measured with: {', '.join(sorted(p.name for p in (self._data / operator).glob('*')))}"
            )
        return found

    def gemm(self) -> dict[str, Gemm]:
        path, file = self._needed("gemm", "gemm_perf.parquet")
        columns = Columns.parquet(path, file, ("gemm_dtype", "m", "n", "k", "latency"), {"device": self.system})
        self.device = str(columns.words("device")[0])
        m, n, k = columns.ints("m"), columns.ints("n"), columns.ints("k")
        ns, found = columns.nanoseconds("latency", MILLISECOND), {}
        for dtype, rows in _by(columns.words("gemm_dtype")):
            if dtype in _GEMM_BYTES:
                peak = self._flops.get({"fp8_block": "fp8", "nvfp4": "fp4"}.get(dtype, dtype), self._flops["bfloat16"])
                a, b, c = (x[rows].astype(np.float64) for x in (m, n, k))
                floor = np.maximum(
                    2e9 * a * b * c / peak, 1e9 * (b * c * _GEMM_BYTES[dtype] + 2.0 * a * b) / self._bandwidth
                )
                if dtype == "bfloat16":  # other precisions may run on kernels that are far from any peak
                    check_unit(file, f"GEMMs in {dtype}", ns[rows], floor, "milliseconds")
            sizes = [np.unique(x[rows]) for x in (m, n, k)]
            grid, where = gather(file, f"gemm {dtype}", [x[rows] for x in (m, n, k)], sizes, ns[rows], rows)
            origin = self._origin("gemm", f"gemm {dtype}", file)
            found[dtype] = Gemm(origin, sizes[0], sizes[1], sizes[2], grid, where, _GEMM_BYTES[dtype])
        return found

    def attention(self, phase: str) -> dict[AttentionShape, Grid]:
        """phase: `context` (prompts) or `generation` (decodes)."""
        path, file = self._needed("attention", f"{phase}_attention_perf.parquet")
        across = "isl" if phase == "context" else "step"
        names = ("batch_size", across, "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "latency")
        columns = Columns.parquet(
            path, file, names, {"window_size": 0, "step": 0, "attn_dtype": "bfloat16", "kernel_source": ""}
        )
        heads, kv, dim = columns.ints("num_heads"), columns.ints("num_key_value_heads", 0), columns.ints("head_dim")
        batch, length = columns.ints("batch_size"), columns.ints(across)
        ns = columns.nanoseconds("latency", MILLISECOND)
        whole = (columns.ints("window_size", 0) == 0) & (columns.words("attn_dtype") == "bfloat16")
        if phase == "context":
            whole &= columns.ints("step", 0) == 0
        kv = np.where(kv == 0, heads, kv)
        dtypes, code = np.unique(columns.words("kv_cache_dtype").astype(str), return_inverse=True)
        self._attention_unit(file, phase, whole, (heads, kv, dim, batch, length), dtypes[code], ns)
        rows = _usual_kernel(
            columns.words("kernel_source"), np.flatnonzero(whole), (heads, kv, dim, batch, length, code)
        )
        order = rows[np.lexsort((code[rows], dim[rows], kv[rows], heads[rows]))]
        keys = np.stack([heads[order], kv[order], dim[order], code[order]], axis=1)
        starts = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1)).tolist()
        operator = "prefill attention" if phase == "context" else "decode attention"
        origin = self._origin("attention", operator, file)
        found: dict[AttentionShape, Grid] = {}
        for a, b in zip(starts, [*starts[1:], len(order)], strict=True):
            here = order[a:b]
            h, g, d, c = keys[a].tolist()
            sizes = [np.unique(batch[here]), np.unique(length[here])]
            grid, where = gather(file, operator, [batch[here], length[here]], sizes, ns[here], here)
            if len(sizes[0]) > 1 and len(sizes[1]) > 2:
                found[h, g, d, str(dtypes[c])] = Grid(origin, sizes[0], sizes[1], grid, where)
        return found

    def _attention_unit(
        self, file: str, phase: str, whole: NDArray[np.bool_], sizes: tuple[Ints, ...], dtype: NDArray[Any], ns: Floats
    ) -> None:
        heads, kv, dim, batch, length = (x[whole].astype(np.float64) for x in sizes)
        value = np.where(dtype[whole] == "fp8", 1.0, 2.0)
        if phase == "context":
            floor = 2e9 * heads * dim * batch * length * (length + 1) / self._flops["bfloat16"]
        else:
            floor = 2e9 * kv * dim * value * batch * (length + 1) / self._bandwidth
        check_unit(file, f"attention of {phase}", ns[whole], floor, "milliseconds")

    def experts(self) -> dict[ExpertShape, Line]:
        """Routed experts without expert parallelism."""
        there = self._file("moe", "moe_perf.parquet")
        if there is None:
            return {}
        path, file = there
        sizes = ("hidden_size", "inter_size", "num_experts", "topk", "moe_tp_size", "moe_ep_size", "num_tokens")
        columns = Columns.parquet(path, file, (*sizes, "moe_dtype", "distribution", "latency"), {"kernel_source": ""})
        hidden, inter, count, active, tp, ep, tokens = (columns.ints(name) for name in sizes)
        ns = columns.nanoseconds("latency", MILLISECOND)
        plain = columns.words("moe_dtype") == "bfloat16"
        work = 6e9 * (tokens * active * hidden * inter / (tp * ep))[plain] / self._flops["bfloat16"]
        check_unit(file, "experts in bfloat16", ns[plain], work, "milliseconds")
        origin = self._origin("moe", "experts", file)
        groups: dict[tuple[Any, ...], list[int]] = {}
        keys = (hidden, inter, count, active, tp, columns.words("moe_dtype"), columns.words("distribution"))
        kernel = columns.words("kernel_source")
        for i in np.flatnonzero(ep == 1).tolist():
            groups.setdefault((*(x[i] for x in keys), kernel[i]), []).append(i)
        found: dict[ExpertShape, Line] = {}
        for (h, w, e, k, ranks, dtype, skew, _), members in groups.items():
            rows = np.array(members)
            at = np.unique(tokens[rows])
            line, where = gather(file, "experts", [tokens[rows]], [at], ns[rows], rows)
            shape = (int(h), -(-int(w) // int(ranks)), int(e), int(k), str(dtype), str(skew))
            if len(at) > 2 and (shape not in found or float(line[-1]) < float(found[shape].ns[-1])):
                found[shape] = Line(origin, at, line, where)
        return found

    def all_reduce(self) -> dict[tuple[int, str], Line]:
        there = self._file("comm", "custom_allreduce_perf.parquet")
        if there is None:
            return {}
        path, file = there
        columns = Columns.parquet(path, file, ("num_gpus", "message_size", "latency"), {"backend": "graph"})
        ranks, size = columns.ints("num_gpus"), columns.ints("message_size")
        ns, mode = columns.nanoseconds("latency", MILLISECOND), columns.words("backend")
        if self._link:
            sent = 4e9 * (ranks - 1.0) / ranks * size / self._link
            check_unit(file, "all-reduces", ns, sent, "milliseconds")
        found: dict[tuple[int, str], Line] = {}
        for word, rows in _by(mode):
            for n in np.unique(ranks[rows]).tolist():
                here = rows[ranks[rows] == n]
                at = np.unique(size[here])
                line, where = gather(file, "all-reduce", [size[here]], [at], ns[here], here)
                kind = "eager" if "eager" in word else "graph"
                found[n, kind] = Line(self._origin("comm", f"all-reduce of {n}, {kind}", file), at, line, where)
        return found

    def quantize(self) -> dict[str, Grid]:
        found = {}
        for name, file_name in (("quantize", "scale_matrix_perf.parquet"), ("scale", "computescale_perf.parquet")):
            there = self._file("quantize", file_name)
            if there is None:
                continue
            path, file = there
            columns = Columns.parquet(path, file, ("m", "k", "latency"))
            m, k = columns.ints("m"), columns.ints("k")
            # The scale is a difference of two measurements: noise may leave nothing, or less.
            ns = np.maximum(columns.nanoseconds("latency", MILLISECOND, least=-1.0, strictly=False), 0.0)
            sizes = [np.unique(m), np.unique(k)]
            grid, where = gather(file, name, [m, k], sizes, ns + 1e-9, np.arange(len(m)))
            found[name] = Grid(self._origin("quantize", name, file), sizes[0], sizes[1], grid, where)
        return found

    def _origin(self, folder: str, operator: str, file: str) -> Origin:
        return Origin(operator, file, f"{self._engine} {self.versions[folder]}", LICENCE)


def _by(words: NDArray[Any]) -> Iterator[tuple[str, Ints]]:
    """Rows by the word in a column, in the order of the words."""
    for word in sorted(set(words.tolist())):
        yield str(word), np.flatnonzero(words == word)


def _usual_kernel(kernel: NDArray[Any], rows: Ints, keys: tuple[Ints, ...]) -> Ints:
    """Rows less those of a shape that another kernel, more common in the file, was measured for too."""
    names, code, count = np.unique(kernel[rows].astype(str), return_inverse=True, return_counts=True)
    if len(names) == 1:
        return rows
    rank = np.argsort(np.argsort(-count, kind="stable"), kind="stable")[code]
    _, place = np.unique(np.stack([k[rows] for k in keys], axis=1), axis=0, return_inverse=True)
    best = np.full(int(place.max()) + 1, len(names))
    np.minimum.at(best, place.ravel(), rank)
    return np.asarray(rows[rank == best[place.ravel()]], dtype=np.int64)
