"""What requests are charged plus idle time equals GPU time x price."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibration.features import steps_to_shapes
from serving.attribution import Splits, charge
from serving.economics import Account, Energy, Sheet, Tariff, account_of
from serving.records import Records
from serving.rows import rows_of
from sim.cost import CostModel
from tests.laws.test_law_08_replay import live
from tests.laws.worlds import World, law, roofline, worlds


def bill(records: Records, replicas: int, split: Splits | None = None, usd_per_hour: float = 3.0) -> Account:
    tariff = Tariff(np.full(replicas, usd_per_hour), (split,) * replicas)
    account = account_of(records, tariff)
    assert isinstance(account, Account)
    return account


def check(account: Account, replicas: int) -> None:
    records, charges = account.records, account.charges
    steps = records.steps
    paid = replicas * account.window_ns
    assert int(charges.total_ns.sum()) + int(account.idle_ns.sum()) == paid
    occupied = steps["prefill_sequences"] + steps["decode_sequences"] > 0
    assert int(charges.total_ns.sum()) == int((steps["end_ns"] - steps["start_ns"])[occupied].sum())
    assert (account.idle_ns >= 0).all()
    assert (charges.input_ns >= 0).all()
    assert (charges.cached_ns >= 0).all()
    assert (charges.output_ns >= 0).all()
    usd = float(account.usd.sum()) + account.usd_idle
    assert usd == pytest.approx(account.usd_total, rel=1e-9)
    assert usd == pytest.approx(paid * 3.0 / 3600e9, rel=1e-9)


@law(60)
@given(worlds(horizons=True, gated=True), st.booleans())
def test_charges_and_idle_time_are_the_whole_time(world: World, known: bool) -> None:
    records = world.run()
    if records.finished.any():
        check(bill(records, world.replicas, roofline() if known else None), world.replicas)


@law(40)
@given(worlds(), st.integers(0, 1000))
def test_measured_durations_are_charged_whole(world: World, seed: int) -> None:
    records = live(world, seed)
    if records.finished.any():
        check(bill(records, world.replicas, roofline()), world.replicas)


def split_step_by_step(records: Records, split: Splits) -> NDArray[np.float64]:
    """The definition, one step and one row at a time."""
    rows, steps = rows_of(records), records.steps
    assert rows is not None
    prompt = records.requests["prompt_tokens"]
    speculating = set(records.drafts[:, 0].tolist())
    paid = np.zeros(len(prompt))
    sampled = {
        (step, request): bool(samples)
        for step, request, samples in zip(
            *(rows.chunks[k].tolist() for k in ("step", "request", "samples")), strict=True
        )
    }
    for at in range(len(steps["step"])):
        one = {name: column[at : at + 1] for name, column in steps.items()}
        members = rows.of_step(at).tolist()
        if not members:
            continue
        decodes, chunks = [], []
        for request, tokens, context in members:
            samples = sampled.get((at, request), True)
            decode = tokens == 1 and samples and context >= prompt[request]
            (decodes if decode else chunks).append((request, tokens, context, samples))
        query, before = (np.array([row[k] for row in chunks], dtype=np.int64) for k in (1, 2))
        parts = split.shares(one, query, before)
        fixed, per_token, head, each, attention = (float(part[0]) for part in parts[:5])

        def heads(row: tuple[int, int, int, bool], replica: int = int(steps["replica"][at])) -> int:
            request, tokens, context, samples = row
            return samples * (tokens if replica in speculating and context >= prompt[request] else 1)

        whole_tokens = sum(row[1] for row in (*chunks, *decodes))
        whole_heads = sum(map(heads, (*chunks, *decodes)))
        whole_context = sum(row[2] + 1 for row in decodes)
        whole = (
            fixed + per_token + (head if whole_heads else 0) + parts.chunks.sum() + (each + attention) * bool(decodes)
        )
        scale = float(steps["end_ns"][at] - steps["start_ns"][at]) / (
            fixed + per_token + head + parts.chunks.sum() + each + attention
        )
        assert whole * scale == pytest.approx(float(steps["end_ns"][at] - steps["start_ns"][at])) or not whole_heads
        for k, row in enumerate((*chunks, *decodes)):
            ns = fixed / len(members) + per_token * row[1] / whole_tokens
            ns += head * heads(row) / whole_heads if whole_heads else 0.0
            if k < len(chunks):
                ns += float(parts.chunks[k])
            else:
                ns += each / len(decodes) + attention * (row[2] + 1) / whole_context
            paid[row[0]] += ns * scale
    return paid


@law(60)
@given(worlds(horizons=True, gated=True))
def test_charges_are_those_of_every_step_split_by_its_terms(world: World) -> None:
    records = world.run()
    charges = charge(records, (roofline(),) * world.replicas)
    assert charges is not None
    expected = split_step_by_step(records, roofline())
    np.testing.assert_allclose(charges.total_ns, expected, rtol=1e-9, atol=3.0)


@law(30)
@given(worlds())
def test_parts_of_a_step_are_its_terms(world: World) -> None:
    """No time is left to be spread where the model itself made the steps."""
    records, cost = world.run(), roofline()
    check_parts(records, cost)


def check_parts(records: Records, cost: CostModel) -> None:
    rows, steps = rows_of(records), records.steps
    assert rows is not None
    prompts = rows.chunks["decodes"] == 0
    parts = cost.shares(steps, rows.chunks["tokens"][prompts], rows.chunks["context"][prompts])
    chunks = np.bincount(rows.chunks["step"][prompts], parts.chunks, len(steps["step"]))
    found = sum(parts[:5]) + chunks
    expected = np.zeros(len(found))
    prefill: list[list[tuple[int, int]]] = [[] for _ in found]
    for at, query, context in zip(
        *(rows.chunks[k][prompts].tolist() for k in ("step", "tokens", "context")), strict=True
    ):
        prefill[at].append((query, context))
    for at, shape in enumerate(steps_to_shapes(steps)):
        whole = shape._replace(prefill=tuple(prefill[at]))
        expected[at] = sum(cost.terms(whole).values()) if whole.tokens else 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@law(20)
@given(worlds())
def test_what_customers_pay_and_energy_stand_beside_the_bill(world: World) -> None:
    records = world.run()
    if not records.finished.any():
        return
    one = np.ones(world.replicas)
    energy = Energy(0.2, 0.7 * one, 0.1 * one)
    tariff = Tariff(3.0 * one, (roofline(),) * world.replicas, energy, Sheet(2.0, 8.0, 0.5))
    account = account_of(records, tariff)
    assert isinstance(account, Account)
    found, _ = account.figures()
    plain, _ = bill(records, world.replicas, roofline()).figures()
    assert found["usd_total"] == pytest.approx(plain["usd_total"] + found["usd_energy"])
    assert found["usd_margin"] == pytest.approx(found["usd_revenue"] - found["usd_total"])
    groups = account.groups(records.requests["status"], [str(k) for k in range(8)])
    if account.usd.sum():
        assert sum(group["usd"] for group in groups) == pytest.approx(found["usd_total"])
    assert sum(group["usd_margin"] for group in groups) == pytest.approx(found["usd_margin"])
