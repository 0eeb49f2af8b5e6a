"""Logs are read as they are found: prefixes, colours, packing, restarts, sizes, and what is none."""

from __future__ import annotations

import contextlib
import gzip
import time

import pytest

from scenarios import InputError
from scenarios.launch import Options, from_vllm
from scenarios.launch.logged_values import pairs
from scenarios.launch.startup_log import read_log
from scenarios.launch.vllm_flags import VLLM
from tests.scenarios.launch.conftest import SGLANG_LOG, VLLM_LOG

COMMAND = "vllm serve meta-llama/Llama-3.1-8B"


def test_prefixes_of_containers_and_services_do_not_matter(vllm):
    for prefix in ("2026-04-19 17:31:11.380 | ", "Feb 22 06:34:50 host env[1633]: ", "0: ", "\x1b[0;36m", "> "):
        log = "".join(prefix + line + "\n" for line in VLLM_LOG.splitlines())
        assert vllm(COMMAND, log, hardware="RTX-4090").scenario.engine_config().num_gpu_blocks == 2588


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda raw: raw.decode().encode("utf-16"), lambda raw: raw.replace(b"\n", b"\r\n")]
)
def test_packed_and_wide_logs_are_read(tmp_path, pack):
    path = tmp_path / "log"
    path.write_bytes(pack(VLLM_LOG.encode()))
    assert read_log(path, VLLM).kv_tokens[0].value == 41408


@pytest.mark.parametrize(
    ("line", "blocks"),
    [
        ("INFO 02-13 15:01:40 kv_cache_utils.py:407] # GPU blocks: 33660", 33660),
        ("INFO 08-22 15:27:25 llm_engine.py:196] # GPU blocks: 865, # CPU blocks: 327", 865),
        ("INFO 02-13 executor_base.py:112] # cuda blocks: 27919, # CPU blocks: 16384", 27919),
        ("INFO [kv_cache_utils.py:2395] GPU KV cache size: 14,896 tokens, Maximum concurrency for 4,096 tokens per request: 3.64x", 931),
        ("INFO [gpu_worker.py:359] Available KV cache memory: 4.0 GiB", 2048),
    ],
)  # fmt: skip
def test_versions_write_the_size_of_kv_memory_differently(vllm, line, blocks):
    assert vllm(COMMAND, line).scenario.engine.num_gpu_blocks == blocks


def test_arguments_of_older_versions_are_read_from_their_namespace(vllm):
    log = (
        "INFO 11-27 02:01:37 api_server.py:585] vLLM API server version 0.6.4.post1\n"
        "INFO 11-27 02:01:37 api_server.py:586] args: Namespace(subparser='serve', model_tag='/models/Meta-Llama-3.1-8B-Instruct', "
        "host=None, port=8000, allowed_origins=['*'], lora_modules=None, model='/models/Meta-Llama-3.1-8B-Instruct', dtype='auto', "
        "max_model_len=8192, block_size=32, enable_prefix_caching=False, max_num_seqs=99, enforce_eager=True, "
        "dispatch_function=<function serve at 0x7f>)\n"
        "INFO 11-27 02:02:37 gpu_executor.py:76] # GPU blocks: 5000, # CPU blocks: 2048\n"
    )
    config = vllm("vllm serve meta-llama/Llama-3.1-8B-Instruct", log).scenario.engine_config()
    assert (config.max_model_len, config.block_size, config.enable_prefix_caching, config.max_num_seqs) == (
        8192,
        32,
        False,
        99,
    )


def test_the_device_is_found_in_the_log(vllm):
    for line, sheet in (
        ("WARNING fused_moe.py:1] Using default MoE config. Config file not found at .../E=128,N=768,device_name=NVIDIA_L40S.json", "L40S"),
        ("GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)", "RTX-4090"),
        ("| 0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |", "A100-80G"),
        ("device_name=NVIDIA_H100_80GB_HBM3.json", "H100"),
    ):  # fmt: skip
        assert vllm(COMMAND, VLLM_LOG + line + "\n", hardware=None).scenario.hardware.name == sheet


def test_a_device_other_than_the_option_is_a_contradiction(vllm):
    launch = vllm(COMMAND, VLLM_LOG + "GPU 0: NVIDIA L40S (UUID: GPU-1)\n", hardware="H100")
    assert launch.scenario.hardware.name == "H100"
    assert [c.field for c in launch.contradictions] == ["hardware"]


def test_of_several_start_ups_the_last_one_counts(vllm):
    second = (
        VLLM_LOG.replace("41,408", "20,704")
        .replace("5.06", "2.53")
        .replace("'max_num_seqs': 256", "'max_num_seqs': 32")
    )
    launch = vllm(COMMAND, VLLM_LOG + "INFO requests ...\n" + second, hardware="RTX-4090")
    config = launch.scenario.engine_config()
    assert (config.num_gpu_blocks, config.max_num_seqs) == (1294, 32)
    assert any("2 start-ups" in note for note in launch.notes)


