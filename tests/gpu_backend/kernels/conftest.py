"""How kernels are tested without a GPU, in one plain run of pytest.

Triton decides between interpreting and compiling when a kernel is decorated, that is when its file is first imported, and one process
can do only one of the two. So:

- The test process interprets. `tests/conftest.py` sets TRITON_INTERPRET=1 before any test file is imported, since any of them may be
  the first to import a kernel. A test of a kernel imports its launcher and calls it on CPU tensors; there is nothing to mark.
- Compiling happens in one subprocess a capability without that variable; `test_compiled.py` starts them and checks what they report of
  every launch in a kernel file's `SPECIALISATIONS`. A new kernel is compiled by listing its launches, there is no test to add.

The interpreter's own limits: bf16 values have to be widened before arithmetic (kernels do it on load), fp32 to bf16 truncates where a
GPU rounds, one cast to fp8 in twenty halves the value (kernels write its bits themselves), and a small access out of bounds goes unseen: buffers here
stand in poisoned memory, see `Guards`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gpu_backend.checks.poison import Poisoned


@pytest.fixture(scope="session", autouse=True)
def _interpreted() -> None:
    import triton

    assert triton.knobs.runtime.interpret, "tests/conftest.py sets TRITON_INTERPRET=1 before triton is imported"


class Guards(Poisoned):
    """Memory of one test: `place` copies a tensor between poison, which reads as NaN and must still be there at the end."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def __enter__(self) -> Guards:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind is not None or self.intact(), "written beside a buffer"


@pytest.fixture
def guards() -> Iterator[Guards]:
    """`Guards` for the length of a test; where examples are many, each has its own: `with Guards() as guards`."""
    with Guards() as made:
        yield made
