"""Processes that use a mount or a device, as /proc tells of them.

The kernel says that something is busy, and not by whom. It is looked for only then: that
goes over all that all processes have open. A process that was found is signalled through a
descriptor of it, so that never another one is met that has its id by then.

A process can keep /proc from answering (`base/childcalls.py`). It then counts as one that may use
what is its own user's, and nothing that is another's.
"""

import errno
import os
import pwd
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from warren.base.childcalls import SILENT, Silent, call_in_child
from warren.base.processes import pids, process_status
from warren.node import openfiles

_MOST_NAMED: Final = 3
"""Processes that a message names."""

_OTHERS_SECONDS: Final = 10.0
"""Seconds for all processes that are neither root's nor of the storage's user.

They are only named: whatever they keep is cut off, seen or not.
"""

_looks_at_others: Final = ContextVar("looks_at_others", default=True)
"""Whether it is looked at what those have open who are neither root nor the storage's user."""


class _SecondsLeft:
    """The seconds that are left for others."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


_left_for_others: Final[ContextVar[_SecondsLeft | None]] = ContextVar(
    "left_for_others", default=None
)
"""The seconds that several looks have together; None where each has `_OTHERS_SECONDS`."""

T = TypeVar("T")

_PROC: Final = Path("/proc")


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that keeps something busy."""

    pid: int
    userid: int
    """The real one: what a set-user-id program cannot change."""
    name: str
    started_at: int | None
    """When it was started, in clock ticks: with the id, no other process has the same.

    None where it does not answer.
    """

    @property
    def command(self) -> str:
        """Its program and its user."""
        return f"{self.name} of {user_name(self.userid)}"

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def describe(processes: Sequence[Process], limit: int = _MOST_NAMED) -> str:
    """Return the words for some processes: the first of them, and how many there are more."""
    if not processes:
        return "something that /proc does not show"
    named = ", ".join(str(each) for each in processes[:limit])
    more = len(processes) - limit
    return f"{named} and {more} more" if more > 0 else named


def send_signal(processes: Iterable[Process], signum: int) -> None:
    """Send a signal to processes, and to no others that have their ids by now.

    Those that do not answer when they began are known by user and name.
    """
    all_processes = list(processes)
    identified = [
        (each.pid, each.started_at) for each in all_processes if each.started_at is not None
    ]
    answers = call_in_child(openfiles.send_signal, identified, signum)
    sent = {pid for (pid, _), each in zip(identified, answers, strict=True) if each is not SILENT}
    for process in all_processes:
        if process.pid not in sent:
            _send_signal_by_name(process, signum)


def _send_signal_by_name(process: Process, signum: int) -> None:
    with suppress(OSError):
        pidfd = os.pidfd_open(process.pid)
        try:
            current = _process_by_status(process.pid)
            if current is not None and (current.userid, current.name) == (
                process.userid,
                process.name,
            ):
                signal.pidfd_send_signal(pidfd, signum)
        finally:
            os.close(pidfd)


@contextmanager
def leaving_out_others() -> Iterator[None]:
    """Look for root's processes and those of the storage's user alone meanwhile.

    What others have open may take long to look at, and they are only named.
    """
    token = _looks_at_others.set(False)
    try:
        yield
    finally:
        _looks_at_others.reset(token)


@contextmanager
def bounding_others(seconds: float) -> Iterator[None]:
    """Give all looks at those who are neither root nor the storage's user so much time together.

    Within another such bound that one holds.
    """
    token = _left_for_others.set(_left_for_others.get() or _SecondsLeft(seconds))
    try:
        yield
    finally:
        _left_for_others.reset(token)


def processes_using_mounts(mounts: Collection[int], userid: int = 0) -> list[Process]:
    """Return the processes with files or directories open on mounts, by the ids of these.

    With them those of a user, if that is not root, that do not answer.
    """
    includes_others = _looks_at_others.get()
    answers, silent = _ask(
        openfiles.uses_mounts, list(mounts), first_userid=userid, includes_others=includes_others
    )
    return [*(process for process, uses in answers if uses), *_of_user(silent, userid)]


