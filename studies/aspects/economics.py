"""What a run costs, in tables: by kind of token, by class, by tenant, and by month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scenarios.schema import Scenario
from serving.economics import Account, Energy, Sheet, Tariff, account_of
from serving.metrics import is_promised, meets
from serving.records import Records
from serving.tries import last_tries
from sim.cost import CostModel
from studies.reports.tables import Table, number, percent
from studies.results import Run

SHOWN = 20
_MOST = 1000  # groups kept in run.json


def tariff_of(scenario: Scenario, costs: Sequence[CostModel] | None) -> Tariff | None:
    """The prices of a scenario; None where nothing has one. costs: step costs of each pool, None where nobody knows them."""
    views = [view for view in scenario.of_pools() for _ in range(view.replicas)]
    devices = np.array([view.engine.tensor_parallel_size for view in views], dtype=np.float64)
    usd = devices * [view.prices.gpu_hour for view in views]
    power, sheet = scenario.prices.energy, scenario.prices.sheet
    if not usd.any() and power is None and sheet is None:
        return None
    if costs is None:
        splits: list[CostModel | None] = [None] * len(views)
    else:
        splits = [cost for view, cost in zip(scenario.of_pools(), costs, strict=True) for _ in range(view.replicas)]
    return Tariff(
        usd,
        splits,
        None
        if power is None
        else Energy(power.usd_per_kwh, devices * power.busy_watts / 1e3, devices * power.idle_watts / 1e3),
        None if sheet is None else Sheet(sheet.input, sheet.output, sheet.input * (1 - sheet.cached_discount)),
    )


def bill(scenario: Scenario, records: Records, costs: Sequence[CostModel] | None) -> Account | str | None:
    """The account of a run, why there is none, or None where no price is stated."""
    tariff = tariff_of(scenario, costs)
    return None if tariff is None else account_of(records, tariff)


def described(account: Account | str | None, scenario: Scenario) -> dict[str, Any] | None:
    """Who pays how much, JSON-able; None where nobody pays.

    attribution: how steps are split. by_class, by_tenant: `Account.groups`, where there are several. session: dollars of a session
    (mean, median, p90 of what its requests are charged), None without any.
    """
    if account is None or isinstance(account, str):
        return None
    records, slo = account.records, scenario.slo
    good = meets(records, slo) if is_promised(records, slo) else None
    known = all(split is not None for split in account.tariff.splits)
    found: dict[str, Any] = {"attribution": "cost terms" if known else "tokens", "window": account.window_ns / 1e9}
    for name, code, names in (
        ("by_class", records.service_class, records.classes),
        ("by_tenant", records.tenant, records.tenants),
    ):
        if code is not None and len(names) > 1:
            found[name] = account.groups(code, names, good)[:_MOST]
    found["session"] = _of_sessions(account)
    found["requests"] = _spread(account.usd[last_tries(records) & (account.charges.total_ns > 0)])
    return found


def _of_sessions(account: Account) -> dict[str, float] | None:
    session = account.records.session
    there = (session >= 0) & account.records.submitted
    if not there.any():
        return None
    charged = np.bincount(session[there], account.usd[there])
    return _spread(charged[np.unique(session[there])])


def _spread(usd: Any) -> dict[str, float] | None:
    if not len(usd):
        return None
    return {"mean": float(usd.mean())} | {f"p{p}": float(np.percentile(usd, p)) for p in (50, 90)}


def _by_thousand(usd: float | None) -> float | None:
    """Of a thousand: one request costs so little that its figure is hard to read."""
    return None if usd is None else 1000 * usd


def tables_of(run: Run) -> list[Table]:
    """The bill of a run, then who pays it."""
    s, found = run.summary, run.info.get("economics")
    if not found:
        return []
    total = s["usd_total"]
    rows = [
        ("USD, the whole run", number(total)),
        ("of that idle", percent(s["usd_idle"] / total if total else None)),
        ("per 1M input tokens", number(s["usd_per_1m_input_tokens"])),
        ("per 1M cached input tokens", number(s["usd_per_1m_cached_input_tokens"])),
        ("per 1M output tokens", number(s["usd_per_1m_output_tokens"])),
        ("marginal, per 1M input tokens", number(s["usd_marginal_per_1m_input_tokens"])),
        ("marginal, per 1M output tokens", number(s["usd_marginal_per_1m_output_tokens"])),
        ("per 1M tokens, idle time included", number(s["usd_per_1m_total_tokens"])),
        ("per 1,000 requests, idle time included", number(_by_thousand(s["usd_per_request"]))),
    ]
    if s["usd_per_good_request"] is not None:
        rows.append(("per 1,000 requests that met their SLO", number(_by_thousand(s["usd_per_good_request"]))))
    if found.get("session"):
        rows.append(("per session, idle time included", number(s["usd_per_session"])))
    rows.append(("a month of this", number(s["usd_per_month"])))
    if "usd_energy" in s:
        rows.append(("of the run: energy", f"{number(s['usd_energy'])} ({number(s['energy_kwh'])} kWh)"))
    if "usd_revenue" in s:
        margin = s["usd_margin"] / s["usd_revenue"] if s["usd_revenue"] else None
        rows += [
            ("revenue", number(s["usd_revenue"])),
            ("margin", f"{number(s['usd_margin'])} ({percent(margin)})"),
            ("margin of a month", number(s["usd_margin_per_month"])),
        ]
    split = {
        "cost terms": "Steps are split by their cost terms: weights and host time by sequence, dense work by token, attention by context",
        "tokens": "Nobody knows what these steps are made of: they are split by token",
    }[found["attribution"]]
    note = f"{split}. Per token without idle time; marginal: without weights and host time that others needed anyway."
    tables = [Table("Economics", ("", "USD"), rows, note)]
    for title, name in (("Cost by class", "by_class"), ("Cost by tenant", "by_tenant")):
        if groups := found.get(name):
            tables.append(_groups(title, groups))
    return tables


def _groups(title: str, groups: Sequence[Mapping[str, Any]]) -> Table:
    earns = "usd_margin" in groups[0]
    judged = any(group["good_request_fraction"] is not None for group in groups)
    # Short heads: all of it is read at 80 columns.
    head = ["", "sent", "USD", "a request", "1M output"]
    head += ["good"] * judged + ["revenue", "margin"] * earns
    rows = []
    for group in groups[:SHOWN]:
        row = [group["name"], number(group["requests"])]
        row += [number(group[key]) for key in ("usd", "usd_per_request", "usd_per_1m_output_tokens")]
        row += [percent(group["good_request_fraction"])] * judged
        row += [number(group[key]) for key in ("usd_revenue", "usd_margin")] if earns else []
        rows.append(tuple(row))
    note = "good: met the SLO; " if judged else ""
    note += "idle time is spread by what each is charged, but for the price of a million output tokens"
    if len(groups) > SHOWN:
        note += f"; the {SHOWN} of {len(groups):,} that cost most"
    return Table(title, tuple(head), rows, note)
