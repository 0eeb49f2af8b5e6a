"""The rows in which variants are written: a name and changes each, ready sets, and a knob to vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard import address, knobs, page_query
from dashboard.compare import variants
from dashboard.compare.variants import MOST, Variant
from dashboard.knobs import Knob, Switch
from dashboard.knobs.widget import widget
from dashboard.settings import Settings
from scenarios import InputError, Scenario

PAGE = "compare"
CSS = """
<style>
/* On a telephone a name stands beside its button, and the changes have a line of their own below. */
@media (max-width: 640px) {
  [class*="st-key-variant-row-"] > :nth-child(1) {flex: 1 1 50%}
  [class*="st-key-variant-row-"] > :nth-child(2) {flex: 1 1 100%; order: 1; margin-bottom: 0.6rem}
}
</style>
"""
_TOLD, _SHOWN = "variants.told", "variants.shown"


def is_row(parameter: str) -> bool:
    """Whether a query parameter is a variant: `v1` to `v6`, and those beyond, which are told to be too many."""
    return parameter[:1] == "v" and parameter[1:].isdecimal()


def of(query: dict[str, str], settings: Settings) -> list[Variant]:
    """The variants of a link; where it has none, those that suit what is set."""
    names = sorted(filter(is_row, query), key=lambda name: int(name[1:]))
    return [variants.read(query[name]) for name in names] or variants.natural(settings)


def told() -> list[str]:
    """What the last button could not do, a sentence each."""
    found: list[str] = st.session_state.pop(_TOLD, [])
    return found


def draw(query: dict[str, str], rows: Sequence[Variant], settings: Settings, scenario: Scenario) -> None:
    """Draws the rows and what adds to them."""
    st.html(CSS)
    sets = variants.ready(scenario)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="variant:sets"):
        st.markdown("Ready sets:", width="content")
        for title, found in sets.items():
            st.button(
                title,
                key=f"set:{title}",
                on_click=_put,
                args=(found,),
                help=f"Instead of the variants below: {', '.join(v.name for v in found)}.",
            )
    with st.expander(f"Variants ({len(rows)})", expanded=True, key="variant:rows"):
        st.caption(
            "Each is the scenario at the side with its changes on top; a knob at the side changes all of them. "
            "The first is the baseline."
        )
        for k, row in enumerate(rows):
            _row(k, row, len(rows))
        with st.container(horizontal=True, gap="small", key="variant:more"):
            full = len(rows) >= MOST
            with st.popover(
                "Add a variant",
                icon=":material/add:",
                disabled=full,
                help=f"{MOST} variants are the most; remove one first." if full else None,
            ):
                _adding(scenario)
            if settings.changes:
                n = len(settings.changes)
                st.button(
                    "Take the present settings as a variant",
                    key="variant:take",
                    on_click=_take,
                    help=f"Moves what is changed at the side ({n} change{'s' * (n > 1)}) into a variant of its own. The others are then "
                    "of the scenario without it.",
                )
            if any(map(is_row, query)):
                st.button("Start over", key="variant:none", type="tertiary", on_click=_put, args=((),))


def _row(k: int, row: Variant, count: int) -> None:
    n, shown = k + 1, "visible" if k == 0 else "collapsed"
    _set(f"variant:name:{k}", row.name)
    _set(f"variant:changes:{k}", row.changes)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key=f"variant:row:{k}"):
        more: dict[str, Any] = {"on_change": _typed, "args": (k,), "label_visibility": shown}
        label = "Name" if k == 0 else f"Name of variant {n}"
        st.text_input(label, key=f"variant:name:{k}", width=190, placeholder=f"variant {n}", **more)
        label = "Changes" if k == 0 else f"Changes of variant {n}"
        st.text_input(
            label, key=f"variant:changes:{k}", width="stretch", placeholder="none: the scenario as it is set", **more
        )
        st.button(
            "Remove",
            key=f"variant:remove:{k}",
            icon=":material/close:",
            type="tertiary",
            on_click=_remove,
            args=(k,),
            disabled=count < 2,
            help=f"Remove {row.name or f'variant {n}'}",
        )


def _adding(scenario: Scenario) -> None:
    """A knob and a value for it, or a line of text."""
    by_path = {knob.path: knob for knob in knobs.of(scenario) if knob.path != "seed"}
    path = st.selectbox(
        "Setting",
        list(by_path),
        key="variant:knob",
        format_func=lambda p: f"{by_path[p].group}: {by_path[p].label}" if p in by_path else p,
    )
    knob = by_path[path]
    value = _value(knob)
    st.button("Add", key="variant:add", type="primary", on_click=_add, args=(knob, value))
    st.divider()
    st.text_input(
        "Or changes as text",
        key="variant:text",
        placeholder="engine.max_num_seqs=64, replicas=2",
        help="Paths and values, as of `servetwin compare --variant`; `NAME: path=value` gives a name.",
        on_change=_add_text,
    )


def _value(knob: Knob) -> Any:
    key, shown = f"variant:value:{knob.path}", knob.shown()
    if key not in st.session_state or st.session_state.get(_SHOWN) != (
        key,
        shown,
    ):  # the scenario may have changed below it
        st.session_state[_SHOWN] = (key, shown)
        st.session_state[key] = not shown if isinstance(knob.control, Switch) else shown
    return widget(knob, key)


def _add(knob: Knob, value: Any) -> None:
    if value == knob.shown():
        _tell(f"{knob.label} has that value already; choose another one to compare with.")
        return
    _append(Variant("", f"{knob.path}={knob.text(value)}"))


def _add_text() -> None:
    text = st.session_state["variant:text"].strip()
    if text:
        _append(variants.read(text))
        st.session_state["variant:text"] = ""


def _append(new: Variant) -> None:
    rows = _now()
    if len(rows) >= MOST:
        _tell(f"{MOST} variants are the most; remove one first.")
        return
    try:
        new.overrides()
        name = new.name or variants.named_after(new)
    except InputError as error:
        _tell(f"Not added: {error}")
        return
    _put([*rows, Variant(variants.unused(name, rows), new.changes)])


def _typed(k: int) -> None:
    rows = _now()
    name = st.session_state[f"variant:name:{k}"].strip()
    changes = st.session_state[f"variant:changes:{k}"].strip()
    if name and not variants.is_name(name):
        _tell(f"{name}: a name has no = and no colon before a space; it stays {rows[k].name}.")
        name = rows[k].name
    _put([*rows[:k], Variant(name, changes), *rows[k + 1 :]])


def _remove(k: int) -> None:
    rows = _now()
    _put([*rows[:k], *rows[k + 1 :]])


def _take() -> None:
    """Moves what is set into a variant."""
    settings: Settings = st.session_state[address.SETTINGS]
    if not any(map(is_row, page_query.held(PAGE))):
        _put(variants.moved(settings))
    elif len(rows := _now()) >= MOST:
        _tell(f"{MOST} variants are the most; remove one, then take the settings.")
        return
    else:
        new = variants.changes_of(settings)
        _put([*rows, Variant(variants.unused(variants.named_after(new), rows), new.changes)])
    address.change(Settings(settings.base, {}, settings.trace))


def _now() -> list[Variant]:
    """The rows, for a callback: another one may have changed them since they were drawn."""
    return of(page_query.held(PAGE), st.session_state[address.SETTINGS])


def _put(rows: Sequence[Variant]) -> None:
    """Writes the rows into the link."""
    kept = {name: text for name, text in page_query.held(PAGE).items() if not is_row(name)}
    page_query.change(PAGE, kept | {f"v{k}": row.text() for k, row in enumerate(rows, 1)})


def _tell(line: str) -> None:
    st.session_state.setdefault(_TOLD, []).append(line)


def _set(key: str, value: str) -> None:
    if st.session_state.get(key) != value:
        st.session_state[key] = value
