"""What the processes of users leave to others: of a machine's memory, and of its processes.

Where memory is short, what users run is ended first, before what all of it depends on. The
kernel ends the largest process, and a job may consist of many small ones. Asking for more of
that takes no privilege (proc(5), `oom_score_adj`); asking for less does, where root asked for more.
"""

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

OOM_SCORE_ADJ: Final = 500
"""The `oom_score_adj` of what is ended first: as if half of all memory were the process's."""
LARGEST_OOM_SCORE_ADJ: Final = 1000
"""That of what is ended before all else."""

_COPIERS: Final = 8
"""Copiers that a rabbit usually has at a time: together they may fill its memory, and no more."""

_MIN_MEMORY: Final = 2**30

_ADJUSTMENT: Final = Path("/proc/self/oom_score_adj")


def raise_oom_score(score: int = OOM_SCORE_ADJ) -> None:
    """Have this process, and what it starts, ended first where memory is short."""
    with suppress(OSError):
        if int(_ADJUSTMENT.read_text()) < score:
            _ADJUSTMENT.write_text(str(score))


def copier_memory_limit() -> int:
    """Return how many bytes a copier may hold: an eighth of the machine's memory, at least 1 GiB.

    What a user has copied may be endless, where a file server of the user's says what there is.
    """
    return max(total_memory() // _COPIERS, _MIN_MEMORY)


def total_memory() -> int:
    """Return how many bytes of memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def limit_copier_memory() -> None:
    """Hold this process, and each that it starts, to `copier_memory_limit`.

    Or to less, where it was held to less so far.
    """
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    limit = min(
        [copier_memory_limit(), *(each for each in limits if each != resource.RLIM_INFINITY)]
    )
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def process_limits() -> tuple[int, int]:
    """Return how many processes and threads a user may have, softly and at most (RLIMIT_NPROC).

    That is half of those that there can be on the machine, and no more than this process may. With
    as many as root may have, one user's `fork` in a loop would leave none at all, not to the
    cluster either. The kernel counts all that are the user's.
    """
    machine_limits = []
    for name in ("pid_max", "threads-max"):
        with suppress(OSError, ValueError):
            machine_limits.append(int(Path("/proc/sys/kernel", name).read_text()) // 2)
    soft, hard = (
        min([*machine_limits, each if each != resource.RLIM_INFINITY else sys.maxsize])
        for each in resource.getrlimit(resource.RLIMIT_NPROC)
    )
    return soft, hard


def limit_processes() -> None:
    """Hold this process, and what it starts, to `process_limits`: call it before it is a user."""
    resource.setrlimit(resource.RLIMIT_NPROC, process_limits())
