"""What a reader takes along: the scenario, its line for a shell, the run's data and its report."""

from __future__ import annotations

import streamlit as st

from dashboard import command, parts
from dashboard.settings import Settings
from scenarios import Scenario
from studies.results import Run, file_name


def show(settings: Settings, scenario: Scenario, run: Run) -> None:
    """Everything is made when it is asked for, and complete without this server."""
    st.markdown("**The same in a terminal**")
    line = command.line(settings)
    st.code(line, "bash", wrap_lines=True)
    if (needed := command.file(settings)) is not None:
        st.caption(f"{needed} is the scenario without its changes; the scenario below has them already.")
    st.caption("A link to this page, with everything that is set, is in the address bar.")
    name = file_name(run.name)
    with st.container(horizontal=True, key="downloads"):
        _save(
            "Scenario (YAML)", "scenario", lambda: with_difference(scenario, line), f"{name}.yaml", "application/yaml"
        )
        if (needed := command.file(settings)) is not None:
            _save("Without the changes", "base", lambda: settings.base_scenario().to_yaml(), needed, "application/yaml")
        _save("Report (HTML)", "report", lambda: _report(run), f"{name}.html", "text/html")
    for label, found, file in (
        ("Requests", run.requests, f"{name}-requests"),
        ("Engine steps", run.steps, f"{name}-steps"),
    ):
        st.markdown(f"**{label}**")
        with st.container(horizontal=True, key=f"downloads-{label}"):
            parts.save_table(found, file)


def with_difference(scenario: Scenario, line: str) -> str:
    """The scenario as a file that says where it is from."""
    return f"# As of: {line}\n{scenario.to_yaml()}".replace("\r", "")


def _save(label: str, key: str, make: object, name: str, kind: str) -> None:
    st.download_button(
        label, make, name, kind, key=f"save:{key}", icon=":material/download:", on_click="ignore"  # type: ignore[arg-type]
    )  # fmt: skip


def _report(run: Run) -> str:
    from studies.reports import html, report

    return html.render(report.page(run))
