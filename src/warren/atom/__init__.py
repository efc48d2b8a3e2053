"""ATOM on this node: a workload manager says when a job begins here and when it has ended.

The service that Cray's systems have under `/rm/v1/jobs`, for those who have it not. It runs
what the site configured around jobs, and knows nothing of who asks: PBS's hook speaks to it,
and lives in a file of its own.
"""
