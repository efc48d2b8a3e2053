"""Whether a rabbit is reached, with real sockets: ones that accept, refuse, and are silent."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from warren.node.nvmehost import NvmeHost, NvmeTimeouts, TransportAddress
from warren.node.tcpprobe import why_unanswered

SECONDS = 60.0
"""Longer than the loopback takes on any machine."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(SECONDS)
        yield made


@pytest.fixture
def silent() -> Iterator[int]:
    """A port on which nothing is answered any more: its queue is full, and it is not looked at."""
    with ExitStack() as stack:
        made = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(made.getsockname())
        yield made.getsockname()[1]


def port_of(made: socket.socket) -> int:
    return int(made.getsockname()[1])


def host(port: int, answer: float = SECONDS, name: str = "127.0.0.1") -> NvmeHost:
    return NvmeHost(
        "n0", {"r0": TransportAddress(host=name, port=port)}, NvmeTimeouts(answer=answer)
    )


def test_a_target_that_accepts_is_reached_and_is_sent_nothing_but_the_end(
    listener: socket.socket,
) -> None:
    before = len(os.listdir("/proc/self/fd"))

    assert asyncio.run(host(port_of(listener)).why_unreached("r0")) is None

    accepted, _ = listener.accept()
    with accepted:
        accepted.settimeout(SECONDS)
        assert accepted.recv(100) == b""
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_target_that_closes_first_is_reached(listener: socket.socket) -> None:
    async def story() -> str | None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)

        async def hang_up() -> None:
            accepted, _ = await loop.sock_accept(listener)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            accepted.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(hang_up())
            asked = group.create_task(host(port_of(listener)).why_unreached("r0"))
        return asked.result()

    assert asyncio.run(story()) is None


def test_a_rabbit_that_refuses_is_reached_for_its_kernel_offers_nothing_between_jobs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = port_of(made)

    assert asyncio.run(host(port).why_unreached("r0")) is None


def test_a_rabbit_that_is_silent_is_not_reached_and_nothing_stays_open(silent: int) -> None:
    before = len(os.listdir("/proc/self/fd"))

    why = asyncio.run(host(silent, answer=0.2).why_unreached("r0"))

    assert why == f"127.0.0.1 port {silent}: no answer within 0.2 s"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_rabbit_without_a_way_to_it_is_not_reached() -> None:
    # A broadcast address is none to connect to: the kernel says so itself.
    why = asyncio.run(why_unanswered("255.255.255.255", 4420, SECONDS))

    assert why in ("Network is unreachable", "Permission denied", "No route to host")


def test_a_rabbit_whose_name_is_not_known_is_not_reached() -> None:
    why = asyncio.run(host(4420, name="no-such-rabbit.invalid").why_unreached("r0"))

    assert why is not None
    assert why.startswith("no-such-rabbit.invalid has no address: ")


def test_a_rabbit_of_which_nothing_is_said_is_looked_for_by_its_name() -> None:
    nowhere = NvmeHost("n0", {}, NvmeTimeouts(answer=SECONDS))

    why = asyncio.run(nowhere.why_unreached("no-such-rabbit.invalid"))

    assert why is not None
    assert why.startswith("no-such-rabbit.invalid has no address: ")
