"""What the compiler makes of the kernels, on a machine with or without a GPU: registers, spills, shared memory, occupancy.

`python -m gpu_backend.kernels.compiled --out docs/kernels.md` compiles every launch that the kernel files list in `SPECIALISATIONS`,
for sm_80 and sm_90, and writes the table. Kernels are compiled the way their launch compiles them, with pointers and integers
specialised as the JIT does it: `triton.compile` without attributes compiles another kernel, and a much worse one.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import io
import json
import math
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver
from triton.runtime.cache import get_cache_manager

from scenarios.errors import InputError
from scenarios.hardware import CATALOG

CAPABILITIES = (80, 90)


@dataclasses.dataclass(frozen=True)
class Chip:
    """What bounds a kernel on one chip; the compiler itself accepts more shared memory than exists.

    Args:
        shared_per_block: most dynamic shared memory of a program, bytes.
        shared_per_sm: bytes that resident programs share; each costs 1 KiB more than it asks for.
        bandwidth: bytes/s that a copy reaches.
        flops: dense bf16 FLOP/s that matrix products reach.
    """

    name: str
    shared_per_block: int
    shared_per_sm: int
    bandwidth: float
    flops: float


CHIPS: dict[int, Chip] = {
    80: Chip("A100", 166912, 164 * 1024, CATALOG["A100-80G"].memory_bandwidth, CATALOG["A100-80G"].flops["bfloat16"]),
    # Measured on an H200; its data sheet says 4.8 TB/s and 989 TFLOP/s.
    90: Chip("H200", 232448, 228 * 1024, 4.3e12, 790e12),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specialisation:
    """One launch of a kernel as the engine makes it.

    Args:
        name: what it is, such as "Llama-3.1-8B, 64 rows".
        kernel: the `@triton.jit` function.
        args: its arguments but the constexprs, in order or by name. A torch dtype stands for a pointer that is divisible by 16, an
            integer for itself (1, divisible by 16 and other compile differently), None for an absent pointer.
        constexprs: by name.
        flops, bytes: what the launch has to compute and to move at least.
        expects: instructions that must be there, of INSTRUCTIONS. `wgmma` and `tma` are asked of sm_90 only.
        capabilities: for which chips the engine launches it like this.
    """

    name: str
    kernel: Any
    args: Sequence[Any] | Mapping[str, Any]
    constexprs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3
    flops: float = 0.0
    bytes: float = 0.0
    expects: frozenset[str] | set[str] = frozenset()
    capabilities: Sequence[int] = CAPABILITIES

    def bound(self, capability: int) -> float:
        """The roofline's seconds."""
        chip = CHIPS[capability]
        return max(self.bytes / chip.bandwidth, self.flops / chip.flops)

    def missing(self, compiled: Compiled) -> set[str]:
        """Expected instructions that the compiler did not emit."""
        asked = self.expects if compiled.capability >= 90 else set(self.expects) - {"wgmma", "tma"}
        return set(asked) - set(compiled.instructions)


INSTRUCTIONS: dict[str, str] = {
    "wgmma": r"wgmma\.mma_async",
    "mma": r"mma\.sync",
    "cp.async": r"cp\.async\.c[ag]\.shared",
    "tma": r"cp\.async\.bulk",
    "ld.128": r"ld\.global\S*\.(v4\.[bfus]32|v2\.[bfus]64|v8\.[bfus]16)",
    "st.128": r"st\.global\S*\.(v4\.[bfus]32|v2\.[bfus]64|v8\.[bfus]16)",
}
"""Patterns of PTX by name: dense products, asynchronous copies into shared memory, 16-byte loads and stores."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled kernel: registers a thread, spilled bytes (stores and loads), dynamic shared memory in bytes."""

    capability: int
    registers: int
    spills: int
    shared: int
    num_warps: int
    ptx: str
    cubin: bytes

    @property
    def instructions(self) -> list[str]:
        """Names of INSTRUCTIONS that occur."""
        return [name for name, pattern in INSTRUCTIONS.items() if re.search(pattern, self.ptx)]

    @property
    def occupancy(self) -> float:
        """Share of the warps of an SM that are resident, see `occupancy`."""
        return occupancy(self.capability, self.registers, self.shared, self.num_warps)


