"""The ports of the node that lead into a pod."""

import asyncio
import resource
import socket
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

from warren.base.subordinateids import SubordinateIds
from warren.base.tcpusers import user_of
from warren.node.podprocess.kernel import PodTrouble

_MOST_CONNECTIONS = 1024
"""How many connections to ports of the node are joined to the pod's at a time, at most."""

_BACKLOG = 16
"""Connections to a port that wait to be taken: each takes a file before it has its turn."""


def listen(ports: list[dict[str, Any]]) -> list[tuple[socket.socket, int]]:
    """Listen on the ports of the node, and return each with the port that it leads to."""
    listeners = []
    for each in ports:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((each["host"], each["port"]))
        except OSError as error:
            raise PodTrouble(f"port {each['port']} of {each['host']}: {error.strerror}") from error
        listener.listen(128)
        listeners.append((listener, each["to"]))
    return listeners


async def forward(
    listeners: list[tuple[socket.socket, int]], address: str, netlink: socket.socket
) -> None:
    """Join connections to ports of the node with ones to the pod, from then on.

    By `netlink` the kernel tells whose they are (`base/tcpusers.py`).
    """
    forwarder = _Forwarder(netlink)
    for listener, port in listeners:
        join = partial(forwarder.forward, address, port)
        # So many are accepted at a time before it is seen that there are too many.
        await asyncio.start_server(join, sock=listener, backlog=_BACKLOG)


class _Connection:
    """A connection to a port of the node, and the one to the pod once there is one."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opener: int | str | None
    ) -> None:
        """`opener` is the user, or the address of another machine."""
        self.reader = reader
        self.writer = writer
        self.opener = opener
        self.pod_writer: asyncio.StreamWriter | None = None

    def abort(self) -> None:
        """End it at once, with what was not sent yet: those who do not read must not hold it."""
        for each in (self.writer, self.pod_writer):
            if each is not None:
                each.transport.abort()


class _Forwarder:
    """The connections that are joined: any user of the machine makes them."""

    def __init__(self, netlink: socket.socket) -> None:
        self._netlink = netlink
        self._subordinates = SubordinateIds()
        # Each takes two files, and the pod some of its own.
        self._limit = min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._join_tasks: dict[_Connection, asyncio.Task[None]] = {}
        """The task of each connection; those that have moved nothing for longest come first."""

    async def forward(self, address: str, port: int, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> None:  # fmt: skip
        """Join a connection to the node with one to the pod.

        Where there are too many, the one that has moved nothing for the longest time is ended, of
        the user or machine that has most: those who connect and stay keep no other out.
        """
        if len(self._join_tasks) >= self._limit:
            # Of those that have as many, the one that has the idlest comes first.
            [(most, _)] = Counter(each.opener for each in self._join_tasks).most_common(1)
            idle = next(each for each in self._join_tasks if each.opener == most)
            self._join_tasks.pop(idle).cancel()
            idle.abort()
        connection = _Connection(reader, writer, self._opener(writer))
        join_task = asyncio.ensure_future(self._join(connection, address, port))
        self._join_tasks[connection] = join_task
        with suppress(asyncio.CancelledError):
            await join_task
        self._join_tasks.pop(connection, None)

    def _opener(self, writer: asyncio.StreamWriter) -> int | str | None:
        """Return whose a connection is: a user's, or, of other machines, the address."""
        user = user_of(writer.get_extra_info("socket"), self._netlink)
        if user is not None:
            return self._subordinates.accounting_id(user)
        address = writer.get_extra_info("peername")
        return address and str(address[0])

    async def _join(self, connection: _Connection, address: str, port: int) -> None:
        try:
            pod_reader, connection.pod_writer = await asyncio.open_connection(address, port)
        except OSError:
            connection.writer.close()
            return
        try:
            await asyncio.gather(
                self._pump(connection, connection.reader, connection.pod_writer),
                self._pump(connection, pod_reader, connection.writer),
            )
        finally:
            connection.pod_writer.close()
            connection.writer.close()

    async def _pump(self, connection: _Connection, reader: asyncio.StreamReader,
                    writer: asyncio.StreamWriter) -> None:  # fmt: skip
        try:
            while chunk := await reader.read(2**18):
                self._mark_active(connection)
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    def _mark_active(self, connection: _Connection) -> None:
        join_task = self._join_tasks.pop(connection, None)
        if join_task is not None:  # and not just ended
            self._join_tasks[connection] = join_task
