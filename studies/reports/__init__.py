"""How results look: tables and texts for the terminal, pages that open without a network, JSON that every reader can read."""