def processes_using_devices(devices: Collection[str], userid: int = 0) -> list[Process]:
    """Return the processes that use block devices or what is mounted of them.

    Those of the user `userid` are looked at before others'.

    Of those that merely share a mount namespace in which it is mounted, only where all of
    them are one user's: the namespaces of nodes and of the machine are not theirs to answer for.
    """
    device_numbers = _device_numbers(devices)
    processes_by_id = {}
    namespaces: dict[int, list[Process]] = {}
    includes_others = _looks_at_others.get()
    answers, _ = _ask(
        openfiles.uses_devices,
        list(device_numbers),
        first_userid=userid,
        includes_others=includes_others,
    )
    for process, (namespace, uses) in answers:
        if namespace:
            namespaces.setdefault(namespace, []).append(process)
        if uses:
            processes_by_id[process.pid] = process
    of_one_user = {
        namespace: members
        for namespace, members in namespaces.items()
        if len({each.userid for each in members}) == 1
        and _has_mounted(members[0].pid, device_numbers)
    }
    if of_one_user and not includes_others:
        for namespace in _namespaces_of_others(userid):
            of_one_user.pop(namespace, None)
    for members in of_one_user.values():
        processes_by_id |= {each.pid: each for each in members}
    return [processes_by_id[pid] for pid in sorted(processes_by_id)]


def _namespaces_of_others(userid: int) -> set[int]:
    """Return the mount namespaces of the processes that are neither root's nor of a user.

    One that does not answer in time is elsewhere.
    """
    ids = [each.pid for each in _all_processes_by_status() if each.userid not in (0, userid)]
    return {each for each in _call_for_others(openfiles.mount_namespace, ids) if each is not SILENT}


def are_mounted_by_root(devices: Collection[str]) -> bool:
    """Return whether a process of root's sees one of some block devices mounted.

    So it is in the namespaces of the machine and of the nodes, and in none of a user's alone,
    also where that user has other ids in it (subuid(5)). Where it is not known, they are.
    """
    device_numbers = _device_numbers(devices)
    root_pids = [each.pid for each in _all_processes_by_status() if each.userid == 0]
    # One of each namespace, and all that do not answer in which they are.
    each_once = {
        pid if namespace is SILENT else -namespace: pid
        for pid, namespace in zip(
            root_pids, call_in_child(openfiles.mount_namespace, root_pids), strict=True
        )
    }
    try:
        return any(
            not device_numbers.isdisjoint(_devices_mounted(pid)) for pid in each_once.values()
        )
    except OSError:
        return not all(map(_is_free, devices))


def _has_mounted(pid: int, device_numbers: Collection[int]) -> bool:
    """Return whether a process is known to see one of some devices mounted."""
    with suppress(OSError):
        return any(each in device_numbers for each in _devices_mounted(pid))
    return False


