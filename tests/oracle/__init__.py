"""Plain reference implementations that the package is held to. Slow on purpose: nothing here is clever."""
