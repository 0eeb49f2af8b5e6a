"""The profiles that come with the package: whole, lawful, and what their command writes."""

from __future__ import annotations

import importlib.util
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest

from calibration import shipped_profiles
from scenarios.hardware import CATALOG as HARDWARE
from scenarios.models import CATALOG as MODELS
from serving.plan import StepShape
from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from sim.profiles import load_profile
from sim.profiles import shipped_profiles as names

COMPOSED = list(shipped_profiles.catalog())
NAMES = [one.name for one in COMPOSED]
SHAPES = 24


@pytest.fixture(scope="module")
def loaded():
    return {name: load_profile(name) for name in NAMES}


def test_all_of_the_catalog_ship_and_nothing_else_lies_in_its_folders():
    assert sorted(NAMES) == [name for name in names() if "/" in name]
    assert len(set(NAMES)) == len(NAMES)


def test_every_device_and_model_is_there():
    there = {(one.gpu, one.model) for one in COMPOSED}
    assert there == {(gpu, model) for gpu in shipped_profiles.GPUS for model in shipped_profiles.MODEL_NAMES}
    assert {one.tensor_parallel_size for one in COMPOSED} == {1, 2, 4, 8}


def test_their_names_say_what_they_are(loaded):
    for one in COMPOSED:
        profile = loaded[one.name]
        assert isinstance(profile, OperatorProfile)
        assert profile.name == one.name
        said = (profile.hardware, profile.model, profile.dtype, profile.tensor_parallel_size)
        assert said == (one.gpu, one.model, one.dtype, one.tensor_parallel_size)
        assert profile.hardware in HARDWARE
        assert profile.model in MODELS


def test_each_says_where_its_numbers_come_from_how_good_they_are_and_how_far_they_reach(loaded):
    for name, profile in loaded.items():
        measured = [p for p in profile.provenance if p.rows]
        assert measured, name
        assert all(p.hash and p.licence == "Apache-2.0" for p in measured), name
        assert {"gemm over m", "decode attention over context", "prefill attention over tokens"} <= set(
            profile.cv_error
        ), name
        assert all(e.mape < 0.35 for e in profile.cv_error.values()), name
        assert profile.domain.tokens.max >= 8192, name
        assert profile.domain.decode_sequences.max >= 512, name
        assert all(c.why for c in profile.constants), name


def test_law_12_more_work_never_costs_less_but_where_a_dip_is_named(loaded):
    """In contexts and sampled rows everywhere; in tokens wherever the profile names no dip."""
    rng = np.random.default_rng(12)
    for name, profile in loaded.items():
        cost = OperatorCost(profile)
        dips = [(j.tokens_from, j.tokens_to) for j in profile.jumps if j.kind == "dip"]
        for _ in range(SHAPES):
            decodes = int(2 ** rng.uniform(0, 9))
            context = decodes * int(2 ** rng.uniform(0, 13))
            query, cached = int(2 ** rng.uniform(0, 12)), int(2 ** rng.uniform(0, 13))
            shape = StepShape(((query, cached),), decodes, context, context // decodes, decodes + 1)
            ns = cost.step_ns(shape)
            assert cost.step_ns(shape._replace(decode_context=context + decodes * 64)) >= ns, name
            assert cost.step_ns(shape._replace(prefill=((query, cached + 512),))) >= ns, name
            alone = cost.decode_ns(decodes, context, 0)
            assert cost.decode_ns(decodes, context + decodes, 0) >= alone, name
            tokens = shape.tokens
            if not any(a < tokens + 1 and tokens < b for a, b in dips):
                assert cost.step_ns(shape._replace(prefill=((query + 1, cached),))) >= ns, (name, shape)


def test_every_fall_of_the_token_curves_is_named(loaded):
    for name, profile in loaded.items():
        points = sorted({x for curve in profile.tokens.values() for x in curve.at})
        total = [sum(float(np.interp(x, c.at, c.ns)) for c in profile.tokens.values()) for x in points]
        dips = [(j.tokens_from, j.tokens_to) for j in profile.jumps if j.kind == "dip"]
        for (x, before), (y, after) in pairwise(zip(points, total, strict=True)):
            assert after >= before - 1.0 or any(a <= x and y <= b for a, b in dips), (name, x, y)


def test_more_ranks_make_a_large_step_shorter(loaded):
    shape = StepShape(prefill=((4096, 0),), sampled=1)
    for one in COMPOSED:
        half = one._replace(tensor_parallel_size=2 * one.tensor_parallel_size).name
        if half in loaded and one.gpu != "L40S":  # whose all-reduces over PCIe eat what GEMMs save
            assert OperatorCost(loaded[half]).step_ns(shape) < OperatorCost(loaded[one.name]).step_ns(shape), half


def test_the_whole_of_them_is_small():
    folder = resources.files("calibration.profiles")
    sizes = [len(folder.joinpath(*f"{name}.json".split("/")).read_bytes()) for name in NAMES]
    assert max(sizes) < 15_000
    assert sum(sizes) < 2_500_000


@pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="the extra `profiles` is not installed: pip install 'servetwin[profiles]'",
)
@pytest.mark.parametrize("name", ["h200/llama-3.1-70b-fp8-tp4", "a100-80g/qwen3-30b-a3b-bf16-tp2"])
def test_composing_again_gives_the_shipped_bytes(name, tmp_path):
    one = next(one for one in COMPOSED if one.name == name)
    (path,) = shipped_profiles.write(tmp_path, [one])
    shipped = resources.files("calibration.profiles").joinpath(*f"{name}.json".split("/")).read_bytes()
    assert path.read_bytes() == shipped
