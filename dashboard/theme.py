"""How the dashboard looks: what `theme.toml` cannot say, and whether a page is seen light or dark."""

from __future__ import annotations

from importlib import resources

import streamlit as st

ICON = (resources.files("dashboard") / "icon.svg").read_text(encoding="utf-8")
CSS = """
<style>
/* Room for what matters: the result starts near the top of the page. */
[data-testid="stMainBlockContainer"] {padding-top: 4.2rem; padding-bottom: 3rem; max-width: 1500px}
[data-testid="stSidebarUserContent"] {padding-bottom: 2rem}
[data-testid="stMetricValue"] {font-variant-numeric: tabular-nums; font-size: 1.45rem}
/* A figure is whole or it is none: long ones wrap. */
[data-testid="stMetricValue"] > div, [data-testid="stMetricValue"] p, [data-testid="stMetricLabel"] p {white-space: normal; overflow: visible; text-overflow: clip; overflow-wrap: anywhere}
[data-testid="stMetric"] {padding: 0.55rem 0.8rem}
/* Cards and small figures side by side as far as they fit; one below the other on a telephone. */
[class*="st-key-cards"] {display: grid !important; grid-template-columns: repeat(auto-fit, minmax(7.3rem, 1fr)); gap: 0.5rem !important}
[class*="st-key-cards"] > *, [class*="st-key-cards"] > * > * {width: 100% !important; min-width: 0 !important; height: 100%}
[class*="st-key-cards"] [data-testid="stMetric"] {height: 100%; padding: 0.5rem 0.7rem !important}
[class*="st-key-cards"] [data-testid="stMetric"] > div {padding: 0 !important}
[class*="st-key-cards"] [data-testid="stMetricValue"] {font-size: 1.1rem}
[class*="st-key-cards"] [data-testid="stMetricLabel"] p {font-size: 0.78rem}
[class*="st-key-cards"] [data-testid="stMetricDelta"] {font-size: 0.8rem}
@media (max-width: 640px) {
  [class*="st-key-cards"] {grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr))}
  [data-testid="stMainBlockContainer"] {padding-left: 0.9rem; padding-right: 0.9rem}
  [data-testid="stMetricValue"] {font-size: 1.15rem}
}
</style>
"""


def apply() -> None:
    """What the theme alone cannot say. Once a run of the script."""
    st.html(CSS)


def dark() -> bool:
    """Whether the reader sees the page on dark ground."""
    return st.context.theme.type == "dark"
