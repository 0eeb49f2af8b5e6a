"""`servetwin validate`: options that mean nothing for what is validated are refused, not ignored."""

from __future__ import annotations

import pytest

import cli


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("--silicon", "--model", "Qwen3-8B"), "--model: is about measured runs"),
        (("--silicon", "--set", "seed=1"), "--set: says nothing of measured points"),
        (("--silicon", "--profile", "auto"), "--profile: says nothing of measured points"),
        (("--measured", ".", "--num-prompts", "5"), "--num-prompts: is about executing a scenario"),
        (("--measured", ".", "--limit", "5"), "--limit: is about executing a scenario"),
        (("--measured", ".", "--quick"), "--quick: is about executing a scenario"),
        (("demo", "--only", "r2_a"), "--only: is about measured runs"),
        (("demo", "--no-noise"), "--noise: is about measured runs"),
    ],
)
def test_an_option_of_another_kind_of_validation_is_refused(arguments, option, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["validate", *arguments])
    assert ended.value.code == 2
    assert option in " ".join(capsys.readouterr().err.split())
