"""Which drafts stand, where no model verifies them: drawn beforehand, in effect, for every position of every answer.

Whether a draft stands depends on (seed, request, position in the answer) alone. No stream is consumed, so that neither a cut
list of drafts nor another order of requests changes what comes of any other draft.
"""

from __future__ import annotations

from collections.abc import Sequence

from serving.request import Request

_MASK = (1 << 64) - 1
_STANDS, _FOUND = 0x9E37_79B9, 0x85EB_CA6B  # streams


class Acceptance:
    """Answers for every request of a workload.

    Args:
        seed: of the run.
        rates: by request index, the probability that each draft of a row stands where all before it do, by position in the row;
            the last one holds for all positions behind it.
        k: drafts that are found when any are.
        found: probability that drafts are found at all after a step.
    """

    def __init__(self, seed: int, rates: Sequence[tuple[float, ...]], k: int, found: float = 1.0) -> None:
        self.seed = seed
        self.rates = rates
        self.k = k
        self.found = found

    def accepted(self, request: Request, drafts: int) -> int:
        """How many of the drafts that are verified now, behind the answer so far, stand."""
        index, position = self._row(request), request.num_outputs
        rates = self.rates[index]
        last = len(rates) - 1
        for i in range(drafts):
            if _uniform(self.seed, _STANDS, index, position + i) >= rates[min(i, last)]:
                return i
        return drafts

    def proposed(self, request: Request, outputs: int) -> int:
        """How many drafts are found once the request has so many answer tokens."""
        found = self.found >= 1.0 or _uniform(self.seed, _FOUND, self._row(request), outputs) < self.found
        return self.k if found else 0

    def _row(self, request: Request) -> int:
        """Every try of a request has the same answer."""
        return request.index % len(self.rates)


def _uniform(seed: int, stream: int, request: int, position: int) -> float:
    """A number in [0, 1) that its key decides: SplitMix64's finaliser over the parts of the key in turn."""
    x = seed ^ stream << 32
    for part in (request, position):
        x = (x + (part + 1) * 0x9E37_79B9_7F4A_7C15) & _MASK
        x = ((x ^ x >> 30) * 0xBF58_476D_1CE4_E5B9) & _MASK
        x = ((x ^ x >> 27) * 0x94D0_49BB_1331_11EB) & _MASK
        x ^= x >> 31
    return (x >> 11) * 2.0**-53
