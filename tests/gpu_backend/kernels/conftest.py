"""How kernels are tested without a GPU, in one plain run of pytest.

Triton decides between interpreting and compiling when a kernel is decorated, that is when its file is first imported, and one process
can do only one of the two. So:

- The test process interprets. `tests/conftest.py` sets TRITON_INTERPRET=1 before any test file is imported, since any of them may be
  the first to import a kernel. A test of a kernel imports its launcher and calls it on CPU tensors; there is nothing to mark.
- Compiling happens in one subprocess a capability without that variable; `test_compiled.py` starts them and checks what they report of
  every launch in a kernel file's `SPECIALISATIONS`. A new kernel is compiled by listing its launches, there is no test to add.

The interpreter's own limits: bf16 values have to be widened before arithmetic (kernels do it on load), fp32 to bf16 truncates where a
GPU rounds, a cast to fp8 may take the neighbour of the nearest value, and a small access out of bounds goes unseen: buffers here
stand in poisoned memory, see `Guards`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

POISON = 97
"""Fills what surrounds a buffer; small enough for int8, and unlike anything that tests draw."""


@pytest.fixture(scope="session", autouse=True)
def _interpreted() -> None:
    import triton

    assert triton.knobs.runtime.interpret, "tests/conftest.py sets TRITON_INTERPRET=1 before triton is imported"


class Guards:
    """Copies of tensors in the middle of poisoned memory: `place` makes one, `check` says whether something was written around any."""

    def __init__(self, margin: int = 64) -> None:
        self.margin = margin
        self._whole: list[tuple[torch.Tensor, int]] = []

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy with `margin` poisoned elements before and after it."""
        whole = torch.full((tensor.numel() + 2 * self.margin,), float(POISON)).to(tensor.dtype)
        whole[self.margin : self.margin + tensor.numel()] = tensor.reshape(-1)
        self._whole.append((whole, tensor.numel()))
        return whole[self.margin : self.margin + tensor.numel()].view(tensor.shape)

    def check(self) -> None:
        for whole, size in self._whole:
            around = torch.cat([whole[: self.margin], whole[self.margin + size :]]).float()
            assert (around == float(torch.tensor(float(POISON)).to(whole.dtype).float())).all()


@pytest.fixture
def guards() -> Iterator[Guards]:
    """Memory of one test; what surrounds its buffers is checked when the test ends."""
    made = Guards()
    yield made
    made.check()
