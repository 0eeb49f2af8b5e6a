"""Runs that a real engine served, simulated request by request and compared."""
