"""Wiring: the whole, built from parts, and the processes that it runs in."""
