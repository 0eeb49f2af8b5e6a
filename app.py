"""The dashboard: `servetwin app`. Navigation only; a page is `dashboard/NAME/page.py`."""

import streamlit as st

from dashboard import theme
from dashboard.contents import PAGES, module
from dashboard.markup import message
from scenarios import InputError

st.set_page_config(page_title="servetwin", page_icon=theme.ICON, layout="wide")
theme.apply()
pages = [
    st.Page(module(name).page, title=title, icon=icon, url_path=name, default=(name, title, icon) == PAGES[0])
    for name, title, icon in PAGES
]
try:
    st.navigation(pages, position="top").run()
except InputError as error:
    st.error(message(error))
