"""What the workload manager's side does for a job and its Workflow."""
