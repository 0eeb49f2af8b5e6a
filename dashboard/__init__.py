"""The dashboard: pages over `studies`, with the scenario in the link and every simulation in a process of its own."""
