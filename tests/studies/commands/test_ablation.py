"""`servetwin ablation`: options that do not go together are refused, and --validate tells what came of every variant."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bounded_queue", "--all"), "--all: runs every shipped one, bounded_queue too"),
        (("bounded_queue", "--repeats", "3"), "--repeats: is about --validate"),
        (("--validate",), "--validate: needs the name of an ablation, or --all"),
        (("--device", "cpu"), "--device: needs the name of an ablation, or --all"),
        (("cascade_against_frontier", "--validate"), "execution: is missing"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, message, servetwin):
    code, _, err = servetwin("ablation", *arguments)
    assert (code, message in " ".join(err.split())) == (2, True)


def test_every_variant_of_a_validated_ablation_has_a_line(servetwin):
    pytest.importorskip("torch", reason="executions need the extra gpu")
    code, out, _ = servetwin("ablation", "queue_timeout", "--validate", "--repeats", "1", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["variant"] for row in rows] == ["waiting", "sent_away"]
    assert all(row["identical"] and row["steps"] > 0 and row["refused"] is None for row in rows)
