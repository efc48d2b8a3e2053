"""Webhooks that are asked about writes: which, how, and what becomes of their answers."""
