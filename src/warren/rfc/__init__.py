"""Words: one module per format of the Flux RFCs. Each knows its text and nothing else."""
