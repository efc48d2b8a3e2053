"""A bus on a unix socket.

The user is the one that the kernel says is at the other end; what a message claims is
ignored. Guests come in where the site lets them, and take no more than their share.
A client may also serve over its connection: it asks `service.add`, and
from then on the service's requests come to it, until it hangs up. Asked for as a
stream, the service is on offer as long as the stream is. The instance's owner
may offer any service, other users those that bear their number (`bus`). Clients of
Flux are told that they are at no broker of theirs (`fluxdetection`).
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from warren.base.accepting import accept_next
from warren.base.fairqueue import DEFAULT_FAIRNESS, Fairness
from warren.rpc import message, sockets
from warren.rpc.bus import Bus, may_use
from warren.rpc.fluxdetection import open_accepted
from warren.rpc.guests import GuestLimits, Guests, Usage, default_limits
from warren.rpc.message import LONGEST_MESSAGE, Cred, Message, Payload, Request, RpcError
from warren.rpc.peer import Peer, RequestHandler, refuse

ADD_TOPIC: Final = "service.add"

_HELD_BACK_AT_ONCE: Final = 32
"""New connections that wait for their turn, or are refused, before all others have theirs."""
_REST_SECONDS: Final = 0.01
"""Seconds for which the event loop is left to these then."""

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

    def read_request(self, received: Message) -> Request:
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
    silence_timeout: float = 0.5
    """Seconds after which a client that says nothing is told that this is no Flux broker."""


_DEFAULT_LIMITS: Final = ServerLimits()


async def serve(
    bus: Bus, path: Path, access: AccessPolicy = _OWNER_ONLY, limits: ServerLimits = _DEFAULT_LIMITS
) -> None:
    """Serve until cancelled. Raises OSError if the socket cannot be made."""
    listener = sockets.listen(path, 0o666 if access.allow_guests else 0o600)
    try:
        async with asyncio.TaskGroup() as connections:
            with listener:
                await _accept_connections(listener, bus, access, limits, connections)
    finally:
        sockets.remove(path)


async def _accept_connections(
    listener: socket.socket,
    bus: Bus,
    access: AccessPolicy,
    limits: ServerLimits,
    connections: asyncio.TaskGroup,
) -> None:
    """Accept until cancelled: of those who are let in at once one in each turn of the event loop.

    All others are taken off the listener's queue as fast as it goes with little, since whoever
    connects waits behind them; they wait where they hold up nobody, or are refused.
    """
    loop = asyncio.get_running_loop()
    guests = Guests(limits.guest_limits or default_limits(), limits.fairness)
    held_back_count = 0
    while True:
        connection = await accept_next(listener)
        userid = sockets.peer_userid(connection)
        is_owner = userid == bus.owner or (access.root_is_owner and userid == 0)
        try:
            delay = 0.0 if is_owner else guests.schedule_connection(userid, loop.time())
        except RpcError as error:
            refuse(connection, error)
        else:
            cred = Cred(userid, is_owner)
            serving = _serve_connection(bus, connection, cred, delay, access, limits, guests)
            task = connections.create_task(serving)
            # Also where it is cancelled before it has begun.
            task.add_done_callback(partial(_close, connection))
            if not delay:
                await asyncio.sleep(0)
                continue
        held_back_count += 1
        if held_back_count % _HELD_BACK_AT_ONCE == 0:
            await asyncio.sleep(_REST_SECONDS)


def _close(connection: socket.socket, _: object) -> None:
    connection.close()


async def _serve_connection(
    bus: Bus,
    accepted: socket.socket,
    cred: Cred,
    delay: float,
    access: AccessPolicy,
    limits: ServerLimits,
    guests: Guests,
) -> None:
    """Serve a connection, after `delay` seconds in which there is nothing of it but its socket."""
    connection = _Connection(bus, cred)

    async def run(usage: Usage | None) -> None:
        reader, writer = await open_accepted(accepted, limits.silence_timeout)
        try:
            peer = Peer(
                reader, writer, connection, longest_message=limits.longest_message, usage=usage
            )
            connection.peer = peer
            await peer.run()
        finally:
            # What a client has not read by then keeps no connection open.
            writer.transport.abort()

    try:
        if cred.is_owner:
            await run(None)
            return
        await _check_admitted(cred.userid, access, guests)
        with guests.count_connection(cred.userid) as usage:
            await asyncio.sleep(delay)
            await usage.run_fairly(partial(run, usage))
    except RpcError as error:
        refuse(accepted, error)
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
