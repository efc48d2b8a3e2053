"""Measurements against the budgets of the architecture. `make bench` runs them."""
