"""Two variants in a browser: what is known of each, what lies between them, and who is on the front."""

from __future__ import annotations

import re


def test_two_variants_show_their_intervals_their_differences_and_the_pareto_figure(reader):
    reader.begin("compare", workload__requests="50", v1="as it is", v2="two seats: engine.max_num_seqs=2", seeds="5")
    table = reader.page.get_by_role("region", name="Variants compared")
    table.filter(has_text="±").wait_for()
    reader.page.get_by_role("button", name="Cancel").wait_for(state="detached")
    reader.settled()
    reader.page.locator('[aria-label*="of 2 policies"]').nth(1).wait_for()
    reader.settled()
    said = table.inner_text()
    assert "as it is" in said
    assert "two seats" in said
    assert len(re.findall(r"\d ±", said)) >= 4, said  # of each variant, and of what lies between them
    assert re.search(r"better|worse|no difference seen", said), said
    fronts = [figure for figure in reader.figures() if " against " in figure.alt and "of 2 policies" in figure.alt]
    assert len(fronts) == 2
    for front in fronts:
        named = [name for trace in front.data for name in trace.get("text", [])]
        assert sorted(named) == ["as it is", "two seats"]
        assert any(trace.get("error_x", {}).get("array") for trace in front.data)
        assert front.marks > 0
        assert len(front.axes) == 2
