"""The dashboard: `servetwin app`. Navigation only; pages live in `dashboard.pages`."""

import streamlit as st

from dashboard import theme
from dashboard.pages import calibrate, capacity, compare, explore, glossary, studies, validate
from scenarios import InputError

PAGES = (
    (explore, "Explore", ":material/tune:"),
    (compare, "Compare", ":material/compare_arrows:"),
    (capacity, "Capacity", ":material/trending_up:"),
    (calibrate, "Calibrate", ":material/straighten:"),
    (validate, "Validate", ":material/fact_check:"),
    (studies, "Studies", ":material/grid_view:"),
    (glossary, "Glossary", ":material/menu_book:"),
)

st.set_page_config(page_title="servetwin", page_icon=theme.ICON, layout="wide")
theme.apply()
pages = [
    st.Page(module.page, title=title, icon=icon, url_path=title.lower(), default=module is explore)
    for module, title, icon in PAGES
]
try:
    st.navigation(pages, position="top").run()
except InputError as error:
    st.error(str(error))
