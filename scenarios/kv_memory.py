"""How much KV fits into the memory of a device beside a model's weights, and how a model is split over devices."""

from __future__ import annotations

from typing import NamedTuple

from scenarios.errors import misplaced
from scenarios.hardware import HardwareSpec
from scenarios.models import ModelSpec


class KvCapacity(NamedTuple):
    """Tokens of KV that an engine holds: assumed, at least, at most, and why. Where it is stated all three are equal."""

    tokens: int
    low: int
    high: int
    basis: str


def check_tensor_parallel(size: int, *models: ModelSpec) -> None:
    """Refuses a tensor-parallel group that cannot be.

    Raises:
        PydanticCustomError: heads of one of the models that do not split evenly.
    """
    for model in models:
        sizes = model.tensor_parallel_sizes()
        if size not in sizes:
            raise misplaced(
                f"found {size}, but {model.name} has {model.num_heads} query heads and {model.num_kv_heads} KV heads; "
                f"allowed: {', '.join(map(str, sizes))}",
                "engine", "tensor_parallel_size",
            )  # fmt: skip


def kv_blocks(
    model: ModelSpec,
    hardware: HardwareSpec,
    dtype: str,
    kv_dtype: str,
    utilization: float,
    block_size: int,
    draft: ModelSpec | None = None,
    tensor_parallel_size: int = 1,
    free_share: bool = False,
) -> int:
    """KV blocks that memory holds, null block included: what the engine may take, less weights and reserve. A draft model has
    its weights there too, and its KV in blocks of the same tokens. Each device of a tensor-parallel group holds its share of
    the weights and its heads' part of every block. With `free_share`, `utilization` is of what weights and reserve leave.

    Raises:
        PydanticCustomError: not even two blocks fit.
    """
    models = [model] if draft is None else [model, draft]
    tp = tensor_parallel_size
    weights = sum(m.weight_bytes(dtype) for m in models) / tp
    if free_share:
        left = utilization * (hardware.memory_bytes - weights - hardware.reserve_bytes)
    else:
        left = utilization * hardware.memory_bytes - weights - hardware.reserve_bytes
    if hardware.kv_cache_bytes is not None:
        left = min(left, hardware.kv_cache_bytes)
    blocks = int(left // (block_size * sum(m.kv_bytes_per_token(kv_dtype, tp) for m in models)))
    if blocks < 2:
        served = model.name if draft is None else f"{model.name} with {draft.name}"
        raise misplaced(
            f"{served} in {dtype} does not fit: {weights / 1e9:.1f} GB of weights and {hardware.reserve_bytes / 1e9:.1f} GB "
            f"of reserve{f' on each of {tp} devices,' if tp > 1 else ''} in {utilization:g} x {hardware.memory_bytes / 1e9:.1f} GB of {hardware.name} leave no room for KV"
            + _wider(models, tp, hardware),
            "model",
        )
    return blocks


def _wider(models: list[ModelSpec], size: int, hardware: HardwareSpec) -> str:
    """What to try where weights leave no room: the next larger group that the heads allow, if devices have a link."""
    common = set.intersection(*(set(m.tensor_parallel_sizes()) for m in models))
    larger = min((n for n in common if n > size), default=None)
    if larger is None or hardware.link_bandwidth is None:
        return ""
    return f"; try engine.tensor_parallel_size: {larger}"
