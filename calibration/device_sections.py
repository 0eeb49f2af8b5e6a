"""What the device check measures, section by section. Anything on tensors is `gpu_backend`'s; here it is chosen and put in order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import gpu_backend
from calibration import validate as judged
from calibration.calibrate import Calibration
from calibration.device_lab import PRECISIONS, Lab, Size
from calibration.measure import grid
from calibration.resumable import Item, Row, Section
from scenarios.generate import generate
from scenarios.models import BYTES, ModelSpec
from scenarios.schema import Scenario
from scenarios.workload import Workload
from serving.metrics import summary
from serving.plan import StepShape
from serving.records import Records
from sim.cluster import run_on_executors, simulate
from sim.profile import Profile
from sim.profile_cost import ProfileCost
from sim.replay import replay

SECTIONS = ("environment", "ceilings", "kernels", "kernel_times", "steps", "grid", "live")
NEEDS = {
    "kernels": ("environment",),
    "kernel_times": ("environment", "ceilings"),
    "steps": ("environment", "ceilings"),
    "grid": ("environment",),
    "live": ("environment", "grid"),
}
"""Sections that others are built upon: they are done too where their results are not there yet."""


def sections(device: str, size: Size, done: Mapping[str, Mapping[str, Row]]) -> dict[str, Section]:
    """All sections by name. done: rows of those that have been run or found, filled by the caller as it goes."""
    lab = Lab(device, size)
    common: Row = {"device": device, "kernels": lab.kernels, "code": _code()}

    def section(name: str, items: Callable[[Mapping[str, Row]], Iterator[Item]], **settings: Any) -> Section:
        return Section(name, common | settings, items)

    steps = {
        "models": [spec.name for spec in size.models], "engine": asdict(size.engine), "decodes": size.decodes,
        "prefills": size.prefills, "mixed": size.mixed,
    }  # fmt: skip
    calibrated = {"model": size.models[-1].name, "engine": asdict(size.engine)}
    live = {"requests": size.requests, "lengths": size.lengths, "rate": size.rate}
    made = (
        section("environment", lambda rows: _environment(lab, rows)),
        section("ceilings", lambda rows: _ceilings(lab), bytes=size.copy_bytes, matmul=size.matmul),
        section("kernels", lambda rows: _kernels(lab)),
        section("kernel_times", lambda rows: _kernel_times(lab, done)),
        section("steps", lambda rows: _steps(lab, done), **steps),
        section("grid", lambda rows: _grid(lab, rows), **calibrated, grid=size.grid, rounds=size.rounds),
        section("live", lambda rows: _live(lab, rows, done), **calibrated, **live),
    )
    return {each.name: each for each in made}


def _code() -> str:
    """Short hash of all that runs on the device: what was measured with other kernels is measured again."""
    found = hashlib.sha256()
    root = Path(str(gpu_backend.__file__)).parent
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def _environment(lab: Lab, rows: Mapping[str, Row]) -> Iterator[Item]:
    """What runs; and on a GPU its kernels compiled, by as many processes as there are cores for."""
    from gpu_backend.checks import ceilings, precompile

    yield Item("environment", 1.0, lambda: ceilings.environment(lab.device), lab.absent)
    if lab.device == "cuda":
        spread = max(1, min(6, (os.cpu_count() or 1) // 2))
        jobs = precompile.jobs(lab.size.models, lab.size.engine, PRECISIONS, spread)
        yield Item("compiled", 60.0, lambda: dict(precompile.compile_in_parallel(jobs, lab.device)), lab.absent)
        lab.compiled = "compiled" in rows


def _ceilings(lab: Lab) -> Iterator[Item]:
    from gpu_backend.checks import ceilings

    size, seconds = lab.size, 3.0 if lab.device == "cuda" else 1.0
    yield Item("copy", seconds, lambda: ceilings.copy_bandwidth(lab.device, size.copy_bytes), lab.absent)
    yield Item("matmul", seconds, lambda: ceilings.matmul_rate(lab.device, size.matmul), lab.absent)


def _kernels(lab: Lab) -> Iterator[Item]:
    from gpu_backend.checks.kernel_cases import checks

    on_gpu = lab.device == "cuda"
    for check in checks("full" if on_gpu else "interpreted" if lab.kernels == "triton" else "small"):
        seed = int.from_bytes(os.urandom(4), "little")

        def run(check: Any = check, seed: int = seed) -> Row:
            return dict(check.run(lab.device, lab.kernels, seed))

        seconds = min(check.seconds, 0.4) if lab.compiled or not on_gpu else check.seconds
        yield Item(check.name, seconds, run, lab.absent)


def _kernel_times(lab: Lab, done: Mapping[str, Mapping[str, Row]]) -> Iterator[Item]:
    from gpu_backend.checks.ceilings import release
    from gpu_backend.checks.kernel_times import seconds_of, timings

    reached = _reached(done)
    for timing in timings(small=lab.device != "cuda"):

        def run(timing: Any = timing) -> Row:
            assert reached is not None
            try:
                # How long the interpreter takes says nothing.
                return dict(timing.run(lab.device, "triton" if lab.device == "cuda" else "torch", *reached))
            finally:
                release()

        seconds = seconds_of(timing, lab.device) + (0.0 if lab.compiled or lab.device == "cpu" else 1.5)
        yield Item(timing.name, seconds, run, lab.absent or _without_ceilings(reached))


def _reached(done: Mapping[str, Mapping[str, Row]]) -> tuple[float, float] | None:
    """bytes/s of a copy and FLOP/s of a matrix product as measured, None if they were not."""
    rows = done.get("ceilings", {})
    if "copy" not in rows or "matmul" not in rows:
        return None
    return rows["copy"]["bytes_per_s"], rows["matmul"]["flop_per_s"]


def _without_ceilings(reached: tuple[float, float] | None) -> str | None:
    return None if reached else "the ceilings that it is held against were not measured"


# --- steps ---


def step_shapes(size: Size) -> dict[str, StepShape]:
    """The steps that are timed, by what they are."""
    shapes = {}
    for batch, context in size.decodes:
        shapes[f"decode {batch} x {context}"] = StepShape((), batch, batch * context, context, batch)
    for tokens in size.prefills:
        shapes[f"prefill {tokens}"] = StepShape(((tokens, 0),), sampled=1)
    for tokens, before, batch, context in size.mixed:
        after = f" after {before}" if before else ""
        name = f"mixed {tokens}{after} + {batch} x {context}"
        shapes[name] = StepShape(((tokens, before),), batch, batch * context, context, batch + 1)
    return shapes


def step_floor(
    spec: ModelSpec, shape: StepShape, weights: str, kv: str, bandwidth: float, rate: float
) -> dict[str, float]:
    """Bytes that a step must read at least (weights, KV) and FLOP that it must compute, and the seconds of the larger."""
    kept = "bfloat16" if BYTES[weights] < 2 else weights
    # Embeddings are looked up.
    unread = 0.0 if spec.tie_embeddings else spec.vocab_size * spec.hidden_size * BYTES[kept]
    context = shape.decode_context + sum(c for _, c in shape.prefill) + shape.tokens
    nbytes = spec.weight_bytes(weights) - unread + context * spec.kv_bytes_per_token(kv)
    head = spec.vocab_size * spec.hidden_size
    layers = spec.active_parameters() - head * (1 if spec.tie_embeddings else 2)
    pairs = shape.prefill_attention + shape.decode_context + shape.decode_sequences
    flop = 2.0 * (layers * shape.tokens + head * shape.sampled) + spec.attention_flops(pairs)
    return {"bytes": nbytes, "flop": flop, "floor": max(nbytes / bandwidth, flop / rate)}


def _steps(lab: Lab, done: Mapping[str, Mapping[str, Row]]) -> Iterator[Item]:
    reached = _reached(done)
    repeats = 5
    for spec in lab.size.models:
        for precision in PRECISIONS:
            for name, shape in step_shapes(lab.size).items():

                def run(spec: Any = spec, precision: str = precision, name: str = name, shape: Any = shape) -> Row:
                    assert reached is not None
                    engine = lab.engine(spec, precision)
                    engine.measure(shape)
                    seconds = engine.measure(shape, repeats) / 1e9
                    info = engine.info()
                    floor = step_floor(spec, shape, str(info["dtype"]), str(info["kv_dtype"]), *reached)
                    row = {"model": spec.name, "precision": info["dtype"], "step": name, "shape": shape._asdict()}
                    return row | {"seconds": seconds, "repeats": repeats, **floor, "of_floor": floor["floor"] / seconds}

                # A step costs the host as much again as the device, to draw texts and make up requests.
                steps = 2e-9 * lab.cost[spec.name].step_ns(shape) * (repeats + 1)
                seconds = lab.engine_seconds(spec, precision) + 0.2 + steps
                yield Item(f"{spec.name} {precision}: {name}", seconds, run, lab.absent or _without_ceilings(reached))


# --- calibration ---


class _Recorded:
    """A stepper that first repeats what was measured before, then goes on measuring."""

    def __init__(self, lab: Lab, spec: ModelSpec) -> None:
        self.lab, self.spec = lab, spec
        self.before: list[int] = []
        self.fresh: list[int] = []
        self.described: dict[str, object] = {}

    def measure(self, shape: StepShape) -> int:
        if self.before:
            return self.before.pop()
        engine = self.lab.engine(self.spec, PRECISIONS[-1])
        self.described = engine.info()
        self.fresh.append(int(engine.measure(shape)))
        return self.fresh[-1]

    def info(self) -> dict[str, object]:
        return self.described


def _grid(lab: Lab, rows: Mapping[str, Row]) -> Iterator[Item]:
    """Rounds of step shapes as `calibration.calibrate` makes them, each a row, and the fit."""
    size, spec = lab.size, lab.size.models[-1]
    stepper = _Recorded(lab, spec)
    shapes = grid(size.engine, size.grid)
    made = Calibration(stepper, name=spec.name, model=spec.name, engine=size.engine, shapes=shapes)
    lasts = 2e-9 * sum(lab.cost[spec.name].step_ns(shape) for shape in shapes) + 2.0

    def measure() -> Row:
        stepper.fresh = []
        for _ in range(made.steps):
            made.step()
        return {"ns": stepper.fresh, "info": stepper.described}

    counted = -1
    for turn in range(size.rounds + 1):
        name = f"round {turn}" if turn else "round 0, which warms up"
        stepper.fresh = []
        yield Item(name, lasts + lab.engine_seconds(spec, PRECISIONS[-1]), measure, lab.absent)
        if name not in rows:
            break
        if not stepper.fresh:  # of an earlier run
            stepper.before, stepper.described = rows[name]["ns"][::-1], rows[name]["info"]
            for _ in range(made.steps):
                made.step()
        counted = turn

    def fit() -> Row:
        dtype = str(stepper.described["dtype"])
        made.name = f"{spec.name}-{dtype} on {stepper.described['device_name']}"
        profile = made.profile()
        return {"profile": profile.model_dump(mode="json"), "hash": profile.hash()}

    if counted >= 1:
        missing = None if _can_fit() else (
            "SciPy, which fits it, is not installed here; the measurements are kept: run this section again where it is"
        )  # fmt: skip
        yield Item(f"profile of {counted} rounds", 5.0 if lab.device == "cuda" else 1.0, fit, missing)


def _can_fit() -> bool:
    try:
        import scipy.optimize  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def profile_of(rows: Mapping[str, Row]) -> Profile | None:
    """The profile that the rows of the grid hold, None if there is none."""
    found = [row["profile"] for row in rows.values() if "profile" in row]
    return Profile.model_validate(found[-1]) if found else None


# --- live ---


def workload_of(size: Size) -> Workload:
    """Chat-like requests whose prompts begin with one of four shared texts."""
    prompt, answer = size.lengths
    engine = asdict(size.engine)
    bounds = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks", "block_size")
    scenario = Scenario.model_validate(
        {
            "name": "device check", "model": asdict(size.models[-1]), "hardware": size.hardware,
            "engine": {name: engine[name] for name in bounds},
            "workload": {
                "requests": size.requests,
                "arrivals": {"process": "poisson", "rate": size.rate},
                "prompts": {"kind": "shared_prefix", "num_prefixes": 4, "prefix_tokens": 2 * (prompt // 16) + 1},
                "input": {"distribution": "lognormal", "median": prompt, "sigma": 0.6, "min": 1, "max": 4 * prompt},
                "output": {"distribution": "lognormal", "median": answer, "sigma": 0.6, "min": 1, "max": 4 * answer},
            },
        }
    )  # fmt: skip
    return generate(scenario)


def _live(lab: Lab, rows: Mapping[str, Row], done: Mapping[str, Mapping[str, Row]]) -> Iterator[Item]:
    """The same requests twice on the device, whose measured steps advance the clock, and once by the profile."""
    size, spec = lab.size, lab.size.models[-1]
    workload = workload_of(size)

    def execute() -> Row:
        records = run_on_executors(size.engine, workload, [lab.engine(spec, PRECISIONS[-1])])
        again = replay(records, workload, size.engine, router="round_robin")
        figures = summary(records, (50, 90, 95, 99), None, size.engine)
        schedule = {"identical": again.identical, "steps": again.steps, "first_difference": again.first_difference}
        return {"schedule": schedule, "summary": _plain(figures), "records": _columns(records)}

    steps = simulate(size.engine, workload, lab.cost[spec.name]).steps
    lasts = 1.2e-9 * float((steps["end_ns"] - steps["start_ns"]).sum()) + 1e-3 * len(steps["step"])
    names = [f"execution {i}" for i in (1, 2)]
    for name in names:
        yield Item(name, lasts + lab.engine_seconds(spec, PRECISIONS[-1]), execute, lab.absent)
    runs = [rows[name] for name in names if name in rows]
    if not runs:
        return
    profile = profile_of(done.get("grid", {}))

    def predict() -> Row:
        assert profile is not None
        cost = ProfileCost(profile)
        predicted = simulate(size.engine, workload, cost)
        figures = summary(predicted, (50, 90, 95, 99), None, size.engine)
        outcome = judged.outcome([run["summary"] for run in runs], figures)
        steps = {
            name: np.concatenate([np.array(run["records"]["steps"][name], dtype=np.int64) for run in runs])
            for name in runs[0]["records"]["steps"]
        }
        errors = judged.step_errors(steps, cost, worst=3)
        return {
            "outcome": [row._asdict() for row in outcome], "verdict": judged.overall(outcome),
            "steps": {kind: found._asdict() for kind, found in errors.by_kind.items()},
            "worst": [step._asdict() for step in errors.worst], "extrapolated_steps": errors.extrapolated,
        }  # fmt: skip

    name = f"prediction of {len(runs)} executions" + ("" if profile is None else f" by profile {profile.hash()}")
    yield Item(name, 3.0, predict, None if profile else "there is no profile to predict with: section grid has none")


def _plain(figures: Mapping[str, Any]) -> Row:
    """Numbers of a summary."""
    return {name: value for name, value in figures.items() if isinstance(value, int | float)}


def _columns(records: Records) -> Row:
    parts = {"requests": records.requests, "steps": records.steps}
    return {part: {name: column.tolist() for name, column in columns.items()} for part, columns in parts.items()}
