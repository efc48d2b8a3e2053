"""Shells of the storage side: one module a reconciler. Observe, decide, perform.

What is decided stands in `warren.dws`; which workload manager asks, and how a
file system is made, is not known here.
"""
