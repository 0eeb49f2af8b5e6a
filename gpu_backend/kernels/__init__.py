"""Triton kernels, one a file, each with its torch reference beside it."""
