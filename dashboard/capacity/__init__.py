"""Capacity: what a deployment carries, and what carries a load."""
