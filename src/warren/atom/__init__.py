"""ATOM on this node: a workload manager says when a job begins here and when it has ended.

The service that Cray's systems have under `/rm/v1/jobs`, for sites without it. It runs
what the site configured around jobs, and knows nothing of its clients: PBS's hook speaks to it,
and lives in a file of its own.
"""
