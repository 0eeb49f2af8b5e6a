"""Shapes of the layers that kernels are compiled and judged for."""

DENSE: dict[str, tuple[int, int]] = {
    "Llama-3.1-8B qkv": (6144, 4096),
    "Llama-3.1-8B o": (4096, 4096),
    "Llama-3.1-8B gate_up": (28672, 4096),
    "Llama-3.1-8B down": (4096, 14336),
    "Llama-3.1-8B head": (128256, 4096),
    "Qwen3-0.6B qkv": (4096, 1024),
    "Qwen3-0.6B o": (1024, 2048),
    "Qwen3-0.6B gate_up": (6144, 1024),
    "Qwen3-0.6B down": (1024, 3072),
    "Qwen3-0.6B head": (151936, 1024),
}
"""`(out, in)` of dense layers."""
