"""Token ids of a real model's tokenizer, read from its GGUF file, and of a folder's tokenizer.json."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from tokenizers import Regex, pre_tokenizers

from gpu_backend.model_files.gguf_file import GgufFile
from gpu_backend.model_files.load import open_model, tokenizer_of
from gpu_backend.model_files.tokenizer import PRE_TOKENIZERS, Tokenizer, from_json
from scenarios.errors import InputError
from studies.aspects.quality import shipped_text

TEXTS = (
    "The capital of France is",
    "In 1984, we  saw 12.5% \n\n more;\tI'll don't they've",
    "<|im_start|>user\nünïcode 日本語 🙂 русский<|im_end|>\n",
    "",
    " leading and trailing  ",
)


@pytest.fixture(scope="module")
def file() -> GgufFile:
    found = open_model("smollm2")
    assert isinstance(found, GgufFile)
    return found


@pytest.fixture(scope="module")
def smollm2(file: GgufFile) -> Tokenizer:
    return tokenizer_of(file)


def test_tokens_are_those_of_transformers_on_the_same_file(smollm2: Tokenizer, file: GgufFile) -> None:
    path = file.path
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    for text in (*TEXTS, shipped_text()):
        ids = smollm2.encode(text)
        assert ids == theirs(text).input_ids
        assert smollm2.decode(ids) == text


def test_special_tokens_are_one_id_each(smollm2: Tokenizer) -> None:
    assert smollm2.encode("<|im_start|><|im_end|><|endoftext|>") == [1, 2, 0]


def test_text_is_cut_as_llama_cpp_cuts_it_for_smollm(smollm2: Tokenizer) -> None:
    """transformers ignores `tokenizer.ggml.pre`; llama.cpp isolates whatever is a number in Unicode, then cuts as GPT-2."""
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
    theirs = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.Split(Regex(gpt2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ours = smollm2.backend.pre_tokenizer
    for text in (*TEXTS, " ½ x² Ⅷ ٣٤ 1984's", shipped_text()):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


def test_text_is_cut_as_transformers_cuts_it_for_qwen2() -> None:
    theirs = transformers.Qwen2Tokenizer(
        vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]
    ).backend_tokenizer.pre_tokenizer
    ours = PRE_TOKENIZERS["qwen2"]()
    for text in (*TEXTS, " ½ x² 1984's I'LL \n\n  foo\t bar", shipped_text()):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


def test_a_folders_tokenizer_json_is_the_same_tokenizer(smollm2: Tokenizer, tmp_path: Path) -> None:
    smollm2.backend.save(str(tmp_path / "tokenizer.json"))
    found = from_json(tmp_path / "tokenizer.json")
    for text in TEXTS:
        assert found.encode(text) == smollm2.encode(text)


def test_a_text_begins_as_the_file_asks_for(file: GgufFile, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = file.value
    monkeypatch.setattr(file, "value", lambda key, default=None: key.endswith("add_bos_token") or stated(key, default))
    assert tokenizer_of(file).encode("The capital") == [1, 504, 3575]


def test_tokenizers_that_cannot_be_read_are_refused(
    file: GgufFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer"):
        from_json(tmp_path / "tokenizer.json")
    with pytest.raises(InputError, match="there is no such file"):
        from_json(tmp_path / "none" / "tokenizer.json")
    stated = file.value
    for key, value, message in (
        ("model", "llama", r"tokenizer\.ggml\.model: found 'llama', read is gpt2"),
        ("pre", "tekken", r"tokenizer\.ggml\.pre: found 'tekken', read are gpt-2, smollm, qwen2"),
        ("tokens", ["a"], "found 1, the embedding has 49152 rows"),
        ("merges", ["nosuch token"], "merges: do not fit the tokens"),
    ):
        changed = {f"tokenizer.ggml.{key}": value}
        monkeypatch.setattr(file, "value", lambda k, default=None, c=changed: c[k] if k in c else stated(k, default))
        with pytest.raises(InputError, match=message):
            tokenizer_of(file)
