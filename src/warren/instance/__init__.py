"""The embedded Flux instance: jobs from submission to their last event, for one machine.

It knows storage only through plugins and an ingest validator.
"""
