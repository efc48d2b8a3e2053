"""Containers beside a job: their profiles, and the objects that an application is made of."""
