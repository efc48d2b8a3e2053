"""The work behind each state of a Workflow."""
