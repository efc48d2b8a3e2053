"""What the machine unmounts goes from nodes, also where the kernel does not see to it."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final

import pytest

from tests.harness import virtual
from tests.node.conftest import Nodes, mounts_of
from warren.base import mountinfo
from warren.base.mountinfo import Mount
from warren.node import hostmounts
from warren.node.namespaces import HeldMountNamespace, mount_points

READ: Final = mountinfo.read

PRIVATE = """
import asyncio, os, pathlib, subprocess, sys
from warren.node import hostmounts
from warren.node.namespaces import HeldMountNamespace, mount_points

root = pathlib.Path(sys.argv[1])

async def main():
    point = root / "of the machine"
    point.mkdir()
    for _ in range(2):
        subprocess.run(["mount", "-t", "tmpfs", "none", str(point)], check=True)
    node = HeldMountNamespace(root / "nodes" / "node1", root / "nnf")
    await node.ensure()
    following = asyncio.create_task(hostmounts.follow_unmounts([node]))
    assert str(point) in mount_points(node.holder)
    await asyncio.sleep(0)
    for _ in range(2):
        subprocess.run(["umount", str(point)], check=True)
    for _ in range(3000):
        if str(point) not in mount_points(node.holder):
            break
        await asyncio.sleep(0.02)
    left = mount_points(node.holder)
    print("kept" if str(point) in left else "gone", len(left) > 3)
    following.cancel()
    await asyncio.wait({following})
    node.end()

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unmounts what came from outside")
def test_what_a_machine_with_private_mounts_unmounts_is_not_kept_by_its_nodes(nodes: Nodes) -> None:
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", PRIVATE]
    done = subprocess.run(
        [*words, str(nodes.root)], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.stderr == ""
    assert done.stdout == "gone True\n"


class Counting(HeldMountNamespace):
    """A namespace that counts how often it is looked at."""

    looks = 0

    async def drop_unmounted(self, machine_mounts: Collection[str]) -> None:
        self.looks += 1


def test_nodes_are_looked_at_once_a_second_however_often_the_machines_mounts_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def changes() -> AsyncIterator[None]:
        for _ in range(1000):
            yield
            await asyncio.sleep(0)

    async def at_once(look: Callable[[int], set[str]], pid: int) -> set[str]:
        return look(pid)

    async def main() -> None:
        following = asyncio.create_task(hostmounts.follow_unmounts([node]))
        await asyncio.sleep(9.5)
        following.cancel()
        await asyncio.wait({following})

    node = Counting(tmp_path / "node1", tmp_path / "nnf")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(hostmounts, "_changes", changes)
    monkeypatch.setattr(hostmounts, "in_thread", at_once)
    virtual.run(main())

    assert node.looks == 10


def test_a_node_whose_machine_has_unmounted_nothing_keeps_what_it_has(nodes: Nodes) -> None:
    node = nodes.namespace()
    asyncio.run(node.ensure())
    before = mounts_of(node)

    asyncio.run(node.drop_unmounted(mount_points(os.getpid())))

    assert mounts_of(node) == before
    assert Path("/proc").as_posix() in before


def without_the_machines(process_dir: Path) -> list[Mount]:
    """Read tables, but of the machine's the kernel cannot write a line: a user has made it so."""
    if process_dir.name == str(os.getpid()):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    return READ(process_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unmounts what came from outside")
def test_nothing_is_unmounted_while_it_is_not_known_what_the_machine_has(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changes() -> AsyncIterator[None]:
        for _ in range(3):
            yield

    node = nodes.namespace()
    asyncio.run(node.ensure())
    before = mounts_of(node)
    with monkeypatch.context() as patched:
        patched.setattr(mountinfo, "read", without_the_machines)
        patched.setattr(hostmounts, "_changes", changes)
        patched.setattr(hostmounts, "_PAUSE_WHILE_UNKNOWN", 0.0)
        asyncio.run(hostmounts.follow_unmounts([node]))

    assert mounts_of(node) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unmounts what came from outside")
def test_a_node_that_was_made_while_that_was_not_known_keeps_what_it_has(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes.namespace()
    with monkeypatch.context() as patched:
        patched.setattr(mountinfo, "read", without_the_machines)
        asyncio.run(node.ensure())
    before = mounts_of(node)

    asyncio.run(node.drop_unmounted(set()))

    assert mounts_of(node) == before


def test_no_mount_is_detached_that_has_come_to_the_path_of_one_that_is_to_go(
    nodes: Nodes, tmp_path: Path
) -> None:
    node = nodes.namespace()
    nsenter = asyncio.run(node.nsenter_command())
    own, others = tmp_path / "own", tmp_path / "others"
    for point in (own, others):
        point.mkdir()
        subprocess.run([*nsenter, "mount", "-t", "tmpfs", "none", str(point)], check=True)
    mount = node.mount_id(str(own))
    # A mount point of another namespace: its directory's owner may rename it.
    own.rename(tmp_path / "renamed")
    own.symlink_to(others)
    program = [*nsenter, sys.executable, "-P", "-m", "warren.node.detaching", str(mount)]

    subprocess.run([*program, str(own)], check=True)
    assert {str(others), str(tmp_path / "renamed")} <= mounts_of(node)
    subprocess.run([*program, str(tmp_path / "renamed")], check=True)
    assert str(tmp_path / "renamed") not in mounts_of(node)
    subprocess.run([*program, str(tmp_path / "none")], check=True)
    subprocess.run([*nsenter, "umount", str(others)], check=True)
