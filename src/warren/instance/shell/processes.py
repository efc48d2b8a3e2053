"""Processes of this machine, as /proc shows them."""

import os
from contextlib import suppress
from pathlib import Path


def parents() -> dict[int, int]:
    """Give the parent of every living process; those that have ended and wait are not alive."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                # The name in parentheses may hold anything; what follows the last one is fixed.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    found[int(entry.name)] = int(parent)
    return found


def descendants(ancestor: int) -> list[int]:
    """Give the living processes below one."""
    known = parents()
    found: list[int] = []
    generation = [ancestor]
    while generation:
        generation = [child for child, parent in known.items() if parent in generation]
        found.extend(generation)
    return found


def marked(marker: str) -> list[int]:
    """Give the living processes, but for this one, that carry an environment entry `NAME=value`."""
    wanted = marker.encode()
    found = []
    for process in parents():
        if process != os.getpid():
            with suppress(OSError):
                entries = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if wanted in entries:
                    found.append(process)
    return found
