"""The ports of a node that lead into a pod: any user of the machine connects to them."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from tests.harness.users import TEST_USER

MOST = 16
"""Connections at a time."""

_FORWARD = f"""
import asyncio, resource, signal, sys
from warren.base.tcpusers import open_netlink
from warren.node.podprocess import podports

async def live(to):
    resource.setrlimit(resource.RLIMIT_NOFILE, ({4 * MOST}, {4 * MOST}))
    ports = podports.listen([{{"host": "127.0.0.15", "port": 0, "to": to}}])
    await podports.forward(ports, "127.0.0.1", open_netlink())
    print(ports[0][0].getsockname()[1], flush=True)
    await asyncio.Event().wait()

signal.alarm(600)
asyncio.run(live(int(sys.argv[1])))
"""

Connect = Callable[[], socket.socket]


class _Server(ThreadingTCPServer):
    request_queue_size = 10 * MOST


class Shout(BaseRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionError):
            while words := self.request.recv(100):
                self.request.sendall(words.upper())


class Flood(BaseRequestHandler):
    """Answers those who ask for much with more than the kernel keeps for them."""

    def handle(self) -> None:
        with suppress(ConnectionError):
            words = self.request.recv(100)
            while words == b"much":
                self.request.sendall(bytes(2**20))
            self.request.sendall(words.upper())


@contextmanager
def forwarded(handler: type[BaseRequestHandler]) -> Iterator[Connect]:
    """Forward a port of the node to one that is served so; return how to connect to it."""
    with ExitStack() as stack:
        inner = stack.enter_context(_Server(("127.0.0.1", 0), handler))
        serving = threading.Thread(target=inner.serve_forever)
        serving.start()
        stack.callback(serving.join)
        stack.callback(inner.shutdown)
        argv = [sys.executable, "-c", _FORWARD, str(inner.server_address[1])]
        forwarding = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
        stack.callback(forwarding.kill)
        assert forwarding.stdout is not None
        where = ("127.0.0.15", int(forwarding.stdout.readline()))
        yield lambda: stack.enter_context(socket.create_connection(where, timeout=120))
        assert forwarding.poll() is None


def says(client: socket.socket, words: bytes) -> bytes:
    """Return the answer, which is empty where the connection has ended."""
    with suppress(ConnectionError):
        client.sendall(words)
        return client.recv(100)
    return b""


def test_those_who_connect_and_say_nothing_keep_no_other_out() -> None:
    with forwarded(Shout) as connect:
        busy = connect()
        assert says(busy, b"first") == b"FIRST"
        idle = []
        for _ in range(4):
            for _ in range(MOST - 2):
                idle.append(connect())
            # Not the oldest is ended, but one that has moved nothing for the longest time.
            assert says(busy, b"here") == b"HERE"
            assert says(connect(), b"hello") == b"HELLO"
        for each in idle[:MOST]:
            assert says(each, b"late") == b""
        assert says(busy, b"to the last") == b"TO THE LAST"


_STRANGER = f"""
import socket, sys
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range({2 * MOST})]
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is two users")
def test_those_who_connect_and_say_nothing_end_no_other_users_connection() -> None:
    with forwarded(Shout) as connect:
        idle = connect()
        assert says(idle, b"first") == b"FIRST"
        host, port = idle.getpeername()
        with subprocess.Popen(
            ["/usr/bin/python3", "-c", _STRANGER, host, str(port)],
            user=TEST_USER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        ) as stranger:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == b"connected\n"
            # By then all of theirs have been taken in, too.
            assert says(connect(), b"hello") == b"HELLO"
            assert says(idle, b"still here") == b"STILL HERE"


def test_those_who_read_nothing_keep_no_other_out() -> None:
    with forwarded(Flood) as connect:
        for _ in range(2 * MOST):
            connect().sendall(b"much")
        assert says(connect(), b"hello") == b"HELLO"
