"""Explore: a scenario, its knobs, and what comes of them."""
