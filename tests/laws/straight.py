"""Step costs that are a straight line in everything, so that queueing theory has closed forms for them."""

from __future__ import annotations

from sim.profile import Coefficients, Profile
from sim.profile_cost import ProfileCost
from sim.profile_parts import Domain, Range, Source

EVERYTHING = Range(min=0, max=1 << 30)


def straight_cost(step: float, token: float = 0.0, **coefficients: float) -> ProfileCost:
    """A step costs `step` ns, each of its tokens `token` ns, and the rest as `sim.profile.Coefficients` names it."""
    far = 1 << 20
    return ProfileCost(
        Profile(
            name="straight",
            created="2026-01-01T00:00:00+00:00",
            source=Source(device="none", clock="none"),
            model="none",
            dtype="bfloat16",
            kv_dtype="bfloat16",
            domain=Domain(
                tokens=EVERYTHING,
                prefill_query=EVERYTHING,
                prefill_context=EVERYTHING,
                decode_sequences=EVERYTHING,
                decode_context=EVERYTHING,
                sampled=EVERYTHING,
            ),
            dense=((0, step), (far, step + far * token)),
            coefficients=Coefficients(**coefficients),
            data_hash="",
        )
    )
