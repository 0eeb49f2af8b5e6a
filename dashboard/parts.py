"""What pages share: figures with their downloads, waiting for work, downloads of scenarios and data."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime import get_instance
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard import theme, uploads
from dashboard.jobs import Job, Jobs
from dashboard.markup import literal, message
from studies.figures import Figure
from studies.reports.tables import Table
from studies.results import file_name

PLOT = {"displaylogo": False, "displayModeBar": False}
BEAT = 0.1
"""Seconds between two looks at work that is going on."""
QUICK = 0.8
"""Seconds after which a page says that it waits: a line that comes and goes would take a browser longer than what it waits for."""
_NOTHING = "parts.nothing"
_ENDED = "parts.cancelled"


@cache
def jobs() -> Jobs:
    """The server's processes, shared by all pages and readers."""
    found = Jobs(alive=_is_open)
    found.warm()
    return found


def _is_open(who: Hashable) -> bool:
    session = who[0] if isinstance(who, tuple) else who
    try:
        return get_instance().is_active_session(str(session))
    except RuntimeError:  # no server: a test
        return True


def ask(slot: str, key: Hashable, function: Callable[..., Any], *arguments: Any) -> Job:
    """Work for a place of the page, begun if nobody had it done; what the place asked for before is superseded. What was cancelled
    stays so until the reader asks for it again, or for something else."""
    context = get_script_run_ctx()
    who = (context.session_id if context is not None else "", slot)
    named = (function.__qualname__, key)
    ended: dict[str, Hashable] = st.session_state.setdefault(_ENDED, {})
    if st.session_state.get(f"cancel:{named}"):  # clicked just now
        ended[slot] = named
    elif ended.get(slot) != named or st.session_state.get(f"again:{named}"):
        ended.pop(slot, None)
    if slot in ended:
        return Job(named, function, arguments, "cancelled")
    return jobs().ask(who, named, function, *arguments)


def follow(job: Job, draw: Callable[[Any, bool], None], what: str = "simulating") -> None:
    """Draws the result, and until it is there how far it is, what there is already, and a button that ends it.

    draw: called with a result and whether it is complete. Every look at the work is a point where the script ends when a knob is
    turned meanwhile.
    """
    if not ended(job, QUICK):
        _wait(job, draw, what)
    if job.state == "done":
        draw(job.result, True)
    elif job.state == "refused":
        st.error(message(uploads.plain(job.error)))
    elif job.state == "cancelled":
        st.info("Cancelled. Change something, or run it again.")
        st.button("Run again", key=f"again:{job.key}")
    elif job.state == "failed":
        st.error("This is a defect of servetwin, not of what you asked for. The details help to mend it.")
        with st.expander("Details"):
            st.code(job.error)


def _wait(job: Job, draw: Callable[[Any, bool], None], what: str) -> None:
    line = st.empty()
    with line.container(horizontal=True, vertical_alignment="center"):
        bar = st.empty()
        st.button("Cancel", key=f"cancel:{job.key}", on_click=jobs().cancel, args=(job,))
    place, drawn, told = st.empty(), 0, None
    while not ended(job):
        # Told again only if it differs: a browser that draws the same line ten times a second gets to nothing else.
        if told != (now := (round(min(job.share, 1.0), 2), f"{job.what or what} …")):
            bar.progress(*now)
            told = now
        if job.partials > drawn and job.partial is not None:
            drawn = job.partials
            with place.container():
                draw(job.partial, False)
    line.empty()
    place.empty()


def ended(job: Job, within: float = BEAT) -> bool:
    """Whether work ends within so many seconds; also a point where the script ends when a knob is turned meanwhile, every beat."""
    for _beat in range(round(within / BEAT)):
        # Streamlit looks for a change of the page whenever its state is read, and sends nothing.
        _ = _NOTHING in st.session_state
        if job.wait(BEAT):
            return True
    return job.ended


@cache
def _checked() -> type[Any]:
    """A figure that Plotly need not check again: it would take longer than a short simulation."""
    from plotly.basedatatypes import BaseFigure

    class Checked(BaseFigure):  # type: ignore[misc]
        def __init__(self, found: Figure) -> None:
            self._found = found

        def to_dict(self) -> Figure:
            return self._found

    return Checked


def figure(
    found: Figure, key: str, title: str = "", select: str | None = None, on_select: Callable[[], None] | str = "rerun"
) -> Any:
    """A figure with its alternative text and its download; with `select` (a selection mode) also what was clicked.

    on_select: called when something was, before the page is drawn again.
    """
    from studies.figures import described, themed

    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap="small"):
        st.markdown(f"**{title}**")
        st.download_button(
            "HTML",
            lambda: _page(title or key, found),
            f"{file_name(title or key)}.html",
            "text/html",
            key=f"save:{key}",
            type="tertiary",
            icon=":material/download:",
            on_click="ignore",
            help=f"{title or 'This figure'} as a file that opens without a network.",
        )
    more: dict[str, Any] = {} if select is None else {"on_select": on_select, "selection_mode": select}
    drawn = _checked()(themed(found, theme.dark()))
    return st.plotly_chart(drawn, key=key, theme=None, config=PLOT, alt=described(found), **more)


def _page(title: str, found: Figure) -> str:
    from studies.reports import html

    return html.render(html.Page(title, sections=[html.Section("", figures=[(title, found, True)])]))


def row_of_cards(key: str) -> DeltaGenerator:
    """A container for cards, which are equally wide and wrap."""
    return st.container(horizontal=True, gap="small", key=f"cards-{key}")


def cards(found: Sequence[tuple[str, str]], key: str) -> None:
    """The numbers that matter most, side by side: (value, what it is) each."""
    with row_of_cards(key):
        for value, label in found:
            st.metric(literal(label), literal(value), border=True, width="stretch")


def table(found: Table) -> None:
    """A table of a report."""
    if found.title:
        st.markdown(f"**{found.title}**")
    # Columns are told apart by their heads, of which several may be empty.
    heads = [head + " " * found.head[:at].count(head) for at, head in enumerate(found.head)]
    st.table([dict(zip(heads, row, strict=True)) for row in found.rows])
    if found.note:
        st.caption(found.note.replace("\n", "  \n"))  # two spaces keep the line break


def save_table(found: Callable[[], Any], name: str) -> None:
    """Downloads of a `pyarrow.Table` as Parquet and CSV, made when they are asked for."""

    def parquet() -> bytes:
        import pyarrow.parquet as pq

        out = io.BytesIO()
        pq.write_table(found(), out, compression="zstd")
        return out.getvalue()

    def csv() -> bytes:
        import pyarrow.csv

        out = io.BytesIO()
        pyarrow.csv.write_csv(found(), out)
        return out.getvalue()

    for kind, make, mime in (("Parquet", parquet, "application/vnd.apache.parquet"), ("CSV", csv, "text/csv")):
        st.download_button(
            kind,
            make,
            f"{file_name(name)}.{kind.lower()}",
            mime,
            key=f"save:{name}:{kind}",
            on_click="ignore",
            icon=":material/download:",
        )
