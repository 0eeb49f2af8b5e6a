"""What it runs on: the sheet of one device, and what is assumed of how far engines reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from scenarios.errors import InputError, unknown

GIB = float(2**30)

_BOUNDS: Mapping[str, tuple[float, float, str]] = {
    # What any device of today is far inside of, so that a wrong unit is told and no cost overflows.
    "memory_bytes": (1e6, 1e16, " bytes"),
    "memory_bandwidth": (1e6, 1e18, " bytes/s"),
    "usd_per_hour": (0, 1e6, " USD"),
    "compute_efficiency": (1e-3, 1, ""),
    "attention_efficiency": (1e-3, 1, ""),
    "memory_efficiency": (1e-3, 1, ""),
    "step_overhead": (0, 60, " seconds"),
    "sequence_overhead": (0, 60, " seconds"),
    "layer_overhead": (0, 60, " seconds"),
    "reserve_bytes": (0, 1e16, " bytes"),
    "kv_cache_bytes": (1, 1e16, " bytes"),
    "link_bandwidth": (1e6, 1e18, " bytes/s"),
    "link_latency": (0, 60, " seconds"),
    "host_bandwidth": (1e6, 1e18, " bytes/s"),
    "host_latency": (0, 60, " seconds"),
}


@dataclass(frozen=True)
class HardwareSpec:
    """One device. Sheet values are the vendor's, dense (no sparsity); the rest are assumptions, listed here once.

    Args:
        memory_bytes: memory as the driver reports it, which is what `gpu_memory_utilization` is a share of.
        memory_bandwidth: bytes/s.
        flops: peak FLOP/s by precision; must have `bfloat16`.
        usd_per_hour: default price of one device, the order of on-demand cloud prices in 2025. Overridden by
            `prices.gpu_hour`.
        compute_efficiency: share of the peak that large GEMMs reach.
        attention_efficiency: the same for prefill attention.
        memory_efficiency: share of the bandwidth that kernels reach.
        step_overhead: host time of a step that kernels do not hide, seconds. With `sequence_overhead` it was fitted by
            us on public end-to-end points of H100 and H200 with vLLM.
        sequence_overhead: the same for each scheduled sequence, seconds.
        layer_overhead: launches of one layer, seconds.
        reserve_bytes: memory that neither weights nor KV get: activations, sampler, graphs, the runtime itself.
        kv_cache_bytes: fixed KV memory where engines do not derive it from a share of the device (CPUs); None: derived.
        link_bandwidth: bytes/s that a device sends to the others of its tensor-parallel group, one direction of the sheet
            (NVLink, or PCIe where there is none); None: it has no such link.
        link_latency: an all-reduce of next to nothing among them, seconds; an assumption.
        host_bandwidth: bytes/s between the device and its host's pinned memory, one direction, as copies of whole KV blocks reach
            it (about 85 % of what PCIe states; engines that copy layer by layer reach less); None: KV never leaves the device.
        host_latency: launching the copies of a step in one direction, seconds; an assumption.
        is_cpu: engines choose other defaults on CPUs.
        large_batches: engines choose large default batches here (vLLM: 70 GiB or more, but not an A100).
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    flops: Mapping[str, float] = field(hash=False)
    usd_per_hour: float = 0.0
    compute_efficiency: float = 0.75
    attention_efficiency: float = 0.5
    memory_efficiency: float = 0.8
    step_overhead: float = 0.95e-3
    sequence_overhead: float = 0.041e-3
    layer_overhead: float = 15e-6
    reserve_bytes: float = 3.5e9
    kv_cache_bytes: float | None = None
    link_bandwidth: float | None = None
    link_latency: float = 10e-6
    host_bandwidth: float | None = None
    host_latency: float = 30e-6
    is_cpu: bool = False
    large_batches: bool | None = None

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=False, allow_inf_nan=False)

    def __post_init__(self) -> None:
        for name, (least, most, unit) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name} must be between {least:g} and {most:g}{unit}, found {value}")
        if "bfloat16" not in self.flops:
            raise ValueError("flops needs an entry bfloat16")
        for dtype, peak in self.flops.items():
            if dtype not in ("float32", "bfloat16", "float16", "fp8", "int8", "int4"):
                raise ValueError(
                    unknown("precision in flops", dtype, ("float32", "bfloat16", "float16", "fp8", "int8"))
                )
            if not 1e6 <= peak <= 1e20:
                raise ValueError(f"flops of {dtype} must be between 1e+06 and 1e+20 FLOP/s, found {peak}")

    @property
    def takes_large_batches(self) -> bool:
        """Whether engines choose their large default batch sizes."""
        if self.large_batches is not None:
            return self.large_batches
        return not self.is_cpu and self.memory_bytes >= 70 * GIB


