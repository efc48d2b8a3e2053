"""Bindings: how the conductor meets a workload manager. One package for each."""
