"""Validations for people: those that come with the package and those of a run just made, in one form with the same figures."""
