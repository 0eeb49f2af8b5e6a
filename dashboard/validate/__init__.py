"""Validate: predictions against measurements."""
