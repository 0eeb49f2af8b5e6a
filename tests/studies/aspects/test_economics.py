"""The bill of a run: what is cheap and what is dear, who pays, and what customers are asked for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import scenarios
from scenarios.errors import InputError
from serving.economics import KEYS
from serving.rows import rows_of
from studies import results, simulate
from studies.aspects import economics
from studies.reports import run_tables

BASE = """
schema_version: 1
name: bill
model: Llama-3.1-8B
hardware: H100
workload:
  requests: 120
  arrivals: {process: poisson, rate: 8}
  input: 800
  output: 60
prices: {gpu_hour: 3.0}
"""


def scenario(*overrides: str, text: str = BASE) -> scenarios.Scenario:
    return scenarios.loads(text, overrides=overrides)


def bill(*overrides: str) -> results.Run:
    return simulate(scenario(*overrides))


def test_an_answer_costs_more_than_a_prompt_and_cached_input_least() -> None:
    s = bill("workload.prompts={kind: shared_prefix, prefix_tokens: 3000}").summary
    cached, fresh, output = (s[f"usd_per_1m_{kind}_tokens"] for kind in ("cached_input", "input", "output"))
    assert 0 < cached < fresh / 5 < output


def test_one_token_more_costs_less_than_its_share() -> None:
    s = bill("workload.arrivals.rate=30").summary
    assert 0 < s["usd_marginal_per_1m_output_tokens"] < s["usd_per_1m_output_tokens"] / 2
    lone = bill("workload.requests=1").summary
    assert lone["usd_marginal_per_1m_output_tokens"] == pytest.approx(lone["usd_per_1m_output_tokens"])


def test_the_bill_is_device_hours_times_their_price() -> None:
    s = bill("replicas=3", "engine.tensor_parallel_size=2").summary
    assert s["usd_total"] == pytest.approx(3 * 2 * 3.0 * s["duration"] / 3600, rel=1e-3)
    assert s["usd_per_month"] == pytest.approx(3 * 2 * 3.0 * 730)
    assert s["usd_idle"] / s["usd_total"] == pytest.approx(1 - s["device_utilization"])
    assert s["usd_per_request"] * s["completed"] == pytest.approx(s["usd_total"])


def test_energy_is_paid_for_by_what_devices_draw() -> None:
    plain, powered = bill(), bill("prices.energy={usd_per_kwh: 0.2, busy_watts: 700, idle_watts: 100}")
    s, hours = powered.summary, powered.info["economics"]["window"] / 3600
    used = s["device_utilization"]
    assert s["energy_kwh"] == pytest.approx(hours * (0.7 * used + 0.1 * (1 - used)))
    assert (
        s["usd_total"] - plain.summary["usd_total"]
        == pytest.approx(s["usd_energy"])
        == pytest.approx(s["energy_kwh"] * 0.2)
    )
    assert "usd_energy" not in plain.summary


def test_customers_pay_by_the_sheet() -> None:
    found = bill(
        "workload.prompts={kind: shared_prefix, prefix_tokens: 1600}",
        "prices.sheet={input: 1.0, output: 4.0, cached_discount: 0.9}",
    )
    r, s = found.records.requests, found.summary
    cached = int(r["cached_tokens"].sum())
    fresh = int(r["prompt_tokens"].sum()) - cached
    assert cached > fresh
    assert s["usd_revenue"] == pytest.approx((fresh * 1.0 + cached * 0.1 + r["output_tokens"].sum() * 4.0) / 1e6)
    assert s["usd_margin"] == pytest.approx(s["usd_revenue"] - s["usd_total"])


TENANTS = (
    "workload.tenants=[{name: chat, weight: 3}, {name: batch, weight: 1}]",
    "prices.sheet={input: 1.0, output: 4.0}",
    "slo={ttft: 500ms}",
)


def test_tenants_margins_are_that_of_the_run() -> None:
    found = bill(*TENANTS)
    groups = found.info["economics"]["by_tenant"]
    assert {group["name"] for group in groups} == {"chat", "batch"}
    for key, whole in (("usd", "usd_total"), ("usd_margin", "usd_margin"), ("usd_revenue", "usd_revenue")):
        assert sum(group[key] for group in groups) == pytest.approx(found.summary[whole])
    assert sum(group["requests"] for group in groups) == 120
    assert groups[0]["name"] == "chat"


def test_a_report_shows_the_bill_and_who_pays() -> None:
    titles = [table.title for table in run_tables.every(bill(*TENANTS))]
    assert titles.index("Economics") + 1 == titles.index("Cost by tenant")
    assert "Economics" not in [table.title for table in run_tables.every(bill("prices.gpu_hour=0"))]


def test_without_a_price_no_figure_is_given() -> None:
    s = bill("prices.gpu_hour=0").summary
    assert all(s[key] is None and s["refused"][key] == "no price is stated" for key in KEYS)


def test_a_saved_run_keeps_rows_and_bill(tmp_path: Path) -> None:
    found = bill(*TENANTS)
    folder = results.save(found, tmp_path / "bill")
    loaded = results.load(folder)
    np.testing.assert_array_equal(loaded.records.chunks, found.records.chunks)
    assert rows_of(loaded.records) is not None
    shown = [table for run_ in (loaded, found) for table in economics.tables_of(run_)]
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    usd = pq.read_table(folder / "requests.parquet")["usd"].to_numpy()
    document = json.loads((folder / "result.json").read_text())
    assert usd.sum() + document["usd_idle"] == pytest.approx(document["usd_total"])
    assert [group["name"] for group in document["run"]["economics"]["by_tenant"]] == ["chat", "batch"]


def test_a_result_of_before_rows_were_logged_is_read(tmp_path: Path) -> None:
    folder = results.save(bill(), tmp_path / "bill")
    (folder / "rows.parquet").unlink()
    about = json.loads((folder / "run.json").read_text())
    del about["economics"]
    (folder / "run.json").write_text(json.dumps(about))
    loaded = results.load(folder)
    assert rows_of(loaded.records) is None
    assert economics.tables_of(loaded) == []


def test_every_pool_is_paid_at_its_price() -> None:
    text = BASE.replace("hardware: H100", "").replace("model: Llama-3.1-8B", "") + (
        "pools:\n- {name: large, model: Llama-3.1-8B, hardware: H100, gpu_hour: 3.0}\n"
        "- {name: small, model: Qwen3-0.6B, hardware: L40S, gpu_hour: 1.0}\n"
    )
    found = simulate(scenario(text=text))
    s, account = found.summary, found.account
    assert account is not None
    hours = account.window_ns / 3600e9
    assert s["usd_total"] == pytest.approx(4.0 * hours)
    busy = account.charges.busy_ns / 3600e9
    assert (
        s["usd_total"] - s["usd_idle"]
        == pytest.approx(3.0 * busy[0] + 1.0 * busy[1])
        == pytest.approx(account.usd.sum())
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "prices.energy={usd_per_kwh: 0.2, busy_watts: 100, idle_watts: 300}",
            "prices.energy.idle_watts: found 300, more than busy",
        ),
        ("prices.sheet={input: 1.0, output: 2.0, cached_discount: 1.5}", "prices.sheet.cached_discount"),
        ("prices.sheet={input: 1.0}", "prices.sheet"),
        ("prices.gpu_hours=3", "did you mean 'gpu_hour'"),
        ("prices.gpu_hour=-1", "prices.gpu_hour"),
    ],
)
def test_wrong_prices_are_refused_with_the_place(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        scenario(override)


def test_prices_leave_hashes_of_before_alone() -> None:
    assert (
        scenario().hash()
        == scenario("prices.energy=null").hash()
        != scenario("prices.sheet={input: 1, output: 2}").hash()
    )
    again = scenarios.loads(scenario("prices={energy: {usd_per_kwh: 0.1, busy_watts: 700}}").to_yaml())
    assert again.prices.gpu_hour == 3.0
