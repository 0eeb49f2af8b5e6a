"""What the pages say is there: every strategy on its page, every command in the README, every link, file, field and option."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import cli
import scenarios
from scenarios.admission import Admission
from scenarios.arrivals import Arrivals
from scenarios.client_behaviour import ClientBehaviour
from scenarios.difficulty import Difficulty
from scenarios.engine import Dtype, Engine, KvDtype
from scenarios.history import History
from scenarios.lengths import Lengths
from scenarios.predictors import Predictor
from scenarios.presets import PRESETS
from scenarios.prompts import Prompts
from scenarios.schema import Scenario
from scenarios.traces import READERS
from scenarios.transforms import Transform
from scenarios.workload_spec import WorkloadSpec
from serving.admission import WHEN_FULL
from serving.batching import BATCHINGS
from serving.capacity import CAPACITIES
from serving.degradation import EFFECTS, SIGNALS
from serving.policies import ORDERS
from serving.routing import POOL_ROUTERS, ROUTERS
from serving.speculation import METHODS
from studies import ablations
from studies.explaining.latency_parts import PARTS
from studies.sweeps.axes import ALIASES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = [page for page in PAGES if page.name != "fidelity.md"]  # that one is written by a command
STRATEGIES = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")


def kinds(union: Any, tag: str) -> list[str]:
    """Names of the members of a union of sections, by their discriminating field."""
    return [get_args(member.model_fields[tag].annotation)[0] for member in get_args(get_args(union)[0])]


def choices(field: str) -> list[str]:
    """Of a field of the engine section that has a few."""
    return list(get_args(Engine.model_fields[field].annotation))


NAMES: dict[str, Iterable[str]] = {
    "queue orders": ORDERS,
    "batchings": BATCHINGS,
    "memory policies": CAPACITIES,
    "KV allocations": choices("kv_allocation"),
    "preemptions": choices("preemption"),
    "speculation": METHODS,
    "precisions of weights": get_args(Dtype),
    "precisions of KV": get_args(KvDtype),
    "full queues": WHEN_FULL,
    "rungs": EFFECTS,
    "signals": SIGNALS,
    "routers": [*ROUTERS, *POOL_ROUTERS],
    "presets": PRESETS,
    "arrivals": kinds(Arrivals, "process"),
    "prompts": kinds(Prompts, "kind"),
    "histories": kinds(History, "kind"),
    "transforms": kinds(Transform, "kind"),
    "predictors": kinds(Predictor, "kind"),
    "admission": Admission.model_fields,
    "clients": ClientBehaviour.model_fields,
    "sections": ("client_behaviour", "front_end", "admission", "degradation", "pools", "router"),
}
SHORT = {"fixed"}  # a number alone


def code(text: str) -> str:
    """What a page shows as code."""
    text = re.sub(r"^ *(```)", r"\1", text, flags=re.MULTILINE)
    blocks = re.findall(r"^```.*?^```", text, flags=re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^    .*$", text, flags=re.MULTILINE)
    return "\n".join([*blocks, *spans(text)])


def spans(text: str) -> list[str]:
    """Inline code outside of fenced blocks; one may go on in the next line."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", outside)]


@pytest.mark.parametrize("axis", NAMES)
def test_every_strategy_is_on_its_page(axis: str) -> None:
    shown = code(STRATEGIES)
    assert [
        name for name in NAMES[axis] if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)|\.{name}\b", shown)
    ] == []


@pytest.mark.parametrize("union", [Lengths, Difficulty])
def test_every_distribution_is_on_the_page(union: Any) -> None:
    missing = [name for name in kinds(union, "distribution") if f"`{name}`" not in STRATEGIES]
    assert set(missing) <= SHORT


def test_every_ablation_is_on_the_page_once() -> None:
    assert sorted(re.findall(r"\(\.\./scenarios/ablations/(\w+)\.yaml\)", STRATEGIES)) == list(ablations.names())


def test_the_page_compares_variants_that_there_are() -> None:
    for row in re.findall(r"^\| \[`\w+`\].*$", STRATEGIES, flags=re.MULTILINE):
        name = re.findall(r"`(\w+)`", row)[0]
        found = ablations.read(name)
        assert found.question in row
        named = re.findall(r"[:,] ([a-z][a-z0-9_]*) -?[0-9]", row.split(" | ")[-1])
        assert set(named) <= set(found.variants), name


def test_every_trace_format_is_on_its_page() -> None:
    text = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    assert [name for name in READERS if f"`{name}`" not in text] == []


def test_every_part_of_a_latency_is_on_its_page() -> None:
    text = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    assert [f"| {name.replace('_', ' ')} | {what} |" for name, what in PARTS.items() if what not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_files_of_the_tree_that_are_named_are_there(page: Path) -> None:
    packages = "serving|scenarios|sim|gpu_backend|calibration|studies|dashboard|tests|bench"
    named = [s for s in spans(page.read_text(encoding="utf-8")) if re.fullmatch(rf"(?:{packages})/[\w/.]+", s)]
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_fields_that_are_named_are_fields(page: Path) -> None:
    shown = code(page.read_text(encoding="utf-8"))
    for section, owner in (("engine", Engine), ("admission", Admission), ("client_behaviour", ClientBehaviour)):
        named = set(re.findall(rf"(?<![\w./]){section}\.([a-z_]+)", shown)) - {"py"}
        assert named <= set(owner.model_fields), section
    short = {alias.removeprefix("workload.") for alias in ALIASES}
    named = set(re.findall(r"(?<![\w./])workload\.([a-z_]+)", shown)) - {"py"}
    assert named <= set(WorkloadSpec.model_fields) | short


COMMANDS = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


def test_every_command_and_every_shipped_scenario_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if not re.search(rf"servetwin {name}\b|make {name}\b", text)] == []
    assert [name for name in scenarios.names() if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_commands_that_are_shown_have_these_options(page: Path) -> None:
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    lines = [*spans(text), *(line.strip() for line in re.findall(r"^    .*$", text, flags=re.MULTILINE))]
    for line in lines:
        if not (said := re.match(r"(?:\.venv/bin/)?servetwin ([a-z][a-z-]*)(.*)", line)):
            continue
        name, rest = said.groups()
        assert name in COMMANDS, line
        command = COMMANDS[name]
        subcommands = getattr(command, "commands", {})
        for word in rest.split():
            if word in subcommands:
                command = subcommands[word]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        # Within quotes stands what another command or the scenario is told.
        asked = set(re.findall(r"(?<!\S)(--[a-z][a-z-]*)", re.sub(r"\"[^\"]*\"|'[^']*'", "", rest)))
        assert asked <= known | {"--help"}, line


def test_sections_are_those_of_a_scenario() -> None:
    assert set(NAMES["sections"]) <= set(Scenario.model_fields)
