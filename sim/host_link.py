"""What it takes to copy KV blocks between a device and its host's memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scenarios.host_memory import block_bytes
from scenarios.schema import Scenario
from serving.host_memory import MoveKind
from serving.records import MOVE_COLUMNS, Column


@dataclass(frozen=True)
class HostLink:
    """The link of one device to its host. Copies of a step run before it computes, out and in one after the other, as in vLLM V0.

    Args:
        block_bytes: of one KV block on one device.
        bandwidth: bytes/s, one direction, as copies of whole blocks reach it.
        latency: seconds for launching the copies of one step in one direction.
    """

    block_bytes: float
    bandwidth: float
    latency: float

    def ns(self, out: int, into: int) -> int:
        """Nanoseconds for copying so many blocks out to the host and in again in one step."""
        return int(self._ns(np.array(out), np.array(into)))

    def of_steps(self, steps: dict[str, Column]) -> NDArray[np.int64]:
        """Nanoseconds of copies in each step of a log, int64 `(steps,)`."""
        swap_out, swap_in, offload, fetch = (steps[MOVE_COLUMNS[kind]] for kind in MoveKind)
        return self._ns(swap_out + offload, swap_in + fetch)

    def _ns(self, out: NDArray[np.int64], into: NDArray[np.int64]) -> NDArray[np.int64]:
        directions = (out > 0).astype(np.int64) + (into > 0)
        seconds = (out + into) * (self.block_bytes / self.bandwidth) + directions * self.latency
        return np.floor(seconds * 1e9 + 0.5).astype(np.int64)


def link_of(scenario: Scenario) -> HostLink | None:
    """The link to the host of a scenario's replicas; None where no KV leaves the device."""
    engine, hardware = scenario.engine, scenario.hardware
    if not engine.uses_host_memory or hardware.host_bandwidth is None:
        return None
    size = block_bytes(engine, scenario.model, scenario.engine_config().block_size)
    return HostLink(size, hardware.host_bandwidth, hardware.host_latency)
