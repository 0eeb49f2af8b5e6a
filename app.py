"""The dashboard: `servetwin app`. Navigation only; pages live in `dashboard`."""

import streamlit as st

from dashboard import explore

st.set_page_config(page_title="servetwin", page_icon=":material/monitoring:", layout="wide")
st.navigation([st.Page(explore.page, title="Explore", icon=":material/tune:", url_path="explore", default=True)]).run()
