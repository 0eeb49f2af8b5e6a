"""The sidebar of pages about a scenario: where it starts from, a widget for every knob of it, and files of the reader's."""

from dashboard.panel.asked import Asked, ask

__all__ = ["Asked", "ask"]
