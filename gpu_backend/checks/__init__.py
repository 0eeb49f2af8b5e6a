"""Checking and timing a device: its ceilings, and every kernel against float64 and against its floor."""
