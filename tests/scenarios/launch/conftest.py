from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios import InputError
from scenarios.launch import Launch, Options, from_sglang, from_vllm

VLLM_LOG = """\
INFO 08-20 23:18:00 [__init__.py:216] Automatically detected platform cuda.
(APIServer pid=1) INFO 08-20 23:18:02 [api_server.py:1896] vLLM API server version 0.19.0
(APIServer pid=1) INFO 08-20 23:18:02 [utils.py:328] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B', 'model': \
'meta-llama/Llama-3.1-8B', 'dtype': 'bfloat16', 'seed': 42, 'max_model_len': 32768, 'max_num_batched_tokens': 2048, \
'max_num_seqs': 256}
(APIServer pid=1) INFO 08-20 23:18:09 [model.py:533] Resolved architecture: LlamaForCausalLM
(APIServer pid=1) INFO 08-20 23:18:09 [model.py:1582] Using max model len 32768
(APIServer pid=1) INFO 08-20 23:18:09 [scheduler.py:231] Chunked prefill is enabled with max_num_batched_tokens=2048.
(APIServer pid=1) INFO 08-20 23:18:09 [vllm.py:754] Asynchronous scheduling is enabled.
(EngineCore pid=93) INFO 08-20 23:18:14 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: \
model='meta-llama/Llama-3.1-8B', speculative_config=None, dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, \
pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, \
structured_outputs_config=StructuredOutputsConfig(backend='auto', disable_any_whitespace=False), seed=42, \
enable_prefix_caching=True
(EngineCore pid=93) INFO 08-20 23:18:30 [gpu_model_runner.py:4481] Model loading took 14.99 GiB memory and 3.1 seconds
(EngineCore pid=93) INFO 08-20 23:18:44 [kv_cache_utils.py:829] Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512
(EngineCore pid=93) INFO 08-20 23:18:44 [gpu_worker.py:359] Available KV cache memory: 5.06 GiB
(EngineCore pid=93) INFO 08-20 23:18:44 [kv_cache_utils.py:1286] GPU KV cache size: 41,408 tokens
(EngineCore pid=93) INFO 08-20 23:18:44 [kv_cache_utils.py:1291] Maximum concurrency for 32,768 tokens per request: 1.26x
"""
"""In the form of vLLM's own lines; the figures are those of a public run on an RTX 4090."""

SGLANG_LOG = """\
[2026-02-18 03:19:27] INFO server_args.py:1830: Attention backend not specified. Use fa3 backend by default.
[2026-02-18 03:19:27] INFO engine.py:156: server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tokenizer_path='Qwen/Qwen3-8B', \
trust_remote_code=False, context_length=None, dtype='auto', quantization=None, kv_cache_dtype='auto', \
mem_fraction_static=0.85, max_running_requests=None, max_total_tokens=None, chunked_prefill_size=8192, \
max_prefill_tokens=16384, schedule_policy='fcfs', schedule_conservativeness=1.0, page_size=1, tp_size=1, \
attention_backend='fa3', disable_radix_cache=False, disable_overlap_schedule=False, enable_mixed_chunk=False)
[2026-02-18 03:19:39 TP0] Load weight end. elapsed=4.10 s, type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=62.9 GB, \
mem usage=15.27 GB.
[2026-02-18 03:19:40 TP0] KV Cache is allocated. #tokens: 367001, K size: 25.20 GB, V size: 25.20 GB
[2026-02-18 03:19:51 TP0] max_total_num_tokens=367001, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=2048, context_len=40960, available_gpu_mem=10.11 GB
"""
"""In the form of SGLang's own lines; figures of an 80 GB device."""


@pytest.fixture
def log_of(tmp_path: Path) -> Callable[[str], Path]:
    """A log file with that text."""

    def write(text: str) -> Path:
        path = tmp_path / "startup.log"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def vllm(log_of: Callable[[str], Path]) -> Callable[..., Launch]:
    """The scenario of a vLLM launch on an H100, if nothing else is said."""

    def read(command: str, log: str | None = None, hardware: str | None = "H100", **options: Any) -> Launch:
        return from_vllm(command, log=log_of(log) if log else None, options=Options(hardware=hardware, **options))

    return read


@pytest.fixture
def sglang(log_of: Callable[[str], Path]) -> Callable[..., Launch]:
    def read(command: str, log: str | None = None, hardware: str | None = "H100", **options: Any) -> Launch:
        return from_sglang(command, log=log_of(log) if log else None, options=Options(hardware=hardware, **options))

    return read


@pytest.fixture
def refused(vllm: Callable[..., Launch]) -> Callable[..., str]:
    """The one-line message that refuses a vLLM launch."""

    def message(command: str, **more: Any) -> str:
        with pytest.raises(InputError) as caught:
            vllm(command, **more)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return message
