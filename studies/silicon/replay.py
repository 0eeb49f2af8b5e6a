"""One measured point, run: its closed loop on the simulated clock, with the serving profile of who measured it."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

import scenarios
from calibration.operators.aiconfigurator import load_tables
from calibration.operators.checkpoints import checkpoint
from calibration.operators.compose import compose
from calibration.silicon.constants import Constants, applied
from calibration.silicon.points import Point
from calibration.silicon.scope import hardware_of, model_of, profile_of, replicas_of
from scenarios import serving_profile
from scenarios.arrivals import ClosedLoop
from scenarios.errors import InputError
from scenarios.schema import Scenario
from serving.metrics import latencies
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from studies.progress import Progress

AT_ONCE = 8  # points of one cost model that a process is handed: few enough that an interrupt loses little


@dataclass(frozen=True)
class Prediction:
    """What a point was simulated to be: mean TTFT and TPOT in seconds; None with the reason where it cannot be run."""

    ttft: float | None
    tpot: float | None
    why_not: str | None = None
    preemptions: int = 0


def replay(scenario: Scenario, cost: CostModel, client_overhead: float = 0.0) -> Prediction:
    """Means over all requests of the scenario's closed loop, the first burst included, as the file's own are.

    client_overhead: seconds that the client adds to each TTFT.
    """
    from sim.cluster import simulate

    records = simulate(
        scenario.engine_config(), scenarios.generate(scenario), cost, replicas=scenario.replicas, router=scenario.router
    )
    seconds = latencies(records)
    if not len(seconds["ttft"]) or not len(seconds["tpot"]):
        return Prediction(None, None, "no request of it ever runs: KV memory holds not even one")
    preemptions = int(records.requests["preemptions"].sum())
    return Prediction(
        float(seconds["ttft"].mean()) + client_overhead, float(seconds["tpot"].mean()), preemptions=preemptions
    )


def scenario_of(point: Point) -> tuple[Scenario, float]:
    """The closed loop of a point as its population serves and asks, and the seconds that its client adds to each TTFT.

    Raises:
        InputError: it cannot be served so.
    """
    profile = serving_profile.load(profile_of(point))
    model, hardware, concurrency = model_of(point), hardware_of(point), point.concurrency
    assert model is not None
    assert hardware is not None
    assert concurrency is not None
    replicas = replicas_of(point)
    precision = {"dtype": "fp8"} if point.gemm else {}
    scenario = profile.scenario(
        model=model, hardware=hardware, tensor_parallel_size=point.tensor_parallel, isl=point.input_tokens,
        osl=point.output_tokens, concurrency=concurrency // replicas, engine=precision, name=f"row {point.row}",
    )  # fmt: skip
    if replicas > 1:
        clients = scenario.workload.arrivals
        assert isinstance(clients, ClosedLoop)
        workload = scenario.workload.model_copy(
            update={
                "requests": (scenario.workload.requests or 0) * replicas,
                "arrivals": clients.model_copy(update={"concurrency": concurrency}),
            }
        )
        scenario = scenario.model_copy(update={"replicas": replicas, "workload": workload})
    return scenario, profile.client_overhead


class Costed(NamedTuple):
    """What step costs are composed for; points that share it share a cost model."""

    engine: str
    system: str
    model: str
    tensor_parallel_size: int
    gemm: str
    kv_dtype: str

    @staticmethod
    def of(point: Point) -> Costed:
        fields = serving_profile.load(profile_of(point)).engine
        kv = str(fields.get("kv_cache_dtype", "auto"))
        kv = "bfloat16" if kv == "auto" else kv
        return Costed(point.engine, point.system, point.short_model, point.tensor_parallel, point.gemm, kv)


_COMPOSED: dict[Costed, OperatorProfile] = {}


def _composed_of(costed: Costed, row: Point) -> OperatorProfile:
    if costed not in _COMPOSED:
        _COMPOSED[costed] = _composed(costed, row)
    return _COMPOSED[costed]


def _composed(costed: Costed, row: Point) -> OperatorProfile:
    """The profile of such points, of which `row` is one, without fitted constants."""
    model, hardware = model_of(row), hardware_of(row)
    assert model is not None
    assert hardware is not None
    dtype = "fp8" if costed.gemm else "bfloat16"
    in_blocks = costed.gemm == "fp8_block" or bool(model.num_experts)
    return compose(
        load_tables(costed.system, costed.engine),
        model,
        hardware=hardware,
        tensor_parallel_size=costed.tensor_parallel_size,
        dtype=dtype,
        kv_dtype=costed.kv_dtype,
        **checkpoint(model, dtype, costed.engine, in_blocks=in_blocks),
        cross_validate=False,
    )


@dataclass(frozen=True)
class Job:
    """A point with the constants that its step costs take."""

    point: Point
    constants: Constants

    def key(self) -> str:
        """Hash of all that its prediction depends on: configuration, constants, tables and code."""
        content = [
            self.point.configuration,
            self.point.concurrency,
            profile_of(self.point),
            asdict(self.constants),
            _code(),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]


def predict(jobs: Sequence[Job]) -> list[Prediction]:
    """Runs points one after another; what they share is built once."""
    return [_predict(job) for job in jobs]


def _predict(job: Job) -> Prediction:
    try:
        scenario, overhead = scenario_of(job.point)
        return replay(scenario, cost_of(job), overhead + job.constants.request)
    except (InputError, ValidationError) as error:
        return Prediction(None, None, str(error).splitlines()[0])


def cost_of(job: Job) -> OperatorCost:
    """Step costs of a point."""
    costed = Costed.of(job.point)
    return OperatorCost(applied(_composed_of(costed, job.point), job.constants))


def run_all(
    jobs: Sequence[Job],
    folder: Path,
    *,
    processes: int = 2,
    tell: Progress | None = None,
    run: Callable[[Sequence[Job]], list[Prediction]] = predict,
) -> list[Prediction]:
    """Predictions of all jobs, in their order. Each is written to `folder` when it is known and never computed again while
    nothing that it depends on changes; an interrupted call goes on where it stopped.
    """
    store = Store(folder / "points.jsonl")
    keys = [job.key() for job in jobs]
    todo = {key: job for key, job in zip(keys, jobs, strict=True) if key not in store.known}
    done, total = 0, len(todo)
    for finished in _in_processes(_chunks(todo), processes, run):
        store.add(finished)
        done += len(finished)
        if tell is not None:
            tell(f"simulating {total} points", done / total)
    return [store.known[key] for key in keys]


class Store:
    """Predictions by key, one a line of a file. A line that an interrupt cut short is ignored and written again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Prediction] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    row = json.loads(line)
                    key = row.pop("key")
                    self.known[key] = Prediction(**row)
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue

    def add(self, found: Mapping[str, Prediction]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"key": key, **asdict(prediction)}) for key, prediction in found.items()]
        with self.path.open("a", encoding="utf-8") as file:
            # A line of its own whatever a cut one before it left.
            file.write("\n" + "\n".join(lines) + "\n")
        self.known.update(found)


