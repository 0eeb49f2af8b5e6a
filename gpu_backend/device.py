"""A device as its driver or system describes it: its name, and the memory that is still free."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def device_name(device: torch.device | str) -> str:
    """The model name of a GPU or CPU; of a CPU that the system does not name, its architecture."""
    if torch.device(device).type == "cuda":
        return str(torch.cuda.get_device_name(device))
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def free_memory(device: torch.device | str) -> int:
    """Bytes that may still be taken: on a GPU what its driver says, else what the system can make available."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    listing = Path("/proc/meminfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
