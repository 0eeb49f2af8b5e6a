"""Text to token ids and back, with the tokenizer that a model's own files describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from scenarios.errors import InputError

if TYPE_CHECKING:
    from gpu_backend.model_files.gguf_file import GgufFile

_CONTROL, _USER_DEFINED = 3, 4  # llama.cpp's kinds of tokens that are matched whole

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


PRE_TOKENIZERS = {
    "gpt-2": lambda: _byte_level(True),
    # Every digit by itself, then as GPT-2 does.
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level(True)]),
    "qwen2": lambda: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_QWEN2), "isolated"), _byte_level(False)]),
}
"""How a text is cut before its pieces are merged, by the names that llama.cpp gives them."""


class Tokenizer:
    """A byte-pair tokenizer.

    Args:
        backend: of the `tokenizers` package.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.backend.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens that stand in it (`<|im_start|>`) become one id each. What the model wants
        before every text comes first."""
        return list(self.backend.encode(text).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        return str(self.backend.decode(list(ids), skip_special_tokens=False))


def from_json(path: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder's tokenizer.json.

    Raises:
        InputError: there is no such file, or it is not a tokenizer.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; a folder's tokenizer is read from tokenizer.json")
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(path)))
    except Exception as error:  # the package raises nothing more specific
        raise InputError(f"{path}: not a tokenizer: {error}") from None


def from_gguf(file: GgufFile) -> Tokenizer:
    """The tokenizer that a GGUF file carries.

    Raises:
        InputError: it carries none, or one of another kind.
    """
    kind = file.value("tokenizer.ggml.model")
    if kind != "gpt2":
        raise InputError(f"{file.path}: tokenizer.ggml.model: found {kind!r}, read is gpt2 (byte-level BPE)")
    pre = file.value("tokenizer.ggml.pre", "gpt-2")
    if pre not in PRE_TOKENIZERS:
        raise InputError(f"{file.path}: tokenizer.ggml.pre: found {pre!r}, read are {', '.join(PRE_TOKENIZERS)}")
    tokens: list[str] = file.value("tokenizer.ggml.tokens")
    if len(tokens) != file.spec.vocab_size:
        raise InputError(
            f"{file.path}: tokenizer.ggml.tokens: found {len(tokens)}, the embedding has {file.spec.vocab_size} rows"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in file.value("tokenizer.ggml.merges")]
    try:
        model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    except Exception as error:  # the package raises nothing more specific
        raise InputError(f"{file.path}: tokenizer.ggml.merges: do not fit the tokens: {error}") from None
    backend = tokenizers.Tokenizer(model)
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = PRE_TOKENIZERS[pre]()
    backend.decoder = decoders.ByteLevel()
    kinds: list[int] = file.value("tokenizer.ggml.token_type", [])
    whole = [
        AddedToken(token, normalized=False, special=kind == _CONTROL)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    backend.add_tokens(whole)
    if file.value("tokenizer.ggml.add_bos_token", False):
        first = int(file.value("tokenizer.ggml.bos_token_id"))
        backend.post_processor = processors.TemplateProcessing(
            single=f"{tokens[first]} $A", special_tokens=[(tokens[first], first)]
        )
    return Tokenizer(backend)
