"""A scenario from SGLang's launch command and start-up log."""

from __future__ import annotations

from pathlib import Path

from scenarios.errors import InputError
from scenarios.launch import build
from scenarios.launch.arguments import read_arguments
from scenarios.launch.assembly import Assembly, Options
from scenarios.launch.command import SGLANG as LAUNCHER
from scenarios.launch.command import read_command, shown
from scenarios.launch.flags import Given
from scenarios.launch.launch import Launch
from scenarios.launch.sglang_flags import SGLANG
from scenarios.launch.startup_log import read_log
from scenarios.presets import PRESETS


def from_sglang(command: str, *, log: Path | None = None, options: Options | None = None) -> Launch:
    """The scenario of a launch.

    Args:
        command: as typed into a shell: `python -m sglang.launch_server --model-path MODEL --tp 2`, containers and launchers
            before it included.
        log: what the server printed when it started. What it states wins over the command.

    Raises:
        InputError: no SGLang in the command, a value that it would refuse, a model or device that is not modelled, a log that
            is none.
    """
    found = read_command(command, LAUNCHER)
    arguments = read_arguments(SGLANG, found.argv, found.env)
    if arguments.positional and "model" not in arguments.given:
        arguments.given["model"] = Given(arguments.positional[0], arguments.positional.pop(0))
    a = Assembly("SGLang", options or Options(), arguments, read_log(log, SGLANG) if log else None, dict(found.env))
    a.notes += [f"{word!r} in the command belongs to no flag; it is ignored" for word in arguments.positional]
    build.take_preset(a, "sglang", found.image_version)
    model = build.take_model(a)
    build.take_hardware(a)
    weights, kv = build.take_precision(a, model)
    for setting in ("max_model_len", "max_num_seqs", "enable_prefix_caching", "async_scheduling",
                    "policy", "schedule_conservativeness"):  # fmt: skip
        a.take_setting(setting)
    order = a.settings.get("policy")
    if order is not None and order.value == "longest_prefix" and a.value("enable_prefix_caching") is False:
        a.take("engine.policy", "fcfs", order)  # as SGLang does where there is no cache to look at
    a.take_setting("mem_fraction_static", "engine.gpu_memory_utilization")
    _take_chunks(a)
    _take_kv(a)
    build.take_parallel(a, "round_robin", model.spec)
    build.check_memory(a, model.spec, weights, kv)
    if a.log and a.log.starts > 1:
        a.notes.append(f"the log holds {a.log.starts} start-ups; the last one counts")
    line = f"python -m sglang.launch_server {shown(found.argv)}"
    return build.finish(a, version=build.version_of(a, found.image_version), command=line, log=log)


def _take_chunks(a: Assembly) -> None:
    """The chunk is the budget of a step: prompts run alone. Without chunks a step takes max_prefill_tokens, or the window."""
    chunk, most = a.settings.get("chunked_prefill_size"), a.settings.get("max_prefill_tokens")
    if chunk is not None and chunk.value > 0:
        a.take("engine.max_num_batched_tokens", chunk.value, chunk)
    elif chunk is not None:
        a.take("engine.enable_chunked_prefill", False, chunk)
        window = a.value("max_model_len")
        if most is not None and window is not None and most.value > window:
            a.take("engine.max_num_batched_tokens", most.value, most)
    if a.value("mixed"):
        a.take("engine.batching", "chunked", a.settings["mixed"])


def _take_kv(a: Assembly) -> None:
    """Pages of KV memory. SGLang counts tokens that it can use, so the null block comes on top."""
    given = a.settings.get("block_size")
    page = given.value if given is not None else PRESETS[a.fields["engine"]["preset"]].block_size
    if page < 1:
        raise InputError(f"{given.text if given else 'page_size'}: at least 1 token is needed")
    if given is not None:
        a.take("engine.block_size", page, given)
    stated = a.command.given.get("kv_tokens")
    logged = min(a.log.kv_tokens, key=lambda g: g.value) if a.log and a.log.kv_tokens else None
    if logged is None and stated is None:
        a.notes.append(
            "nothing states the size of the KV memory; it is derived from the device's. A log states it (--log)"
        )
        return
    used = logged or stated
    assert used is not None
    if stated is not None and logged is not None and stated.value // page != logged.value // page:
        a.contradict("engine.num_gpu_blocks", stated, logged, "the log's is used")
    if used.value % page:
        a.notes.append(f"{used.value:,} tokens are no whole pages of {page}; rounded down")
    a.take("engine.num_gpu_blocks", used.value // page + 1, used)
