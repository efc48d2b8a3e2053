"""The job shell: on each node of a job, it starts the job's tasks there and tends them."""
