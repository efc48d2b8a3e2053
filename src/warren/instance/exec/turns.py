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
from typing import Final

import msgspec

_MOST_COMMANDS: Final = 4096
"""Commands that run at the same time, where this process may have enough descriptors open."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns and commands there are at a time."""

    turns: int = 64
    turns_of_own: int = 8
    """Turns that a user has whatever others do, also beyond `turns`: those may take long."""
    commands: int = _MOST_COMMANDS
    """Commands of all turns together. Half of them are for users who have no turn yet."""


def default_limits() -> Limits:
    """Return the limits that suit what this process may have open."""
    # A command takes a descriptor or two, and guests' connections take three quarters.
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(commands=max(1, min(_MOST_COMMANDS, descriptors // 8)))


class _Turn(msgspec.Struct):
    commands: int
    begun: asyncio.Future[None]


class Turns:
    """The turns of all users."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[int, deque[_Turn]] = {}
        """The turns that wait, by user."""
        self._turn_counts: Counter[int] = Counter()
        """The turns that have begun, by user."""
        self._last_turns: dict[int, int] = {}
        """A number for each user's last turn, greater for later ones. It outlives the turn."""
        self._numbers = itertools.count()
        self._commands = 0
        """The commands of these turns."""

    @asynccontextmanager
    async def take(self, userid: int, commands: int) -> AsyncIterator[int]:
        """Wait for a turn with so many commands, and bring how many may run at a time.

        These are all of them, but for a job that has more than there may be of all jobs.
        """
        turn = _Turn(
            commands=min(commands, self._limits.commands),
            begun=asyncio.get_running_loop().create_future(),
        )
        self._waiting.setdefault(userid, deque()).append(turn)
        self._begin_due()
        try:
            await turn.begun
            yield turn.commands
        finally:
            if not turn.begun.cancelled():
                self._turn_counts[userid] -= 1
                self._commands -= turn.commands
            self._begin_due()

    def _begin_due(self) -> None:
        """Begin the turns that may, those of the users with the fewest turns first.

        Of several users, the one whose last turn is longest ago is first. A turn that there is
        no room for is not overtaken, or one of many commands would wait for ever.
        """
        while self._waiting:
            userid = min(self._waiting, key=self._precedence)
            queue = self._waiting[userid]
            is_cancelled = queue[0].begun.done()
            if not (is_cancelled or self._has_room(userid, queue[0])):
                break
            turn = queue.popleft()
            if not queue:
                del self._waiting[userid]
            if not is_cancelled:
                self._turn_counts[userid] += 1
                self._commands += turn.commands
                self._last_turns[userid] = next(self._numbers)
                turn.begun.set_result(None)

    def _precedence(self, userid: int) -> tuple[int, int]:
        return self._turn_counts[userid], self._last_turns.get(userid, -1)

    def _has_room(self, userid: int, turn: _Turn) -> bool:
        limits, count = self._limits, self._turn_counts[userid]
        most_commands = limits.commands // 2 if count else limits.commands
        return (
            count < limits.turns_of_own or self._turn_counts.total() < limits.turns
        ) and self._commands + turn.commands <= most_commands
