"""What a user asks for, and where a job stands in the queue: urgency and priority (RFC 30)."""

from typing import Final

HOLD: Final = 0
"""The urgency of a job that is not to be given anything."""
DEFAULT: Final = 16
"""What a job has that says nothing, and the most that a guest may ask for."""
EXPEDITE: Final = 31
"""The urgency of a job that goes before all others."""

MAX_PRIORITY: Final = 2**32 - 1
"""The greatest priority."""


def priority(urgency: int, plugin_priority: int | None) -> int:
    """Return a job's priority: what a plugin has answered, or the urgency where that is None.

    A job that is held or expedited is so whatever a plugin says.
    """
    if urgency == HOLD:
        return 0
    if urgency == EXPEDITE:
        return MAX_PRIORITY
    return urgency if plugin_priority is None else max(0, min(plugin_priority, MAX_PRIORITY))
