"""The figures of a profile, in the order in which they are looked at."""

from __future__ import annotations

from sim.operator_profile import OperatorProfile
from sim.profile import Profile
from sim.profiles import AnyProfile
from studies.figures.style import Figure
from studies.profiles import cost_figures, fit_figures


def gallery(profile: AnyProfile) -> dict[str, Figure]:
    """By title. Where points are not carried, a figure says so instead."""
    found = {"Step times, predicted against measured": fit_figures.predicted_against_measured(profile)}
    if isinstance(profile, Profile) and profile.measurements:
        found["Residuals over tokens"] = fit_figures.residuals(profile, "tokens")
        found["Residuals over context"] = fit_figures.residuals(profile, "context")
    elif isinstance(profile, Profile) and profile.residuals:
        found["Distribution of residuals"] = fit_figures.residuals(profile)
    found["Cross-validated errors"] = fit_figures.cross_validated(profile)
    found["Time against tokens"] = cost_figures.over_tokens(profile)
    if isinstance(profile, OperatorProfile):
        found["Attention of decodes"] = cost_figures.decode_attention(profile)
        found["Attention of prompts"] = cost_figures.prefill_attention(profile)
    return found
