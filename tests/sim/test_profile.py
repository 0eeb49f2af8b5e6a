"""Profiles: the file, and the costs that follow from it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.errors import InputError
from serving.plan import StepShape
from sim.profile import Coefficients, Measurement, Profile, data_hash
from sim.profile_cost import ProfileCost
from sim.profile_parts import Domain, Range, Source
from sim.profiles import load_profile, shipped_profiles


def profile(**changes: object) -> Profile:
    measurements = (Measurement(decode_sequences=1, decode_context=10, decode_max_context=10, sampled=1, ns=8_000_000),)
    fields: dict[str, object] = {
        "name": "machine",
        "created": "2026-01-01T00:00:00+00:00",
        "source": Source(device="none", clock="cpu"),
        "model": "qwen3-tiny",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "domain": Domain(
            tokens=Range(min=1, max=512),
            prefill_query=Range(min=1, max=512),
            prefill_context=Range(min=0, max=900),
            decode_sequences=Range(min=0, max=32),
            decode_context=Range(min=0, max=32_000),
            sampled=Range(min=0, max=32),
        ),
        "dense": ((1, 6e6), (8, 6.5e6), (9, 9e6), (64, 13e6), (512, 60e6)),
        "coefficients": Coefficients(
            chunk=3e5,
            pair=9.3,
            prefill_context=611.7,
            decode_sequence=2e4,
            decode_context=801.3,
            head=2e6,
            head_row=9e4,
        ),
        "measurements": measurements,
        "data_hash": data_hash(measurements),
    }
    return Profile(**{**fields, **changes})


COST = ProfileCost(profile())


def test_step_is_the_sum_of_its_terms_by_hand():
    shape = StepShape(((100, 50), (36, 0)), 8, 2400, 400, 9)
    dense = 13e6 + (144 - 64) / (512 - 64) * 47e6
    pairs = 100 * 50 + 100 * 101 // 2 + 36 * 37 // 2
    hand = dense + 2 * 3e5 + pairs * 9.3 + 50 * 611.7 + 8 * 2e4 + 2400 * 801.3 + 2e6 + 9 * 9e4
    assert COST.step_ns(shape) == round(hand)
    assert sum(COST.terms(shape).values()) == pytest.approx(hand)


def test_a_chunk_of_one_token_costs_what_a_decode_costs():
    one, decode = StepShape(((1, 300),), 4, 1200, 300, 5), StepShape((), 5, 1500, 300, 5)
    assert COST.step_ns(one) == COST.step_ns(decode)
    assert sum(COST.terms(one).values()) == pytest.approx(COST.step_ns(one), abs=1)


def test_a_step_without_samples_pays_no_head():
    chunk = StepShape(((100, 0),))
    assert COST.step_ns(chunk._replace(sampled=1)) - COST.step_ns(chunk) == 2_090_000


@settings(max_examples=200, deadline=None)
@given(sequences=st.integers(1, 200), mean=st.integers(0, 5000), n=st.integers(1, 200))
def test_law_07_leap_equals_its_single_steps_to_the_last_bit(sequences, mean, n):
    shape = StepShape((), sequences, sequences * mean, mean, sequences)
    leap = COST.leap_ns(shape, n)
    assert leap.dtype == np.int64
    assert leap.tolist() == [COST.decode_ns(sequences, sequences * (mean + i), mean + i) for i in range(n)]
    assert COST.step_ns(shape) == leap[0]


@settings(max_examples=200, deadline=None)
@given(
    chunk=st.tuples(st.integers(1, 2000), st.integers(0, 5000)),
    sequences=st.integers(0, 100),
    mean=st.integers(1, 3000),
    more=st.integers(1, 500),
)
def test_law_12_profiles_are_monotone_in_contexts_sequences_and_tokens(chunk, sequences, mean, more):
    shape = StepShape((chunk,), sequences, sequences * mean, mean, sequences)
    base, (query, before) = COST.step_ns(shape), chunk
    assert COST.step_ns(shape._replace(decode_context=shape.decode_context + more)) >= base
    assert COST.step_ns(shape._replace(decode_sequences=sequences + more, sampled=sequences + more)) >= base
    assert COST.step_ns(shape._replace(prefill=((query, before + more),))) >= base
    assert COST.step_ns(shape._replace(prefill=((query + more, before),))) >= base
    assert COST.decode_ns(sequences + more, shape.decode_context, mean) >= COST.decode_ns(
        sequences, shape.decode_context, mean
    )


def test_beyond_the_last_knot_costs_grow_with_the_slope_of_the_upper_half():
    flat_end = ProfileCost(profile(dense=((1, 1e6), (256, 30e6), (500, 60e6), (512, 60e6))))
    slope = 30e6 / 256
    assert flat_end.terms(StepShape(((1024, 0),)))["dense and fixed"] == pytest.approx(60e6 + 512 * slope)


def test_inside_the_domain_nothing_is_extrapolated():
    assert COST.extrapolation(StepShape(((512, 900),), sampled=1)) is None
    assert COST.extrapolation(StepShape((), 32, 32_000, 1000, 32)) is None


def test_leaving_the_domain_says_where_and_by_how_much():
    text = COST.extrapolation(StepShape(((100, 1800),), 64, 32_001, 1000, 64))
    assert text is not None
    assert "decode_sequences 64 is above the measured 32 (2.0x)" in text
    assert "prefill context 1800 is above the measured 900 (2.0x)" in text
    assert "decode_context 32001" in text
    assert "tokens" not in text


def test_profile_survives_its_file(tmp_path):
    saved = profile().save(tmp_path / "machine.json")
    assert load_profile(saved) == profile()
    assert load_profile(saved).hash() == profile().hash()


def test_changed_measurements_are_noticed(tmp_path):
    data = json.loads(profile().model_dump_json())
    data["measurements"][0]["ns"] += 1
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="data_hash does not belong"):
        load_profile(path)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d.pop("dense"), "dense"),
        (lambda d: d.update(dense=[[1, 5.0], [1, 6.0]]), "knots must grow"),
        (lambda d: d.update(dense=[[1, 5.0], [2, 4.0]]), "knots must grow"),
        (lambda d: d["coefficients"].update(pair=-1.0), "coefficients.pair"),
        (lambda d: d["coefficients"].update(pears=1.0), "coefficients.pears"),
        (lambda d: d.update(schema_version=2), "schema_version: found 2, allowed: 1"),
        (lambda d: d.update(kind="gpu"), "kind: found 'gpu', allowed: operators"),
        (
            lambda d: (d.update(dense=[[0, 0], [9, 0]], measurements=[]), d["coefficients"].update(head=0)),
            "a step may take 0 ns",
        ),
        (lambda d: d["domain"]["tokens"].update(min=9, max=3), "domain.tokens"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_of_the_fault(tmp_path, edit, words):
    data = json.loads(profile().model_dump_json())
    edit(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError) as refused:
        load_profile(path)
    assert words in str(refused.value)
    assert "bad.json" in str(refused.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: (d["tokens"].clear(), d["tokens"].update(all={"at": [1], "ns": [0]}), d.update(head={"at": [1], "ns": [0]}, host={})), "a step may take 0 ns"),
        (lambda d: d["decode_attention"]["contexts"].append(10**400), "decode_attention.contexts["),
    ],
)  # fmt: skip
def test_a_bad_file_of_operators_is_refused_with_the_place_of_the_fault(tmp_path, edit, words):
    data = json.loads(load_profile("h100/qwen3-8b-bf16-tp1").model_dump_json())
    edit(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError) as refused:
        load_profile(path)
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "NaN", '{"schema_version": 1}', "\x00\xff"])
def test_what_is_no_profile_at_all_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("latin1"))
    with pytest.raises(InputError, match=r"bad\.json"):
        load_profile(path)


def test_an_unknown_name_is_refused_with_the_shipped_ones():
    with pytest.raises(InputError, match="unknown profile 'no-such-machine'"):
        load_profile("no-such-machine")


FITTED = [name for name in shipped_profiles() if "/" not in name]
"""Those that were fitted to whole steps; the others are composed of operators, grouped by device."""


@pytest.mark.parametrize("name", FITTED)
def test_shipped_profiles_load_by_name_and_predict_what_they_were_measured_on(name):
    shipped = load_profile(name)
    cost = ProfileCost(shipped)
    off = [cost.step_ns(m.shape) / m.ns - 1 for m in shipped.measurements]
    assert np.mean(np.abs(off)) < 0.04
    assert shipped.cv_error["all"].mape < 0.04
    assert all(cost.extrapolation(m.shape) is None for m in shipped.measurements)


def test_a_profile_ships():
    assert FITTED


def test_a_misspelt_shipped_name_is_corrected():
    name = FITTED[0]
    with pytest.raises(InputError, match=f"did you mean '{name}'"):
        load_profile(name[:-1])
