"""Speculative decoding of a launch: n-gram look-up and draft models become a scenario's, trained heads are named."""

from __future__ import annotations

from typing import Any

from scenarios.errors import InputError
from scenarios.launch.assembly import Assembly
from scenarios.launch.launched_model import base_name
from scenarios.models import CATALOG

_ACCEPTANCE = 0.6
"""Share of drafts that stands, until somebody measures: a launch cannot say it."""

_FOUND = 0.5
"""Probability that a look-up finds drafts, until somebody measures."""

_HEADS = (
    "drafts by heads that were trained for the model: fewer steps a token, larger steps; n-gram look-up and draft models are "
    "modelled (engine.speculation)"
)


def take_speculation(a: Assembly) -> None:
    """Takes `--speculative-config`.

    Raises:
        InputError: a number of drafts that is none.
    """
    given = a.settings.get("speculation")
    if given is None or not given.value:
        return
    config: dict[str, Any] = given.value
    method, drafter = str(config.get("method") or "").lower(), config.get("model")
    if not method and drafter in ("ngram", "[ngram]"):
        method = "ngram"
    k = config.get("num_speculative_tokens", 1)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"{given.text}: num_speculative_tokens: found {k!r}, but a whole number above 0 is needed")
    own: dict[str, Any] = {"k": k}
    if method == "ngram":
        own = {"method": "ngram", **own}
    elif method in ("", "draft_model") and isinstance(drafter, str) and _catalogued(drafter):
        own = {"method": "draft", **own, "draft_model": _catalogued(drafter)}
    elif method in ("", "draft_model"):
        why = f"drafts of {drafter or 'a model that is not named'}, whose dimensions are not in the catalog"
        a.not_modelled["speculative-config"] = (given.text, f"{why}: give engine.speculation yourself")
        return
    else:
        a.not_modelled["speculative-config"] = (given.text, _HEADS)
        return
    above = config.get("disable_by_batch_size")
    if isinstance(above, int) and above > 0:
        own["off_above"] = above
    a.take("engine.speculation", own, given)
    unsaid = "a launch does not say which share of drafts stands; measure it: servetwin acceptance"
    a.take("engine.speculation.acceptance", _ACCEPTANCE, origin="assumed", text=unsaid)
    if method == "ngram":
        a.take("engine.speculation.found", _FOUND, origin="assumed", text="nor how often a text repeats itself")
    a.notes.append(f"{unsaid}; {_ACCEPTANCE} is assumed in engine.speculation")


def _catalogued(drafter: str) -> str | None:
    name = base_name(drafter).lower()
    return next((known for known in CATALOG if known.lower() == name), None)
