"""From a page to another one, with other settings."""

from __future__ import annotations

import streamlit as st

from dashboard import address
from dashboard.settings import Settings


def explore(settings: Settings) -> None:
    """Shows a scenario on Explore; what follows on this page is not drawn any more."""
    from dashboard.explore import page

    address.change(settings)
    st.switch_page(st.Page(page.page, title="Explore", url_path="explore", default=True))
