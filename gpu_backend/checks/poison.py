"""Tensors that stand in poisoned memory, so that reading or writing beside them does not go unseen.

Poison is a byte pattern of ones: NaN in every floating-point format, -1 in every integer one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_MARGIN = 1 << 18
"""Bytes on either side: more than a KV block, so that a wrong index reads poison and not another's memory."""

_ONES = 0xFF


class Poisoned:
    """Allocates tensors with poison around them and keeps them in view. Addresses are multiples of 256."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._whole: list[tuple[torch.Tensor, int]] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Contiguous and poisoned itself: a value that nobody writes is found as NaN or -1."""
        size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
        whole = torch.full((2 * _MARGIN + -(-size // 256) * 256,), _ONES, dtype=torch.uint8, device=self.device)
        self._whole.append((whole, size))
        return whole[_MARGIN : _MARGIN + size].view(dtype).view(*shape)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy of a tensor."""
        made = self.empty(tensor.shape, tensor.dtype)
        # fp8 has no copy on every device; its bytes have.
        made.view(torch.uint8).copy_(tensor.to(self.device).contiguous().view(torch.uint8))
        return made

    def intact(self) -> bool:
        """Whether nobody wrote beside any of them."""
        return all(
            bool((whole[:_MARGIN] == _ONES).all()) and bool((whole[_MARGIN + size :] == _ONES).all())
            for whole, size in self._whole
        )


def is_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Bool, of the tensor's shape: where it still holds the poison."""
    raw = tensor.contiguous().view(torch.uint8).view(*tensor.shape, tensor.element_size())
    return (raw == _ONES).all(-1)