def _is_free(device: str) -> bool:
    """Return whether the kernel lets a device be had alone, so that nothing has it mounted.

    Not asked where there is another way: who mounts it at that moment is refused.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _device_numbers(devices: Collection[str]) -> set[int]:
    numbers = set()
    for device in devices:
        with suppress(OSError):
            numbers.add(os.stat(device).st_rdev)
    return numbers


def processes_of_user(userid: int) -> list[Process]:
    """Return all processes of a user, without asking them when they began."""
    return [each for each in _all_processes_by_status() if each.userid == userid]


def processes_with_hidden_files(userid: int) -> list[Process]:
    """Return the processes of a user that may use something that /proc does not show.

    They hold what /proc does not look into: descriptors that were sent to a socket and not
    received, mount namespaces, the files of an io_uring; or files of what is mounted nowhere
    any more, which may be made of others. Or they do not answer.
    """
    machine_namespace = openfiles.mount_namespace(os.getpid())
    answers, silent = _ask(
        openfiles.may_hide_files, userid, first_userid=userid, includes_others=False
    )
    own = [(process, reply) for process, reply in answers if process.userid == userid]
    # Not the nodes' namespaces, which a process of root holds.
    shared = {machine_namespace} | {
        namespace for process, (namespace, _) in answers if process.userid != userid
    }
    if any(namespace not in shared for _, (namespace, _) in own):
        shared |= _namespaces_of_others(userid)
    hiding = [process for process, (namespace, hides) in own if hides or namespace not in shared]
    return [*hiding, *_of_user(silent, userid)]


def process(pid: int) -> Process | None:
    """Return a process as it is now; None if it has ended."""
    (answer,) = call_in_child(openfiles.process_facts, [pid])
    return _process_by_status(pid) if answer is SILENT else answer and _process(pid, answer)


def _ask(
    question: Callable[..., T], *args: object, first_userid: int, includes_others: bool = True
) -> tuple[list[tuple[Process, T]], list[Process]]:
    """Return what all processes but this one answer, and those first ones that do not.

    Root's are the first, with those of the user `first_userid`, and others have a few seconds
    then: what they have open may be so much that there is no time for all. Without
    `includes_others`, these are not asked at all.
    """
    processes = sorted(
        _all_processes_by_status(),
        key=lambda each: (each.userid != 0, each.userid != first_userid, each.pid),
    )
    first_ids = [each.pid for each in processes if each.userid in (0, first_userid)]
    other_ids = [each.pid for each in processes[len(first_ids) :]] if includes_others else []
    answers: list[tuple[Process, T]] = []
    silent: list[Process] = []
    for ids, call in ((first_ids, call_in_child), (other_ids, _call_for_others)):
        replies = call(openfiles.facts_and_answer, ids, question.__name__, *args)
        for pid, reply in zip(ids, replies, strict=True):
            if reply is SILENT and call is call_in_child:
                silent += filter(None, [_process_by_status(pid)])
            elif reply is not SILENT and reply is not None:
                facts, answer = reply
                answers.append((_process(pid, facts), answer))
    return answers, silent


def _call_for_others(
    function: Callable[..., T], ids: Sequence[int], *args: object
) -> list[T | Silent]:
    """Call a function for processes of others, for as long as there is time for these."""
    left = _left_for_others.get() or _SecondsLeft(_OTHERS_SECONDS)
    if left.seconds <= 0:
        return [SILENT] * len(ids)
    started_at = time.monotonic()
    try:
        return call_in_child(function, ids, *args, timeout=left.seconds)
    finally:
        left.seconds -= time.monotonic() - started_at


def _of_user(processes: Iterable[Process], userid: int) -> list[Process]:
    return [each for each in processes if each.userid == userid != 0]


def _process(pid: int, facts: openfiles.ProcessFacts) -> Process:
    userid, name, started_at = facts
    return Process(pid=pid, userid=userid, name=name, started_at=started_at)


def _all_processes_by_status() -> list[Process]:
    """Return all processes but this one, by what /proc tells even of those that hang."""
    candidates = (_process_by_status(pid) for pid in sorted(pids()) if pid != os.getpid())
    return [each for each in candidates if each is not None]


def _process_by_status(pid: int) -> Process | None:
    """Return a process, by what /proc tells even of one that hangs; None if it has ended."""
    try:
        fields = process_status(_PROC / str(pid))
        return Process(
            pid=pid, userid=int(fields["Uid"].split()[0]), name=fields["Name"], started_at=None
        )
    except (OSError, KeyError, ValueError):
        return None


def _devices_mounted(pid: int) -> Iterator[int]:
    for _, device in openfiles.mounted_devices(pid):
        yield device


def user_name(userid: int) -> str:
    """Return the name of a user, or the words for one who has none."""
    try:
        return pwd.getpwuid(userid).pw_name
    except KeyError:
        return f"user {userid}"
