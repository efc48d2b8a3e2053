"""Holders that end while their node's agent lives."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.logs import capture_logs
from tests.node.conftest import Nodes
from tests.node.processes import eventually
from warren.node import holders
from warren.node.namespaces import HeldMountNamespace, HolderEnded, join

PAUSE = 0.01


@asynccontextmanager
async def kept(
    namespace: HeldMountNamespace, mount_again: Callable[[], None]
) -> AsyncIterator[None]:
    """Have a node's holder watched."""
    keeping = asyncio.create_task(
        holders.keep_running(namespace, mount_again, shortest_pause=PAUSE, longest_pause=2 * PAUSE)
    )
    try:
        yield
        assert not keeping.done()
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


@contextmanager
def warnings_told() -> Iterator[Sequence[Any]]:
    """What is logged, though tests otherwise want to hear of errors only."""
    with capture_logs("warning") as told:
        yield told


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110, for it is the machine that is waited for
            await asyncio.sleep(PAUSE)


def lose(namespace: HeldMountNamespace) -> None:
    """Have a namespace whose holder has ended."""
    asyncio.run(namespace.ensure())
    namespace.end()
    eventually(lambda: namespace.holder is None)


def test_a_node_whose_holder_is_killed_has_another_and_is_mounted_on_again_each_time(
    nodes: Nodes,
) -> None:
    namespace = nodes.namespace()
    seen: list[int | None] = []

    async def main() -> None:
        async with kept(namespace, lambda: seen.append(namespace.holder)):
            await namespace.ensure()
            for times in range(1, 4):
                await until(lambda: len(seen) == times)  # noqa: B023
                holder = seen[-1]
                assert holder is not None
                if times < 3:
                    os.kill(holder, signal.SIGKILL)

    asyncio.run(main())

    assert len(set(seen)) == 3
    assert namespace.holder == seen[-1]


def test_a_node_that_has_lost_its_holder_before_its_agent_came_has_another(nodes: Nodes) -> None:
    lose(nodes.namespace())

    async def main() -> None:
        namespace = nodes.namespace()
        async with kept(namespace, lambda: None):
            await until(lambda: namespace.holder)

    asyncio.run(main())


def test_a_node_that_is_not_wanted_has_no_holder(nodes: Nodes) -> None:
    async def main() -> None:
        async with kept(nodes.namespace(), lambda: pytest.fail("nothing is mounted")):
            await asyncio.sleep(3 * PAUSE)

    asyncio.run(main())

    assert nodes.namespace().holder is None
    assert not nodes.namespace().was_made


def test_a_namespace_that_cannot_be_made_is_tried_again_and_told_of_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lose(nodes.namespace())
    tries = tmp_path / "tries"
    unshare = tmp_path / "bin" / "unshare"
    unshare.parent.mkdir()
    unshare.write_text(f"#!/bin/sh\necho >> {tries}; echo 'not now' >&2; exit 1\n")
    unshare.chmod(0o755)
    path = os.environ["PATH"]
    again: list[int | None] = []

    async def main() -> None:
        namespace = nodes.namespace()
        async with kept(namespace, lambda: again.append(namespace.holder)):
            await until(lambda: tries.exists() and len(tries.read_text()) > 3)
            assert again == []
            monkeypatch.setenv("PATH", path)
            await until(lambda: again)

    monkeypatch.setenv("PATH", f"{unshare.parent}:{path}")
    with warnings_told() as logged:
        asyncio.run(main())

    reasons = [each["reason"] for each in logged]
    assert reasons == ["the mount namespace of node1 could not be made: not now"]
    assert again == [nodes.namespace().holder]


def test_a_process_that_enters_by_a_holder_that_has_ended_stays_where_it_is() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    before = os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/user")
    try:
        with pytest.raises(HolderEnded):
            join(child, "node1")
    finally:
        os.waitpid(child, 0)
    with pytest.raises(HolderEnded):
        join(child, "node1")

    assert (os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/user")) == before
