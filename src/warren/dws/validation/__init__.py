"""What is wrong with the directives of a job, as far as this cluster can tell in Proposal."""
