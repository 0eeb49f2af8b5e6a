"""`servetwin validate`: options that mean nothing for what is validated are refused, not ignored."""

from __future__ import annotations

import pytest


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
def test_an_option_of_another_kind_of_validation_is_refused(arguments, option, servetwin):
    code, _, err = servetwin("validate", *arguments)
    assert (code, option in " ".join(err.split())) == (2, True)
