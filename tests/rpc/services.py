"""A bus with services for stories, and the ways to reach it."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import virtual
from warren.rpc import client, server, sockets
from warren.rpc.bus import Bus, Method, StreamingMethod
from warren.rpc.message import LONGEST_MESSAGE, Handle, Payload, Request, RpcError
from warren.rpc.peer import MAX_WAITING_ANSWERS
from warren.rpc.server import AccessPolicy, ServerLimits

OWNER = os.getuid()
GUEST = OWNER + 1


class Services:
    """What the stories ask for, and what it remembers of it."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.sent = 0
        self.gate = asyncio.Event()

    def methods(self) -> dict[str, Method | StreamingMethod]:
        return {
            "echo": Method(self.echo, guest=True),
            "whoami": Method(self.whoami, guest=True),
            "secret": Method(self.echo),
            "fail": Method(self.fail, guest=True),
            "lose": Method(self.lose, guest=True),
            "wait": Method(self.wait, guest=True),
            "bug": Method(self.bug, guest=True),
            "count": StreamingMethod(self.count, guest=True),
            "secrets": StreamingMethod(self.count),
            "for-ever": StreamingMethod(self.for_ever, guest=True),
        }

    async def echo(self, request: Request) -> Payload:
        return request.payload

    async def whoami(self, request: Request) -> Payload:
        return {"userid": request.cred.userid, "owner": request.cred.is_owner}

    async def fail(self, request: Request) -> Payload:
        raise RpcError(request.payload["errnum"], request.payload.get("text"))

    async def lose(self, request: Request) -> Payload:
        raise RpcError(errno.ENOENT, "no file " + os.fsdecode(b"\xff\xfe"))

    async def bug(self, request: Request) -> Payload:
        raise KeyError("a bug")

    async def wait(self, request: Request) -> Payload:
        """Answer when the gate is open."""
        name = str(request.payload.get("name", "wait"))
        self.running.add(name)
        try:
            await self.gate.wait()
            return {"name": name}
        finally:
            self.running.discard(name)

    async def count(self, request: Request) -> AsyncIterator[Payload]:
        """Count up to a number, then end as asked."""
        for number in range(request.payload.get("to", 3)):
            yield {"number": number, **request.payload.get("more", {})}
        if "errnum" in request.payload:
            raise RpcError(request.payload["errnum"], "counted enough")

    async def for_ever(self, request: Request) -> AsyncIterator[Payload]:
        """Count as fast as it is taken, or never answer at all."""
        self.running.add("for-ever")
        try:
            if request.payload.get("silent"):
                await asyncio.Event().wait()
            while True:
                self.sent += 1
                yield {"number": self.sent - 1, "text": "x" * request.payload.get("bytes", 0)}
                await asyncio.sleep(0)
        finally:
            self.running.discard("for-ever")


def bus_with(services: Services, owner: int = OWNER) -> Bus:
    bus = Bus(owner)
    bus.register("test", services.methods())
    return bus


@asynccontextmanager
async def serving(
    bus: Bus, path: Path, longest: int = LONGEST_MESSAGE, silence: float = 0.5
) -> AsyncIterator[None]:
    """Serve a bus at a path for the length of a block."""
    running = asyncio.ensure_future(
        server.serve(
            bus,
            path,
            AccessPolicy(allow_guests=True),
            ServerLimits(longest_message=longest, silence_timeout=silence),
        )
    )
    try:
        await eventually(lambda: running.done() or _listens(path))
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})
    if not running.cancelled():
        running.result()


def _listens(path: Path) -> bool:
    try:
        sockets.connect(path).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def connected(
    path: Path, offered: Bus | None = None, waiting: int = MAX_WAITING_ANSWERS
) -> AsyncIterator[client.Connection]:
    """Connect for the length of a block. What the block raises comes out alone."""
    try:
        async with client.connect(path, offered, max_waiting_answers=waiting) as connection:
            yield connection
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until something is so; for what has no other way to say that it is done."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.002)


Story = Callable[..., Coroutine[Any, Any, None]]


@asynccontextmanager
async def over_loopback(services: Services, path: Path) -> AsyncIterator[Handle]:
    yield bus_with(services).handle()


@asynccontextmanager
async def over_socket(services: Services, path: Path) -> AsyncIterator[Handle]:
    async with serving(bus_with(services), path), connected(path) as handle:
        yield handle


@asynccontextmanager
async def over_two_sockets(services: Services, path: Path) -> AsyncIterator[Handle]:
    """The service is offered by another client of the bus."""
    async with (
        serving(Bus(OWNER), path),
        connected(path, bus_with(services)) as offering,
        connected(path) as handle,
    ):
        await offering.rpc("service.add", {"service": "test"})
        yield handle


Way = Callable[[Services, Path], AbstractAsyncContextManager[Handle]]


def each_handle(story: Story) -> Callable[..., None]:
    """Tell a story of each way to reach a service."""

    ways = [over_loopback, over_socket, over_two_sockets]

    @pytest.mark.parametrize("way", ways, ids=lambda way: way.__name__)
    def told(way: Way, tmp_path: Path) -> None:
        async def main() -> None:
            services = Services()
            async with way(services, tmp_path / "socket") as handle:
                await asyncio.wait_for(story(handle, services), 120)
            assert services.running == set()

        if way is over_loopback:
            virtual.run(main())
        else:
            asyncio.run(main())

    told.__name__, told.__doc__ = story.__name__, story.__doc__
    return told
