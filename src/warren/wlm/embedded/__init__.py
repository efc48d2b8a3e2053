"""The binding to the embedded instance: jobtap plugin, ingest validator, shell plugin, services."""
