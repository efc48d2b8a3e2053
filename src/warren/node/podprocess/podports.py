"""The ports of the node that lead into a pod."""

import asyncio
import resource
import socket
from functools import partial
from typing import Any

from warren.node.podprocess.kernel import Trouble

_CONNECTIONS = 1024
"""How many connections to ports of the node are joined to the pod's at a time, at most."""

_WAITING = 16
"""Connections to a port that wait to be taken: each takes a file before it has its turn."""


def listen(ports: list[dict[str, Any]]) -> list[tuple[socket.socket, int]]:
    """Listen on the ports of the node, and return each with the port that it leads to."""
    found = []
    for each in ports:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((each["host"], each["port"]))
        except OSError as error:
            raise Trouble(f"port {each['port']} of {each['host']}: {error.strerror}") from error
        listener.listen(128)
        found.append((listener, each["to"]))
    return found


async def forward(ports: list[tuple[socket.socket, int]], address: str) -> None:
    """Join connections to ports of the node with ones to the pod, from then on."""
    turns = _Turns()
    for taken, port in ports:
        join = partial(turns.forward, address, port)
        # So many are accepted at a time before it is seen that there are too many.
        await asyncio.start_server(join, sock=taken, backlog=_WAITING)


class _Turns:
    """How many connections are joined: any user of the machine makes them."""

    def __init__(self) -> None:
        # Each takes two files, and the pod some of its own.
        self._free = min(_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    async def forward(self, address: str, port: int, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> None:  # fmt: skip
        """Join a connection to the node with one to the pod; end it where there are too many."""
        if not self._free:
            writer.close()
            return
        self._free -= 1
        try:
            await _join_to(address, port, reader, writer)
        finally:
            self._free += 1


async def _join_to(address: str, port: int, reader: asyncio.StreamReader,
                   writer: asyncio.StreamWriter) -> None:  # fmt: skip
    try:
        inner_reader, inner_writer = await asyncio.open_connection(address, port)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
    finally:
        inner_writer.close()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(2**18):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()