def _chunks(todo: Mapping[str, Job]) -> list[dict[str, Job]]:
    """Jobs of one cost model together, a few at a time."""
    by: dict[object, dict[str, Job]] = {}
    for key, job in todo.items():
        by.setdefault((Costed.of(job.point), job.constants), {})[key] = job
    found = []
    for group in by.values():
        items = list(group.items())
        found += [dict(items[i : i + AT_ONCE]) for i in range(0, len(items), AT_ONCE)]
    return found


def _in_processes(
    chunks: Sequence[Mapping[str, Job]], processes: int, run: Callable[[Sequence[Job]], list[Prediction]]
) -> Iterator[dict[str, Prediction]]:
    """Finished chunks as they come."""
    if processes == 1 or len(chunks) < 2:
        for chunk in chunks:
            yield dict(zip(chunk, run(list(chunk.values())), strict=True))
        return
    with ProcessPoolExecutor(processes) as pool:
        waiting: dict[Future[list[Prediction]], Mapping[str, Job]] = {}
        try:
            left = iter(chunks)
            for chunk in left:
                waiting[pool.submit(run, list(chunk.values()))] = chunk
                if len(waiting) < 2 * processes:
                    continue
                yield from _collected(waiting)
            while waiting:
                yield from _collected(waiting)
        finally:
            pool.shutdown(cancel_futures=True)


def _collected(waiting: dict[Future[list[Prediction]], Mapping[str, Job]]) -> Iterator[dict[str, Prediction]]:
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        chunk = waiting.pop(future)
        yield dict(zip(chunk, future.result(), strict=True))


@cache
def _code() -> str:
    """Hash of the sources, the serving profiles and the version of the tables that predictions depend on."""
    found = hashlib.sha256(metadata.version("aiconfigurator-core").encode())
    for package in ("serving", "scenarios", "scenarios.serving_profiles", "sim", "calibration.operators"):
        for entry in sorted(resources.files(package).iterdir(), key=lambda e: e.name):
            if entry.name.endswith((".py", ".yaml")):
                found.update(entry.read_bytes())
    found.update(resources.files("calibration.silicon").joinpath("scope.py").read_bytes())
    # The constants themselves are part of each key: those of one engine say nothing about the others.
    for part in (applied, replay, scenario_of, _composed):
        found.update(inspect.getsource(part).encode())
    return found.hexdigest()
