"""Measured operators (GEMM, attention, experts, all-reduce, ...) and how they compose to the step costs of a model."""
