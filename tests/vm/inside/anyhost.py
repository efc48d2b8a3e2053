"""A host of NVMe over TCP that is a process of any user's, and says to be whom it likes."""

import socket
import struct
import uuid
from typing import Final

_LONG: Final = 20.0
_FABRICS, _READ = 0x7F, 0x02
_CONNECT, _SET_PROPERTY = 0x01, 0x00
_IN_CAPSULE, _BY_TRANSPORT = 0x01, 0x5A
_CONFIGURATION, _ENABLED = 0x14, 0x00460001


class Refused(Exception):
    """What the target answers."""


class _Queue:
    def __init__(self, address: str, port: int) -> None:
        # Not create_connection: it loads what the user may not read.
        self._socket = socket.socket()
        self._socket.settimeout(_LONG)
        self._socket.connect((address, port))
        self._socket.sendall(struct.pack("<BBBBI120x", 0, 0, 128, 0, 128))
        self._take(128)

    def ask(self, command: bytes, data: bytes = b"") -> tuple[int, bytes]:
        """Return the result of a command, and what was read."""
        offset = 72 if data else 0
        head = struct.pack("<BBBBI", 4, 0, 72, offset, 72 + len(data))
        self._socket.sendall(head + command + data)
        read = b""
        while True:
            kind, _, _, offset, length = struct.unpack("<BBBBI", self._take(8))
            rest = self._take(length - 8)
            if kind == 7:
                read += rest[offset - 8 :]
            elif kind == 5:
                result, _, _, _, status = struct.unpack("<QHHHH", rest)
                if status >> 1:
                    raise Refused(f"status {status >> 1:#x}")
                return result, read
            else:
                raise Refused(f"a PDU of type {kind}")

    def connect(self, number: int, controller: int, host: str, subsystem: str) -> int:
        """Connect as a host, and return the controller."""
        about = struct.pack("<HHHBxI12x", 0, number, 31, 0, 0)
        own = uuid.UUID(host.rpartition(":")[2]).bytes
        data = own + struct.pack(
            "<H238x256s256s256x", controller, subsystem.encode(), host.encode()
        )
        command = _command(_FABRICS, _CONNECT, _IN_CAPSULE, len(data), about)
        return self.ask(command, data)[0] & 0xFFFF

    def _take(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            piece = self._socket.recv(length - len(found))
            if not piece:
                raise Refused("the connection was ended")
            found += piece
        return found


def _command(code: int, second: int, kind: int, length: int, about: bytes) -> bytes:
    pointer = struct.pack("<QI3xB", 0, length, kind) if kind else bytes(16)
    return struct.pack("<BBHI16x", code, 0x40, 1, second) + pointer + about


def read(address: str, port: int, host: str, subsystem: str) -> bytes:
    """Return the beginning of a volume. Raises Refused, and OSError."""
    admin = _Queue(address, port)
    controller = admin.connect(0, 0xFFFF, host, subsystem)
    about = struct.pack("<B3xIQ8x", 0, _CONFIGURATION, _ENABLED)
    admin.ask(_command(_FABRICS, _SET_PROPERTY, 0, 0, about))
    queue = _Queue(address, port)
    queue.connect(1, controller, host, subsystem)
    about = struct.pack("<QH14x", 0, 0)
    return queue.ask(_command(_READ, 1, _BY_TRANSPORT, 512, about))[1]
