"""A compute node that mounts what a rabbit offers it, while that is there and while it is not."""

import asyncio
import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.vm.inside import meeting
from warren.base.bytesize import MIB
from warren.dws.node import Copy, CopyFailed, NodeTrouble
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace
from warren.node.nvmehost import NvmeHost, NvmeTimeouts, TransportAddress
from warren.node.remoteflash import RemoteFlash

USER = 1234
REACH = {"rabbit-0": TransportAddress(host="10.0.0.1")}
PATH = "/run/nodes/mounts/a"


class Node:
    def __init__(self, policy: NvmeTimeouts) -> None:
        self.host = NvmeHost("node1", REACH, policy)
        self.namespace = HeldMountNamespace(Path("/run/nodes/node1"), Path("/run/nodes/mounts"))
        self.local_node = NamespacedNode("node1", RemoteFlash(self.host), self.namespace)

    def mount(self) -> None:
        async def main() -> None:
            await self.namespace.ensure()
            await self.local_node.mount("rabbit-0", "uid-0", "xfs", PATH)

        asyncio.run(main())

    def unmount(self) -> None:
        async def main() -> None:
            await self.local_node.unmount(PATH, USER)
            await self.host.disconnect("rabbit-0", "uid-0")

        asyncio.run(main())

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Run a command on the node as the job's user."""
        enter = ["nsenter", f"--target={self.namespace.holder}", "--mount"]
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return subprocess.Popen([*enter, *user, *words], text=True, stderr=subprocess.PIPE)


def devices() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/block").glob("nvme*"))


def test_a_volume_is_its_nodes_alone_survives_its_rabbit_and_is_let_go_of() -> None:
    node = Node(NvmeTimeouts(connect=60, controller_loss=120))
    meeting.wait("offered")
    stranger = NvmeHost("stranger", REACH, NvmeTimeouts(connect=3))
    with pytest.raises(NodeTrouble, match="rabbit-0/uid-0 cannot be reached"):
        asyncio.run(stranger.connect("rabbit-0", "uid-0"))
    assert devices() == []

    node.mount()
    node.mount()
    data = os.urandom(32 * MIB)
    source = Path("/run/source")
    source.write_bytes(data)
    source.chmod(0o644)
    # Of a size at which each piece waits for the one before.
    writing = node.start(
        "dd", f"if={source}", f"of={PATH}/file", "bs=64K", "oflag=direct", "status=none"
    )
    file = Path(f"{node.namespace.root}{PATH}/file")
    while not file.exists() or file.stat().st_size < MIB:
        assert writing.poll() is None
        time.sleep(0.05)
    meeting.tell("writing")
    _, complaints = writing.communicate(timeout=150)
    assert (writing.returncode, complaints) == (0, "")

    node.unmount()
    node.unmount()
    assert devices() == []
    node.mount()
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(data).digest()
    node.unmount()
    meeting.tell("unmounted")


def test_a_rabbit_that_does_not_return_makes_a_copy_fail_with_words() -> None:
    node = Node(NvmeTimeouts(connect=60, controller_loss=10))
    meeting.wait("offered once more")
    node.mount()
    meeting.tell("mounted once more")
    meeting.wait("the rabbit is gone")
    copy = Copy(
        source="/run/source", destination=f"{PATH}/file", index=None, userid=USER, groupid=USER
    )

    async def main() -> None:
        async for _ in node.local_node.copy(copy):
            pass

    with pytest.raises(CopyFailed, match="Input/output error"):
        asyncio.run(main())
    node.unmount()
    assert devices() == []
