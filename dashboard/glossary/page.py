"""Glossary: what figures and words mean, and how other tools use the same words. `glossary?q=TTFT` is a link to an entry."""

from __future__ import annotations

import streamlit as st

from dashboard import address
from dashboard.markup import literal, message
from studies import glossary
from studies.glossary import Entry, Other

Q = "q"
"""Query parameter of what is looked for."""
NEAR = 8
"""Entries that a search shows in full."""
READING = """
1. **What binds.** The sentence above the figures names what a run waits for; turning another knob changes little. See
   [binding resource](#binding-resource).
2. **Time to the first token** is [queue time](#queue-time) and [prefill](#prefill) together. If p99 is far above p50 it is the queue: look
   at running and waiting requests over time. See [TTFT](#ttft).
3. **Time per token after that** follows from how much shares a [step](#step): larger batches give more tokens a second to all, and fewer to
   each. See [TPOT](#tpot), and [ITL](#itl) for stalls that a mean hides.
4. **Throughput is not goodput.** An overloaded system is at its highest throughput while nobody is served in time. See
   [goodput](#goodput) and [good fraction](#good-fraction).
5. **KV memory full** means waiting requests or [preemptions](#preemption), which are computed again. See [KV capacity](#kv-capacity).
6. **A dash** stands where a figure is withheld, most often a tail of too few requests: see [effective sample](#effective-sample). **±** is half
   of a [confidence interval](#confidence-interval); differences smaller than that are none.
"""


def page() -> None:
    """The page: a search, the entries, and the words of other tools."""
    st.title("Glossary")
    address.current("glossary", {Q})
    for line in address.told():
        st.warning(message(line))
    wanted = st.text_input(
        "Search",
        key=Q,
        bind="query-params",
        placeholder="TTFT, p95_ttft_ms, inter token latency, GuideLLM …",
        help="A term, an export key, a tool, or another tool's word.",
    ).strip()
    if wanted:
        _search(wanted)
        return
    with st.expander("How to read a run", expanded=True):
        st.markdown(READING)
    with st.expander("All terms", expanded=True):
        st.markdown(
            "  \n".join(
                f"**{group}:** " + " · ".join(f"[{literal(e.term)}](#{glossary.anchor(e.term)})" for e in found)
                for group, found in glossary.groups().items()
            )
            + f"  \n**{WORDS}:** [how they say it](#words-of-other-tools)"
        )
    for group, found in glossary.groups().items():
        st.header(group, divider="gray")
        for each in found:
            _entry(each, linked=True)
    _words()


WORDS = "Words of other tools"


def _search(wanted: str) -> None:
    found = glossary.search(wanted)
    if not found:
        st.info(f"No entry fits “{literal(wanted)}”. Try a shorter word, or an export key such as p95_ttft_ms.")
        st.button("All terms", on_click=_look_for, args=("",))
        return
    best, *more = found[:NEAR]
    _entry(best, linked=False)
    _buttons("See also", [term for term in best.see if _is_term(term)], "see")
    if more:
        st.subheader("It may also mean", divider="gray")
    for each in more:
        _entry(each, linked=False)
    if len(found) > NEAR:
        _buttons("Farther", [each.term for each in found[NEAR:]], "farther")
    st.button("All terms", on_click=_look_for, args=("",), icon=":material/arrow_back:")


def _entry(entry: Entry, *, linked: bool) -> None:
    """One entry. linked: whether those that it names are on the page too."""
    with st.container(border=True):
        st.subheader(entry.term, anchor=glossary.anchor(entry.term))
        st.markdown(f"*{literal(entry.name)}.* {literal(entry.meaning)}")
        st.markdown("\n".join(f"- {_fact(name, text, entry, linked)}" for name, text in entry.facts()))
        if entry.others:
            with st.expander(f"Elsewhere: {_tools(entry.others)}"):
                st.markdown("\n".join(f"- {_other(other)}" for other in entry.others))


def _fact(name: str, text: str, entry: Entry, linked: bool) -> str:
    if name == "export keys":
        text = ", ".join(f"`{key}`" for key in entry.keys)
    elif name == "formula":
        text = f"`{text}`"
    elif name == "see" and linked:
        text = ", ".join(f"[{literal(term)}](#{glossary.anchor(term)})" for term in entry.see)
    else:
        text = literal(text)
    return f"{name.capitalize()}: {text}"


def _other(other: Other) -> str:
    same = "the same" if other.same else "**not** the same"
    note = f": {literal(other.note)}" if other.note else ""
    return f"{literal(other.tool)}, “{literal(other.word)}”: {same}{note}"


def _tools(others: tuple[Other, ...]) -> str:
    names = list(dict.fromkeys(literal(other.tool) for other in others))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _words() -> None:
    """The table tool x word."""
    found = glossary.words_of_others()
    st.header(WORDS, anchor="words-of-other-tools", divider="gray")
    st.caption(f"{found.note} The heads sort, the magnifying glass searches.")
    st.dataframe(
        [dict(zip(found.head, row, strict=True)) for row in found.rows],
        hide_index=True,
        height=480,
        alt="Words of other tools: a row a word, with the tool, our term, whether the figures are the same, and what is different.",
    )


def _buttons(title: str, terms: list[str], key: str) -> None:
    if not terms:
        return
    st.caption(title)
    with st.container(horizontal=True):
        for term in terms:
            st.button(term, key=f"{key}:{term}", on_click=_look_for, args=(term,), type="tertiary")


def _look_for(text: str) -> None:
    st.session_state[Q] = text


def _is_term(term: str) -> bool:
    return any(entry.term == term for entry in glossary.entries())
