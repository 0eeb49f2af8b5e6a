"""Measured points of data-centre GPUs, simulated and compared."""