def _gpu(
    name: str,
    memory_gib: float,
    bandwidth: float,
    bf16: float,
    fp8: float | None,
    usd_per_hour: float,
    link: tuple[float, float],
    host_bandwidth: float,
    reserve_bytes: float = 3.5e9,
    large_batches: bool | None = None,
) -> HardwareSpec:
    flops = {"bfloat16": bf16, "float16": bf16} | ({"fp8": fp8, "int8": fp8} if fp8 else {})
    return HardwareSpec(
        name, round(memory_gib * GIB), bandwidth, flops, usd_per_hour,
        reserve_bytes=reserve_bytes, link_bandwidth=link[0], link_latency=link[1], host_bandwidth=host_bandwidth, large_batches=large_batches,
    )  # fmt: skip


_NVLINK = 10e-6  # seconds of a small all-reduce: one kernel in which every device reads the others' memory
_PCIE = 30e-6  # the same where data passes the host's switches
_GEN4, _GEN5 = 27e9, 54e9  # bytes/s that large copies reach over PCIe 4.0 and 5.0 with 16 lanes (31.5 and 63 stated)


CATALOG: dict[str, HardwareSpec] = {
    spec.name: spec
    for spec in (
        _gpu("H100", 79.1, 3.35e12, 989e12, 1979e12, 3.0, (450e9, _NVLINK), _GEN5),  # SXM, 80 GB
        _gpu("H200", 139.8, 4.8e12, 989e12, 1979e12, 3.8, (450e9, _NVLINK), _GEN5),  # SXM, 141 GB
        _gpu("B200", 178.3, 8.0e12, 2250e12, 4500e12, 5.5, (900e9, _NVLINK), _GEN5),  # SXM, 192 GB sold, 180 usable
        _gpu("A100-80G", 79.2, 2.039e12, 312e12, None, 1.8, (300e9, _NVLINK), _GEN4, large_batches=False),  # SXM
        _gpu("L40S", 44.4, 0.864e12, 362e12, 733e12, 1.2, (32e9, _PCIE), _GEN4),  # PCIe 4.0 x16
        # Reserve from a public vLLM run: 90 % of 25.25 GB, less 16.06 GB of weights and 2,588 blocks of 16 tokens.
        _gpu("RTX-4090", 25250627584 / GIB, 1.008e12, 165e12, 330e12, 0.5, (32e9, _PCIE), _GEN4, reserve_bytes=1.24e9),
        # PCIe 5.0 x16; two cards' all-reduces (13 us, then 36 GB/s) from the public hardware sheet of LLMServingSim's profiler.
        _gpu("RTX-PRO-6000", 101976440832 / GIB, 1.792e12, 503.8e12, 1007.6e12, 1.8, (45e9, 13e-6), _GEN5),
        # One core of a server CPU with AVX2, and 4 GiB of KV as vLLM gives it on CPUs. Fixed, so that results do not
        # depend on the machine that simulates; what a real one takes is measured by calibration.
        HardwareSpec(
            "cpu", 8 * GIB, 12e9, {"float32": 90e9, "bfloat16": 90e9, "float16": 90e9}, 0.05,
            step_overhead=0.3e-3, sequence_overhead=0.02e-3, layer_overhead=0.1e-3,
            reserve_bytes=0.5e9, kv_cache_bytes=4 * GIB, host_bandwidth=5e9, is_cpu=True,
        ),
    )
}  # fmt: skip
"""Sheets by name."""


def hardware(name: str) -> HardwareSpec:
    """The catalog's device of that name; neither case nor spaces, dashes and underscores matter.

    Raises:
        InputError: no such device; says which are known and which is nearest.
    """

    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace(" ", "").replace("_", "")

    key = plain(name)
    for known, spec in CATALOG.items():
        if plain(known) == key:
            return spec
    raise InputError(unknown("hardware", name, CATALOG) + ", or a sheet of your own (a mapping of fields)")
