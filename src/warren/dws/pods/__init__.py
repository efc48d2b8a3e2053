"""Pods and batch Jobs, as far as containers beside jobs need them."""
