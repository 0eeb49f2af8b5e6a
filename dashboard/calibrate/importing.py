"""The form that makes a profile of what others measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import streamlit as st

from dashboard import errands, uploads
from dashboard.calibrate import import_files
from dashboard.calibrate import shelf as profile_shelf
from dashboard.calibrate import work as calibrate_work
from dashboard.calibrate.measuring import PAGE
from dashboard.choices import select
from scenarios import InputError
from scenarios.hardware import CATALOG as DEVICES
from scenarios.models import CATALOG as MODELS
from studies.profiles.importing import KINDS, Kind, Options

KIND = "kind"
_FILES: dict[str, list[str] | None] = {
    "profile": ["json"],
    "steps": ["csv", "log", "txt", "gz", "parquet"],
    "llmservingsim": ["csv", "yaml"],
    "vidur": ["csv"],
}
"""Endings of what is uploaded, by kind; a kind without any reads installed tables."""
HELP = {
    "model": "What was measured ran this model.",
    "hardware": "The device that was measured.",
    "system": "The device whose tables are read: H200, H100, B200, L40S, A100-80G.",
    "tensor_parallel_size": "Devices that one model was spread over. 0: one.",
    "dtype": "Precision of the weights. Empty: bfloat16.",
    "kv_dtype": "Precision of the KV cache. Empty: bfloat16.",
    "device": "Name of the device that ran it. Empty: cuda.",
    "rows": "Only these iterations, the second excluded: 100:5000. Empty: all.",
    "input_tokens": "Tokens of every prompt, where all had the same. 0: as the log shows.",
    "max_num_batched_tokens": "The engine's token budget. 0: that of the fullest step.",
    "block_size": "Tokens of a KV block. 0: 16.",
    "capture_sizes": "Tokens at which the engine has captured graphs, with commas between. Empty: it runs eager.",
    "engine": "Whose kernels: vllm, sglang or trtllm. Empty: vllm.",
    "version": "The engine's version that was measured. Empty: the newest.",
    "expert_skew": "How tokens spread over experts: balanced, power_law_1.01, ... Empty: as measured most.",
}
_NUMBERS = ("tensor_parallel_size", "input_tokens", "max_num_batched_tokens", "block_size")
_WORDS = {"kv_dtype": "KV cache precision", "dtype": "Precision", "max_num_batched_tokens": "Token budget", "tensor_parallel_size": "Tensor-parallel size"}  # fmt: skip


def form(query: Mapping[str, str]) -> None:
    """Asks what was measured and by whom, takes the files, and begins."""
    kind = KINDS[select(PAGE, KIND, "What is it", {name: kind.title for name, kind in KINDS.items()}, query)]
    st.caption(f"{kind.files[0].upper()}{kind.files[1:]}.")
    given: list[Any] = []
    if (endings := _FILES.get(kind.name)) is not None:
        several = kind.folder
        found = st.file_uploader(
            "The files, all together" if several else "The file", endings, several,
            key=f"import:files:{kind.name}", max_upload_size=uploads.LARGEST,
        )  # fmt: skip
        given = list(found or []) if several else [found] if found is not None else []
    elif find_spec("aiconfigurator_core") is None:
        st.warning("Its tables are a package that is not installed where this dashboard runs. Install it there:")
        st.code("pip install 'servetwin[profiles]'", language="sh")
        return
    values = _options(kind)
    name = st.text_input(
        "Called", key="import:name", max_chars=80, placeholder=_usual_name(kind, given),
        help=f"The profile is written to {profile_shelf.MADE}/NAME.json of the workspace.",
    ).strip()  # fmt: skip
    st.button(
        "Import", type="primary", icon=":material/upload_file:", on_click=_start, args=(kind, given, values, name),
        disabled=errands.is_going(PAGE) or (kind.name in _FILES and not given),
        help="Give the files first." if kind.name in _FILES and not given else None,
    )  # fmt: skip


def _options(kind: Kind) -> dict[str, Any]:
    """What the files do not say of themselves."""
    found: dict[str, Any] = {}
    if kind.needs:
        columns = st.columns(len(kind.needs))
        for column, name in zip(columns, kind.needs, strict=True):
            with column:
                found[name] = _option(name, needed=True)
    if kind.takes:
        with st.expander("More, where it is not as usual"):
            pair = st.columns(2)
            for at, name in enumerate(kind.takes):
                with pair[at % 2]:
                    found[name] = _option(name, needed=False)
    return {name: value for name, value in found.items() if value not in (None, "", 0)}


def _option(name: str, needed: bool) -> Any:
    label = _WORDS.get(name, name.replace("_", " ").capitalize())
    key, help = f"import:{name}", HELP.get(name)
    if name == "model":
        return st.selectbox(label, list(MODELS), key=key, help=help)
    if name == "hardware":
        return st.selectbox(label, [device for device in DEVICES if device != "cpu"], key=key, help=help)
    if name == "fitted":
        return st.toggle("Host time as fitted to public points", True, key=key, help="Off: of data sheets only.")
    if name in _NUMBERS:
        return st.number_input(label, 0, 1 << 24, 0, key=key, help=help)
    return st.text_input(label, "H200" if name == "system" else "", key=key, help=help, max_chars=200).strip()


def _usual_name(kind: Kind, given: list[Any]) -> str:
    stem = given[0].name.partition(".")[0] if given and not kind.folder else ""
    return stem or kind.name


def _start(kind: Kind, given: list[Any], values: dict[str, Any], name: str) -> None:
    try:
        options = Options(**_read(values))
        file = profile_shelf.free(name or _usual_name(kind, given))
        source = None
        if given:
            folder = import_files.keep([(one.name, one.getvalue()) for one in given])
            source = folder if kind.folder else next(folder.iterdir())
    except InputError as error:
        st.session_state["calibrate.refused"] = str(error)
        return
    what = f"Importing {', '.join(one.name for one in given) or kind.title}"
    errands.begin(PAGE, what, calibrate_work.bring, source, kind.name, options, file.stem, file)


def _read(values: dict[str, Any]) -> dict[str, Any]:
    readers: dict[str, Callable[[Any], Any]] = {"capture_sizes": _sizes}
    return {name: readers.get(name, lambda value: value)(value) for name, value in values.items()}


def _sizes(text: str) -> tuple[int, ...]:
    parts = {part.strip() for part in text.split(",")} - {""}
    if any(not part.isdecimal() or len(part) > 9 or int(part) == 0 for part in parts):
        raise InputError(f"Capture sizes: found {text[:60]!r}, allowed: whole numbers above 0 with commas between them")
    return tuple(sorted(map(int, parts)))
