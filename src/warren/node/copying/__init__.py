"""The copier: a child process that copies a file or a tree as its user would.

`command` makes its argument vector and `progress` reads its lines; the program is `__main__`.
Whatever fails is told on standard error and the rest is still copied; the exit status is
`FAILED` then. It dies with the agent that runs it.
"""

import json
import os
import sys
from typing import Final

from msgspec.structs import asdict

from warren.dws.node import Copy, NodeTrouble, Progress
from warren.dws.objects.decoding import Malformed, read_json

FAILED: Final = 3
"""The exit status of a copier that tells what it could not copy."""


def command(copy: Copy) -> list[str]:
    """Return the argument vector of a copier that this process starts, and whose end ends it."""
    agent_pid = str(os.getpid())
    return [sys.executable, "-P", "-m", "warren.node.copying", json.dumps(asdict(copy)), agent_pid]


def progress(line: str) -> Progress:
    """Read a line of a copier. Raises NodeTrouble for anything else.

    One that was installed since the agent was started may tell more than the agent knows.
    """
    try:
        return read_json(line, Progress)
    except Malformed:
        raise NodeTrouble(f"the copier said {line.strip()[:80]!r}") from None
