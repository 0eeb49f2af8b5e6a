"""One replica over several devices: its share of weights and KV, what is refused, and that one device is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import scenarios
from scenarios import Scenario
from scenarios.hardware import CATALOG, hardware
from scenarios.kv_memory import kv_blocks
from scenarios.models import model

Build = Callable[..., Scenario]


def test_each_device_holds_its_share_of_weights_and_kv() -> None:
    spec, sheet = model("Llama-3.1-70B"), hardware("H100")
    for size in (2, 4, 8):
        blocks = kv_blocks(spec, sheet, "fp8", "fp8", 0.9, 16, tensor_parallel_size=size)
        left = 0.9 * sheet.memory_bytes - spec.weight_bytes("fp8") / size - 3.5e9
        assert blocks == int(left // (16 * spec.kv_bytes_per_token("fp8") / size))


def test_kv_heads_are_copied_where_there_are_more_devices() -> None:
    spec = model("Qwen3-30B-A3B")  # four KV heads
    assert [spec.kv_heads_of_rank(size) for size in (1, 2, 4, 8, 32)] == [4, 2, 1, 1, 1]
    assert spec.kv_bytes_per_token("fp8", 8) == spec.kv_bytes_per_token("fp8", 4) == spec.kv_bytes_per_token("fp8") / 4


def test_weights_may_fit_on_several_devices_only(build: Build) -> None:
    big: dict[str, Any] = {"model": "Llama-3.1-70B", "hardware": "H100"}
    with pytest.raises(ValueError, match=r"leave no room for KV; try engine\.tensor_parallel_size: 2"):
        build(**big)
    assert build(**big, engine={"tensor_parallel_size": 4}).engine_config().tensor_parallel_size == 4
    with pytest.raises(ValueError, match=r"141\.1 GB of weights, H100 has"):
        build(**big, engine={"num_gpu_blocks": 1000})
    build(**big, engine={"num_gpu_blocks": 1000, "tensor_parallel_size": 2})


@pytest.mark.parametrize(
    ("name", "size", "allowed"),
    [("Llama-3.1-8B", 3, "1, 2, 4, 8, 16, 32"), ("Qwen3-14B", 5, "1, 2, 4, 8, 40"), ("SmolLM2-135M", 2, "1, 3, 9")],
)
def test_sizes_that_do_not_split_the_heads_are_refused(build: Build, name: str, size: int, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"found {size}, but .* query heads .* allowed: {allowed} ") as caught:
        build(model=name, hardware="H100", engine={"tensor_parallel_size": size})
    assert caught.value.errors()[0]["ctx"]["path"] == ("engine", "tensor_parallel_size")  # type: ignore[attr-defined]


def test_a_draft_models_heads_are_split_too(build: Build) -> None:
    draft = {"method": "draft", "acceptance": 0.7, "draft_model": "Qwen3-0.6B"}
    with pytest.raises(ValueError, match=r"found 32, but Qwen3-0\.6B has 16 query heads"):
        build(model="Qwen3-8B", hardware="H100", engine={"speculation": draft, "tensor_parallel_size": 32})


def test_one_device_is_hashed_as_before_there_were_several(build: Build) -> None:
    """Hashes of the shipped scenarios from before this field; the sheet's link matters to groups only."""
    assert scenarios.load("demo").hash().startswith("7b0cb19c3c51547c")
    assert scenarios.load("multi-turn").hash().startswith("0d747d0e74a4b741")
    sheet = {"base": "H100", "name": "mine"}
    faster = sheet | {"link_bandwidth": 9e11}
    base = build(hardware=sheet).hash()
    assert build(hardware=sheet, engine={"tensor_parallel_size": 1}).hash() == base
    assert build(hardware=faster).hash() == base
    two, quick = (build(hardware=h, engine={"tensor_parallel_size": 2}).hash() for h in (sheet, faster))
    assert len({base, two, quick}) == 3


def test_every_gpu_has_a_link() -> None:
    for sheet in CATALOG.values():
        assert (sheet.link_bandwidth is None) == sheet.is_cpu
