"""Which resource a run is short of, in one word: from what its queue waits for, or from where its step time goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.aspects.binding import LIMITS

_TERMS = {
    "linears, compute": "compute",
    "prefill attention": "compute",
    "linears, bandwidth": "memory bandwidth",
    "decode attention": "memory bandwidth",
    "output head": "memory bandwidth",
    "elementwise": "memory bandwidth",
    "all-reduce": "communication",
    "copies to and from the host": "link to the host",
    "dense and fixed": "dense work",
}
"""What a term of the step time is short of; others (host, drafting, kernels of operator tables) are called as they are."""


def resource_of(binding: Mapping[str, Any]) -> str:
    """The resource that a run waits for most. binding: `studies.aspects.binding.binding`. `nothing` where nothing ran.

    A queue names the limit that it waits behind. Without one latency is step time, and that is what most of it goes to; a fitted
    profile does not tell compute from bandwidth in its dense work.
    """
    cause = binding.get("cause")
    if cause is not None:
        return LIMITS[cause]
    shares: dict[str, float] = {}
    for term, share in binding.get("terms", {}).items():
        name = _TERMS.get(term, term)
        shares[name] = shares.get(name, 0.0) + share
    return max(shares, key=lambda name: shares[name]) if shares else "nothing"
