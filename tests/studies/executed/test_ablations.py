"""Every ablation that has a small form runs on the CPU engine, and what was decided there is decided again in replay."""

from __future__ import annotations

import pytest

from studies import ablations
from studies.run import replayed

pytest.importorskip("torch", reason="executions need the extra gpu")


@pytest.mark.parametrize("name", [name for name in ablations.names() if ablations.read(name).execution])
def test_every_variant_is_executed_and_replayed(name: str) -> None:
    for variant, run in ablations.run(name, device="cpu").runs.items():
        assert run.workload is not None
        found = replayed(run, run.workload)
        assert found.identical, (variant, found.first_difference)
        assert run.summary["completed"] > 0
