"""Warren: near-node flash storage for HPC batch jobs."""

__version__ = "0.1.0"
