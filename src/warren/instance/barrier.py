"""Barriers: so many enter one by name, and all go on together."""

import asyncio
import errno
from collections import Counter
from typing import Final

import msgspec

from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError

_MOST_BARRIERS: Final = 4096
"""How many barriers one guest may have."""
_ENTRIES_PER_BARRIER: Final = 16
"""How many may have entered all of a guest's barriers together, for each of them."""
_MOST_PARTICIPANTS: Final = 2**16
"""How many may meet in one of a guest's barriers."""
_LONGEST_NAME: Final = 256
"""Characters of a guest's names."""


class _Barrier(msgspec.Struct):
    size: int
    entered: set[str] = msgspec.field(default_factory=set)
    waiting: "list[asyncio.Future[None]]" = msgspec.field(default_factory=list)


class Barriers:
    """The `barrier` service. One that enters twice, after a lost connection, counts once."""

    def __init__(self, most_barriers: int = _MOST_BARRIERS) -> None:
        """A guest has no more than `most_barriers` barriers."""
        self._most_barriers = most_barriers
        self._barriers: dict[str, _Barrier] = {}
        self._barrier_counts: Counter[str] = Counter()
        """How many barriers each guest has, by user id, the first word of their names."""
        self._entry_counts: Counter[str] = Counter()
        """How many have entered the barriers of each guest, likewise."""
        self._broken_prefixes: set[str] = set()
        """What the names of barriers begin with that will never be complete."""

    def methods(self) -> Methods:
        return {"enter": Method(self._enter, guest=True)}

    async def _enter(self, request: Request) -> Payload:
        try:
            # Users cannot meet each other's barriers.
            name = f"{request.cred.userid} {request.payload['name']}"
            size, who = int(request.payload["nprocs"]), str(request.payload["who"])
        except (KeyError, TypeError, ValueError):
            raise RpcError(errno.EPROTO, "barrier.enter takes name, nprocs and who") from None
        if not request.cred.is_owner:
            self._check_guest(name, size, who)
        if name not in self._barriers:
            self._barrier_counts[_user(name)] += 1
        barrier = self._barriers.setdefault(name, _Barrier(size))
        if who not in barrier.entered and len(barrier.entered) < barrier.size:
            self._entry_counts[_user(name)] += 1
            barrier.entered.add(who)
        if len(barrier.entered) >= barrier.size:
            # Kept, not removed: one that comes again passes at once.
            for waiting in barrier.waiting:
                if not waiting.done():
                    waiting.set_result(None)
            return {}
        if any(name.startswith(prefix) for prefix in self._broken_prefixes):
            raise RpcError(errno.ECANCELED, "the barrier was broken")
        completion: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        barrier.waiting.append(completion)
        try:
            await completion
        finally:
            barrier.waiting.remove(completion)
        return {}

    def _check_guest(self, name: str, size: int, who: str) -> None:
        if size > _MOST_PARTICIPANTS or len(who) > _LONGEST_NAME or len(name) > _LONGEST_NAME:
            message = (
                f"a barrier is for up to {_MOST_PARTICIPANTS}, with names of up to {_LONGEST_NAME} "
                "characters"
            )
            raise RpcError(errno.EINVAL, message)
        if name not in self._barriers and self._barrier_counts[_user(name)] >= self._most_barriers:
            message = (
                f"there are {self._most_barriers} barriers of this user: those of a job go with it"
            )
            raise RpcError(errno.ENOSPC, message)
        already_entered = name in self._barriers and who in self._barriers[name].entered
        if (
            not already_entered
            and self._entry_counts[_user(name)] >= _ENTRIES_PER_BARRIER * self._most_barriers
        ):
            message = "too many have entered barriers of this user: those of a job go with it"
            raise RpcError(errno.ENOSPC, message)

    def abort(self, userid: int, prefix: str) -> None:
        """Fail those that wait, and those that come later: a participant has gone."""
        self._broken_prefixes.add(f"{userid} {prefix}")
        for name, barrier in self._barriers.items():
            if name.startswith(f"{userid} {prefix}"):
                for waiting in barrier.waiting:
                    if not waiting.done():
                        waiting.set_exception(RpcError(errno.ECANCELED, "the barrier was broken"))

    def forget(self, userid: int, prefix: str) -> None:
        """Remove barriers that cannot be completed any more; fail those that wait in one."""
        self.abort(userid, prefix)
        self._broken_prefixes.remove(f"{userid} {prefix}")
        for name in [name for name in self._barriers if name.startswith(f"{userid} {prefix}")]:
            self._entry_counts[_user(name)] -= len(self._barriers[name].entered)
            del self._barriers[name]
            self._barrier_counts[_user(name)] -= 1


def _user(name: str) -> str:
    return name.partition(" ")[0]
