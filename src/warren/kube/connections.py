"""How many connections the users of this machine, or other machines, may have to a server.

Every user reaches a port of loopback, and a connection costs memory and a descriptor before
anything is known of the client. The kernel tells at once which user it is of (sock_diag(7)). The
server's own user and root have as many as they like; of all others each has a few, which are
let in one after the other: to agree upon TLS costs much, and any of them can begin anew at once.
Of those of other machines their addresses are known.
"""

import os
import socket
from contextlib import suppress
from typing import Final

from warren.base import tcpusers
from warren.base.accepting import ConnectionPace
from warren.base.subordinateids import SubordinateIds
from warren.base.tcpusers import CLOSED

MAX_PER_USER: Final = 64
"""Connections of each user, but of the server's own and of root."""
MAX_TOTAL: Final = 512
"""Connections of all of them together."""
ACCEPT_INTERVAL: Final = 0.02
"""Seconds from one connection of such a user to the next."""
UNKNOWN_USER: Final = -1
"""Stands for the id of the user of a connection, where that is not known."""

_FIRST_MACHINE_ID: Final = -3
_MAX_MACHINES: Final = 2**16
"""Ids that other machines have as clients: each id is remembered, and addresses are many."""


class ConnectionLimits:
    """Counts connections by the user, or the machine, that has opened them, and refuses more."""

    def __init__(
        self,
        *,
        per_user: int = MAX_PER_USER,
        total: int = MAX_TOTAL,
        interval: float = ACCEPT_INTERVAL,
        by_address: bool = False,
        subordinates: SubordinateIds | None = None,
    ) -> None:
        """A user has `per_user` of them, all have `total`.

        Those of one user are let in `interval` seconds after each other. Unknown users count as one
        user, or, `by_address`, as one for each machine. All subordinate ids of one user count as
        `subordinateids.ACCOUNTING_IDS_PER_OWNER` users.
        """
        self._subordinates = subordinates or SubordinateIds()
        self._by_address = by_address
        self._pace = ConnectionPace(interval)
        self._per_user = per_user
        self._total = total
        self._open_by_client: dict[int | str | None, list[socket.socket]] = {}
        self._client_id_by_descriptor: dict[int, int] = {}
        """By descriptor: each request looks here, however many connections there are."""

    def client_id(self, descriptor: int) -> int | None:
        """Return the client that opened a connection; None for the server's own user and root.

        It is the id of a user, or, `by_address`, a number below zero for another machine.
        """
        return self._client_id_by_descriptor.get(descriptor)

    def next_delay(self, client_id: int, now: float) -> float:
        """Return after how many seconds the next connection of a client is accepted."""
        delay = self._pace.next_delay(client_id, now)
        assert delay is not None  # how long they wait is bounded by how many they are
        return delay

    def admit(self, connection: socket.socket) -> bool:
        """Count a connection that was just accepted in; return False for one too many.

        It is counted until it is closed.
        """
        # One that was closed had the same.
        self._client_id_by_descriptor.pop(connection.fileno(), None)
        user = user_of(connection)
        if user in (0, os.geteuid()):
            return True
        if user == CLOSED:  # no client reads an answer, and no user's limit counts it
            return False
        if user is not None:
            user = self._subordinates.accounting_id(user)
        self._open_by_client = {
            client: still_open
            for client, sockets in self._open_by_client.items()
            if (still_open := [each for each in sockets if each.fileno() >= 0])
        }
        client = _address_of(connection) if user is None and self._by_address else user
        own_connections = self._open_by_client.get(client, [])
        max_connections = self._total if client is None else self._per_user
        if (
            len(own_connections) >= max_connections
            or sum(map(len, self._open_by_client.values())) >= self._total
        ):
            return False
        self._open_by_client[client] = [*own_connections, connection]
        self._client_id_by_descriptor[connection.fileno()] = _client_id_of(client)
        return True


def _client_id_of(client: int | str | None) -> int:
    """Return the id that a user, or the machine of an address, has as a client."""
    match client:
        case int():
            return client
        case str():
            # No client can choose an address with the number of another one: the hash has a secret.
            return _FIRST_MACHINE_ID - hash(client) % _MAX_MACHINES
        case None:
            return UNKNOWN_USER


def _address_of(connection: socket.socket) -> str | None:
    """Return the address of the machine at the other end; None where it is gone."""
    with suppress(OSError):
        return str(connection.getpeername()[0])
    return None


def user_of(connection: socket.socket) -> int | None:
    """Return the id of the user whose process is at the other end; None if not known.

    It is `CLOSED` where the process has closed its end.
    """
    with suppress(OSError), tcpusers.open_netlink() as netlink:
        return tcpusers.user_of(connection, netlink)
    return None
