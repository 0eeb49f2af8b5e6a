"""Compare: variants of a scenario side by side."""