def test_a_start_that_failed_before_it_had_memory_is_forgotten(vllm):
    failed = VLLM_LOG[: VLLM_LOG.index("(EngineCore")].replace(
        "'max_num_seqs': 256", "'max_num_seqs': 7, 'block_size': 32"
    )
    config = vllm(COMMAND, failed + VLLM_LOG, hardware="RTX-4090").scenario.engine_config()
    assert (config.max_num_seqs, config.block_size) == (256, 16)


def test_a_banner_beside_the_version_is_no_second_start(vllm):
    banner = "(APIServer pid=1) INFO 03-22 [utils.py:297]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.19.0\n"
    launch = vllm(COMMAND, banner + VLLM_LOG, hardware="RTX-4090")
    assert (launch.version, launch.notes) == ("0.19.0", ())


def test_weights_of_a_method_that_leaves_bits_open_are_known_by_their_memory(vllm):
    log = VLLM_LOG.replace("quantization=None", "quantization=compressed-tensors").replace("14.99 GiB", "8.49 GiB")
    launch = vllm(COMMAND, log, hardware="RTX-4090")
    assert (launch.scenario.dtype, launch.not_modelled, launch.contradictions) == ("fp8", (), ())


def test_engines_with_different_memories_are_told_and_the_smallest_is_taken(vllm):
    more = "(EngineCore_DP1 pid=9) INFO [kv_cache_utils.py:1286] GPU KV cache size: 41,376 tokens\n"
    launch = vllm(COMMAND + " -dp 2", VLLM_LOG + more, hardware="RTX-4090")
    assert launch.scenario.engine.num_gpu_blocks == 2586
    assert any("smallest" in note for note in launch.notes)


def test_another_model_or_precision_than_was_measured_is_noticed(vllm):
    weights = vllm(COMMAND, VLLM_LOG.replace("14.99 GiB", "8.49 GiB"), hardware="RTX-4090")
    assert [c.field for c in weights.contradictions] == ["model"]
    kv = vllm(COMMAND, VLLM_LOG.replace("41,408", "82,816"), hardware="RTX-4090")
    assert [c.field for c in kv.contradictions] == ["engine.kv_cache_dtype"]


@pytest.mark.parametrize("tokens", ["0", "9" * 400])
def test_a_size_of_kv_memory_that_cannot_be_breaks_nothing(vllm, tokens):
    log = VLLM_LOG.replace("41,408", tokens)
    assert tokens in log
    with contextlib.suppress(InputError):
        vllm(COMMAND, log, hardware="RTX-4090")


def test_a_version_of_thousands_of_digits_is_none(vllm):
    with pytest.raises(InputError, match=r"--version 9+: a version such as"):
        vllm(COMMAND, None, hardware="H100", version="9" * 5000)


def test_an_architecture_that_is_not_modelled_is_refused_by_name(refused):
    message = refused(COMMAND, log=VLLM_LOG.replace("LlamaForCausalLM", "Gemma3ForConditionalGeneration"))
    assert "Gemma3ForConditionalGeneration" in message
    assert "sliding" in message


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "empty"),
        (b"\x7fELF\0\0\0\0" + bytes(range(256)) * 9, "not text"),
        (b"hello\nworld\n", "2 lines"),
        (SGLANG_LOG.encode(), "other engine"),
        (gzip.compress(VLLM_LOG.encode())[:-20], "truncated"),
        (b"\x1f\x8bnothing packed", "gzip"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, content, named):
    path = tmp_path / "startup.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=named):
        read_log(path, VLLM)


def test_a_log_that_is_not_there_or_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_log(tmp_path / "none.log", VLLM)
    with pytest.raises(InputError, match="folder"):
        read_log(tmp_path, VLLM)


def test_a_line_cut_in_the_middle_is_left_out(vllm):
    for cut in range(40, 1600, 97):
        head = VLLM_LOG[:cut]
        if "version 0.19" in head:
            vllm(COMMAND, head, hardware="RTX-4090")


def test_a_large_log_is_read_line_by_line(tmp_path):
    path = tmp_path / "startup.log"
    noise = "INFO 08-20 [loggers.py:123] Engine 000: Avg prompt throughput: 812.3 tokens/s, Running: 12 reqs, Waiting: 0 reqs\n"
    with path.open("w") as file:
        file.write(VLLM_LOG)
        for _ in range(200):
            file.write(noise * 1000)
        file.write("x" * 5_000_000)  # a line without an end
    began = time.perf_counter()
    launch = from_vllm(COMMAND, log=path, options=Options(hardware="RTX-4090"))
    assert launch.scenario.engine.num_gpu_blocks == 2588
    assert time.perf_counter() - began < 30


def test_printed_values_are_taken_apart_whatever_is_nested_in_them():
    text = "a=1, b='x, y=2', c=Config(d=3, e=[4, 5]), f={'g': 6}, h=<Mode.RAW: 'raw'>, i=None, j=True) and more, k=7"
    found = pairs(text)
    assert (found["a"], found["b"], found["f"], found["i"], found["j"]) == (1, "x, y=2", {"g": 6}, None, True)
    assert found["c"] == "Config(d=3, e=[4, 5])"
    assert "k" not in found
    assert pairs("'a': 1, 'b': {'c': 2}, 'd': ['e'], 'cut': 'o") == {"a": 1, "b": {"c": 2}, "d": ["e"]}
