"""Storage that is in use when it is to be released: how long to wait, which processes to end."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

from warren.base import log
from warren.base.clock import Clock, SystemClock
from warren.dws.node import InUse
from warren.node.threads import in_thread
from warren.node.usage import (
    Process,
    bounding_others,
    describe,
    leaving_out_others,
    processes_with_hidden_files,
    send_signal,
    user_name,
)

GRACE_SECONDS: Final = 30.0
"""Seconds that something may be in use before it is taken away, unless a site says otherwise."""

_PASSING_SECONDS: Final = 1.0
"""Seconds for what is in use by what is never killed: that is not waited for, but it may pass."""

_OTHERS_SECONDS: Final = 2.0
"""Seconds in all, each time, for what those have open who are neither root nor the storage's user.

It decides nothing, and users could have all wait with much that they have open.
"""

_MAX_LOOK_SECONDS: Final = 5.0
"""The longest between two looks at what is in use: each goes over all that processes have open."""

BusyPolicy = Literal["kill", "keep"]
"""Whether processes of a job's user are ended that still use its storage then."""

_MAX_ROUNDS: Final = 20
"""How often processes are looked for that start others before they can be stopped."""

_KILL_SECONDS: Final = 60.0
"""Seconds after which no processes are looked for any more that others have started meanwhile.

A look may take most of a minute where there are many, and a worker of the agent waits for it.
"""


class GracePeriod:
    """Waits a bounded time for what is in use; then ends those processes that may be ended."""

    def __init__(
        self,
        *,
        seconds: float = GRACE_SECONDS,
        policy: BusyPolicy = "kill",
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """What is busy is left alone for `seconds`, counted from when it was first found so.

        `monotonic` tells how long it takes to kill processes, which is bounded as well.
        """
        self._seconds = seconds
        self._policy = policy
        self._clock = clock or SystemClock()
        self._monotonic = monotonic
        self._since: dict[str, float] = {}

    async def enforce(
        self, resource: str, userid: int, find_processes: Callable[[], list[Process]]
    ) -> list[Process]:
        """Raise InUse until the time is over; then return the processes that keep `resource`.

        Those of the user `userid`, if that is not root, are killed then, and left out.
        What neither root nor that user is seen or suspected to use has a moment, not all that
        time: any user can keep others' storage in use, by what is never killed, for ever. So it is
        looked at only when the time is over, to be named.
        """
        with bounding_others(_OTHERS_SECONDS):
            return await self._enforce(resource, userid, find_processes)

    async def _enforce(
        self, resource: str, userid: int, find_processes: Callable[[], list[Process]]
    ) -> list[Process]:
        now = self._clock.now()
        since = self._since.setdefault(resource, now)
        elapsed, left = now - since, since + self._seconds - now
        # A clock that was set back must not make it longer.
        if elapsed >= 0 and left > 0:
            with leaving_out_others():
                processes = await in_thread(find_processes)
                is_waited_for = elapsed < _PASSING_SECONDS or await in_thread(
                    _is_waited_for, processes, userid
                )
            if is_waited_for:
                words = f"{resource} is in use by {_describe_own(processes, userid)}"
                raise InUse(words, delay=_seconds_to_next_look(elapsed, left))
            return await in_thread(find_processes)
        if not self.may_kill(userid):
            return await in_thread(find_processes)
        # First: in which namespaces others are decides who is killed, and has the time for it.
        await self.kill(resource, userid, find_processes)
        return [each for each in await in_thread(find_processes) if each.userid != userid]

    async def kill(
        self, resource: str, userid: int, find_processes: Callable[[], list[Process]]
    ) -> None:
        """Kill the processes of a user that keep `resource`, or may."""
        with bounding_others(_OTHERS_SECONDS):
            killed = await in_thread(_kill, find_processes, userid, self._monotonic)
        for each in killed:
            log.warning("process killed", uses=resource, process=str(each))

    def may_kill(self, userid: int) -> bool:
        """Return whether processes of a user are ended for the storage that they keep."""
        return self._policy == "kill" and userid != 0 and os.geteuid() == 0

    def has_survived_kill(self, resource: str) -> bool:
        """Return whether what was killed for `resource` has had the time once more to die."""
        return self._clock.now() >= self._since.get(resource, self._clock.now()) + 2 * self._seconds

    def forget(self, resource: str) -> None:
        """Forget what is not in use any more."""
        self._since.pop(resource, None)


def _is_waited_for(processes: Sequence[Process], userid: int) -> bool:
    """Return whether root or a user is among `processes`, or the user may use it unseen."""
    if any(each.userid in (0, userid) for each in processes):
        return True
    return userid != 0 and bool(processes_with_hidden_files(userid))


def _describe_own(processes: Sequence[Process], userid: int) -> str:
    """Return the words for what root and a user are seen to use, if there is anything."""
    if processes:
        return describe(processes)
    owners = "root's" if userid == 0 else f"root's or {user_name(userid)}'s"
    return f"{describe([])} as {owners}"


def _seconds_to_next_look(elapsed: float, left: float) -> float:
    """Return when to look again: seldom at what is used for long, and once the time is over."""
    return min(max(_PASSING_SECONDS, elapsed / 4), _MAX_LOOK_SECONDS, left)


def _kill(
    find_processes: Callable[[], list[Process]], userid: int, monotonic: Callable[[], float]
) -> list[Process]:
    """Kill a user's processes of those that are found; return them.

    They are stopped first, until none is found that was started meanwhile, or the time is over.
    """
    deadline = monotonic() + _KILL_SECONDS
    stopped: dict[Process, None] = {}
    for _ in range(_MAX_ROUNDS):
        with leaving_out_others():
            processes = find_processes()
        new = [each for each in processes if each.userid == userid and each not in stopped]
        if not new:
            break
        send_signal(new, signal.SIGSTOP)
        stopped |= dict.fromkeys(new)
        if monotonic() >= deadline:
            break
    send_signal(stopped, signal.SIGKILL)
    return list(stopped)
