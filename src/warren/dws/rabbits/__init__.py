"""The rabbits of a system: what each has, how it is, and who takes it out of service."""
