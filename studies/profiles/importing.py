"""Making a profile from what others measured, by one call: of a file, a folder, or installed tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scenarios.errors import InputError, unknown
from sim.profiles import AnyProfile, load_profile


@dataclass(frozen=True)
class Kind:
    """One kind of source.

    files: what it consists of, for people. needs: options that must be given. takes: those that may. folder: whether it is several
    files together.
    """

    name: str
    title: str
    files: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    folder: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind("profile", "A profile of servetwin", "the JSON file that calibrate or import wrote"),
        Kind(
            "steps",
            "The step log of an engine",
            "a CSV of iteration, prefill_requests, prefill_tokens, decode_requests, decode_tokens and elapsed_ms; a vLLM server's log "
            "with --enable-logging-iteration-details; or steps.parquet or the result folder of an executed run",
            ("model",),
            ("dtype", "kv_dtype", "device", "rows", "input_tokens", "max_num_batched_tokens", "block_size"),
        ),
        Kind(
            "llmservingsim",
            "A kernel bundle of LLMServingSim",
            "dense.csv, attention.csv, per_sequence.csv, meta.yaml, and skew.csv or moe.csv where there are any",
            ("model",),
            ("tensor_parallel_size", "capture_sizes"),
            folder=True,
        ),
        Kind(
            "vidur",
            "Profiling tables of Vidur",
            "mlp.csv and attention.csv, and a folder network/ above them for several devices",
            ("model", "hardware"),
            ("tensor_parallel_size",),
            folder=True,
        ),
        Kind(
            "aiconfigurator",
            "Operator tables of aiconfigurator-core",
            "none: the tables of the installed package (extra `profiles`), or its `systems` folder",
            ("model", "system"),
            ("engine", "version", "dtype", "kv_dtype", "tensor_parallel_size", "expert_skew", "fitted"),
            folder=True,
        ),
    )
}
"""What can be imported, by name."""


@dataclass(frozen=True)
class Options:
    """What a source does not say of itself; a kind takes only those that it names.

    model: a name of the catalog, or a Hugging Face config.json. hardware, system: the device that was measured. rows: iterations of a
    step log, `A:B`. fitted: with the host constants that were fitted to public points.
    """

    model: str | None = None
    hardware: str | None = None
    system: str | None = None
    engine: str | None = None
    version: str | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    device: str | None = None
    tensor_parallel_size: int | None = None
    capture_sizes: Sequence[int] | None = None
    expert_skew: str | None = None
    fitted: bool | None = None
    rows: str | None = None
    input_tokens: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None

    def given(self) -> dict[str, object]:
        """Those that say something."""
        return {name: value for name, value in vars(self).items() if value is not None}


def kind_of(path: Path | str) -> str | None:
    """What a file or folder seems to be, by its names and first letters; None where nothing fits."""
    path = Path(path)
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        tests = {
            "llmservingsim": "meta.yaml" in names,
            "vidur": {"mlp.csv", "attention.csv"} <= names,
            "steps": "steps.parquet" in names,
        }
        return next((kind for kind, holds in tests.items() if holds), None)
    if not path.is_file():
        return None
    if path.suffix == ".json":
        return "profile"
    return "steps" if path.suffix.lower() in (".csv", ".log", ".txt", ".gz", ".parquet") else None


def import_profile(
    source: Path | str | None, kind: str | None = None, *, name: str | None = None, options: Options | None = None
) -> AnyProfile:
    """The profile of a source.

    Args:
        source: a file or a folder; None for installed tables (aiconfigurator).
        kind: one of `KINDS`; None to recognise it.
        name: of the profile, if not the one that the source gives it.

    Raises:
        InputError: it is not what it should be, or an option is missing, or says nothing of this kind; the message names the remedy.
    """
    options = Options() if options is None else options
    found = _kind(source, kind)
    given = options.given()
    for needed in found.needs:
        if needed not in given:
            raise InputError(
                f"{_where(source)}: {needed} is missing; {found.title[0].lower()}{found.title[1:]} does not say it"
            )
    for option in given:
        if option not in (*found.needs, *found.takes):
            allowed = ", ".join((*found.needs, *found.takes)) or "none"
            raise InputError(
                f"{option}: says nothing of {found.title[0].lower()}{found.title[1:]}; leave it out. Allowed: {allowed}"
            )
    if source is None and found.name != "aiconfigurator":
        raise InputError(f"import: a file or folder is missing: {found.files}")
    profile = _READERS[found.name](source, name or (Path(source).stem if source is not None else "imported"), options)
    return profile if name is None else profile.model_copy(update={"name": name})


def _where(source: Path | str | None) -> str:
    return "import" if source is None else str(source)


def _kind(source: Path | str | None, kind: str | None) -> Kind:
    if kind is not None:
        if kind not in KINDS:
            raise InputError(f"import: {unknown('kind', kind, KINDS)}")
        return KINDS[kind]
    if source is None:
        return KINDS["aiconfigurator"]
    if not Path(source).exists():
        raise InputError(f"{source}: there is no such file or folder")
    seen = kind_of(source)
    if seen is None:
        known = "; ".join(f"{each.name}: {each.files}" for each in KINDS.values())
        raise InputError(f"{source}: not recognised as anything that can be imported. {known}")
    return KINDS[seen]


def _profile(source: Path | str | None, name: str, options: Options) -> AnyProfile:
    if not Path(str(source)).is_file():
        raise InputError(f"{source}: there is no such file; a profile is one JSON file")
    return load_profile(str(source))


def _steps(source: Path | str | None, name: str, o: Options) -> AnyProfile:
    from calibration.fit_log import fit_log, fit_own_steps
    from calibration.step_log import read_iterations

    file = Path(str(source))
    dtype, kv_dtype = o.dtype or "bfloat16", o.kv_dtype or "bfloat16"
    block_size, device = o.block_size or 16, o.device or "cuda"
    assert o.model is not None
    if file.is_dir() or file.suffix == ".parquet":
        if o.rows or o.input_tokens or o.max_num_batched_tokens:
            raise InputError(f"{file}: the log of an executed run holds contexts; leave --rows and lengths out")
        return fit_own_steps(
            file, name=name, model=o.model, dtype=dtype, kv_dtype=kv_dtype, device=device, block_size=block_size
        )
    log = read_iterations(file)
    return fit_log(
        log.take(o.rows) if o.rows else log,
        name=name,
        model=o.model,
        dtype=dtype,
        kv_dtype=kv_dtype,
        device=device,
        input_tokens=o.input_tokens,
        budget=o.max_num_batched_tokens,
        block_size=block_size,
    )


def _llmservingsim(source: Path | str | None, name: str, o: Options) -> AnyProfile:
    from calibration.operators.llmservingsim import read_bundle
    from scenarios.hf_config import model_of

    assert source is not None
    assert o.model is not None
    tp, sizes = o.tensor_parallel_size or 1, tuple(o.capture_sizes or ())
    return read_bundle(source, model_of(o.model), tensor_parallel_size=tp, capture_sizes=sizes)


def _vidur(source: Path | str | None, name: str, o: Options) -> AnyProfile:
    from calibration.operators.vidur import read_vidur
    from scenarios.hardware import hardware
    from scenarios.hf_config import model_of

    assert source is not None
    assert o.model is not None
    assert o.hardware is not None
    return read_vidur(source, model_of(o.model), hardware(o.hardware), tensor_parallel_size=o.tensor_parallel_size or 1)


def _aiconfigurator(source: Path | str | None, name: str, o: Options) -> AnyProfile:
    from calibration.operators.aiconfigurator import hardware_of, load_tables
    from calibration.operators.checkpoints import checkpoint
    from calibration.operators.compose import EXPERT_SKEW, compose
    from calibration.shipped_profiles import with_constants
    from scenarios.hf_config import model_of

    assert o.model is not None
    assert o.system is not None
    tables = None if source is None else Path(source)
    engine, dtype = o.engine or "vllm", o.dtype or "bfloat16"
    spec = model_of(o.model)
    profile = compose(
        load_tables(o.system, engine, o.version, tables),
        spec,
        hardware=hardware_of(o.system, tables),
        tensor_parallel_size=o.tensor_parallel_size or 1,
        dtype=dtype,
        kv_dtype=o.kv_dtype or "bfloat16",
        expert_skew=o.expert_skew or EXPERT_SKEW,
        name=name,
        **checkpoint(spec, dtype, engine),
    )
    return profile if o.fitted is False else with_constants(profile, engine)


_READERS = {
    "profile": _profile,
    "steps": _steps,
    "llmservingsim": _llmservingsim,
    "vidur": _vidur,
    "aiconfigurator": _aiconfigurator,
}
