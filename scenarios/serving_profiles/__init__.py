"""Shipped serving profiles: one YAML file each, read by `scenarios.serving_profile`."""
