"""Cost profiles for people: what stands behind one, its figures, how far a run stays inside it, and making one from files."""
