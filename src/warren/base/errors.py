"""Errors named after their remedy: wait, or tell the author.

Each package derives its own. Anything that is neither is a bug of ours.
The text of each is one sentence to the person who can act.
"""


class WarrenError(Exception):
    """Something that can be explained in one sentence."""


class Retryable(WarrenError):
    """The failure may be temporary: retry after `delay` seconds."""

    delay = 5.0


class UserMistake(WarrenError):
    """Only the author of the request can fix this: report it, do not retry."""
