"""What one request did to all others: the same run again without it, under common random numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError
from scenarios.workload import Workload
from serving.records import Records
from studies.aspects import economics, pools
from studies.explaining.run_parts import scenario_of
from studies.reports.tables import milliseconds, number
from studies.results import Run
from studies.run import simulate


@dataclass(frozen=True)
class Without:
    """A run against the same run without one request.

    Args:
        delayed: other requests that finished later because of it; earlier: those that finished sooner. Of those that finished in both.
        e2e_ns, ttft_ns: by how much it delayed the others in sum, ns; what came earlier counts against it.
        worst, worst_ns: the request whose end it delayed most, and by how much; -1 where nobody was.
        lost: others that finished only without it; saved: only with it.
        busy_ns: engine time of the run that would not have been without it, all replicas.
        usd: the price of that engine time; None where no price is stated.
        charged_ns, charged_usd: its own part of the steps that it was in, as the bill has it; None where no price is stated.
        prompt_tokens, output_tokens: of the request.
    """

    request: int
    prompt_tokens: int
    output_tokens: int
    delayed: int
    earlier: int
    e2e_ns: int
    ttft_ns: int
    worst: int
    worst_ns: int
    lost: int
    saved: int
    busy_ns: int
    usd: float | None
    charged_ns: int | None = None
    charged_usd: float | None = None

    @property
    def sentence(self) -> str:
        """The same in words."""
        who = f"Request {self.request} ({number(self.prompt_tokens)} prompt tokens, {number(self.output_tokens)} answer tokens)"
        if not self.delayed:
            said = f"{who} delayed nobody"
        else:
            others = f"{number(self.delayed)} other{'s' if self.delayed > 1 else ''}"
            total = (
                f" by {milliseconds(self.e2e_ns / 1e6)} in all"
                if self.e2e_ns >= 0
                else f"; yet all together end {milliseconds(-self.e2e_ns / 1e6)} earlier"
            )
            when = " earlier" if self.ttft_ns < 0 else " later" if self.e2e_ns < 0 else ""
            first = f"{milliseconds(abs(self.ttft_ns) / 1e6)}{when}"
            said = f"{who} delayed {others}{total} (first tokens by {first}; request {self.worst} most, by {milliseconds(self.worst_ns / 1e6)})"
        if self.earlier:
            said += f"; {number(self.earlier)} finished earlier with it"
        if self.lost or self.saved:
            said += f"; {number(self.lost)} finish only without it, {number(self.saved)} only with it"
        more = "less" if self.busy_ns >= 0 else "more"
        said += ". "
        if self.charged_ns is not None:
            said += f"It is charged {milliseconds(self.charged_ns / 1e6)} of engine time (${self.charged_usd:.2g}); w"
        else:
            said += "W"
        return said + f"ithout it engines run {milliseconds(abs(self.busy_ns) / 1e6)} {more}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "request": self.request,
            "delayed": self.delayed,
            "earlier": self.earlier,
            "delay_e2e_ms": self.e2e_ns / 1e6,
            "delay_ttft_ms": self.ttft_ns / 1e6,
            "worst_request": self.worst,
            "worst_delay_ms": self.worst_ns / 1e6,
            "finish_only_without": self.lost,
            "finish_only_with": self.saved,
            "engine_time_ms": self.busy_ns / 1e6,
            "usd_marginal": self.usd,
            "charged_ms": None if self.charged_ns is None else self.charged_ns / 1e6,
            "usd_charged": self.charged_usd,
            "sentence": self.sentence,
        }


def without(run: Run, workload: Workload, request: int) -> Without:
    """Simulates the workload of a run without one request. Of an execution, both runs are simulated.

    Args:
        workload: what the run was sent. request: its row; of a further try, the row of its first.

    Raises:
        InputError: there is no such request, or it was never sent; a file that the scenario needs has gone.
    """
    row = request % len(workload) if 0 <= request < len(run.records.requests["status"]) else request
    if not 0 <= row < len(workload):
        raise InputError(f"--without {request}: found no such request; there are 0 to {len(workload) - 1:,}")
    if run.records.requests["status"][row] < 0:
        raise InputError(f"--without {request}: it was never sent in this run")
    scenario = scenario_of(run)
    costs = run.cost or pools.costs_of(scenario)
    base = run if run.info["way"] == "simulate" else simulate(scenario, workload=workload, cost=costs)
    left = simulate(scenario, workload=workload.without(row), cost=costs)
    usd_per_hour = np.array([pools.price(view) for view in scenario.of_pools() for _ in range(view.replicas)])
    found = _compared(base.records, left.records, row, len(workload), usd_per_hour)
    account = economics.bill(scenario, base.records, pools.costs_of(scenario, costs))
    if account is None or isinstance(account, str):
        return found
    tries = slice(row, None, len(workload))
    charged = int(account.charges.total_ns[tries].sum())
    return replace(found, charged_ns=charged, charged_usd=float(account.usd[tries].sum()))


def _compared(a: Records, b: Records, row: int, n: int, usd_per_hour: NDArray[np.float64]) -> Without:
    others = np.arange(len(a.requests["status"])) % n != row
    both = a.finished & b.finished & others

    def delays(column: str) -> NDArray[np.int64]:
        first = np.arange(len(both)) % n
        return _since_intent(a, column, first)[both] - _since_intent(b, column, first)[both]

    e2e, ttft = delays("finish_ns"), delays("first_token_ns")
    rows = np.flatnonzero(both)
    worst = int(np.argmax(e2e)) if len(e2e) else -1
    busy = _busy(a, len(usd_per_hour)) - _busy(b, len(usd_per_hour))
    return Without(
        request=row,
        prompt_tokens=int(a.requests["prompt_tokens"][row]),
        output_tokens=max(int(a.requests["output_tokens"][row]), 0),
        delayed=int((e2e > 0).sum()),
        earlier=int((e2e < 0).sum()),
        e2e_ns=int(e2e.sum()),
        ttft_ns=int(ttft.sum()),
        worst=int(rows[worst]) if len(e2e) and e2e[worst] > 0 else -1,
        worst_ns=max(int(e2e[worst]), 0) if len(e2e) else 0,
        lost=int((b.finished & ~a.finished & others).sum()),
        saved=int((a.finished & ~b.finished & others).sum()),
        busy_ns=int(busy.sum()),
        usd=float((busy * usd_per_hour).sum() / 3600e9) if usd_per_hour.any() else None,
    )


def _since_intent(records: Records, column: str, first: NDArray[np.int64]) -> NDArray[np.int64]:
    return records.requests[column] - records.requests["arrival_ns"][first]


def _busy(records: Records, replicas: int) -> NDArray[np.int64]:
    """Engine time in ns of each replica."""
    found = np.zeros(replicas, dtype=np.int64)
    np.add.at(found, records.steps["replica"], records.steps["end_ns"] - records.steps["start_ns"])
    return found
