"""The DWS and NNF objects as values, and every decision on them. Pure: no clock, no IO.

How objects are stored or watched is not known here. The facts are those of the
Data Workflow Services and Near Node Flash custom resources.
"""
