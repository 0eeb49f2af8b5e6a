"""Runs and studies for people: simulate and execute scenarios, compare, sweep and size them, with reports and figures.

run = studies.simulate("demo")
run.summary["mean_ttft_ms"]
run.frame()
studies.figures.ttft_cdf(run)
studies.save(run, "out/demo")
studies.highest_load("demo", "ttft_p95<=1s").interval
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from studies import figures, perfetto
    from studies.capacity.search import highest_load
    from studies.comparison import compare
    from studies.questions import ask
    from studies.replications import replicate
    from studies.reports.report import save
    from studies.results import Run, load
    from studies.run import execute, simulate
    from studies.sweeps.results import load_sweep
    from studies.sweeps.run import sweep
    from studies.uncertainty.decision import decide
    from studies.validation import validate

__all__ = [
    "Run",
    "ask",
    "compare",
    "decide",
    "execute",
    "figures",
    "highest_load",
    "load",
    "load_sweep",
    "perfetto",
    "replicate",
    "save",
    "simulate",
    "sweep",
    "validate",
]

_HOMES = {
    "Run": "results",
    "ask": "questions",
    "compare": "comparison",
    "decide": "uncertainty.decision",
    "execute": "run",
    "highest_load": "capacity.search",
    "load": "results",
    "load_sweep": "sweeps.results",
    "replicate": "replications",
    "save": "reports.report",
    "simulate": "run",
    "sweep": "sweeps.run",
    "validate": "validation",
}
_MODULES = ("figures", "perfetto")


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for: a simulation does not pay for what validations need."""
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"studies.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'studies' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"studies.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
