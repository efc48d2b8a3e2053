"""An instance's services, reached over its unix socket."""

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from warren.rpc import message, sockets
from warren.rpc.bus import Bus, Methods
from warren.rpc.fluxdetection import check_instance
from warren.rpc.message import Cred, Handle, Message, Payload, Request, RpcError
from warren.rpc.peer import MAX_WAITING_ANSWERS, Peer, RequestHandler

_NO_USER = Cred(0, False)

ANSWER_TIMEOUT: Final = 15.0
"""Seconds after which a client asks whether the instance answers, and then for which it waits."""


class _BusHandler(RequestHandler):
    """Answers requests that the instance passes on to services of this process."""

    def __init__(self, bus: Bus | None, path: Path) -> None:
        self._bus = bus
        self._path = path

    def check_peer(self, first_bytes: bytes) -> None:
        check_instance(first_bytes, self._path)

    def read_request(self, received: Message) -> Request:
        assert received.topic is not None
        return Request(
            topic=received.topic,
            payload=message.unpack(received.payload),
            cred=Cred(received.userid or 0, received.owner),
            streaming=received.streaming,
        )

    async def rpc(self, request: Request) -> Payload:
        return await self._bus_or_error().rpc(request)

    def stream(self, request: Request) -> AsyncIterator[Payload]:
        return self._bus_or_error().stream(request)

    def _bus_or_error(self) -> Bus:
        if self._bus is None:
            raise RpcError(errno.ENOSYS, "this connection serves nothing")
        return self._bus


