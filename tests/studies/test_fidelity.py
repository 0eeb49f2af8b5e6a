"""The fidelity page: what it refuses, peers' figures beside ours, and which cells count as the worst."""

from __future__ import annotations

import json

import pytest

from scenarios.errors import InputError
from studies import fidelity
from studies.fidelity import Cell, Chapter
from studies.reports.tables import Table


def test_without_measurements_the_page_says_what_it_needs(tmp_path):
    with pytest.raises(InputError, match="there is no folder measured in it; --data needs"):
        fidelity.page(tmp_path)


def test_a_peers_own_errors_are_read_by_our_names(tmp_path):
    path = tmp_path / "summary.txt"
    path.write_text(
        "TTFT Mean  65012.1  64800.3  -0.33%\nLatency P99  1.0  1.1  +2.50%\nTPOT Median  9 9 -0.10%\nother\n"
    )
    assert fidelity._summary_of(path) == {"mean_ttft_ms": "-0.33 %", "p99_e2el_ms": "+2.50 %", "p50_tpot_ms": "-0.10 %"}
    assert fidelity._summary_of(tmp_path / "none.txt") == {}


def test_half_is_as_far_off_as_double():
    cells = [Cell("a", "TTFT", 0.9, None), Cell("b", "TTFT", -0.5, 0.01), Cell("c", "TTFT", 0.01, None)]
    chapter = Chapter("T", "about", "fail", "sentence", [], cells)
    assert [row[0] for row in fidelity._worst([chapter]).rows] == ["b", "a", "c"]


def test_every_chapter_is_on_the_page_with_its_attempts_and_its_gaps():
    shown = [Table("Errors", ("", "error"), [("mean TTFT", "1 %")])]
    chapter = Chapter("A run", "What it is.", "pass", "How it went.", shown, attempts="| 1 |", not_modelled=("clocks",))
    text = "\n".join(fidelity._rendered([chapter]))
    assert text.index("| A run | pass | How it went. |") < text.index("## A run") < text.index("### Errors")
    assert text.index("### Every attempt") < text.index("## Shipped profiles") < text.index("## What is not modelled")
    assert "- clocks" in text


def test_a_validation_of_our_own_engine_is_taken_from_its_file(tmp_path):
    row = {"metric": "mean_ttft_ms", "live": 100.0, "simulated": 97.0, "error": -0.03, "noise": 0.05, "verdict": "pass"}
    stored = {"outcome": [row], "schedule": {"identical": True, "steps": 12}, "repeats": 3, "verdict": "pass"}
    path = tmp_path / "validation.json"
    path.write_text(json.dumps(stored))
    assert "Replayed schedule identical over 12 steps" in fidelity._own(path).sentence
    path.write_text("{}")
    with pytest.raises(InputError, match=r"not the validation\.json of `servetwin validate"):
        fidelity._own(path)
