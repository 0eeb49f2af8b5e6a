"""Measuring how many drafts stand for a real model on a text: what a simulation of speculative decoding needs to know."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibration.acceptance import fit, watch
from scenarios.documents import read_text
from scenarios.errors import InputError
from serving.config import EngineConfig
from serving.request import Request
from serving.speculation import METHODS, MOST_DRAFTS
from sim.measured_acceptance import MeasuredAcceptance
from sim.profile import Profile
from studies.aspects.quality import TEXT, shipped_text

if TYPE_CHECKING:
    from studies.progress import Progress

PROPOSERS = tuple(method for method in METHODS if method != "none")


def measured(
    model: str | Path,
    *,
    text: Path | None = None,
    method: str = "ngram",
    k: int = 4,
    draft: str | Path | None = None,
    requests: int = 16,
    prompt_tokens: int = 128,
    answer_tokens: int = 96,
    profile: Profile | None = None,
    progress: Progress | None = None,
) -> MeasuredAcceptance:
    """Has a model continue pieces of a text, greedily, with drafts, and counts which of them stand.

    Args:
        model, draft: what `servetwin quality` takes: a folder, a .gguf file, a packaged model's name.
        text: cut into `requests` prompts of `prompt_tokens` tokens, from evenly spaced places; the shipped one if not given.
        k: most drafts at a time.
        profile: where the result is meant for; refused before any work if it is of another model.

    Raises:
        InputError: an unknown method, a model or text that cannot be used, or torch is not installed.
    """
    if method not in PROPOSERS:
        raise InputError(f"--method: found {method!r}, allowed: {', '.join(PROPOSERS)}")
    if (method == "draft") != (draft is not None):
        needs = "--method draft needs --draft MODEL" if draft is None else "--draft is for --method draft alone"
        raise InputError(f"--method: found {method}; {needs}")
    if not 1 <= k <= MOST_DRAFTS:
        raise InputError(f"--k: found {k}, allowed: 1 to {MOST_DRAFTS}")
    content = read_text(text) if text is not None else shipped_text()
    try:
        from gpu_backend.cpu.engine import CpuEngine
        from gpu_backend.model_files.load import load_weights, open_model, tokenizer_of
        from gpu_backend.tokens import KnownText
    except ModuleNotFoundError as error:
        raise InputError(
            f"measuring acceptance runs the model, and {error.name} is not installed: pip install 'servetwin[gpu]'"
        ) from None

    files = open_model(model)
    if profile is not None:
        _check_same_model(profile, files.spec.name)
    ids = tokenizer_of(files).encode(content)
    if len(ids) < prompt_tokens + 1:
        raise InputError(f"--text: {len(ids)} tokens are too few for prompts of {prompt_tokens}")
    spec, weights = load_weights(files)
    options: dict[str, Any] = {}
    if draft is not None:
        options["draft"], options["draft_weights"] = load_weights(draft)
    window = prompt_tokens + answer_tokens + k + 1
    config = EngineConfig(
        num_gpu_blocks=requests * -(-window // 16) + 1,
        max_model_len=window,
        max_num_seqs=requests,
        max_num_batched_tokens=512,
        enable_prefix_caching=False,
        speculation=method,
        num_speculative_tokens=k,
    )
    engine = CpuEngine(spec, config, weights=weights, answers="sampled", **options)
    step = max(1, (len(ids) - prompt_tokens) // requests)
    prompts = [KnownText(tuple(ids[i * step : i * step + prompt_tokens])) for i in range(requests)]
    asked = [Request(i, ((prompt, len(prompt.ids)),), answer_tokens) for i, prompt in enumerate(prompts)]
    tell = None if progress is None else (lambda done: progress("speculating", done / (requests * answer_tokens)))
    try:
        fitted = fit(k, watch(config, engine, asked, tell))
    except ValueError as error:
        raise InputError(f"{spec.name}: {error}") from None
    about: dict[str, Any] = {"method": method, "k": k, "model": spec.name, "text": TEXT if text is None else text.name}
    if draft is not None:
        about["draft_model"] = options["draft"].name
    return MeasuredAcceptance.model_validate({**about, **asdict(fitted)})


def store(found: MeasuredAcceptance, profile: Profile) -> Profile:
    """The profile with a measurement in place of an older one of the same method and number of drafts.

    Raises:
        InputError: the profile is of another model.
    """
    _check_same_model(profile, found.model)
    kept = [old for old in profile.acceptance if (old.method, old.k) != (found.method, found.k)]
    return profile.model_copy(update={"acceptance": (*kept, found)})


def _check_same_model(profile: Profile, model: str) -> None:
    if profile.model != model:
        raise InputError(f"profile {profile.name}: is of {profile.model}, and drafts were measured for {model}")
