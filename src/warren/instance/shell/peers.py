"""The shells of a job among themselves: where they meet, and how they learn of each other's end.

They gather in a barrier of the instance before any task starts. From then on they meet
at the leader, whose memory outlives restarts of the instance, which that of a barrier does not.
A shell that waits too long for the others enters a barrier that the instance aborts when a
shell of the job has failed, or the leader has gone.
"""

import asyncio
import errno
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from warren.instance.shell.shellinfo import ShellInfo
from warren.rfc import fluid
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Handle, Payload, Request, RpcError

_LOOK_DELAY: Final = 1.0
"""Seconds after which a shell that waits looks for reasons."""
_ANSWER_GRACE: Final = 5.0
"""Seconds that a shell still has to answer once another one has failed."""
_MEETINGS_KEPT: Final = 3
"""Meetings of which the result is kept: no shell can be further behind."""


class _Meeting(msgspec.Struct):
    given_by_rank: dict[int, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    complete: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    @property
    def holds_data(self) -> bool:
        """Whether all have come, and brought something that takes space."""
        return self.complete.is_set() and any(self.given_by_rank.values())

    def result(self) -> dict[str, Any]:
        everything: dict[str, Any] = {}
        for each in self.given_by_rank.values():
            everything.update(each)
        return everything


class ShellPeers:
    """One shell's view of the job's other shells. Alone, it does not wait."""

    def __init__(self, handle: Handle, info: ShellInfo) -> None:
        self._handle = handle
        self._label = fluid.f58plain(info.job)
        self._userid = info.userid
        self._rank = info.rank
        self._size = len(info.hosts)
        self._meetings: dict[str, _Meeting] = {}
        self._gathered = asyncio.Event()
        self._left_events = {rank: asyncio.Event() for rank in range(1, self._size)}
        self.some_node_done = asyncio.Event()
        """Set at the leader when all tasks of some other node have ended."""

    def service(self, rank: int) -> str:
        """Return the name of a shell's service: the leader's is the job's."""
        name = f"{self._userid}-shell-{self._label}"
        return name if rank == 0 else f"{name}-{rank}"

    def methods(self) -> Methods:
        """Return what the leader answers."""
        return {
            "gathered": Method(self._serve_gathered, guest=True),
            "meet": Method(self._serve_meet, guest=True),
            "leave": Method(self._serve_leave, guest=True),
        }

    # Together

    async def gather(self) -> None:
        """Wait until all shells are there. Raises RpcError(ECANCELED) where one cannot come."""
        request = {"name": f"{self._label}-init", "nprocs": self._size, "who": str(self._rank)}
        await _first(self._handle.rpc("barrier.enter", request), self._wait_gathered())
        self._gathered.set()

    async def _wait_gathered(self) -> None:
        """Learn in another way that all are there.

        Some may have gone on, and not know that the instance has forgotten it since.
        """
        if self._rank == 0:
            await self._gathered.wait()
        else:
            await asyncio.sleep(_LOOK_DELAY)
            await self._handle.rpc(f"{self.service(0)}.gathered")

    async def exchange(self, name: str, contribution: Mapping[str, Any]) -> Mapping[str, Any]:
        """Wait until all shells have come with a contribution, and return all of them as one map.

        Raises RpcError(ECANCELED) where one of them cannot come any more.
        """
        if self._size == 1:
            return contribution
        if self._rank == 0:
            return await _first(self._join(name, 0, contribution), self._wait_broken())  # type: ignore[no-any-return]
        request = {"name": name, "rank": self._rank, "given": contribution}
        answer = await _first(
            self._handle.rpc(f"{self.service(0)}.meet", request), self._wait_broken()
        )
        return answer["given"]  # type: ignore[no-any-return]

    async def _join(self, name: str, rank: int, given: Mapping[str, Any]) -> dict[str, Any]:
        meeting = self._meetings.setdefault(name, _Meeting())
        # One that comes again, after a lost connection, brings what it brought.
        meeting.given_by_rank.setdefault(rank, given)
        if len(meeting.given_by_rank) == self._size:
            meeting.complete.set()
            names_with_data = [each for each, other in self._meetings.items() if other.holds_data]
            for old_name in names_with_data[:-_MEETINGS_KEPT]:
                del self._meetings[old_name]
        await meeting.complete.wait()
        return meeting.result()

    async def leave(self, *, wait_for_all: bool) -> None:
        """Report that this node's tasks have ended; the leader waits for the reports of all.

        Without `wait_for_all` a leader goes when some shell has failed, though others may run.
        """
        if self._size == 1:
            return
        with suppress(RpcError):
            if self._rank != 0:
                request = {"rank": self._rank}
                await _first(
                    self._handle.rpc(f"{self.service(0)}.leave", request), self._wait_broken()
                )
            elif wait_for_all:
                await self._wait_all_left()
            else:
                await _first(self._wait_all_left(), self._wait_broken())

    async def _wait_all_left(self) -> None:
        for left in self._left_events.values():
            await left.wait()

    async def ask(self, rank: int, method: str, payload: Payload) -> Payload | None:
        """Ask another shell, as the leader, and return its answer; None when it has left."""
        call = self._handle.rpc(f"{self.service(rank)}.{method}", payload)
        return await _first(call, self._wait_left(rank), self._wait_hopeless())  # type: ignore[no-any-return]

    async def _wait_left(self, rank: int) -> None:
        await self._left_events[rank].wait()

    async def _wait_hopeless(self) -> None:
        """Wait until there is no hope for the answer of a shell that has not left.

        That one has failed is no reason by itself: it may be another one.
        """
        with suppress(RpcError):
            await self._wait_broken()
        await asyncio.sleep(_ANSWER_GRACE)

    async def _wait_broken(self) -> None:
        """Wait until the instance says that a shell has failed or the leader has gone; then raise.

        Raises RpcError.
        """
        await asyncio.sleep(_LOOK_DELAY)
        # One more than there are shells: it is never complete, only broken.
        request = {"name": f"{self._label}-end", "nprocs": self._size + 1, "who": str(self._rank)}
        await self._handle.rpc("barrier.enter", request)

    # The leader answers

    async def _serve_gathered(self, request: Request) -> Payload:
        self._permitted_rank(request)
        await self._gathered.wait()
        return {}

    async def _serve_meet(self, request: Request) -> Payload:
        rank = self._permitted_rank(request)
        name, given = request.payload.get("name"), request.payload.get("given")
        if not isinstance(name, str) or not isinstance(given, Mapping) or rank is None:
            raise RpcError(errno.EPROTO, "meet takes name, rank and given")
        self._gathered.set()
        return {"given": await self._join(name, rank, given)}

    async def _serve_leave(self, request: Request) -> Payload:
        rank = self._permitted_rank(request)
        if rank is None:
            raise RpcError(errno.EPROTO, "leave takes a rank")
        self._gathered.set()
        self._left_events[rank].set()
        self.some_node_done.set()
        return {}

    def _permitted_rank(self, request: Request) -> int | None:
        """Return the rank of the shell that asks, if it says a rank that there is."""
        if not request.cred.is_owner and request.cred.userid != self._userid:
            raise RpcError(errno.EPERM, "the job is another user's")
        rank = request.payload.get("rank")
        is_known = isinstance(rank, int) and 0 < rank < self._size
        return rank if is_known else None


async def _first(*coroutines: Coroutine[Any, Any, Any]) -> Any:
    """Return what is there first, or raise it; the rest is given up."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
