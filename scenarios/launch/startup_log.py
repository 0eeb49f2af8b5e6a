"""What an engine's start-up log states: its version, its arguments, what it resolved, and how much KV memory it found."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from scenarios.errors import InputError
from scenarios.launch.arguments import Arguments, read_logged
from scenarios.launch.devices import devices
from scenarios.launch.flags import Given, Table, kv_dtype
from scenarios.launch.logged_values import pairs

LONGEST_LINE = 1 << 20
"""Bytes of a line that are looked at; the rest of a longer one is skipped."""


@dataclass
class StartupLog:
    """The last start-up of a log.

    Args:
        facts: settings as the engine resolved them. arguments: what it says it was given. version, architecture: as logged.
        devices: names of devices. weights_gib, kv_gib: memory of weights and KV of one rank. kv_tokens: of each engine that
            logged its size. starts: how many start-ups the log holds.
    """

    facts: dict[str, Given] = field(default_factory=dict)
    arguments: Arguments = field(default_factory=Arguments)
    version: str | None = None
    architecture: str | None = None
    devices: dict[str, str] = field(default_factory=dict)
    kv_tokens: list[Given] = field(default_factory=list)
    kv_gib: list[Given] = field(default_factory=list)
    weights_gib: list[Given] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    starts: int = 1

    def note(self, setting: str, value: Any, line: str) -> None:
        self.facts[setting] = Given(value, line, "log")


Reader = Callable[[StartupLog, re.Match[str], str], None]


def _sets(setting: str, read: Callable[[str], Any] = str) -> Reader:
    return lambda log, match, line: log.note(setting, read(match[1]), line)


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _begin(log: StartupLog) -> None:
    """A start-up begins: what an earlier one in the same log said is forgotten, but for the machine that it ran on."""
    if log.arguments.given or log.kv_tokens or log.kv_gib:
        machine = {name: given for name, given in log.facts.items() if name == "platform"}
        log.__dict__.update(StartupLog(facts=machine, devices=log.devices, starts=log.starts + 1).__dict__)


def _version(log: StartupLog, match: re.Match[str], line: str) -> None:
    if "API server version" in line or "Initializing" not in line:
        _begin(log)
    log.version = match[1].lstrip("v")


def _tokens(log: StartupLog, match: re.Match[str], line: str) -> None:
    log.kv_tokens.append(Given(_count(match[1]), line, "log"))


def _blocks(log: StartupLog, match: re.Match[str], line: str) -> None:
    if int(match[1]) > 1:
        log.note("num_gpu_blocks", int(match[1]), line)


def _gib(name: str) -> Reader:
    return lambda log, match, line: getattr(log, name).append(Given(float(match[1]), line, "log"))


def _architecture(log: StartupLog, match: re.Match[str], line: str) -> None:
    log.architecture = log.architecture or match[1]


_ENGINE_CONFIG = {
    "max_seq_len": "max_model_len", "tensor_parallel_size": "tensor_parallel_size", "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype", "dtype": "dtype", "enable_prefix_caching": "enable_prefix_caching",
    "use_prefix_caching": "enable_prefix_caching", "chunked_prefill_enabled": "enable_chunked_prefill",
    "enforce_eager": "enforce_eager", "model": "model", "pipeline_parallel_size": "pipeline_parallel_size",
}  # fmt: skip


def _engine_config(table: Table) -> Reader:
    def read(log: StartupLog, match: re.Match[str], line: str) -> None:
        log.version = match[1].lstrip("v")
        named = {_ENGINE_CONFIG[k]: v for k, v in pairs(match[2]).items() if k in _ENGINE_CONFIG}
        found = read_logged(table, named, "the engine's config", complete=False)
        log.facts.update(found.given)
        log.arguments.harmless += found.harmless
        for name, written in found.not_modelled.items():
            log.arguments.not_modelled.setdefault(name, written)

    return read


def _arguments(table: Table, where: str, complete: bool, begins: bool = False) -> Reader:
    def read(log: StartupLog, match: re.Match[str], line: str) -> None:
        if begins:
            _begin(log)
        found = read_logged(table, pairs(match[1]), where, complete)
        log.arguments.given.update(found.given)
        log.arguments.not_modelled.update(found.not_modelled)

    return read


def _pairs_of_sglang(log: StartupLog, match: re.Match[str], line: str) -> None:
    total = f"max_total_num_tokens={match[1]}"
    log.kv_tokens.append(Given(int(match[1]), total, "log"))
    names = {"chunked_prefill_size": "chunked_prefill_size", "max_prefill_tokens": "max_prefill_tokens",
             "max_running_requests": "max_num_seqs", "context_len": "max_model_len"}  # fmt: skip
    for name, value in pairs(match[2].lstrip(", ")).items():
        if name in names and isinstance(value, int):
            log.note(names[name], value, f"{name}={value} beside {total}")


def _seen(what: str) -> Reader:
    def read(log: StartupLog, match: re.Match[str], line: str) -> None:
        if what not in log.seen:
            log.seen.append(what)

    return read


def _patterns(table: Table) -> list[tuple[str, re.Pattern[str], Reader]]:
    """What is looked for: a text that must be in the line, the pattern, and what it says."""
    vllm: list[tuple[str, str, Reader]] = [
        ("API server version", r"vLLM API server version (\S+)", _version),
        ("version ", r"█\s+version\s+(\S+)", _version),
        ("non-default args", r"non-default args: \{(.*)", _arguments(table, "non-default args", False)),
        ("args: Namespace(", r"args: Namespace\((.*)", _arguments(table, "Namespace", True)),
        ("with config:", r"Initializing an? (?:V\d )?LLM engine \((\S+?)\) with config: (.*)", _engine_config(table)),
        ("KV cache size:", r"KV cache size: ([\d,]+) tokens", _tokens),
        ("blocks:", r"# (?!CPU)\w+ blocks: (\d+)", _blocks),
        ("Maximum concurrency", r"Maximum concurrency for ([\d,]+) tokens per request", _sets("max_model_len", _count)),
        ("max model len", r"Using max model len (\d+)", _sets("max_model_len", int)),
        ("Auto-fit", r"Auto-fit max_model_len: reduced from \d+ to (\d+)", _sets("max_model_len", int)),
        ("Chunked prefill", r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)",
         _sets("max_num_batched_tokens", int)),
        ("synchronous scheduling", r"[Aa]synchronous scheduling is (enabled|disabled)",
         _sets("async_scheduling", "enabled".__eq__)),
        ("KV cache memory", r"Available KV cache memory: ([\d.]+) ?GiB", _gib("kv_gib")),
        ("oading", r"(?:Model loading|Loading model weights) took ([\d.]+) ?Gi?B", _gib("weights_gib")),
        ("architecture", r"Resolved architecture: (\w+)", _architecture),
        ("platform", r"Automatically detected platform (\w+)", _sets("platform")),
        ("attention backend", r"Using (\S+) attention backend", _seen("attention backend")),
        ("CUDA graph", r"(Capturing) CUDA graph", _seen("CUDA graphs captured")),
        ("Graph capturing", r"(Graph) capturing finished", _seen("CUDA graphs captured")),
    ]  # fmt: skip
    sglang: list[tuple[str, str, Reader]] = [
        ("ServerArgs(", r"server_args=ServerArgs\((.*)", _arguments(table, "ServerArgs", True, begins=True)),
        ("max_total_num_tokens=", r"max_total_num_tokens=(\d+)(.*)", _pairs_of_sglang),
        ("#tokens", r"KV Cache is allocated\. (?:dtype: \S+, )?#tokens: (\d+)", _tokens),
        ("Load weight end", r"Load weight end\..*?type=(\w+)", _architecture),
        ("Load weight end", r"Load weight end\..*?mem usage=([\d.]+) GB", _gib("weights_gib")),
        ("KV cache dtype", r"Using KV cache dtype: (\S+)", _sets("kv_cache_dtype", kv_dtype)),
        ("Overlap scheduler is disabled", r"Overlap scheduler is (disabled)", _sets("async_scheduling", "enabled".__eq__)),
        ("ersion", r"[Ss][Gg][Ll]ang[ _]version[:= ]+v?(\d\S*)", _version),
        ("Attention backend", r"Attention backend not specified\. (Use) ", _seen("attention backend")),
        ("Capture cuda graph", r"(Capture) cuda graph", _seen("CUDA graphs captured")),
    ]  # fmt: skip
    both: list[tuple[str, str, Reader]] = [
        (
            key,
            r"(.*)",
            lambda log, _, line: log.devices.update({d: line for d in devices(line) if d not in log.devices}),
        )
        for key in ("device_name=", "NVIDIA ", "GPU 0: ", "Tesla ")
    ]
    own = vllm if table.engine == "vLLM" else sglang
    return [(key, re.compile(pattern), reader) for key, pattern, reader in [*own, *both]]


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read_log(path: Path, table: Table) -> StartupLog:
    """What a log states, read line by line; of several start-ups the last one counts.

    Raises:
        InputError: not readable, not text, empty, or without a line of this engine's start-up.
    """
    log, lines, matched = StartupLog(), 0, 0
    patterns = _patterns(table)
    other = "ServerArgs(" if table.engine == "vLLM" else "vLLM API server version"
    foreign = False
    for line in _lines(path):
        lines += 1
        foreign = foreign or other in line
        for key, pattern, reader in patterns:
            if key not in line:
                continue
            match = pattern.search(line)
            if match is None:
                continue
            try:
                reader(log, match, _one_line(line))
                matched += pattern.pattern != "(.*)"
            except Exception as error:  # a line cut in the middle, or of another version
                if not isinstance(error, ValueError | KeyError | IndexError):
                    raise
    if lines == 0:
        raise InputError(f"{path}: the log is empty")
    if not matched:
        hint = "it looks like the other engine's log" if foreign else "take the log from where the server starts"
        looked = "GPU KV cache size: ..." if table.engine == "vLLM" else "max_total_num_tokens=..."
        raise InputError(
            f"{path}: no line of a {table.engine} start-up in {lines:,} lines (looked for {looked!r}); {hint}"
        )
    return log


def _one_line(line: str) -> str:
    """The message of a log line, short enough for a comment."""
    text = re.sub(r"^.*?\b(?:INFO|WARNING|ERROR)\b[^\]]*\]\s*", "", line.strip()) or line.strip()
    text = re.sub(r"^\[[\d\-: ]+[^\]]*\]\s*", "", text)
    return text if len(text) <= 100 else text[:97] + "..."


def _lines(path: Path) -> Iterator[str]:
    """Lines of a file, unpacked and decoded as they come."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            file.seek(0)
            if head[:2] == b"\x1f\x8b":
                with gzip.open(file) as unpacked:
                    yield from _decoded(cast(BinaryIO, unpacked), path, unpacked.peek(4096)[:4096])
            else:
                yield from _decoded(file, path, head)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, but a log is a file") from None
    except EOFError:
        raise InputError(f"{path}: the gzip file is truncated; copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: a broken gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _decoded(file: BinaryIO, path: Path, head: bytes) -> Iterator[str]:
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # PowerShell writes logs so
        text = io.TextIOWrapper(file, encoding="utf-16", errors="replace")
        try:
            yield from text
        finally:
            text.detach()  # the file is its opener's to close
        return
    if b"\0" in head:
        raise InputError(f"{path}: not text (it has zero bytes); give the log that the server printed")
    while raw := file.readline(LONGEST_LINE):
        for part in raw.decode("utf-8", errors="replace").replace("\r", "\n").split("\n"):
            if part:
                yield _COLOUR.sub("", part)
