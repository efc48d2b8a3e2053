"""How the processes of a job are ended: by ever stronger means, and not for ever."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

KILL_SHELLS_AFTER: Final = 5
"""After so many kill timeouts the shells are killed, and not their tasks alone."""

MAX_PAUSE: Final = 300.0
"""Seconds that pass between two attempts at most."""


class KillAction(Enum):
    """What is done next to a job that was asked to end, and has not."""

    KILL_TASKS = auto()
    KILL_SHELLS = auto()
    """With everything that they have started."""
    GIVE_UP = auto()
    """Something cannot be killed: its node is of no use, and the job is over without it."""


def escalation(kill_timeout: float, attempts: int) -> Iterator[tuple[float, KillAction]]:
    """Return what to do to a job that was sent its first signal, each after so many seconds.

    The shells are killed `attempts` times, with pauses that double.
    """
    for _ in range(1, KILL_SHELLS_AFTER):
        yield kill_timeout, KillAction.KILL_TASKS
    wait, pause = kill_timeout, KILL_SHELLS_AFTER * kill_timeout
    for _ in range(attempts):
        yield wait, KillAction.KILL_SHELLS
        wait = pause = min(2 * pause, MAX_PAUSE)
    yield wait, KillAction.GIVE_UP
