"""A part of the link, of which the page and the browser keep one copy each: who changed it last has the say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import streamlit as st

LAG = 0.5
"""Seconds in which a browser may still send the query that it had before the last one was written. What a widget changes meanwhile holds
however long that takes; whoever goes back has not touched a widget."""


@dataclass
class Part:
    """Some of the query parameters.

    query: that hold. seen: that the link had when it was read or written last. before: the ones that were replaced then, and since:
    when that was. touched: whether a widget has changed them since.
    """

    query: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] | None = None
    since: float = 0.0
    touched: bool = False

    def follows(self, shown: Mapping[str, str], came: bool) -> bool:
        """Takes what the link has, if somebody followed one or went back; says whether. came: from another page, whose link has
        nothing of this part."""
        lags = shown == self.before and (self.touched or time.monotonic() - self.since < LAG)
        if shown == self.seen or (came and not shown) or lags:
            return False
        self.query = self.seen = dict(shown)
        return True

    def write(self, shown: Mapping[str, str]) -> None:
        """Puts what holds into the link. shown: what of this part the link has now."""
        if shown != self.query:
            self.before, self.since = dict(shown), time.monotonic()
            for name in shown.keys() - self.query.keys():
                del st.query_params[name]
            for name, text in self.query.items():
                if shown.get(name) != text:
                    st.query_params[name] = text
        self.seen, self.touched = dict(self.query), False


def shown(mine: Callable[[str], bool]) -> dict[str, str]:
    """The parameters in the link of which `mine` says that they belong to a part."""
    return {name: st.query_params[name] for name in st.query_params if mine(name)}
