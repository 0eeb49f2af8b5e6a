"""What a run costs: the price of its devices' time, charged to requests, and what is left over for idle time.

What requests are charged and idle time are together the devices' time, to the nanosecond, and so their price (law 13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.attribution import Charges, Splits, charge
from serving.records import Records
from serving.tries import answered, last_tries

Floats = NDArray[np.float64]

HOURS_PER_MONTH = 730.0
_HOUR_NS = 3600e9
_MILLION = 1e6

KEYS = (
    "usd_per_1m_input_tokens",
    "usd_per_1m_cached_input_tokens",
    "usd_per_1m_output_tokens",
    "usd_marginal_per_1m_input_tokens",
    "usd_marginal_per_1m_output_tokens",
    "usd_per_1m_total_tokens",
    "usd_per_request",
    "usd_per_good_request",
    "usd_per_session",
    "usd_total",
    "usd_idle",
    "usd_per_month",
    "device_utilization",
)


@dataclass(frozen=True)
class Energy:
    """Electricity of a replica's devices while they compute and while they do not, kW, and its price."""

    usd_per_kwh: float
    busy_kw: Floats
    idle_kw: Floats


@dataclass(frozen=True)
class Sheet:
    """What customers pay for a million tokens."""

    input: float
    output: float
    cached_input: float


@dataclass(frozen=True)
class Tariff:
    """Prices of a deployment.

    usd_per_hour: of each replica's devices, `(replicas,)`. splits: of each replica what its steps are made of; None: not known.
    """

    usd_per_hour: Floats
    splits: Sequence[Splits | None] = ()
    energy: Energy | None = None
    sheet: Sheet | None = None

    @property
    def busy_usd_per_ns(self) -> Floats:
        power = 0.0 if self.energy is None else self.energy.busy_kw * self.energy.usd_per_kwh
        return np.asarray((self.usd_per_hour + power) / _HOUR_NS)

    @property
    def idle_usd_per_ns(self) -> Floats:
        power = 0.0 if self.energy is None else self.energy.idle_kw * self.energy.usd_per_kwh
        return np.asarray((self.usd_per_hour + power) / _HOUR_NS)


