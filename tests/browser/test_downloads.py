"""What a page hands on: the scenario it shows, for the command line."""

from __future__ import annotations

import scenarios


def test_the_downloaded_yaml_is_the_scenario_that_is_shown(reader, tmp_path):
    reader.open(workload__requests="50", engine__max_num_seqs="8", view="Downloads")
    with reader.page.expect_download() as caught:
        reader.page.get_by_role("button", name="Scenario (YAML)").click()
    path = tmp_path / "mine.yaml"
    caught.value.save_as(path)
    changes = {"workload.requests": 50, "engine.max_num_seqs": 8}
    overrides = [scenarios.Override.parse(f"{name}={value}", name) for name, value in changes.items()]
    assert scenarios.load(path).hash() == scenarios.load("demo", overrides=overrides).hash()
