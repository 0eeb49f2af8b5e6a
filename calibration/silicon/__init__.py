"""Measured end-to-end points of data-centre GPUs, and the constants that are fitted to one half of them."""
