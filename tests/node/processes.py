"""Looking at the processes of the machine, and waiting for what is about to happen."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from warren.base.processes import parents


def alive() -> set[int]:
    """The processes that run; those that have ended and are not buried do not count."""
    return set(parents())


def zombies() -> set[int]:
    """Our children that have ended, and that were not waited for."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state == "Z" and int(parent) == os.getpid():
                found.add(int(entry.name))
    return found


LIMITS = (0.5, 2.0, 8.0, 30.0, 120.0)
"""Seconds to try one after the other, where a limit must let a program begin and not end."""


def eventually(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for what the kernel is about to do, and no longer than it may take."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.01)
