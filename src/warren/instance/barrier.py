"""Barriers: so many enter one by name, and all go on together."""

import asyncio
import errno
from dataclasses import dataclass, field

from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError


@dataclass
class _Barrier:
    size: int
    entered: set[str] = field(default_factory=set)
    waiting: "list[asyncio.Future[None]]" = field(default_factory=list)


class Barriers:
    """The `barrier` service. Who enters twice, after a lost connection, counts once."""

    def __init__(self) -> None:
        self._barriers: dict[str, _Barrier] = {}
        self._broken: set[str] = set()
        """How the names of barriers begin that will not be complete any more."""

    def methods(self) -> Methods:
        return {"enter": Method(self._enter, guest=True)}

    async def _enter(self, request: Request) -> Payload:
        try:
            # Users cannot meet each other's barriers.
            name = f"{request.cred.userid} {request.payload['name']}"
            size, who = int(request.payload["nprocs"]), str(request.payload["who"])
        except (KeyError, TypeError, ValueError):
            raise RpcError(errno.EPROTO, "barrier.enter takes name, nprocs and who") from None
        barrier = self._barriers.setdefault(name, _Barrier(size))
        barrier.entered.add(who)
        if len(barrier.entered) >= barrier.size:
            # Kept, not removed: one that comes again passes at once.
            for waiting in barrier.waiting:
                if not waiting.done():
                    waiting.set_result(None)
            return {}
        if any(name.startswith(broken) for broken in self._broken):
            raise RpcError(errno.ECANCELED, "the barrier was broken")
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        barrier.waiting.append(arrived)
        await arrived
        return {}

    def break_off(self, userid: int, prefix: str) -> None:
        """Somebody will not come any more: fail whoever waits, and whoever comes to wait."""
        self._broken.add(f"{userid} {prefix}")
        for name, barrier in self._barriers.items():
            if name.startswith(f"{userid} {prefix}"):
                for waiting in barrier.waiting:
                    if not waiting.done():
                        waiting.set_exception(RpcError(errno.ECANCELED, "the barrier was broken"))

    def forget(self, userid: int, prefix: str) -> None:
        """Remove barriers that nobody will enter any more; fail whoever waits in one."""
        self.break_off(userid, prefix)
        self._broken.remove(f"{userid} {prefix}")
        for name in [name for name in self._barriers if name.startswith(f"{userid} {prefix}")]:
            del self._barriers[name]