class Connection:
    """A `Handle` over one socket connection, and the way to serve over it."""

    def __init__(self, peer: Peer, run_task: "asyncio.Task[None]") -> None:
        self._peer = peer
        self._run_task = run_task

    async def wait_lost(self) -> None:
        """Wait until the other end is gone, and raise RpcError(ECONNRESET) then."""
        await asyncio.wait({self._run_task})
        raise RpcError(errno.ECONNRESET, "the connection was lost")

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        return await self._peer.rpc(Request(topic=topic, payload=payload or {}, cred=_NO_USER))

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        request = Request(topic=topic, payload=payload or {}, cred=_NO_USER, streaming=True)
        async with aclosing(self._peer.stream(request)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                yield answer


@asynccontextmanager
async def connect(
    path: Path, bus: Bus | None = None, *, max_waiting_answers: int = MAX_WAITING_ANSWERS
) -> AsyncIterator[Connection]:
    """Connect for the length of a block. Raises RpcError(ECONNRESET) where no server listens.

    Where another program's does, such as a Flux broker's, requests fail with EPROTONOSUPPORT.
    Requests for services that the block adds with `service.add` go to `bus`. A stream of
    which more than `max_waiting_answers` answers wait to be read ends with EOVERFLOW.
    """
    try:
        connection = sockets.connect(path)
    except OSError as error:
        raise RpcError(errno.ECONNRESET, f"no instance answers at {path}") from error
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    peer = Peer(reader, writer, _BusHandler(bus, path), max_waiting_answers=max_waiting_answers)
    # Not a task group: what the block raises is to reach its caller as it is.
    run_task = asyncio.create_task(peer.run())
    try:
        # Once around the loop: a broker that refuses us says so and hangs up, and what has been
        # said cannot be read any more after a write that fails.
        await asyncio.sleep(0)
        yield Connection(peer, run_task)
    finally:
        peer.close()
        run_task.cancel()
        await asyncio.wait({run_task})


@asynccontextmanager
async def fail_unless_alive(
    handle: Handle, path: Path, answer_timeout: float = ANSWER_TIMEOUT
) -> AsyncIterator[None]:
    """End the block with RpcError(ETIMEDOUT) where nothing answers at `path`.

    What the block asks may take hours. If it is not over after `answer_timeout` seconds, something
    is asked that is answered at once, and waited for as long; not earlier, since a broker that
    hangs up after the first request cannot be heard any more after a second one.
    """

    async def check_alive() -> None:
        await asyncio.sleep(answer_timeout)
        with suppress(RpcError):  # which is an answer
            await handle.rpc("broker.ping")
        answer_deadline.reschedule(None)

    answer_deadline = asyncio.timeout(2 * answer_timeout)
    try:
        async with answer_deadline:
            check_task = asyncio.create_task(check_alive())
            try:
                yield
            finally:
                check_task.cancel()
    except TimeoutError as error:
        if not answer_deadline.expired():
            raise
        raise RpcError(
            errno.ETIMEDOUT,
            f"the instance at {path} has not answered for {answer_timeout:g} s: "
            "its process is stopped, or its machine has no time for it; "
            "what was asked for may still be done later",
        ) from error


_LONGEST_DELAY: Final = 5.0
"""Seconds, give or take half, between the attempts of a client that is refused, at most."""


class ReconnectingHandle:
    """A `Handle` for those that outlive the instance's restarts.

    Opens a connection whenever the last one is lost; `rpc` asks again until the
    instance is back, so give it only requests that may be repeated. Streams are
    not resumed: only their reader knows where it was. Services are offered anew.

    Where connections are lost before anything is answered, as an instance refuses them that is
    connected to too fast, the next ones are opened ever later.
    """

    def __init__(
        self,
        connector: Callable[[], AbstractAsyncContextManager[Handle]],
        bus: Bus | None = None,
        delay: float = 0.2,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`bus` is the bus that the connector's connections serve, if they do.

        `delay` is how many seconds after one connection the next one is opened, as long as they are
        answered, or no instance is there. `jitter` is from 0 to 1.
        """
        self._connector = connector
        self._bus = bus
        self._delay = delay
        self._jitter = jitter
        self._answered = False
        """Whether anything was answered over the current connection."""
        self._current_handle: Handle | None = None
        self._connection_wanted = asyncio.Event()
        self._connected = asyncio.Event()

    async def run(self) -> None:
        """Keep a connection while one is wanted. Runs until cancelled."""
        delay = self._delay
        while True:
            await self._connection_wanted.wait()
            refused = False
            try:
                async with self._connector() as handle:
                    self._connection_wanted.clear()
                    self._current_handle = handle
                    self._answered = False
                    self._announce()
                    await self._connection_wanted.wait()
                    refused = not self._answered
            except RpcError as error:
                if not error.unserved:
                    raise
            finally:
                self._current_handle = None
            if refused:
                delay = min(2 * delay, _LONGEST_DELAY)
                # Not all that are refused together are to come together again.
                await asyncio.sleep(delay * (0.5 + self._jitter()))
            else:
                delay = self._delay
                await asyncio.sleep(delay)

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        while True:
            handle = await self._wait_handle()
            try:
                answer = await handle.rpc(topic, payload)
            except RpcError as error:
                if error.errnum in (errno.ECONNRESET, errno.EMFILE):
                    self._drop(handle)
                else:
                    self._note_answer(handle)
                if not (error.unserved or error.busy):
                    raise
                await asyncio.sleep(self._delay)
            else:
                self._note_answer(handle)
                return answer

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        handle = await self._wait_handle()
        try:
            async with aclosing(handle.stream(topic, payload)) as answers:  # type: ignore[type-var]
                async for answer in answers:
                    self._note_answer(handle)
                    yield answer
        except RpcError as error:
            if error.errnum == errno.ECONNRESET:
                self._drop(handle)
            raise

    async def offer(self, service: str, methods: Methods, offered: asyncio.Event) -> None:
        """Keep a service on offer, over every connection that there is. Runs until cancelled.

        `offered` is set when it can be asked for the first time. Raises RpcError where the
        service may not be offered.
        """
        assert self._bus is not None
        self._bus.register(service, methods)
        while True:
            try:
                offering = self.stream("service.add", {"service": service})
                async with aclosing(offering) as answers:  # type: ignore[type-var]
                    async for _ in answers:
                        offered.set()
            except RpcError as error:
                # EEXIST: the instance has not noticed yet that the last connection is gone.
                if not error.unserved and error.errnum != errno.EEXIST:
                    raise
            await asyncio.sleep(self._delay)

    async def _wait_handle(self) -> Handle:
        while self._current_handle is None:
            self._connection_wanted.set()
            connected = self._connected
            await connected.wait()
        return self._current_handle

    def _note_answer(self, handle: Handle) -> None:
        if self._current_handle is handle:
            self._answered = True

    def _drop(self, handle: Handle) -> None:
        if self._current_handle is handle:
            self._current_handle = None
            self._connection_wanted.set()

    def _announce(self) -> None:
        self._connected.set()
        self._connected = asyncio.Event()
