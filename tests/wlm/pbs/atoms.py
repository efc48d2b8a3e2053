"""An ATOM that behaves as a test tells it to, well or badly, and remembers what it was asked."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Behaviour = Callable[[socket.socket], None]


@dataclass(frozen=True)
class Asked:
    """A request, as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    moment: float


def answers(code: int, body: bytes = b"{}", *fields: str, after: float = 0.0) -> Behaviour:
    """Answer with a code, and go on to listen on the connection, as servers do."""

    def behave(connection: socket.socket) -> None:
        time.sleep(after)
        lines = [f"HTTP/1.1 {code} Said", f"Content-Length: {len(body)}", *fields]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        connection.recv(1)

    return behave


def early(code: int) -> Behaviour:
    """Answer as soon as anything has come, and close."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 {code} Early\r\nContent-Length: 0\r\n\r\n".encode())

    behave.early = True  # type: ignore[attr-defined]
    return behave


def says(words: bytes, *, then: str = "close", every: float = 0.0) -> Behaviour:
    """Say something, then close, hang, or go on to say a byte from time to time."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(words)
        if then == "hang":
            connection.recv(1)
        while then == "trickle":
            connection.sendall(b"x")
            time.sleep(every)

    return behave


def pours(head: bytes, megabytes: int) -> Behaviour:
    """Say a head, and far more behind it than is wanted."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(megabytes):
            connection.sendall(b"x" * 2**20)

    return behave


@dataclass
class Atom:
    """What it was asked, in order."""

    asked: list[Asked] = field(default_factory=list)

    @property
    def methods(self) -> list[str]:
        return [each.method for each in self.asked]


@contextmanager
def behaving(path: Path, behaviours: Sequence[Behaviour]) -> Iterator[Atom]:
    """Listen at `path`, and behave to each request as the next behaviour says; the last stays."""
    atom = Atom()
    ending = threading.Event()
    open_connections: set[socket.socket] = set()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(16)

    def meet(connection: socket.socket) -> None:
        open_connections.add(connection)
        with connection, contextlib.suppress(OSError):
            behaviour = behaviours[min(len(atom.asked), len(behaviours) - 1)]
            asked = _read(connection, whole=not hasattr(behaviour, "early"))
            if asked is None:
                return
            atom.asked.append(asked)
            behaviour(connection)

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            if ending.is_set():
                connection.close()
                return
            threading.Thread(target=meet, args=(connection,), daemon=True).start()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield atom
    finally:
        ending.set()
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        serving.join()
        listener.close()
        for connection in open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        path.unlink(missing_ok=True)


def _read(connection: socket.socket, whole: bool) -> Asked | None:
    """Read a request, or no more than its first line; None where nothing is said."""
    reader = connection.makefile("rb")
    line = reader.readline().decode()
    if not line:
        return None
    method, path, _ = line.split()
    headers: dict[str, str] = {}
    if not whole:
        return Asked(method, path, headers, None, time.monotonic())
    while (field_ := reader.readline().decode().strip()) != "":
        name, _, value = field_.partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(body) if body else None, time.monotonic())
