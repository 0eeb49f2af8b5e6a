"""The whole test process interprets Triton kernels; why, and how they are compiled: tests/gpu_backend/kernels/conftest.py."""

import os

os.environ["TRITON_INTERPRET"] = "1"
