"""A bus on a unix socket.

The user is the one that the kernel says is at the other end; what a message claims is
ignored. Guests come in where the site lets them, and take no more than their share.
A client may also serve over its connection: it asks `service.add`, and
from then on the service's requests come to it, until it hangs up. Asked for as a
stream, the service is on offer as long as the stream is. The instance's owner
may offer any service, other users those that bear their number (`bus`). Clients of
Flux are told that they are at no broker of theirs (`foreign`).
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import msgspec

from warren.base.fairqueue import DEFAULT_FAIRNESS, Fairness
from warren.rpc import message, sockets
from warren.rpc.bus import Bus, may_use
from warren.rpc.foreign import ServerProtocol
from warren.rpc.guests import GuestLimits, Guests, default_limits
from warren.rpc.message import LONGEST_MESSAGE, Cred, Message, Payload, Request, RpcError
from warren.rpc.peer import Peer, RequestHandler, refuse

ADD_TOPIC: Final = "service.add"

_MOST_SERVICES: Final = 16
_LONGEST_NAME: Final = 256
"""Characters of a service's name, which stays in memory for as long as its connection."""


class _Connection(RequestHandler):
    """One client: its user, and the services it offers."""

    def __init__(self, bus: Bus, cred: Cred) -> None:
        self._bus = bus
        self._cred = cred
        self.offered_services: list[str] = []
        self.peer: Peer | None = None

    def request(self, received: Message) -> Request:
        assert received.topic is not None
        return Request(
            topic=received.topic,
            payload=message.unpack(received.payload),
            cred=self._cred,
            streaming=received.streaming,
        )

    async def rpc(self, request: Request) -> Payload:
        if request.topic == ADD_TOPIC:
            self._offer(request)
            return {}
        return await self._bus.rpc(request)

    def stream(self, request: Request) -> AsyncIterator[Payload]:
        return self._offering(request) if request.topic == ADD_TOPIC else self._bus.stream(request)

    async def _offering(self, request: Request) -> AsyncIterator[Payload]:
        name = self._offer(request)
        try:
            yield {}
            await asyncio.Event().wait()
        finally:
            self.offered_services.remove(name)
            self._bus.unregister(name)

    def _offer(self, request: Request) -> str:
        name = request.payload.get("service")
        if not isinstance(name, str) or not name or "." in name:
            raise RpcError(errno.EPROTO, "service.add names no service")
        if len(name) > _LONGEST_NAME:
            text = f"the name of a service has {_LONGEST_NAME} characters at most"
            raise RpcError(errno.EINVAL, text)
        if not may_use(self._cred, name):
            userid = self._cred.userid
            raise RpcError(errno.EPERM, f"this user offers services that are called {userid}-...")
        if not self._cred.is_owner and len(self.offered_services) >= _MOST_SERVICES:
            raise RpcError(
                errno.ENOSPC, f"one connection offers no more than {_MOST_SERVICES} services"
            )
        assert self.peer is not None
        self._bus.register(name, self.peer)
        self.offered_services.append(name)
        return name


class AccessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The users besides the owner that may connect."""

    allow_guests: bool = False
    root_is_owner: bool = False
    """Whether root may do what the owner may."""
    is_user: Callable[[int], Awaitable[bool]] | None = None
    """Returns whether a guest is a user of this machine; by default all are.

    What each guest may take is bounded. Subordinate ids (subuid(5)), of which one user has tens
    of thousands, would each have as much, as guests of their own."""


_OWNER_ONLY: Final = AccessPolicy()


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What each client may take, and how long it may be silent."""

    longest_message: int = LONGEST_MESSAGE
    """Bytes of a message."""
    guest_limits: GuestLimits | None = None
    """Of all guests, and of each; None for what suits this process."""
    fairness: Fairness = DEFAULT_FAIRNESS
    """How guests share the event loop with each other and with all others."""
    silence: float = 0.5
    """Seconds after which a client that says nothing is told that this is no Flux broker."""


_DEFAULT_LIMITS: Final = ServerLimits()


async def serve(
    bus: Bus, path: Path, access: AccessPolicy = _OWNER_ONLY, limits: ServerLimits = _DEFAULT_LIMITS
) -> None:
    """Serve until cancelled. Raises OSError if the socket cannot be made."""
    listener = sockets.listen(path, 0o666 if access.allow_guests else 0o600)
    guests = Guests(limits.guest_limits or default_limits(), limits.fairness)
    try:
        async with asyncio.TaskGroup() as connections:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                serving = _serve_connection(bus, reader, writer, access, limits, guests)
                try:
                    task = connections.create_task(serving)
                except RuntimeError:  # the server stops: it comes too late
                    serving.close()
                    writer.close()
                else:
                    # Also where it is cancelled before it has begun; and what a client has not
                    # read by then keeps no connection open.
                    task.add_done_callback(lambda _: writer.transport.abort())

            server = await asyncio.get_running_loop().create_unix_server(
                lambda: ServerProtocol(accept, limits.silence), sock=listener
            )
            try:
                # Not serve_forever: from Python 3.12 on that waits for the connections, which
                # end only after it.
                await asyncio.Event().wait()
            finally:
                server.close()
    finally:
        sockets.remove(path)


async def _serve_connection(
    bus: Bus,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    access: AccessPolicy,
    limits: ServerLimits,
    guests: Guests,
) -> None:
    userid = sockets.peer_userid(_socket(writer))
    is_owner = userid == bus.owner or (access.root_is_owner and userid == 0)
    connection = _Connection(bus, Cred(userid, is_owner))
    try:
        if not is_owner:
            await _check_admitted(userid, access, guests)
        with nullcontext() if is_owner else guests.count_connection(userid) as usage:
            peer = Peer(
                reader, writer, connection, longest_message=limits.longest_message, usage=usage
            )
            connection.peer = peer
            await (peer.run() if usage is None else usage.run_fairly(peer.run))
    except RpcError as error:
        refuse(writer, error)
    finally:
        for service in connection.offered_services:
            bus.unregister(service)


async def _check_admitted(userid: int, access: AccessPolicy, guests: Guests) -> None:
    """Raise RpcError for a user other than the owner that may not connect."""
    if not access.allow_guests:
        raise RpcError(
            errno.EPERM, "this instance is its owner's alone: access.allow-guest-user is not set"
        )
    if access.is_user is not None:
        await guests.check_known(userid, access.is_user)


def _socket(writer: asyncio.StreamWriter) -> socket.socket:
    found = writer.get_extra_info("socket")
    # asyncio wraps the socket; the wrapper passes getsockopt on.
    return found  # type: ignore[no-any-return]
