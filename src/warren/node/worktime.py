"""How long what a node is asked for may take: longer than the commands that it is done by."""

from typing import Final

from warren.node import blocks, commands, lustre

_COMMANDS: Final = 16
"""More than are run one after the other for one object: a target of Lustre takes six, and what its
profile has run around it."""

SECONDS: Final = _COMMANDS * max(commands.SECONDS, blocks.MAKE_SECONDS, lustre.COMMAND_SECONDS)
"""What is cut off before a command has had its own time is never told of, and begins anew."""
