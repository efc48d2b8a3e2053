"""How long a reconcile of a node's may take: longer than the commands that it runs."""

from typing import Final

from warren.node import blocks, commands, lustre

_MOST_COMMANDS: Final = 16
"""Commands that are run one after the other for one object at most: a target of Lustre takes six,
and what its profile has run around it."""

RECONCILE_TIMEOUT: Final = _MOST_COMMANDS * max(
    commands.COMMAND_TIMEOUT, blocks.MAKE_SECONDS, lustre.COMMAND_SECONDS
)
"""What is cut off before a command has had its own time is never told of, and begins anew."""
