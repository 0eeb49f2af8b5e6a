"""The sidebar of pages about a scenario: which one, and a widget for every knob of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import streamlit as st

import scenarios
from dashboard import address, knobs, question, traces, uploads
from dashboard.knobs import Choice, Knob, Scale, Switch, turning
from dashboard.markup import message
from dashboard.settings import BASE, QUESTION, QUESTIONED, TRACE, UPLOADED, MissingUploadError, Settings
from scenarios import InputError, Scenario

OPEN = ("Workload", "Model", "Hardware")
"""Groups that are open from the start."""
_NOTHING = object()
_VALID, _STARTED, _SAID, _PUT = "settings.valid", "start.base", "panel.said", "panel.put"


@dataclass(frozen=True)
class Asked:
    """What a page is about. scenario: None where the settings do not fit together; then `problem` says why.

    valid: the last settings that did, with their scenario; None before there were any.
    """

    settings: Settings
    scenario: Scenario | None
    problem: str = ""
    missing: MissingUploadError | None = None
    valid: tuple[Settings, Scenario] | None = None


def ask(page: str, own: Collection[str] = (), begin: Callable[[Scenario], object] | None = None) -> Asked:
    """Draws the sidebar and says what is set there.

    page: the page's name. own: query parameters of the page itself. begin: called with the scenario before the knobs are drawn, which
    takes as long as many a simulation.
    """
    settings = address.current(page, own)
    asked = _read(settings)
    if begin is not None and asked.valid is not None:
        begin(asked.valid[1])
    with st.sidebar:
        _bases(settings)
        drawn = asked.valid[1] if asked.valid is not None else Settings().scenario()
        if drawn is not None:
            _knobs(settings, drawn)
        _others(settings, drawn)
        _files(settings)
    for line in address.told():
        st.warning(message(line))
    if asked.scenario is not None and (begun := traces.said(settings, asked.scenario)) is not None:
        st.info(begun)
    if asked.missing is not None:
        _missing(asked.missing)
    elif asked.problem:
        st.error(message(asked.problem))
        _ways_out(settings, None if asked.valid is None else asked.valid[0])
    said_of, said = st.session_state.get(_SAID, (None, ""))
    if said and said_of == settings:
        st.info(said)
    return asked


def _read(settings: Settings) -> Asked:
    try:
        found = settings.scenario()
    except MissingUploadError as error:
        return Asked(settings, None, str(error), error, st.session_state.get(_VALID))
    except InputError as error:
        return Asked(settings, None, str(error), None, st.session_state.get(_VALID))
    st.session_state[_VALID] = (settings, found)
    return Asked(settings, found, valid=(settings, found))


def _bases(settings: Settings) -> None:
    asked = settings.base.startswith(QUESTIONED)
    here = (st.session_state[address.PAGE], settings.base)
    if st.session_state.get(_STARTED) != here or "start" not in st.session_state:
        st.session_state[_STARTED] = here
        st.session_state["start"] = QUESTION if asked else BASE
    start = st.segmented_control(
        "Where to start",
        [BASE, QUESTION],
        required=True,
        key="start",
        format_func={BASE: "A scenario", QUESTION: "A question"}.__getitem__,
        help="From a scenario that comes with servetwin or is yours (Files, below), or from a question with its answer.",
        width="stretch",
    )
    if start == QUESTION:
        _questions(settings.base.removeprefix(QUESTIONED) if asked else None)
    else:
        _scenarios(None if asked else settings)
    changes = len(settings.changes) + (settings.trace is not None)
    if changes:
        st.button(
            f"Undo {changes} change{'s' * (changes > 1)}",
            key="undo",
            on_click=address.change,
            args=(Settings(settings.base),),
            help="Back to where you started from.",
            width="stretch",
        )


def _scenarios(settings: Settings | None) -> None:
    names = list(scenarios.names())
    if settings is not None and settings.base not in names:
        names.insert(0, settings.base)
    _put("base", None if settings is None else settings.base)
    st.selectbox(
        "Scenario",
        names,
        None,
        key="base",
        placeholder="choose one",
        format_func=lambda name: f"{Settings(name).named()} (uploaded)" if name.startswith(UPLOADED) else name,
        on_change=_choose_base,
        help="Where the knobs start from. Choosing another drops the changes.",
    )


def _questions(name: str | None) -> None:
    known = {name: (topic, text) for topic, name, text in question.listed()}
    _put("asked", name)
    st.selectbox(
        "Question",
        list(known),
        None,
        key="asked",
        placeholder="choose one",
        format_func=lambda name: f"{known[name][0]}: {known[name][1]}",
        on_change=_choose_question,
        help="Each comes with an answer, and with the runs that bear it out. Choosing one drops the changes.",
    )


def _choose_base() -> None:
    if (name := st.session_state["base"]) is not None:
        address.change(Settings(name))


def _choose_question() -> None:
    if (name := st.session_state["asked"]) is not None:
        address.change(Settings(QUESTIONED + name))


def _knobs(settings: Settings, scenario: Scenario) -> None:
    for group, found in groupby(knobs.of(scenario), key=lambda knob: knob.group):
        mine = list(found)
        changed = sum(knob.path in settings.changes for knob in mine)
        title = group if not changed else f"{group} · {changed} changed"
        with st.expander(title, expanded=group in OPEN, key=f"group:{group}"):
            for knob in mine:
                _widget(knob)


def _widget(knob: Knob) -> None:
    key = f"knob:{knob.path}"
    shown = knob.shown()
    _put(key, shown)
    more: dict[str, Any] = {"key": key, "help": knob.help, "on_change": _turned, "args": (knob,)}
    control = knob.control
    if isinstance(control, Choice):
        found = knobs.options(control, shown)
        st.selectbox(knob.label, list(found), format_func=lambda text: found.get(text, text), **more)
    elif isinstance(control, Switch):
        st.toggle(knob.label, **more)
    elif isinstance(control, Scale):
        offered = knobs.values(control, shown)
        st.select_slider(knob.label, offered, format_func=lambda v: f"{v:,.6g}{control.unit}", **more)
    else:
        label = f"{knob.label} ({control.unit})" if control.unit else knob.label
        kind = int if control.whole else float
        least, most = (kind(bound) for bound in (control.least, control.most))
        if shown is not None:  # a scenario may say what no knob would
            least, most = min(least, shown), max(most, shown)
        st.number_input(label, least, most, step=kind(control.step), placeholder="none", **more)


def _put(key: str, value: Any) -> None:
    """The value of a widget, if it has another: what somebody is typing there is left alone otherwise.

    A widget of another page is another one for Streamlit, with its default, though the state still tells the value of the former.
    """
    put: dict[str, str] = st.session_state.setdefault(_PUT, {})
    page = st.session_state[address.PAGE]
    if put.get(key) != page or st.session_state.get(key, _NOTHING) != value:
        put[key] = page
        st.session_state[key] = value


def _turned(knob: Knob) -> None:
    settings: Settings = st.session_state[address.SETTINGS]
    found, said = turning.turned(settings, knob, st.session_state[f"knob:{knob.path}"])
    address.change(found)
    st.session_state[_SAID] = (found, said)


def _ways_out(settings: Settings, before: Settings | None) -> None:
    """Buttons that make settings fit together."""
    with st.container(horizontal=True, key="ways-out"):
        for i, change in enumerate(turning.ways_out(settings)):
            st.button(
                change.says,
                key=f"way:{i}",
                on_click=address.change,
                args=(change.on(settings),),
                help="; ".join(f"{path}={text}" for path, text in change.texts),
            )
        if before is not None:
            st.button(
                "Take it back",
                key="way:back",
                icon=":material/undo:",
                on_click=address.change,
                args=(before,),
                help="To the last settings that fit together.",
            )


def _others(settings: Settings, scenario: Scenario | None) -> None:
    """Changes that no knob shows, as lines of text."""
    known = {knob.path for knob in knobs.of(scenario)} if scenario is not None else set()
    lines = [f"{path}={text}" for path, text in settings.changes.items() if path not in known]
    with st.expander("Anything else", expanded=bool(lines), key="group:others"):
        _put("others", "\n".join(lines))
        st.text_area(
            "Fields of the scenario, a line each",
            key="others",
            placeholder="engine.long_prefill_token_threshold=2048",
            help="Path and value, as of `servetwin run --set`. `servetwin schema` lists the fields.",
            on_change=_typed,
            args=(known,),
        )


def _typed(known: set[str]) -> None:
    settings: Settings = st.session_state[address.SETTINGS]
    kept = {path: text for path, text in settings.changes.items() if path in known}
    for line in st.session_state["others"].splitlines():
        path, _, text = line.partition("=")
        if path.strip():
            kept[path.strip()] = text.strip()
    address.change(replace(settings, changes=kept))


def _files(settings: Settings) -> None:
    with st.expander("Files", key="group:files"):
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


def _missing(error: MissingUploadError) -> None:
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
