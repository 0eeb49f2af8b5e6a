"""Calibrate: cost profiles, measured, imported, and held against a scenario."""
