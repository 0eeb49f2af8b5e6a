"""Measured runs of real engines: what clients sent, and when tokens came back. A reader a layout."""
