"""Processes of this machine, as /proc shows them.

What a process can keep from being answered is asked in a child (`childcalls.py`).
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from warren.base.childcalls import call_in_child

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_prctl: Final = ctypes.CDLL(None).prctl
"""Found once, before any shell is forked."""

_MOST_HANDLES: Final = 256
"""Processes that are held at a time: each takes a descriptor."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.1
"""Seconds after which what has been killed is looked at again, at first and at last."""


def pids() -> list[int]:
    """Return the numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def process_status(directory: Path) -> dict[str, str]:
    """Return what the directory of a process or thread in /proc says (proc_pid_status(5)).

    It answers whatever the process is doing. Raises OSError if it has ended.
    """
    # A name that is odd on purpose takes no more than its line: the kernel escapes it.
    text = (directory / "status").read_text(errors="replace")
    lines = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, _, value in lines}


def threads(directory: Path) -> list[Path]:
    """Return the directories of a process's threads: the first may have ended, and others go on."""
    try:
        return list((directory / "task").iterdir())
    except OSError:
        return []


def ids_of_user(
    userid: int, threads: Iterable[Path], own_process: Path = Path("/proc/self")
) -> list[range]:
    """Return the ids by which a user's processes may go.

    They are the user's own, and the subordinate ones of the user namespaces that `threads`, which
    are the user's, are in.
    """
    own_ids = _user_namespace_ids(own_process)
    # A user namespace that has other ids than ours was made with those that its user may have.
    return [
        range(userid, userid + 1),
        *(
            each
            for thread in threads
            if (namespace_ids := _user_namespace_ids(thread)) != own_ids
            for each in namespace_ids
        ),
    ]


def _user_namespace_ids(thread: Path) -> list[range]:
    """Return the ids that a thread's user namespace has, as they are here (user_namespaces(7))."""
    try:
        lines = (thread / "uid_map").read_text().splitlines()
    except OSError:
        return []
    ids = (line.split() for line in lines)
    return [range(int(first), int(first) + int(count)) for _, first, count in ids]


def parents() -> dict[int, int]:
    """Return the parent of every living process; those that have ended and wait are not alive."""
    parent_by_pid: dict[int, int] = {}
    for pid in pids():
        with suppress(OSError, KeyError, ValueError):
            status = process_status(Path(f"/proc/{pid}"))
            # The first thread may have ended, and others go on.
            if status["State"][0] not in "ZX" or int(status["Threads"]) > 1:
                parent_by_pid[pid] = int(status["PPid"])
    return parent_by_pid


def descendants(ancestor: int, excluded: Collection[int] = ()) -> list[int]:
    """Return the living processes below one, except for `excluded` and what is below those."""
    parent_by_pid = parents()
    descendant_pids: list[int] = []
    generation = [ancestor]
    while generation:
        generation = [
            child
            for child, parent in parent_by_pid.items()
            if parent in generation and child not in excluded
        ]
        descendant_pids.extend(generation)
    return descendant_pids


def send_signal(find_processes: Callable[[], Collection[int]], signum: int) -> set[int]:
    """Send a signal to the processes that are found, and return those that it went to.

    It never goes to a process that has got the number of one that has ended: `find_processes` is
    asked again when there are handles. What has one of these numbers then, and still when
    the signal is sent, is what the second answer is about.
    """
    sent: set[int] = set()
    candidates = list(find_processes())
    for start in range(0, len(candidates), _MOST_HANDLES):
        with ExitStack() as handles:
            pidfds = {}
            for pid in candidates[start : start + _MOST_HANDLES]:
                with suppress(ProcessLookupError):
                    pidfds[pid] = os.pidfd_open(pid)
                    handles.callback(os.close, pidfds[pid])
            for pid in pidfds.keys() & set(find_processes()):
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(pidfds[pid], signum)
                sent.add(pid)
    return sent


def kill(find_processes: Callable[[], Collection[int]]) -> None:
    """Kill processes that may be about to start others: they are looked for until none is new."""
    stopped: set[int] = set()

    def running() -> set[int]:
        return set(find_processes()) - stopped

    while new := send_signal(running, signal.SIGSTOP):
        stopped.update(new)
    send_signal(find_processes, signal.SIGKILL)


def kill_until_gone(
    find_processes: Callable[[], Collection[int]], seconds: float, kill: Callable[[], None]
) -> list[int]:
    """Kill processes until there are none, and reap those of them that are our children.

    Return those that have not died after so many seconds. `kill` kills what there is, once.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while remaining := find_processes():
        if time.monotonic() > deadline:
            return sorted(remaining)
        kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return []


def pids_with_variable(entry: str) -> list[int]:
    """Return the living processes, but for this one, that carry an environment entry `NAME=value`.

    What one process knows, any can carry: what is found is to be killed only if the entry is a
    secret of those who start such processes.
    """
    candidates = [pid for pid in parents() if pid != os.getpid()]
    answers = call_in_child(has_variable, candidates, entry)
    return [pid for pid, answer in zip(candidates, answers, strict=True) if answer is True]


def has_variable(pid: int, entry: str) -> bool:
    """Return whether a process carries an environment entry. It may never answer."""
    try:
        return entry.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def adopt_orphans() -> None:
    """Become the parent of all processes below this one that lose theirs."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies. Any change of user undoes it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
