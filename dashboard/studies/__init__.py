"""Studies: sweeps and runs that the workspace holds."""
