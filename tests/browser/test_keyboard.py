"""Who has no mouse reaches everything."""

from __future__ import annotations


def test_the_tab_key_reaches_the_knobs_then_the_figures_downloads(reader):
    reader.open(workload__requests="100").drawn("Cumulative distribution of time to first token")
    reader.page.evaluate("() => document.activeElement.blur()")
    passed: list[str] = []
    for _ in range(200):
        reader.page.keyboard.press("Tab")
        passed.append(
            reader.page.evaluate(
                """() => {
                  const here = document.activeElement
                  return here.ariaLabel || here.innerText || here.closest('[data-testid]')?.innerText || here.tagName
                }"""
            )
        )
        if passed[-1].strip().endswith("HTML"):
            break
    assert any("Requests a second" in name for name in passed), passed
    assert passed[-1].strip().endswith("HTML"), passed
    with reader.page.expect_download() as caught:
        reader.page.keyboard.press("Enter")
    assert caught.value.suggested_filename.endswith(".html")
