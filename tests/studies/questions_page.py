"""docs/questions.md, written from the files of the studies. `python -m tests.studies.questions_page` writes it anew."""

from __future__ import annotations

import textwrap
from pathlib import Path

from studies import questions
from studies.questions import TOPICS, first_sentence
from studies.sweeps.study import Study

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
HEAD = """# Questions that people ask about serving

Fifteen studies that are ready to run, each with the answer that this version gives. `servetwin question` lists them;
`servetwin question larger_batch_slower_tokens` prints the answer, runs the simulations behind it (seconds to a minute or two) and says
whether every figure of the answer still comes out, with its interval. `--small` runs a small form in seconds that holds the direction only.
Ask the same of your own model, hardware or load with `--set`, as in `servetwin question int4_at_batch_256 --set hardware=L40S`, or keep all
runs with tables and figures: `servetwin sweep which_token_budget --out out/budget`.

Figures are means over five seeds, the same requests at every point of a study; "±" is half of a 95 % interval (Student's t) and says how far
another draw of the workload would move them, not how far the model is from your hardware. That is in [fidelity.md](fidelity.md), and each answer
names what it takes for granted. This page is written from the files of the studies; a test keeps it so, and `python bench/questions.py`
runs all of them and compares every figure.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, _contents()]
    for topic, names in TOPICS.items():
        parts.append(f"## {topic}\n")
        parts += [_section(name, questions.read(name)) for name in names]
    return "\n".join(parts).rstrip("\n") + "\n"


def _contents() -> str:
    rows = ["| question | in short |", "|---|---|"]
    for names in TOPICS.values():
        for name in names:
            study = questions.read(name)
            rows.append(f"| [{study.question}](#{_anchor(study.question)}) | {first_sentence(study)} |")
    return "\n".join(rows) + "\n"


def _anchor(heading: str) -> str:
    """What a heading is linked by, as GitHub makes it."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _section(name: str, study: Study) -> str:
    checks = "\n".join(f"- {expected}" for expected in study.expect)
    return (
        f"### {study.question}\n\n"
        f"{_wrapped(study.answer)}\n\n"
        f"{_wrapped(f'**Assumes.** {study.assumes}')}\n\n"
        f"**On hardware.** {study.on_hardware.strip()}\n\n"
        f"**Held to** ([`{name}`](../scenarios/library/questions/{name}.yaml)):\n\n{checks}\n"
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text.strip(), 140, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
