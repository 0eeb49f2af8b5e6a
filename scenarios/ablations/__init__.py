"""Ablations that come with servetwin: a policy, switched, and what should follow."""
