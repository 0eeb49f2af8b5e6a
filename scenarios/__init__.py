"""What to run: scenarios, the workloads they generate, the traces they replay, catalogs of models and hardware.

scenario = scenarios.load("demo", overrides=["engine.max_num_seqs=8"])
workload = scenarios.generate(scenario)
"""

from scenarios.errors import InputError
from scenarios.generate import generate
from scenarios.load import Override, changed, json_schema, load, loads, names, template
from scenarios.schema import Scenario
from scenarios.workload import Workload

__all__ = [
    "InputError",
    "Override",
    "Scenario",
    "Workload",
    "changed",
    "generate",
    "json_schema",
    "load",
    "loads",
    "names",
    "template",
]
