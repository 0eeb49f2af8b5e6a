"""Files of the reader's: uploads, and what a link names and this machine does not have."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from dashboard import address, traces, uploads
from dashboard.markup import message
from dashboard.panel.fold import fold
from dashboard.settings import TRACE, UPLOADED, MissingUploadError, Settings
from scenarios import InputError

FILES = "files"
"""Name of the group."""


def files(settings: Settings) -> None:
    """A group for what is uploaded."""
    if (box := fold(FILES, "Files")) is None:
        return
    with box:
        if settings.trace is not None:
            found = uploads.find(settings.trace)
            st.caption(f"Replays {found or settings.trace}.")
            st.button("Without the trace", on_click=address.change, args=(replace(settings, trace=None),))
        for what, kinds in ((TRACE, uploads.TRACES), ("scenario", uploads.SCENARIOS)):
            st.file_uploader(
                f"Upload a {what}",
                kinds,
                key=f"upload:{what}",
                max_upload_size=uploads.LARGEST,
                on_change=_uploaded,
                args=(what,),
                help={
                    TRACE: "Replayed instead of generated requests: CSV (Azure's, BurstGPT's or any) or JSONL (Mooncake's, sessions).",
                    "scenario": "A YAML file as `servetwin init` writes it.",
                }[what],
            )


def _uploaded(what: str) -> None:
    file = st.session_state[f"upload:{what}"]
    if file is None:
        return
    settings: Settings = st.session_state[address.SETTINGS]
    try:
        upload = uploads.keep(file.name, file.getvalue())
        new = replace(settings, trace=upload.digest) if what == TRACE else Settings(UPLOADED + upload.digest)
        if what != TRACE:
            new.scenario()
        else:
            new = traces.limited(new)
    except InputError as error:
        st.session_state[address.TOLD] = [str(error)]
        return
    address.change(new)


def missing(error: MissingUploadError) -> None:
    """Asks for a file that a link names."""
    st.error(message(error))
    st.file_uploader(
        f"The {error.what} of this link",
        uploads.TRACES if error.what == TRACE else uploads.SCENARIOS,
        key="upload:missing",
        max_upload_size=uploads.LARGEST,
        on_change=_found_again,
        args=(error,),
    )


def _found_again(error: MissingUploadError) -> None:
    file = st.session_state["upload:missing"]
    if file is None:
        return
    try:
        upload = uploads.keep(file.name, file.getvalue())
    except InputError as problem:
        st.session_state[address.TOLD] = [str(problem)]
        return
    if upload.digest != error.digest:
        st.session_state[address.TOLD] = [
            f"{upload} is another file (SHA-256 {upload.digest}…) than the one that the link names ({error.digest}…)"
        ]
        return
    st.session_state[address.TOLD] = []
