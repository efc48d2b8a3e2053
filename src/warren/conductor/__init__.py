"""The conductor: leads each job's Workflow through its states, for any workload manager.

What it does is decided in `warren.dws.jobs.conduct`; which workload manager is behind
its port is not known here.
"""
