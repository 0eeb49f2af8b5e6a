"""The dashboard: `servetwin app`. Navigation only; pages live in `dashboard`."""

import streamlit as st

from dashboard import explore

st.set_page_config(page_title="servetwin", layout="wide")
st.navigation([st.Page(explore.page, title="Explore", url_path="explore", default=True)]).run()
