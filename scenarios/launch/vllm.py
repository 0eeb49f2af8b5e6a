"""A scenario from vLLM's launch command and start-up log."""

from __future__ import annotations

from pathlib import Path

from scenarios.errors import InputError
from scenarios.launch import build
from scenarios.launch.arguments import read_arguments
from scenarios.launch.assembly import Assembly, Options
from scenarios.launch.command import VLLM as LAUNCHER
from scenarios.launch.command import read_command, shown
from scenarios.launch.flags import Given
from scenarios.launch.launch import Launch
from scenarios.launch.launched_model import LaunchedModel
from scenarios.launch.speculative import take_speculation
from scenarios.launch.startup_log import read_log
from scenarios.launch.vllm_flags import VLLM
from scenarios.presets import PRESETS

_AHEAD_SINCE = (0, 14, 0)
"""Asynchronous scheduling is the default on GPUs from there on."""

_ENV = {
    "VLLM_ATTENTION_BACKEND": "which kernels compute attention: another than the default may take longer or shorter",
    "VLLM_USE_FLASHINFER_SAMPLER": "which kernels sample",
    "VLLM_USE_FLASHINFER_MOE_FP8": "which kernels compute experts",
    "VLLM_USE_FLASHINFER_MOE_FP4": "which kernels compute experts",
    "VLLM_ALL2ALL_BACKEND": "traffic of experts that are spread over devices",
    "VLLM_USE_DEEP_GEMM": "which kernels multiply in fp8",
    "VLLM_BATCH_INVARIANT": "kernels whose result does not depend on the batch, which are slower",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "host time that the scheduler shares with the server",
}
"""Variables that change timing and are not modelled."""


def from_vllm(command: str, *, log: Path | None = None, options: Options | None = None) -> Launch:
    """The scenario of a launch.

    Args:
        command: as typed into a shell: `vllm serve MODEL --max-num-seqs 64`, containers and launchers before it included.
        log: what the server printed when it started. What it states wins over the command.

    Raises:
        InputError: no vLLM in the command, a value that it would refuse, a model or device that is not modelled, a log that
            is none.
    """
    found = read_command(command, LAUNCHER)
    arguments = read_arguments(VLLM, found.argv, found.env)
    if arguments.positional and "model" not in arguments.given:
        arguments.given["model"] = Given(arguments.positional[0], arguments.positional.pop(0))
    a = Assembly("vLLM", options or Options(), arguments, read_log(log, VLLM) if log else None, dict(found.env))
    _read_environment(a)
    for word in arguments.positional:
        if word != a.value("model"):
            a.notes.append(f"{word!r} in the command belongs to no flag; it is ignored")
    build.take_preset(a, "vllm", found.image_version)
    model = build.take_model(a)
    build.take_hardware(a)
    weights, kv = build.take_precision(a, model)
    for setting in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization",
                    "enable_prefix_caching", "enable_chunked_prefill", "long_prefill_token_threshold", "policy",
                    "scheduler_reserve_full_isl", "watermark"):  # fmt: skip
        a.take_setting(setting)
    if a.value("kv_offloading_size"):  # 0 is none
        if a.value("enable_prefix_caching") is False:
            a.notes.append(
                "--kv-offloading-size: it is modelled as a part of the prefix cache, which is off; it is ignored"
            )
        else:
            a.take_setting("kv_offloading_size")
    take_speculation(a)
    _take_async(a, build.version_of(a, found.image_version))
    _take_kv(a, model, kv)
    build.take_parallel(a, "least_requests", model.spec)
    build.check_memory(a, model.spec, weights, kv)
    _warn_of_budget(a, model)
    if a.log and a.log.starts > 1:
        a.notes.append(f"the log holds {a.log.starts} start-ups; the last one counts")
    return build.finish(
        a, version=build.version_of(a, found.image_version), command=f"vllm serve {shown(found.argv)}", log=log
    )


