"""Errors named after their remedy: wait, or tell the author.

Each room derives its own. Anything that is neither is a bug of ours.
The text of each is one sentence to the person who can act.
"""


class WarrenError(Exception):
    """Something that can be explained in one sentence."""


class Retryable(WarrenError):
    """The world may heal by itself: come back after `delay` seconds."""

    delay = 5.0


class UserMistake(WarrenError):
    """Only the person who asked can fix this: say it plainly, do not retry."""
