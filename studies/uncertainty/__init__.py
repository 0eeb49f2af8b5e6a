"""How sure a decision between two scenarios is, given what their calibration does not know."""
