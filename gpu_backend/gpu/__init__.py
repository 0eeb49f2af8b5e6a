"""The engine on a GPU: Triton kernels, persistent buffers, CUDA graphs. Its torch path also runs on a CPU, for checks."""
