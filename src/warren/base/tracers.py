"""Processes that do not die because another one traces them (ptrace(2)).

With PTRACE_O_TRACEEXIT, a process that was killed stops once more on its way out, until its tracer
lets it go on or dies itself. Nothing of its program runs any more. Any process of a user may trace
the user's others, also those of a job, and two may trace each other: those never die.
"""

import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from warren.base.processes import ids_of_user, process_status, send_signal, threads

_PROC: Final = Path("/proc")
_OVER: Final = "tZX"
"""States of a thread whose process was killed: held by its tracer, or ended (proc_pid_stat(5))."""

_NONE: Final = "0"
"""What stands for no tracer, and for one that is outside of this namespace of processes."""


def is_over(pid: int) -> bool:
    """Return whether a process that was killed runs no more: it has ended, or a tracer holds it.

    Of one that was not killed it tells nothing: such a one stops for its tracer at any time.
    """
    return all(_runs_no_more(_status(thread)) for thread in threads(_PROC / str(pid)))


def _runs_no_more(status: dict[str, str]) -> bool:
    state = status["State"][0]
    return state in _OVER or (state == "S" and _waits_for_namespace(status))


def _waits_for_namespace(status: dict[str, str]) -> bool:
    """Return whether this is the first of a process namespace, at its end, beside what is held.

    It has closed its files by then, and given up its file mode mask after them. Before, it may
    wait as well as any other that exits, for a file server that does not answer.
    """
    is_first = status.get("NStgid", "").split()[-1:] == ["1"]
    return is_first and "Umask" not in status


def by_userid(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return processes by their real users, as `kill_tracers` takes them."""
    by_userid: dict[int, list[int]] = {}
    for pid in pids:
        by_userid.setdefault(_real_userid(_status(_PROC / str(pid))), []).append(pid)
    return by_userid


def kill_tracers(pids: Iterable[int], userid: int) -> set[int]:
    """Kill the tracers that hold processes which were killed, and theirs; return whom.

    Only those of a user: by the real id, or by an id of the user namespaces of `pids`. Those
    of root and of other users are left alone, and so is what traces root's processes.
    """
    held = list(pids)
    if userid == 0:
        return set()
    return send_signal(lambda: _tracers(held, userid), signal.SIGKILL)


def _tracers(pids: Iterable[int], userid: int) -> set[int]:
    """Return what traces the threads of processes that are held, and what traces that."""
    held = [
        thread
        for pid in pids
        for thread in threads(_PROC / str(pid))
        if _status(thread)["State"][0] in _OVER
    ]
    ids = ids_of_user(userid, held)
    tracers: set[int] = set()
    while held:
        new = set()
        for tracer in {_status(thread)["TracerPid"] for thread in held} - {_NONE}:
            # It is a thread, and may be any of its process.
            status = _status(_PROC / tracer)
            real_id = _real_userid(status)
            if real_id != 0 and any(real_id in each for each in ids):
                new.add(int(status["Tgid"]))
        new -= tracers
        tracers |= new
        # What traces those would hold them in turn.
        held = [thread for pid in new for thread in threads(_PROC / str(pid))]
    return tracers


def _real_userid(status: dict[str, str]) -> int:
    return int(status["Uid"].split()[0])


def _status(thread: Path) -> dict[str, str]:
    """Return the status of a thread; of one that has ended, that it is dead and root's."""
    with suppress(OSError):
        return process_status(thread)
    return {"State": "X", "TracerPid": _NONE, "Uid": "0", "Tgid": "0"}
