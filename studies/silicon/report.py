"""What came of simulating measured points: errors by group, targets, worst points, and what was not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from calibration import validate as judged
from calibration.silicon import constants
from calibration.silicon.points import Point, Remeasured
from calibration.silicon.scope import EXCLUSIONS, exclusion_of, model_of, population_of
from studies.reports.tables import Table, number
from studies.silicon.replay import Prediction

VARIANTS = {"data sheet": lambda engine: constants.DATA_SHEET, "fitted": constants.constants_of}
"""Step costs without a fitted constant, and with those of the engine."""

BAND = (4, 16, 64)  # upper ends of the bands of concurrency that are reported together; above the last is one more


class Target(NamedTuple):
    """Largest MAPE of the held-out points that are not excluded."""

    name: str
    variant: str
    ttft: float
    tpot: float
    applies: Callable[[Point], bool]


def _hopper(point: Point) -> bool:
    return point.system in ("h100_sxm", "h200_sxm") and is_dense(point)


TARGETS = (
    Target("vLLM, nothing fitted", "data sheet", 0.13, 0.12, lambda p: _hopper(p) and p.engine == "vllm"),
    Target("vLLM", "fitted", 0.10, 0.04, lambda p: _hopper(p) and p.engine == "vllm"),
    Target("TensorRT-LLM, Llama-70B", "fitted", 0.08, 0.05,
           lambda p: _hopper(p) and p.engine == "trtllm" and "70B" in p.model),
    Target("SGLang, Qwen3-32B", "fitted", 0.11, 0.05,
           lambda p: _hopper(p) and p.engine == "sglang" and "Qwen3-32B" in p.model),
)  # fmt: skip
"""Of dense Llama and Qwen models on H100 and H200."""


def is_dense(point: Point) -> bool:
    """Whether every token passes through all weights."""
    model = model_of(point)
    return model is not None and not model.num_experts


class Cell(NamedTuple):
    """Errors of a group of points: means of |simulated - measured| / measured, and the same signed."""

    n: int
    mape_ttft: float
    mape_tpot: float
    signed_ttft: float
    signed_tpot: float
    median_ttft: float
    median_tpot: float


@dataclass
class SiliconReport:
    """points: those that were to be run, in the file's order. predictions: by variant, in the same order. not_run: points that are
    not simulated, by reason, system, engine and model. noise: how far repeated measurements differ."""

    points: list[Point]
    predictions: dict[str, list[Prediction]]
    not_run: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    noise: Remeasured | None = None

    def cell(self, variant: str, rows: Iterable[int]) -> Cell | None:
        """Errors of these rows of `points`, None if none of them could be run."""
        found = [
            (p.ttft / self.points[i].ttft - 1, p.tpot / self.points[i].tpot - 1)
            for i in rows
            if (p := self.predictions[variant][i]).ttft is not None and p.tpot is not None
        ]
        if not found:
            return None
        errors = np.array(found)
        size = np.abs(errors)
        return Cell(len(found), *size.mean(axis=0), *errors.mean(axis=0), *np.median(size, axis=0))

    def _kept(self) -> list[int]:
        return [i for i, point in enumerate(self.points) if exclusion_of(point) is None]

    def _excluded(self) -> list[int]:
        return [i for i, point in enumerate(self.points) if exclusion_of(point) is not None]

    def grouped(self, variant: str, by: dict[str, Callable[[Point], str]], rows: Iterable[int]) -> list[dict[str, Any]]:
        """Errors of these rows of `points` by the values of `by` and half."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for i in rows:
            point = self.points[i]
            groups.setdefault((*(name(point) for name in by.values()), point.half), []).append(i)
        found = []
        for key, members in sorted(groups.items()):
            cell = self.cell(variant, members)
            if cell is not None:
                found.append(dict(zip((*by, "half"), key, strict=True)) | cell._asdict())
        return found

    def targets(self) -> list[dict[str, Any]]:
        """Each target with what was reached, without and with the points excluded by name."""
        found = []
        for target in TARGETS:
            rows = [i for i, p in enumerate(self.points) if p.half == "held-out" and target.applies(p)]
            kept = [i for i in rows if exclusion_of(self.points[i]) is None]
            cell, whole = self.cell(target.variant, kept), self.cell(target.variant, rows)
            if cell is None or whole is None:
                continue
            met = cell.mape_ttft <= target.ttft and cell.mape_tpot <= target.tpot
            limits = {"name": target.name, "constants": target.variant, "ttft": target.ttft, "tpot": target.tpot}
            found.append(limits | {"met": met, "reached": cell._asdict(), "with_excluded": whole._asdict()})
        return found

    def outcome(self) -> list[judged.OutcomeRow]:
        """The held-out dense points on H100 and H200 as one: geometric means, since they span three orders of magnitude. The noise
        is the median difference of repeated measurements."""
        rows = [
            i for i, p in enumerate(self.points)
            if p.half == "held-out" and _hopper(p) and exclusion_of(p) is None and self.predictions["fitted"][i].ttft
        ]  # fmt: skip
        found = []
        for name in ("ttft", "tpot") if rows else ():
            live, simulated = (
                float(np.exp(np.mean(np.log([getattr(of[i], name) for i in rows])))) * 1e3
                for of in (self.points, self.predictions["fitted"])
            )
            noise = None if self.noise is None else getattr(self.noise, f"{name}_median")
            error = simulated / live - 1
            found.append(
                judged.OutcomeRow(f"mean_{name}_ms", live, simulated, error, noise, judged.verdict(error, noise))
            )
        return found

    def worst(self, count: int = 10) -> list[dict[str, Any]]:
        """The held-out points farthest off in TTFT or TPOT, with the fitted constants; excluded ones say so."""
        found = []
        for point, p in zip(self.points, self.predictions["fitted"], strict=True):
            if point.half == "held-out" and p.ttft is not None and p.tpot is not None:
                errors = p.ttft / point.ttft - 1, p.tpot / point.tpot - 1
                exclusion = exclusion_of(point)
                found.append(
                    {
                        "point": point.label, "row": point.row, "error_ttft": errors[0], "error_tpot": errors[1],
                        "ttft": point.ttft, "tpot": point.tpot, "simulated_ttft": p.ttft, "simulated_tpot": p.tpot,
                        "excluded": exclusion.name if exclusion else None,
                    }
                )  # fmt: skip
        # A prediction of half is as wrong as one of double.
        return sorted(found, key=_farness, reverse=True)[:count]

    @property
    def verdict(self) -> judged.Verdict:
        """`pass` if every target that has points is met, `fail` if not, `void` without any."""
        found = self.targets()
        return "void" if not found else "pass" if all(target["met"] for target in found) else "fail"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; errors are fractions."""
        axes: dict[str, dict[str, Callable[[Point], str]]] = {
            "groups": {"system": lambda p: p.system, "engine": lambda p: p.engine, "models": _kind},
            "by_model": {"engine": lambda p: p.engine, "model": lambda p: p.short_model},
            "by_precision": {"engine": lambda p: p.engine, "precision": lambda p: p.precision},
            "by_concurrency": {"engine": lambda p: p.engine, "concurrency": _band},
            "by_population": {"engine": lambda p: p.engine, "population": population_of},
        }
        variants = {
            variant: {
                treatment: {name: self.grouped(variant, by, rows) for name, by in axes.items()}
                for treatment, rows in (("without_excluded", self._kept()), ("with_excluded", range(len(self.points))))
            }
            for variant in VARIANTS
        }
        failed = Counter(p.why_not for p in self.predictions["fitted"] if p.why_not)
        return {
            "verdict": self.verdict,
            "points": len(self.points),
            "outcome": [row._asdict() for row in self.outcome()],
            **variants["fitted"]["without_excluded"],
            "targets": self.targets(),
            "variants": variants,
            "worst": self.worst(),
            "exclusions": [
                {"name": e.name, "why": e.why, "points": sum(e.applies(p) for p in self.points)} for e in EXCLUSIONS
            ],
            "not_run": [
                {"why": why, "system": system, "engine": engine, "model": model, "points": n}
                for (why, system, engine, model), n in sorted(self.not_run.items())
            ],
            "failed": dict(failed),
            "constants": {engine: constants.listed(found) for engine, found in constants.FITTED.items()},
            "noise": None if self.noise is None else self.noise._asdict(),
        }

    def tables(self) -> list[Table]:
        """The same for people: targets first, then groups, worst cells, and what was not run."""
        tables = [self._targets_table(), *self._group_tables(), self._worst_table(), self._not_run_table()]
        return [table for table in tables if table.rows]

    @property
    def sentence(self) -> str:
        found = self.targets()
        met = sum(target["met"] for target in found)
        said = f"{len(self.points):,} points simulated, {self.not_run.total():,} not. "
        if not found:
            return said + "No held-out point of a target is among them."
        return (
            said + f"{met} of {len(found)} targets are met on points that were never fitted. Verdict: {self.verdict}."
        )

    def _targets_table(self) -> Table:
        rows = []
        for t in self.targets():
            for reached, what in ((t["reached"], ""), (t["with_excluded"], " with excluded")):
                verdict = ("met" if t["met"] else "missed") if not what else ""
                pairs = [
                    f"{_share(reached[f'mape_{name}'])}" + (f" of {t[name]:.0%}" if not what else "")
                    for name in ("ttft", "tpot")
                ]
                rows.append((f"{t['name']}{what}", str(reached["n"]), *pairs, verdict))
        note = ""
        if self.noise is not None:
            noise = self.noise
            note = (
                f"{noise.configurations} configurations were measured more than once: TTFT differs by {_share(noise.ttft_median)} "
                f"(median) and {_share(noise.ttft_p90)} (p90), TPOT by {_share(noise.tpot_median)} and {_share(noise.tpot_p90)}"
            )
        return Table("Held-out points, dense models on H100 and H200", ("", "n", "TTFT", "TPOT", ""), rows, note)

    def _group_tables(self) -> list[Table]:
        axes: dict[str, Callable[[Point], str]] = {
            "engine": lambda p: p.engine, "system": lambda p: p.system.removesuffix("_sxm"), "model": lambda p: p.short_model,
            "precision": lambda p: p.precision,
        }  # fmt: skip
        tables = []
        for variant in VARIANTS:
            groups = [
                (excluded, group)
                for excluded, treated in ((False, self._kept()), (True, self._excluded()))
                for group in self.grouped(variant, axes, treated)
            ]
            rows = [
                (
                    " ".join(g[name] for name in axes) + (" (excluded)" if excluded else ""), g["half"], str(g["n"]),
                    _share(g["mape_ttft"]), _share(g["mape_tpot"]), _share(g["signed_ttft"], True),
                    _share(g["signed_tpot"], True),
                )
                for excluded, g in groups
            ]  # fmt: skip
            head = ("", "half", "n", "TTFT", "TPOT", "TTFT +-", "TPOT +-")
            note = "mean absolute errors, and mean signed ones (+-)"
            tables.append(Table(f"Errors by group, constants: {variant}", head, rows, note))
        return tables

    def _worst_table(self) -> Table:
        rows = [
            (
                w["point"] + (" (excluded)" if w["excluded"] else ""), _share(w["error_ttft"], True),
                _share(w["error_tpot"], True), number(w["ttft"] * 1e3), number(w["simulated_ttft"] * 1e3),
            )
            for w in self.worst()
        ]  # fmt: skip
        return Table("Worst held-out points", ("", "TTFT", "TPOT", "TTFT (ms)", "simulated"), rows)

    def _not_run_table(self) -> Table:
        reasons: Counter[str] = Counter()
        for (why, *_), n in self.not_run.items():
            reasons[why] += n
        reasons.update(p.why_not for p in self.predictions["fitted"] if p.why_not)
        return Table("Not simulated", ("", "points"), [(why, str(n)) for why, n in reasons.most_common()])


def _kind(point: Point) -> str:
    return "dense" if is_dense(point) else "MoE"


def _band(point: Point) -> str:
    clients = point.concurrency or 0
    low = 1
    for high in BAND:
        if clients <= high:
            return f"{low} to {high}"
        low = high + 1
    return f"above {BAND[-1]}"


def _farness(worst: dict[str, Any]) -> float:
    return max(abs(float(np.log1p(worst[name]))) for name in ("error_ttft", "error_tpot"))


def _share(share: float, signed: bool = False) -> str:
    """To a tenth of a percent: targets are told apart by that."""
    return f"{share * 100:{'+' if signed else ''}.1f} %"
