"""The job manager: all jobs from their submission to their last event, and what plugins do."""
