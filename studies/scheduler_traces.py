"""Recorded decisions of a real scheduler: the trace format, read and checked.

A file (`*.json` or `*.json.gz`, format `scheduler-trace` version 1) holds the scenarios of one group: engine settings,
requests with the step of their arrival and, for some, of their abortion, and one record for every call of `schedule()`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.errors import InputError
from serving.config import EngineConfig
from serving.request import Request

FORMAT = "scheduler-trace"
FORMAT_VERSION = 1
METHODS = {"ngram": "ngram", "ngram_gpu": "ngram", "draft_model": "draft"}
"""Our names of the ways of proposing drafts; n-grams are looked up on a device where scheduling is asynchronous."""


@dataclass(frozen=True)
class TraceScenario:
    """One recorded scenario, as read. `raw` has the fields of the trace format."""

    group: str
    name: str
    raw: Mapping[str, Any]

    @property
    def config(self) -> EngineConfig:
        s = self.raw["settings"]
        speculative = s["speculative"]
        return EngineConfig(
            num_gpu_blocks=s["num_usable_blocks"] + 1,  # the null block
            block_size=s["block_size"],
            max_model_len=s["max_model_len"],
            max_num_seqs=s["max_num_seqs"],
            max_num_batched_tokens=s["max_num_batched_tokens"],
            enable_prefix_caching=s["enable_prefix_caching"],
            enable_chunked_prefill=s["enable_chunked_prefill"],
            long_prefill_token_threshold=s["long_prefill_token_threshold"],
            policy=s["policy"],
            scheduler_reserve_full_isl=s["scheduler_reserve_full_isl"],
            watermark=s["watermark"],
            async_scheduling=s["async_scheduling"],
            speculation="none" if speculative is None else METHODS[speculative["method"]],
            num_speculative_tokens=0 if speculative is None else speculative["k"],
        )

    def requests(self) -> dict[str, Request]:
        """Fresh requests by id, in the order of their addition. The index is the rank of the id, the last tie-break."""
        rank = {name: i for i, name in enumerate(sorted(r["id"] for r in self.raw["requests"]))}
        return {
            r["id"]: Request(
                rank[r["id"]],
                tuple((key, n) for key, n in r["prompt"]),
                r["output_tokens"],
                r["max_tokens"],
                arrival_order=r["arrival_time"],
                output_key=f"out:{r['id']}",
                priority=r["priority"],
            )
            for r in self.raw["requests"]
        }


def read(directory: Path | str) -> Iterator[TraceScenario]:
    """Every scenario of every trace file of a folder, files by name.

    Raises:
        InputError: no folder, no trace file in it, or a file that is not of the documented format.
    """
    for path in trace_files(directory):
        yield from read_file(path)


def trace_files(directory: Path | str) -> list[Path]:
    """The `*.json` and `*.json.gz` files of a folder, by name."""
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(f"{folder}: not a directory; expected one with scheduler traces (*.json, *.json.gz)")
    files = sorted(p for p in folder.iterdir() if p.name.endswith((".json", ".json.gz")) and p.is_file())
    if not files:
        raise InputError(f"{folder}: no scheduler traces in it; expected files named *.json or *.json.gz")
    return files


_SETTINGS: dict[str, tuple[type, ...]] = {
    "block_size": (int,),
    "num_usable_blocks": (int,),
    "max_num_seqs": (int,),
    "max_num_batched_tokens": (int,),
    "max_model_len": (int,),
    "enable_prefix_caching": (bool,),
    "enable_chunked_prefill": (bool,),
    "long_prefill_token_threshold": (int,),
    "policy": (str,),
    "scheduler_reserve_full_isl": (bool,),
    "watermark": (int, float),
    "async_scheduling": (bool,),
    "speculative": (dict, type(None)),
}
_REQUEST: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "arrival_step": (int,),
    "prompt": (list,),
    "max_tokens": (int,),
    "output_tokens": (int,),
    "priority": (int,),
    "arrival_time": (int, float),
    "abort_step": (int, type(None)),
    "abort_when": (str, type(None)),
}
_STEP: dict[str, tuple[type, ...]] = {
    "step": (int,),
    "scheduled": (list,),
    "new": (dict,),
    "resumed": (dict,),
    "preempted": (list,),
    "running": (int,),
    "waiting": (int,),
    "free_blocks": (int,),
    "finished": (list,),
    "free_after": (int,),
}
_SCENARIO: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "settings": (dict,),
    "requests": (list,),
    "steps": (list,),
    "totals": (dict,),
    "end": (dict,),
}


def read_file(path: Path) -> list[TraceScenario]:
    """The scenarios of one file, checked."""
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if path.name.endswith(".gz") else raw)
    except (OSError, EOFError, ValueError) as error:  # truncated gzip, broken JSON, wrong encoding
        raise InputError(
            f"{path}: not a readable trace file ({error}); expected JSON, gzipped if named *.gz"
        ) from error
    _typed(path, "", document, (dict,))
    if document.get("format") != FORMAT or document.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path}: format {document.get('format')!r} version {document.get('format_version')!r}; "
            f"expected {FORMAT!r} version {FORMAT_VERSION}"
        )
    _fields(path, "", document, {"group": (str,), "scenarios": (list,)})
    scenarios = []
    for i, scenario in enumerate(document["scenarios"]):
        where = f"scenarios[{i}]"
        _fields(path, where, scenario, _SCENARIO)
        _fields(path, f"{where}.settings", scenario["settings"], _SETTINGS)
        for kind, fields in (("requests", _REQUEST), ("steps", _STEP)):
            for j, row in enumerate(scenario[kind]):
                _fields(path, f"{where}.{kind}[{j}]", row, fields)
        _check_settings(path, f"{where}.settings", scenario["settings"])
        _check_requests(path, where, scenario)
        scenarios.append(TraceScenario(document["group"], scenario["name"], scenario))
    return scenarios


_AT_LEAST_ONE = ("block_size", "num_usable_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")


def _check_settings(path: Path, where: str, settings: Mapping[str, Any]) -> None:
    for name in _AT_LEAST_ONE:
        if settings[name] < 1:
            raise InputError(f"{path}: {where}.{name}: {settings[name]}; expected 1 or more")
    if settings["long_prefill_token_threshold"] < 0:
        raise InputError(
            f"{path}: {where}.long_prefill_token_threshold: {settings['long_prefill_token_threshold']}; "
            "expected 0 (no limit) or more"
        )
    if not 0 <= settings["watermark"] < 1:
        raise InputError(f"{path}: {where}.watermark: {settings['watermark']}; expected a share in [0, 1)")
    if settings["policy"] not in ("fcfs", "priority"):
        raise InputError(f"{path}: {where}.policy: {settings['policy']!r}; expected fcfs or priority")


def _check_requests(path: Path, where: str, scenario: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for j, request in enumerate(scenario["requests"]):
        at = f"{path}: {where}.requests[{j}]"
        if request["id"] in seen:
            raise InputError(f"{at}.id: {request['id']!r} occurs twice; ids are unique in a scenario")
        seen.add(request["id"])
        for segment in request["prompt"]:
            if not (isinstance(segment, list) and len(segment) == 2 and _is(segment[1], (int,)) and segment[1] >= 0):
                raise InputError(f"{at}.prompt: {segment!r}; expected [content key, number of tokens]")
        if request["abort_when"] not in (None, "before_schedule", "before_update"):
            raise InputError(f"{at}.abort_when: {request['abort_when']!r}; expected before_schedule or before_update")


def _fields(path: Path, where: str, value: Any, fields: Mapping[str, tuple[type, ...]]) -> None:
    _typed(path, where, value, (dict,))
    for name, types in fields.items():
        inside = f"{where}.{name}" if where else name
        if name not in value:
            raise InputError(f"{path}: {inside} is missing; expected {_names(types)}")
        _typed(path, inside, value[name], types)


def _typed(path: Path, where: str, value: Any, types: tuple[type, ...]) -> None:
    if not _is(value, types):
        found = f"{type(value).__name__} {str(value)[:40]!r}"
        raise InputError(f"{path}: {where or 'the document'} is a {found}; expected {_names(types)}")


def _is(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _names(types: tuple[type, ...]) -> str:
    return " or ".join({dict: "an object", list: "a list", type(None): "null"}.get(t, t.__name__) for t in types)
