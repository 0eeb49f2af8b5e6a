"""Memory that is still free. In a file of its own: an engine asks for it whether or not weights can be read from files here."""

from __future__ import annotations

import os
from pathlib import Path

import torch


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
