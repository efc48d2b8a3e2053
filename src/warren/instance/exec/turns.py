"""Who runs commands around jobs next: users take turns, and a turn is a step of one job.

In its turn a job runs a command on all of its nodes at once, for it may wait on one node for
what it does on the others, such as to start what mounts the job's storage. So the commands of
a job do not wait for each other; how many processes there are of all jobs is limited by which
turns begin.
"""

import asyncio
import itertools
import resource
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

_MOST_COMMANDS: Final = 4096
"""Commands that run at the same time, where this process may have enough descriptors open."""


_LONGEST_WAIT: Final = 60.0
"""Seconds after which a turn begins that there is no room for, one at a time: commands of others
may never end, and those of a job may wait for each other."""


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns and commands there are at a time."""

    max_turns: int = 64
    turns_of_own: int = 8
    """Turns that a user has whatever others do, also beyond `max_turns`: those may take long."""
    max_commands: int = _MOST_COMMANDS
    """Commands of all turns together, but for one that has waited for long. Half of them are for
    users who have no turn yet."""


def default_turn_limits() -> TurnLimits:
    """Return the limits that suit what this process may have open."""
    # A command takes a descriptor or two, and guests' connections take three quarters.
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return TurnLimits(max_commands=max(1, min(_MOST_COMMANDS, descriptors // 8)))


class _Turn(msgspec.Struct):
    command_count: int
    overdue_at: float
    begun: asyncio.Future[None]


class Turns:
    """The turns of all users."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._waiting: dict[int, deque[_Turn]] = {}
        """The turns that wait, by user."""
        self._turn_counts: Counter[int] = Counter()
        """How many turns have begun and are not over, by user."""
        self._last_turns: dict[int, int] = {}
        """A number for each user's last turn, greater for later ones. It outlives the turn."""
        self._turn_numbers = itertools.count()
        self._command_count = 0
        """How many commands these turns have together."""

    @asynccontextmanager
    async def take(
        self, userid: int, command_count: int, cancelled: asyncio.Event
    ) -> AsyncIterator[int]:
        """Wait for a turn with so many commands, and bring how many may run at a time.

        These are all of them, but for a job that has more than there may be of all jobs; and one
        where the job is `cancelled` before its turn, and so has none to run.
        """
        loop = asyncio.get_running_loop()
        turn = _Turn(
            command_count=min(command_count, self._limits.max_commands),
            overdue_at=loop.time() + _LONGEST_WAIT,
            begun=loop.create_future(),
        )
        self._waiting.setdefault(userid, deque()).append(turn)
        self._begin_due()
        timer = loop.call_at(turn.overdue_at, self._begin_due)
        try:
            yield turn.command_count if await _wait_turn(turn.begun, cancelled) else 1
        finally:
            timer.cancel()
            if turn.begun.done() and not turn.begun.cancelled():
                self._turn_counts[userid] -= 1
                self._command_count -= turn.command_count
            else:
                turn.begun.cancel()
            self._begin_due()

    def _begin_due(self) -> None:
        """Begin the turns that may, those of the users with the fewest turns first.

        Of several users, the one whose last turn is longest ago is first. A turn that there is no
        room for is passed by those of other users until it is overdue.
        """
        while (userid := self._next_user()) is not None:
            queue = self._waiting[userid]
            turn = queue.popleft()
            if not queue:
                del self._waiting[userid]
            if not turn.begun.done():
                self._turn_counts[userid] += 1
                self._command_count += turn.command_count
                self._last_turns[userid] = next(self._turn_numbers)
                turn.begun.set_result(None)

    def _next_user(self) -> int | None:
        """Return the user whose first turn may begin, or is cancelled; None if there is none."""
        for userid in sorted(self._waiting, key=self._precedence):
            turn = self._waiting[userid][0]
            if turn.begun.done() or self._has_room(userid, turn):
                return userid
        return None

    def _precedence(self, userid: int) -> tuple[int, int]:
        return self._turn_counts[userid], self._last_turns.get(userid, -1)

    def _has_room(self, userid: int, turn: _Turn) -> bool:
        limits, count = self._limits, self._turn_counts[userid]
        if count >= limits.turns_of_own and self._turn_counts.total() >= limits.max_turns:
            return False
        most_commands = limits.max_commands // 2 if count else limits.max_commands
        if self._command_count + turn.command_count <= most_commands:
            return True
        is_overdue = asyncio.get_running_loop().time() >= turn.overdue_at
        return is_overdue and self._command_count <= limits.max_commands


async def _wait_turn(begun: asyncio.Future[None], cancelled: asyncio.Event) -> bool:
    """Wait for a turn or its cancellation, and return whether it was the turn."""
    cancellation = asyncio.ensure_future(cancelled.wait())
    both: list[asyncio.Future[Any]] = [begun, cancellation]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        cancellation.cancel()
    return begun.done()
