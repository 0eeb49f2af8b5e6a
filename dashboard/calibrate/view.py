"""One cost profile on a page: what it rests on, how good it is, and how far the present scenario stays inside it."""

from __future__ import annotations

import streamlit as st

from dashboard import opening, parts, uploads
from dashboard.calibrate import work as calibrate_work
from dashboard.calibrate.shelf import Entry
from dashboard.calibrate.work import Held
from dashboard.markup import literal, message
from dashboard.settings import Settings, as_text
from scenarios import InputError, Scenario
from sim.operator_profile import OperatorProfile
from sim.profiles import AnyProfile
from studies.aspects.step_costs import profile_cost
from studies.profiles import coverage
from studies.profiles.gallery import gallery
from studies.profiles.sheet import sheet


def show(entry: Entry, settings: Settings, scenario: Scenario | None, problem: str) -> None:
    """Everything about a profile. scenario: the present one; None where its settings do not fit together, as `problem` says."""
    profile = entry.load()
    found = sheet(profile)
    st.header(entry.title, anchor=False)
    st.caption(literal(f"{found.sentence}."))
    _scenario(entry, profile, settings, scenario, problem)
    left, right = st.columns([2, 3])
    with left:
        st.markdown("**What it is**")
        st.table([{"fact": name, "value": value} for name, value in found.facts], hide_index=True, hide_header=True)
    with right:
        for table in found.tables[:2]:
            parts.table(table)
    st.subheader("How well it fits", anchor=False)
    drawn = list(gallery(profile).items())
    for at in range(0, len(drawn), 2):
        for column, (title, figure) in zip(st.columns(2), drawn[at : at + 2], strict=False):
            with column:
                parts.figure(figure, f"profile:{title}", title)
    for table in found.tables[2:]:
        with st.expander(table.title or "More", expanded=table.title == "Terms"):
            parts.table(table)
    _downloads(entry, profile)


def _scenario(entry: Entry, profile: AnyProfile, settings: Settings, scenario: Scenario | None, problem: str) -> None:
    """Whether the present scenario can run on it, and how far it stays inside what was measured."""
    with st.container(border=True):
        st.markdown(f"**With the scenario that is set on Explore: {literal(settings.named())}**")
        if scenario is None:
            st.warning(message(problem))
            return
        if scenario.pools:
            st.info(
                "It has several pools, each with step costs of its own; a profile is named in its pools, with `pools.*.cost`."
            )
            return
        why = _misfit(profile, scenario)
        if why is not None:
            st.warning(message(f"It does not fit: {why}."))
            other = _fitting(profile, settings)
            if other is not None:
                _offer(entry, other, "Explore what it was measured for")
            return
        _offer(entry, settings, "Use it in Explore")
        source = entry.name if entry.file is None else str(entry.file)
        job = parts.ask("calibrate.coverage", (profile.hash(), scenario.hash()), calibrate_work.hold, source, scenario)
        parts.follow(job, lambda held, _: _coverage(held), "simulating")


def _coverage(held: Held) -> None:
    if held.found is None:
        st.info("No step was run, so there is nothing to hold against it.")
        return
    if held.found.steps:
        st.warning(message(held.found.sentence))
    else:
        st.success(held.found.sentence)
    if held.requests >= calibrate_work.MOST_REQUESTS:
        st.caption(f"Of its first {held.requests:,} requests.")
    parts.figure(coverage.figure(held.found), "profile:coverage", "Inside what was measured")
    with st.expander("The same as a table"):
        parts.table(coverage.table(held.found))


def _misfit(profile: AnyProfile, scenario: Scenario) -> str | None:
    try:
        profile_cost(profile, scenario)
    except InputError as error:
        return str(error)
    return None


def _offer(entry: Entry, settings: Settings, label: str) -> None:
    if st.button(label, icon=":material/tune:", type="primary", key="profile:use"):
        opening.explore(_using(entry, settings))


def _using(entry: Entry, settings: Settings) -> Settings:
    """Settings with its step costs; of a file those of its copy among the uploads, where a link finds it again."""
    called = entry.name
    if entry.file is not None:
        name = entry.file.name
        of_uploads = entry.file.parent == uploads.folder()
        kept = uploads.keep(name[uploads.DIGITS + 1 :] if of_uploads else name, entry.file.read_bytes())
        called = kept.path.name
    other = settings.changed("cost.profile", None).changed("cost.source", None)
    return other.changed("cost", as_text({"profile": called}))


def _fitting(profile: AnyProfile, settings: Settings) -> Settings | None:
    """The present settings with what the profile was measured of; None where that does not go together."""
    wanted = {"model": profile.model, "engine.num_gpu_blocks": "null"}  # KV memory of another device
    if isinstance(profile, OperatorProfile):
        wanted |= {
            "hardware": profile.hardware,
            "engine.dtype": profile.dtype,
            "engine.kv_cache_dtype": profile.kv_dtype,
            "engine.tensor_parallel_size": str(profile.tensor_parallel_size),
        }
    elif profile.source.device == "cpu":
        wanted |= {"hardware": "cpu", "engine.num_gpu_blocks": "512"}
    else:
        return None
    found = settings
    for path in ("cost", "cost.profile", "cost.source"):
        found = found.changed(path, None)
    for path, text in wanted.items():
        found = found.changed(path, text)
    try:
        return found if _misfit(profile, found.scenario()) is None else None
    except InputError:
        return None


def _downloads(entry: Entry, profile: AnyProfile) -> None:
    st.download_button(
        "The profile (JSON)",
        lambda: profile.model_dump_json(indent=1).encode(),
        f"{entry.title.split(' ')[0].removesuffix('.json').replace('/', '-')}.json",
        "application/json",
        key="save:profile",
        on_click="ignore",
        icon=":material/download:",
        help="For `cost: {profile: FILE}` of a scenario, or to be uploaded elsewhere.",
    )
