"""Sweeps: a study's cells, run side by side, kept as they finish, resumed where they stopped."""