def occupancy(capability: int, registers: int, shared: int, num_warps: int) -> float:
    """Share of the 64 warps of an SM that are resident; registers, shared memory or warps run out first (CUDA's calculator)."""
    # Registers go to warps in units of 256, warps to the four quarters of the SM.
    by_registers = 4 * (16384 // (math.ceil(registers * 32 / 256) * 256)) // num_warps if registers else 32
    by_shared = CHIPS[capability].shared_per_sm // (math.ceil(shared / 128) * 128 + 1024)
    return min(by_registers, by_shared, 64 // num_warps, 32) * num_warps / 64


class _Stub(DriverBase):  # type: ignore[misc]
    """A driver that says that there is a device of the given capability."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        # A kernel remembers its target by device, so that each capability has to be a device of its own.
        return -self.capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Any:
        raise RuntimeError("nothing runs on a device that is not there")


@contextmanager
def _target(capability: int) -> Iterator[None]:
    before = driver._active
    driver.set_active(_Stub(capability))
    try:
        yield
    finally:
        driver._active = before


def compile_kernel(
    jit_kernel: Any,
    args: Sequence[Any] | Mapping[str, Any],
    constexprs: Mapping[str, Any],
    capability: int,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Compiled:
    """Compiles one launch, see `Specialisation` for the arguments; nothing has to be there to run it.

    Raises:
        InputError: the kernel was imported with TRITON_INTERPRET set (the flag acts on import), or an unknown capability.
    """
    if capability not in CHIPS:
        raise InputError(f"capability: found {capability!r}, allowed: {', '.join(map(str, CHIPS))}")
    if not isinstance(jit_kernel, triton.runtime.JITFunction):
        raise InputError(
            f"{jit_kernel!r} is interpreted and cannot be compiled: TRITON_INTERPRET was set when its file was imported; "
            "compile in a process without it"
        )
    positional, named = ((), args) if isinstance(args, Mapping) else (args, {})
    assembled = io.StringIO()
    with _target(capability), triton.knobs.nvidia.scope(), redirect_stdout(assembled):
        triton.knobs.nvidia.dump_ptxas_log = True  # Triton prints it.
        kernel = jit_kernel.warmup(
            *positional, **named, **constexprs, grid=(1,), num_warps=num_warps, num_stages=num_stages
        )
    registers, spills = _resources(kernel.hash, kernel.asm["ptx"], assembled.getvalue())
    return Compiled(
        capability, registers, spills, kernel.metadata.shared, num_warps, kernel.asm["ptx"], kernel.asm["cubin"]
    )


def _resources(key: str, ptx: str, log: str) -> tuple[int, int]:
    """Registers and spilled bytes from the log of the assembler, which is kept beside the cached kernel: a kernel that comes from
    the cache was not assembled now, and is once more if it was cached without a log."""
    cache = get_cache_manager(key)
    if "registers" not in log:
        kept = cache.get_file("resources.log")
        log = Path(kept).read_text() if kept else _assemble(ptx)
    cache.put(log, "resources.log", binary=False)
    registers = max(int(n) for n in re.findall(r"Used (\d+) registers", log))
    return registers, sum(int(n) for n in re.findall(r"(\d+) bytes spill", log))


def _assemble(ptx: str) -> str:
    found = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    assert found, "PTX names its target"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name={found[1]}"]
        if triton.__version__ >= "3.7":
            command.append("--regAllocOptLevel=2")  # As triton itself calls it since then.
        command += [str(source), "-o", str(source.with_suffix(".cubin"))]
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def specialisations() -> list[tuple[str, Specialisation]]:
    """`(kernel file, launch)` of every kernel file of this package that lists launches, in order of files."""
    package = importlib.import_module("gpu_backend.kernels")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name != "compiled")
    modules = [(name, importlib.import_module(f"gpu_backend.kernels.{name}")) for name in names]
    return [(name, entry) for name, module in modules for entry in getattr(module, "SPECIALISATIONS", ())]


def compile_specialisation(entry: Specialisation, capability: int) -> Compiled:
    """Compiles a listed launch for chips of that capability."""
    return compile_kernel(
        entry.kernel, entry.args, entry.constexprs, capability, num_warps=entry.num_warps, num_stages=entry.num_stages
    )


def faults(entry: Specialisation, compiled: Compiled) -> list[str]:
    """What is wrong with a compiled launch: spills, more shared memory than the chip has, instructions that are missing."""
    limit = CHIPS[compiled.capability].shared_per_block
    found = []
    if compiled.spills:
        found.append(f"spills {compiled.spills} bytes")
    if compiled.shared > limit:
        found.append(f"takes {compiled.shared} bytes of shared memory of {limit}")
    if missing := entry.missing(compiled):
        found.append(f"has no {', '.join(sorted(missing))}")
    return found


def report(capability: int) -> list[dict[str, Any]]:
    """One row a launch for that capability: what `Compiled` says, the roofline's seconds and what is wrong."""
    rows = []
    for module, entry in specialisations():
        if capability not in entry.capabilities:
            continue
        row = {"file": module, "kernel": entry.kernel.__name__.strip("_"), "name": entry.name, "capability": capability}
        try:
            made = compile_specialisation(entry, capability)
        except Exception as error:  # The other launches are reported nonetheless.
            rows.append(row | {"faults": [f"does not compile: {error}"]})
            continue
        rows.append(
            row
            | {name: getattr(made, name) for name in ("registers", "spills", "shared", "num_warps", "occupancy")}
            | {"instructions": made.instructions, "bound": entry.bound(capability), "faults": faults(entry, made)}
        )
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The document: a table for each capability."""
    lines = [
        "# Kernels",
        "",
        "What the compiler makes of every launch that the engine warms, and the roofline of its shape. Made by",
        f"`python -m gpu_backend.kernels.compiled --out docs/kernels.md` with triton {triton.__version__}; no GPU is needed.",
        "Occupancy is the share of an SM's 64 warps that are resident. The roofline is what memory or matrix products take at least,",
        "not a measurement.",
    ]
    for capability in CAPABILITIES:
        chip = CHIPS[capability]
        lines += [
            "",
            f"## sm_{capability}",
            "",
            f"Roofline of {chip.name}: {chip.bandwidth / 1e12:.2f} TB/s, {chip.flops / 1e12:.0f} TFLOP/s in bf16.",
            "",
            "| file | kernel | launch | warps | registers | spilled bytes | shared bytes | occupancy | instructions | roofline, us |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [_line(row) for row in rows if row["capability"] == capability]
    return "\n".join(lines) + "\n"


def _line(row: Mapping[str, Any]) -> str:
    head = f"| {row['file']} | {row['kernel']} | {row['name']} |"
    if "registers" not in row:
        return f"{head} does not compile" + " |" * 7
    return (
        f"{head} {row['num_warps']} | {row['registers']} | {row['spills']} | {row['shared']} "
        f"| {row['occupancy']:.0%} | {', '.join(row['instructions'])} | {row['bound'] * 1e6:.2f} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or prints the table; the exit code is 1 if anything is wrong with a launch."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.kernels.compiled", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the table here (markdown)")
    parser.add_argument("--capability", type=int, choices=CAPABILITIES, help="only this one; without it, both")
    asked = parser.parse_args(arguments)
    if os.environ.pop("TRITON_INTERPRET", "0") not in ("", "0"):
        print("TRITON_INTERPRET is set: nothing would be compiled, so it is ignored here", file=sys.stderr)
    rows = [row for c in CAPABILITIES if asked.capability in (None, c) for row in report(c)]
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(markdown(rows))
    else:
        print(json.dumps(rows))
    for row in rows:
        for fault in row["faults"]:
            print(f"{row['file']}: {row['name']} on sm_{row['capability']} {fault}", file=sys.stderr)
    return int(any(row["faults"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
