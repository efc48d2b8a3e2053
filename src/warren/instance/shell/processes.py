"""Processes of this machine, as /proc shows them."""

import ctypes
import os
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_prctl: Final = ctypes.CDLL(None).prctl
"""Found once, before any shell is forked."""


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


def descendants(ancestor: int, but: Collection[int] = ()) -> list[int]:
    """Give the living processes below one, except for `but` and what is below those."""
    known = parents()
    found: list[int] = []
    generation = [ancestor]
    while generation:
        generation = [
            child for child, parent in known.items() if parent in generation and child not in but
        ]
        found.extend(generation)
    return found


def kill(processes: Callable[[], Sequence[int]]) -> None:
    """Kill processes that may be about to start others: `processes` is asked until none is new."""
    stopped: set[int] = set()
    while new := set(processes()) - stopped:
        for process in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGSTOP)
        stopped |= new
    for process in stopped:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


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


def adopt_orphans() -> None:
    """Be the parent of whatever loses its own below this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies. Any change of user undoes it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