def _read_environment(a: Assembly) -> None:
    for name, value in a.env.items():
        if name in _ENV and value not in ("", "0"):
            a.not_modelled[name] = (f"{name}={value}", _ENV[name])
    if a.env.get("VLLM_USE_V1") == "0":
        a.not_modelled["VLLM_USE_V1"] = (
            "VLLM_USE_V1=0",
            "the engine of versions before 0.8, which schedules otherwise: V1 is taken",
        )
    space = a.env.get("VLLM_CPU_KVCACHE_SPACE")
    if space:
        try:
            gib = float(space)
        except ValueError:
            raise InputError(f"VLLM_CPU_KVCACHE_SPACE={space}: a number of GiB is needed") from None
        if gib > 0:
            a.settings.setdefault("kv_bytes", Given(int(gib * build.GIB), f"VLLM_CPU_KVCACHE_SPACE={space}"))


def _take_async(a: Assembly, version: str | None) -> None:
    """Stated, or the version's default where the preset leaves it to the scenario."""
    a.take_setting("async_scheduling")
    ahead = build.numbers_of(version) >= _AHEAD_SINCE and a.fields["hardware"] != "cpu"
    preset = a.fields["engine"]["preset"]
    if "async_scheduling" in a.settings or PRESETS[preset].fields.get("async_scheduling", False) == ahead:
        return
    a.take(
        "engine.async_scheduling", ahead, origin="default", text=f"vLLM {version or preset.partition('@')[2]} on GPUs"
    )


def _warn_of_budget(a: Assembly, model: LaunchedModel) -> None:
    """What vLLM refuses to start with and a simulation does not mind."""
    budget, engine = a.value("max_num_batched_tokens"), a.fields["engine"]
    if budget is None:
        return
    window = engine.get("max_model_len", model.spec.max_position_embeddings)
    if budget < engine.get("max_num_seqs", 0):
        a.notes.append(
            f"vLLM does not start with max_num_batched_tokens {budget} below max_num_seqs {engine['max_num_seqs']}"
        )
    if not engine.get("enable_chunked_prefill", True) and budget < window:
        a.notes.append(
            f"vLLM does not start with max_num_batched_tokens {budget} below the window of {window} without chunked prefill"
        )


def _take_kv(a: Assembly, model: LaunchedModel, kv: str) -> None:
    """Blocks of KV memory, the null block included, as vLLM counts them."""
    given = a.settings.get("block_size")
    on_cpu = a.fields["hardware"] == "cpu"
    block = given.value if given else 128 if on_cpu else PRESETS[a.fields["engine"]["preset"]].block_size
    if given is not None:
        a.take("engine.block_size", block, given)
    elif on_cpu:
        a.take("engine.block_size", block, origin="default", text="vLLM on CPUs")
    if block < 1:
        raise InputError(f"{given.text if given else 'block_size'}: at least 1 token is needed")
    tp = a.value("tensor_parallel_size", 1)
    each = block * model.spec.kv_bytes_per_token(kv, tp if tp in model.spec.tensor_parallel_sizes() else 1)
    stated = a.command.given.get("num_gpu_blocks")
    logged = _logged_blocks(a, block, each)
    if logged is not None:
        a.take("engine.num_gpu_blocks", logged.value, logged)
        if stated is not None and stated.value != logged.value:
            a.contradictions = [c for c in a.contradictions if c.field != "engine.num_gpu_blocks"]
            a.contradict("engine.num_gpu_blocks", stated, logged, "the log's is used")
    elif stated is not None:
        a.take("engine.num_gpu_blocks", stated.value, stated)
    elif "kv_bytes" in a.settings:
        room = a.settings["kv_bytes"]
        a.take("engine.num_gpu_blocks", int(room.value // each), room)
    else:
        a.notes.append(
            "nothing states the size of the KV memory; it is derived from the device's. A log states it (--log)"
        )


def _logged_blocks(a: Assembly, block: int, each: float) -> Given | None:
    if a.log is None:
        return None
    if a.log.kv_tokens:
        least = min(a.log.kv_tokens, key=lambda given: given.value)
        if least.value < max(given.value for given in a.log.kv_tokens):
            a.notes.append("engines in the log have KV memories of different sizes; the smallest is taken for all")
        if least.value % block:
            a.notes.append(f"{least.value:,} tokens are no whole blocks of {block}; rounded down")
        return Given(least.value // block, least.text, "log")
    if "num_gpu_blocks" in a.log.facts:
        return a.log.facts["num_gpu_blocks"]
    if a.log.kv_gib:
        least = min(a.log.kv_gib, key=lambda given: given.value)
        return Given(int(least.value * build.GIB // each), least.text, "log")
    return None
