"""What precisions cost in quality: measured on a text, kept, and found again for a scenario that uses one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from scenarios.documents import read_text
from scenarios.errors import InputError, one_message
from sim.profile import Profile
from sim.quality import UNQUANTISED, Quality, precision

if TYPE_CHECKING:
    from scenarios.schema import Scenario
    from studies.progress import Progress

TEXT = "plain-english"
"""The text that ships: 1,275 words about rivers, which were written and published before anything was measured on them."""


def measured(
    model: str,
    *,
    weights: Sequence[str] = (),
    kv: Sequence[str] = (),
    text: Path | None = None,
    window: int = 2048,
    device: str = "cpu",
    profile: Profile | None = None,
    progress: Progress | None = None,
) -> Quality:
    """Measures each precision of the weights, of the KV cache, and each pair of both.

    Args:
        model: `smollm2`, a .gguf file, or a Hugging Face folder.
        text: held-out text; the shipped one if not given.
        window: most tokens that are seen before one that is predicted.
        profile: where the result is meant for; refused before any work if it is of another model.

    Raises:
        InputError: a precision, model or text that cannot be used, or torch is not installed.
    """
    content = read_text(text) if text is not None else shipped_text()
    try:
        from gpu_backend import check_device
        from gpu_backend.model_files.load import load_weights, open_model, tokenizer_of
        from gpu_backend.quality import check_precisions, check_window, measure
    except ModuleNotFoundError as error:
        raise InputError(
            f"measuring quality runs the model, and {error.name} is not installed: pip install 'servetwin[gpu]'"
        ) from None
    check_precisions(weights, kv)
    check_window(window)
    check_device(device)

    def tell(what: str, part: float) -> None:
        if progress is not None:
            progress(what, part)

    tell("loading", 0.0)
    files = open_model(model)
    if profile is not None:
        _check_same_model(profile, files.spec.name)
    ids = tokenizer_of(files).encode(content)
    spec, loaded = load_weights(files, device=device)
    pairs = [
        (w, k) for w in (UNQUANTISED, *weights) for k in (UNQUANTISED, *kv) if (w, k) != (UNQUANTISED, UNQUANTISED)
    ]
    found = measure(
        spec, loaded, ids, pairs, window=window, progress=lambda done, total: tell("measuring", done / total)
    )  # fmt: skip
    return Quality(
        model=spec.name,
        reference=files.path.name,
        reference_perplexity=found.perplexity,
        text=TEXT if text is None else text.name,
        text_hash=hashlib.sha256(content.encode()).hexdigest()[:16],
        tokens=found.tokens,
        window=found.window,
        losses=found.losses,
    )


def shipped_text() -> str:
    """The text that comes with the package."""
    return resources.files("studies").joinpath("texts", f"{TEXT}.txt").read_text(encoding="utf-8")


def shipped() -> list[Quality]:
    """The measurements that come with the package, a file a model."""
    files = sorted((f for f in resources.files("calibration.quality").iterdir() if f.name.endswith(".json")), key=str)
    return [read(f.read_text(encoding="utf-8"), f"shipped quality {f.name}") for f in files]


def read(text: str, source: str) -> Quality:
    """A measurement from its JSON.

    Raises:
        InputError: it is none.
    """
    try:
        data = json.loads(text)
        return Quality.model_validate_json(text)
    except ValidationError as error:
        path, problem = one_message(error, data)
        raise InputError(f"{source}: {path or 'quality'}: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON: {error}") from None


def store(found: Quality, profile: Profile) -> Profile:
    """The profile with a measurement beside what it held before.

    Raises:
        InputError: the profile is of another model.
    """
    _check_same_model(profile, found.model)
    joined = found if profile.quality is None else profile.quality.joined(found)
    return profile.model_copy(update={"quality": joined})


def _check_same_model(profile: Profile, model: str) -> None:
    if profile.model != model:
        raise InputError(
            f"profile {profile.name}: is of {profile.model}, and quality is measured of {model}; give one of it"
        )


def of_scenario(scenario: Scenario, profile: Profile | None) -> dict[str, Any] | None:
    """What the scenario's precisions cost, JSON-able: from its profile, or else from what ships; None where all of it is wide.

    `loss` is None where nobody measured it.
    """
    weights, kv = precision(scenario.dtype), precision(scenario.kv_dtype)
    if weights == kv == UNQUANTISED:
        return None
    found: dict[str, Any] = {"weights": weights, "kv": kv, "loss": None}
    for quality in _known(scenario, profile):
        loss = quality.find(weights, kv)
        if loss is not None:
            about = quality.model_dump(exclude={"losses", "schema_version"})
            return found | {"loss": loss.model_dump(exclude={"weights", "kv"}), **about}
    return found


def _known(scenario: Scenario, profile: Profile | None) -> list[Quality]:
    own = [profile.quality] if profile is not None and profile.quality is not None else []
    return [quality for quality in (*own, *shipped()) if quality.model == scenario.model.name]
