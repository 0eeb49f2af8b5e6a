"""CUDA graphs of steps whose sequences all have the same few tokens: without them the host, not the device, sets the pace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch

from gpu_backend.gpu.inputs import Bucket


def bucket_sizes(most: int) -> list[int]:
    """Numbers of sequences that steps are padded to: 1, 2, 4, by 8 to 256, by 16 to 512; `most` is always one (vLLM's list)."""
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]
    return sorted({size for size in sizes if size < most} | {min(most, 512)})


class StepGraphs:
    """Captured steps by bucket. On a device without graphs the step is run as it is, padded all the same.

    Args:
        run: computes the step of a bucket from buffers that never move, into buffers that never move.
        queries: tokens a sequence: 1 for decodes, and 1 + k for the verification of k drafts.
    """

    def __init__(
        self, run: Callable[[Bucket], None], most_sequences: int, queries: list[int], device: torch.device
    ) -> None:
        self.run, self.device = run, device
        self.sizes = bucket_sizes(most_sequences)
        self.queries = queries
        self._graphs: dict[Bucket, torch.cuda.CUDAGraph] = {}

    def bucket(self, sequences: int, queries: int) -> Bucket | None:
        """The smallest captured step that holds so many sequences of so many tokens each, None if there is none."""
        i = bisect_left(self.sizes, sequences)
        if queries not in self.queries or i == len(self.sizes) or not sequences:
            return None
        return Bucket(self.sizes[i], queries)

    def capture(self) -> None:
        """Captures every bucket, the largest first so that the others fit into its memory; all share one pool."""
        if self.device.type != "cuda":
            return
        pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        for queries in self.queries:
            for size in reversed(self.sizes):
                bucket = Bucket(size, queries)
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    self.run(bucket)  # compiles what is not yet compiled: never inside a capture
                torch.cuda.current_stream().wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self.run(bucket)
                self._graphs[bucket] = graph

    def replay(self, bucket: Bucket) -> None:
        """Runs the step of a bucket."""
        graph = self._graphs.get(bucket)
        if graph is None:
            self.run(bucket)
        else:
            graph.replay()
