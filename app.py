"""The dashboard: `servetwin app`. Navigation only; a page is `dashboard/NAME/page.py`."""

import streamlit as st

from dashboard import theme
from dashboard.calibrate import page as calibrate
from dashboard.capacity import page as capacity
from dashboard.compare import page as compare
from dashboard.explore import page as explore
from dashboard.glossary import page as glossary
from dashboard.markup import message
from dashboard.studies import page as studies
from dashboard.validate import page as validate
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
    st.error(message(error))
