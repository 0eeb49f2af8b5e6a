"""What a device is and what it can do at most: how to time work on it, and how fast it copies and multiplies.

Data sheets are leads; what kernels are held against is measured in the same run.
"""

from __future__ import annotations

import gc
import itertools
import platform
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from gpu_backend.device import device_name

Call = Callable[[], object]


def environment(device: str) -> dict[str, object]:
    """What the process runs on: versions, and the device as its driver describes it. JSON-able."""
    found: dict[str, object] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "triton": _triton_version(),
        "device": device,
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": device_name(device),
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": l2_bytes(torch.device(device)),
            "cuda": torch.version.cuda,
        }
    else:
        found |= {"name": device_name(device), "threads": torch.get_num_threads()}
    return found


def is_there(device: str) -> bool:
    """Whether this machine has the device."""
    return torch.device(device).type == "cpu" or torch.cuda.is_available()


def release() -> None:
    """Gives memory that nothing holds any more back to a GPU."""
    if torch.cuda.is_available():
        gc.collect()  # engines and their graphs refer to each other
        torch.cuda.empty_cache()


def l2_bytes(device: torch.device) -> int:
    """Size of the last cache before a GPU's memory; 0 on a CPU, where nothing is held against it."""
    if device.type != "cuda":
        return 0
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20))


def sets_beyond_l2(device: torch.device, nbytes: float, most: int = 128) -> int:
    """Sets of buffers of `nbytes` each that calls must take in turn so that none finds its data in the cache: twice the L2
    in all, one set where a set alone is that large."""
    return max(1, min(most, -(-2 * l2_bytes(device) // max(1, int(nbytes)))))


def seconds_per_call(calls: Sequence[Call], device: torch.device, seconds: float = 0.03) -> float:
    """Seconds of one of `calls`, which are made in turn: the median of repeats that take about `seconds` in all.

    On a GPU the calls are captured in one CUDA graph, so that what is timed is the device and not the host that launches.
    """
    if device.type != "cuda":
        return _host_seconds(calls, seconds)
    for call in calls:  # compiles and chooses algorithms: never inside a capture
        call()
    rough = _replayed(calls, len(calls), 3)
    # A graph of two milliseconds: its own launch, some microseconds, does not count then.
    return _replayed(calls, max(len(calls), min(400, int(2e-3 / rough) + 1)), max(5, min(50, int(seconds / 2e-3))))


def _replayed(calls: Sequence[Call], launches: int, replays: int) -> float:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            calls[i % len(calls)]()
    graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
    return statistics.median(times) / 1e3 / launches


def _host_seconds(calls: Sequence[Call], seconds: float) -> float:
    calls[0]()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < 1000):
        begin = time.perf_counter()
        calls[len(times) % len(calls)]()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def copy_bandwidth(device: str, nbytes: int) -> dict[str, float]:
    """bytes/s of a copy of `nbytes` within the device, read and written ones counted both."""
    where = torch.device(device)
    source = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=where)
    target = torch.empty_like(source)
    taken = seconds_per_call([lambda: target.copy_(source)], where, 0.1)
    return {"bytes": 2.0 * nbytes, "seconds": taken, "bytes_per_s": 2.0 * nbytes / taken}


def matmul_rate(device: str, size: int) -> dict[str, object]:
    """FLOP/s of a product of two `(size, size)` matrices of random numbers (zeros run faster): bf16, on a CPU float32."""
    where = torch.device(device)
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=where).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    taken = seconds_per_call([lambda: torch.matmul(a, b, out=out)], where, 0.1)
    flop = 2.0 * size**3
    return {"flop": flop, "seconds": taken, "flop_per_s": flop / taken, "dtype": str(dtype).removeprefix("torch.")}


def _triton_version() -> str:
    try:
        import triton
    except ModuleNotFoundError:
        return "none"
    return str(triton.__version__)
