"""The life of a job (RFC 21): what each event means, and what each state asks for."""
