"""Scheduling: the resource graph, matching, and why something does not fit."""
