"""What one guest may take of an instance, so that something is left for all others.

Connections, requests under way, bytes that wait to be understood or to be read, and time of the
event loop (`base.fairqueue`). The owner has no limits.
"""

import errno
import math
import resource
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from warren.base.fairqueue import DEFAULT_FAIRNESS, Fairness, FairQueue
from warren.rpc.message import RpcError

T = TypeVar("T")


class GuestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each guest, unless a field says otherwise."""

    connections: float
    all_connections: float
    """Of all guests together."""
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
    def request(self) -> Iterator[None]:
        """Have one more request under way. Raises RpcError(EAGAIN) if that is too many."""
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
    def hold(self, count: int) -> Iterator[None]:
        """Have so many more bytes waiting. Raises RpcError(EAGAIN) if that is too many."""
        self.add_waiting(count)
        try:
            yield
        finally:
            self.remove_waiting(count)

    def has_room(self, count: int) -> bool:
        """Return whether so many more bytes may wait."""
        return self.waiting_bytes + count <= self._limits.waiting_bytes

    def add_waiting(self, count: int) -> None:
        """Count so many more bytes that wait. Raises RpcError(EAGAIN) if that is too many."""
        if not self.has_room(count):
            raise RpcError(
                errno.EAGAIN,
                f"{self.waiting_bytes} bytes of user {self._userid}'s wait already: "
                "try again later",
            )
        self.waiting_bytes += count

    def remove_waiting(self, count: int) -> None:
        self.waiting_bytes -= count


class Guests:
    """All guests that are connected."""

    def __init__(self, limits: GuestLimits, fairness: Fairness = DEFAULT_FAIRNESS) -> None:
        self._limits = limits
        self._queue = FairQueue(fairness)
        self._usages: dict[int, Usage] = {}
        self._known: set[int] = set()
        self._lookups = 0
        """Connections whose users are being looked up on this machine."""

    async def check_known(self, userid: int, is_user: Callable[[int], Awaitable[bool]]) -> None:
        """Return if a guest is a user of this machine, and remember that.

        Raises RpcError(EPERM) for one that is not, and RpcError(EMFILE) where too many are being
        looked up.
        """
        if userid in self._known:
            return
        if self._lookups >= self._limits.connections:
            raise RpcError(errno.EMFILE, "too many users come for the first time: try again later")
        self._lookups += 1
        try:
            if not await is_user(userid):
                raise RpcError(errno.EPERM, f"there is no user {userid} on this machine")
        finally:
            self._lookups -= 1
        self._known.add(userid)

    @contextmanager
    def connect(self, userid: int) -> Iterator[Usage]:
        """Have one more connection of a guest. Raises RpcError(EMFILE) if that is too many."""
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
