"""The engine on a CPU: oneDNN or numba linears, numba kernels, paged KV."""
