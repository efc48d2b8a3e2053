"""What one guest may take of an instance, so that something is left for all others.

Connections, how fast they are opened, requests under way, bytes that wait to be understood or to
be read, and time of the event loop (`base.fairqueue`). The owner has no limits.
"""

import errno
import math
import resource
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from warren.base.accepting import ConnectionPace
from warren.base.fairqueue import DEFAULT_FAIRNESS, Fairness, FairQueue
from warren.base.subordinateids import SubordinateIds
from warren.rpc.message import RpcError

T = TypeVar("T")


class GuestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each guest, unless a field says otherwise."""

    connections: float
    all_connections: float
    """Of all guests together."""
    connection_interval: float = 0.01
    """Seconds from one new connection to the next, after `connection_burst` at once."""
    connection_burst: int = 256
    max_connection_delay: float = 5.0
    """Seconds that a new connection waits for its turn at most."""
    requests: float = 4096
    waiting_bytes: float = 64 * 2**20
    """Bytes of requests that are not whole or not answered, and of answers that are not read."""


UNLIMITED: Final = GuestLimits(
    connections=math.inf, all_connections=math.inf, requests=math.inf, waiting_bytes=math.inf
)


def default_limits() -> GuestLimits:
    """Return the limits that suit what this process may have open; a quarter is the owner's."""
    quarter = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    return GuestLimits(connections=quarter, all_connections=3 * quarter)


class Usage:
    """What one user has taken."""

    def __init__(
        self, userid: int, limits: GuestLimits = UNLIMITED, queue: FairQueue | None = None
    ) -> None:
        self._userid = userid
        self._limits = limits
        self._queue = queue
        self.connections = 0
        self.requests = 0
        self.waiting_bytes = 0

    @property
    def is_limited(self) -> bool:
        return self._limits is not UNLIMITED

    async def run_fairly(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the user's work, in no more than the user's share of the event loop's time."""
        if self._queue is None:
            return await work()
        return await self._queue.run(self._userid, work)

    @contextmanager
    def count_request(self) -> Iterator[None]:
        """Count one more request under way for the length of a block.

        Raises RpcError(EAGAIN) if that is too many.
        """
        if self.requests >= self._limits.requests:
            raise RpcError(
                errno.EAGAIN,
                f"user {self._userid} has {self.requests} requests under way: try again later",
            )
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def count_waiting(self, size: int) -> Iterator[None]:
        """Count so many more bytes that wait, for the length of a block.

        Raises RpcError(EAGAIN) if that is too many.
        """
        self.add_waiting(size)
        try:
            yield
        finally:
            self.remove_waiting(size)

    def has_room(self, size: int) -> bool:
        """Return whether so many more bytes may wait."""
        return self.waiting_bytes + size <= self._limits.waiting_bytes

    def add_waiting(self, size: int) -> None:
        """Count so many more bytes that wait. Raises RpcError(EAGAIN) if that is too many."""
        if not self.has_room(size):
            raise RpcError(
                errno.EAGAIN,
                f"{self.waiting_bytes} bytes of user {self._userid}'s wait already: "
                "try again later",
            )
        self.waiting_bytes += size

    def remove_waiting(self, size: int) -> None:
        self.waiting_bytes -= size


class Guests:
    """All guests that are connected."""

    def __init__(
        self,
        limits: GuestLimits,
        fairness: Fairness = DEFAULT_FAIRNESS,
        subordinates: SubordinateIds | None = None,
    ) -> None:
        self._limits = limits
        self._subordinates = subordinates or SubordinateIds()
        self._pace = ConnectionPace(
            limits.connection_interval,
            burst=limits.connection_burst,
            max_delay=limits.max_connection_delay,
        )
        self._queue = FairQueue(fairness)
        self._usages: dict[int, Usage] = {}
        self._known_userids: set[int] = set()
        self._lookups = 0
        """Connections whose users are being looked up on this machine."""

    async def check_known(self, userid: int, is_user: Callable[[int], Awaitable[bool]]) -> None:
        """Return if a guest is a user of this machine, and remember that.

        Raises RpcError(EPERM) for one that is not, and RpcError(EMFILE) where too many are being
        looked up.
        """
        if userid in self._known_userids:
            return
        if self._lookups >= self._limits.connections:
            raise RpcError(errno.EMFILE, "too many users come for the first time: try again later")
        self._lookups += 1
        try:
            if not await is_user(userid):
                raise RpcError(errno.EPERM, f"there is no user {userid} on this machine")
        finally:
            self._lookups -= 1
        self._known_userids.add(userid)

    def schedule_connection(self, userid: int, now: float) -> float:
        """Schedule a guest's new connection; return after how many seconds it is let in.

        Raises RpcError(ECONNRESET) for one that would wait too long.
        """
        # Subordinate ids are no users of this machine, but until that is known they cost as much.
        delay = self._pace.next_delay(self._subordinates.accounting_id(userid), now)
        if delay is None:
            # The errno of a lost connection: whoever comes again after one does so here, too.
            rate = 1 / self._limits.connection_interval
            raise RpcError(
                errno.ECONNRESET,
                f"user {userid} opens connections faster than {rate:g} in a second: "
                "try again later, or ask more over each",
            )
        return delay

    @contextmanager
    def count_connection(self, userid: int) -> Iterator[Usage]:
        """Count one more connection of a guest for the length of a block.

        Raises RpcError(EMFILE) if that is too many.
        """
        usage = self._usages.get(userid) or Usage(userid, self._limits, self._queue)
        if usage.connections >= self._limits.connections:
            raise RpcError(
                errno.EMFILE, f"user {userid} has {usage.connections} connections: close some"
            )
        if sum(each.connections for each in self._usages.values()) >= self._limits.all_connections:
            raise RpcError(errno.EMFILE, "guests have too many connections: try again later")
        self._usages[userid] = usage
        usage.connections += 1
        try:
            yield usage
        finally:
            usage.connections -= 1
            if not usage.connections:
                del self._usages[userid]
