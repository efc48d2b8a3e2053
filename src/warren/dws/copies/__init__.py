"""Copies that directives ask for: paths, profiles, movements, and whose turn it is."""
