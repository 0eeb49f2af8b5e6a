"""One call imports whatever can be imported, and says what is wrong with anything else."""

from __future__ import annotations

import pytest

from scenarios import models
from scenarios.errors import InputError
from sim.operator_profile import OperatorProfile
from sim.profiles import load_profile
from studies.profiles.importing import KINDS, Options, import_profile, kind_of
from tests.calibration import bundles
from tests.calibration import synthetic_tables as toy


def test_a_bundle_is_recognised_and_named(tmp_path):
    folder = tmp_path / "bundle"
    bundles.write_bundle(folder, models.model("qwen3-8b"))
    assert kind_of(folder) == "llmservingsim"
    found = import_profile(folder, name="mine", options=Options(model="Qwen3-8B"))
    assert isinstance(found, OperatorProfile)
    assert (found.name, found.model) == ("mine", "Qwen3-8B")


def test_installed_tables_need_no_file(tmp_path):
    root = toy.write(tmp_path / "systems")
    options = Options(model="SmolLM2-135M", system="toy", fitted=False)
    found = import_profile(root, "aiconfigurator", name="toy", options=options)
    assert isinstance(found, OperatorProfile)
    assert found.host.step_ns == 0


def test_a_profile_of_ours_comes_back_as_it_is(tmp_path):
    profile = load_profile("cpu-avx2-qwen3-tiny")
    assert import_profile(profile.save(tmp_path / "mine.json")) == profile


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty; a header iteration,"),
        ("a,b\n1,2\n", "line 1: no column iteration"),
        ("iteration,prefill_requests,prefill_tokens,decode_requests,decode_tokens,elapsed_ms\n0,0,0,1,1,x\n", "x"),
    ],
)
def test_a_step_log_that_is_none_is_refused_with_what_it_should_hold(tmp_path, text, says):
    file = tmp_path / "steps.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        import_profile(file, options=Options(model="qwen3-tiny"))


def test_what_is_missing_and_what_is_too_much_is_said(tmp_path):
    file = tmp_path / "steps.csv"
    file.write_text("iteration\n")
    with pytest.raises(InputError, match="model is missing; the step log of an engine does not say it"):
        import_profile(file)
    with pytest.raises(InputError, match=r"hardware: says nothing of the step log of an engine.*Allowed: model, dtype"):
        import_profile(file, options=Options(model="m", hardware="H100"))
    with pytest.raises(InputError, match="unknown kind 'vidor': did you mean 'vidur'"):
        import_profile(file, "vidor")
    with pytest.raises(InputError, match=r"a file or folder is missing: mlp\.csv"):
        import_profile(None, "vidur", options=Options(model="qwen3-tiny", hardware="H100"))
    with pytest.raises(InputError, match="there is no such file or folder"):
        import_profile(tmp_path / "none")


def test_what_nobody_recognises_is_told_what_there_is(tmp_path):
    (tmp_path / "notes.md").write_text("hello")
    for source in (tmp_path / "notes.md", tmp_path):
        with pytest.raises(
            InputError, match=r"not recognised as anything that can be imported\. profile: the JSON file"
        ):
            import_profile(source)


def test_every_kind_says_what_it_consists_of():
    assert all(kind.files and kind.title for kind in KINDS.values())
    assert all({*kind.needs, *kind.takes} <= set(Options.__dataclass_fields__) for kind in KINDS.values())