@dataclass(frozen=True)
class Account:
    """The bill of a run.

    charges: device time of each request. window_ns: from the first arrival to the end of the last step or request; every replica is
    paid for all of it. idle_ns: of each replica, what nobody is charged; `(replicas,)`.
    """

    records: Records
    tariff: Tariff
    charges: Charges
    window_ns: int
    idle_ns: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "idle_ns", self.window_ns - self.charges.busy_ns)

    @property
    def usd(self) -> Floats:
        """What each request is charged, `(n,)`; idle time is nobody's."""
        return np.asarray(self.charges.total_ns * self._price)

    @property
    def usd_idle(self) -> float:
        return float((self.idle_ns * self.tariff.idle_usd_per_ns).sum())

    @property
    def usd_total(self) -> float:
        return float((self.charges.busy_ns * self.tariff.busy_usd_per_ns).sum()) + self.usd_idle

    @property
    def revenue(self) -> Floats | None:
        """What customers pay for each request, `(n,)`: for answers alone, and once, whatever tries they took."""
        sheet, r = self.tariff.sheet, self.records.requests
        if sheet is None:
            return None
        cached = np.maximum(r["cached_tokens"], 0)
        paid = (
            (r["prompt_tokens"] - cached) * sheet.input
            + cached * sheet.cached_input
            + r["output_tokens"] * sheet.output
        )
        return np.asarray(np.where(answered(self.records), paid / _MILLION, 0.0))

    @property
    def _price(self) -> Floats:
        """USD of a busy nanosecond of each request's replica."""
        return np.asarray(self.tariff.busy_usd_per_ns[np.maximum(self.records.requests["replica"], 0)])

    def figures(self, good: NDArray[np.bool_] | None = None) -> tuple[dict[str, float | None], dict[str, str]]:
        """The bill under its export keys, and why what is None is so. good: requests that met their limits, None if none are stated."""
        r, price, c = self.records.requests, self._price, self.charges
        cached = int(np.maximum(r["cached_tokens"], 0).sum())
        fresh = int(r["prompt_tokens"][r["cached_tokens"] >= 0].sum()) - cached
        produced = int(np.maximum(r["output_tokens"], 0).sum())
        done = int(answered(self.records).sum())
        found: dict[str, float | None] = {}
        refused: dict[str, str] = {}

        def put(key: str, usd: float, per: float, why: str) -> None:
            found[key] = usd / per if per else None
            if not per:
                refused[key] = why

        no_input, no_output, nothing = "no prompt token was computed", "no token came out", "no request finished"
        put("usd_per_1m_input_tokens", _sum(c.input_ns * price) * _MILLION, fresh, no_input)
        put(
            "usd_per_1m_cached_input_tokens",
            _sum(c.cached_ns * price) * _MILLION,
            cached,
            "no prompt token was found in the prefix cache",
        )
        put("usd_per_1m_output_tokens", _sum(c.output_ns * price) * _MILLION, produced, no_output)
        put("usd_marginal_per_1m_input_tokens", _sum(c.marginal_ns[0] * price) * _MILLION, fresh, no_input)
        put("usd_marginal_per_1m_output_tokens", _sum(c.marginal_ns[1] * price) * _MILLION, produced, no_output)
        total = self.usd_total
        put("usd_per_1m_total_tokens", total * _MILLION, fresh + cached + produced, no_output)
        put("usd_per_request", total, done, nothing)
        if good is None:
            put("usd_per_good_request", total, 0, "no SLO is stated")
        else:
            put("usd_per_good_request", total, int(good.sum()), "no request met its SLO")
        session = self.records.session
        sessions = len(np.unique(session[(session >= 0) & (c.total_ns > 0)]))
        put("usd_per_session", total, sessions, "requests belong to no sessions")
        found["usd_total"], found["usd_idle"] = total, self.usd_idle
        month = HOURS_PER_MONTH * _HOUR_NS / self.window_ns
        found["usd_per_month"] = total * month
        found["device_utilization"] = float(c.busy_ns.sum()) / (self.window_ns * len(c.busy_ns))
        if (energy := self.tariff.energy) is not None:
            kwh = _sum(c.busy_ns * energy.busy_kw + self.idle_ns * energy.idle_kw) / _HOUR_NS
            found["energy_kwh"], found["usd_energy"] = kwh, kwh * energy.usd_per_kwh
        if (paid := self.revenue) is not None:
            revenue = _sum(paid)
            found |= {"usd_revenue": revenue, "usd_margin": revenue - total}
            found |= {"usd_revenue_per_month": revenue * month, "usd_margin_per_month": (revenue - total) * month}
        return found, refused

    def groups(
        self, code: NDArray[np.int64], names: Sequence[str], good: NDArray[np.bool_] | None = None
    ) -> list[dict[str, Any]]:
        """The bill by tenant, class or the like, those that cost most first.

        code: `(n,)`, index into `names` of each row of requests. Idle time is spread by what they are charged.
        """
        usd, sent, paid = self.usd, last_tries(self.records), self.revenue
        busy, r = float(usd.sum()), self.records.requests
        found = []
        for k in np.unique(code[self.records.submitted & (code >= 0)]).tolist():
            mine = code == k
            charged, requests = _sum(usd[mine]), int((sent & mine).sum())
            whole = charged + (self.usd_idle * charged / busy if busy else 0.0)
            output = int(np.maximum(r["output_tokens"][mine], 0).sum())
            row: dict[str, Any] = {
                "name": names[k],
                "requests": requests,
                "usd_charged": charged,
                "usd": whole,
                "usd_per_request": whole / requests if requests else None,
                "usd_per_1m_output_tokens": _sum((self.charges.output_ns * self._price)[mine]) / output * _MILLION
                if output
                else None,
                "good_request_fraction": None if good is None or not requests else int((good & mine).sum()) / requests,
            }
            if paid is not None:
                row |= {"usd_revenue": _sum(paid[mine]), "usd_margin": _sum(paid[mine]) - whole}
            found.append(row)
        return sorted(found, key=lambda row: (-row["usd_charged"], row["name"]))


def _sum(values: Floats) -> float:
    return float(values.sum())


def account_of(records: Records, tariff: Tariff) -> Account | str:
    """The bill of a run; where there can be none, why."""
    r, steps = records.requests, records.steps
    sent = records.submitted & (r["arrival_ns"] >= 0)
    if not records.finished.any():
        return "no request finished"
    replicas = len(tariff.usd_per_hour)
    charges = charge(records, tariff.splits or (None,) * replicas)
    if charges is None:
        return "who was in which step was not recorded"
    start = min(int(r["arrival_ns"][sent].min()), int(steps["start_ns"].min(initial=1 << 62)))
    end = max(int(r["finish_ns"].max()), int(steps["end_ns"].max(initial=0)))
    return Account(records, tariff, charges, end - start)
