"""What a process of a user's on a compute node gets of a volume that the node itself may reach.

The kernel 6.1 of Debian 12, which guests usually have, takes no proofs: that they are taken is
tested where guests have another one, such as 6.12.
"""

import asyncio
import os
from pathlib import Path

import pytest

from tests.harness import users
from tests.vm.inside import anyhost, lvm, meeting
from warren.base.bytesize import MIB
from warren.dws.node import NodeTrouble, Volume
from warren.node import nvmetree
from warren.node.blocks import BlockFlash
from warren.node.nvmehost import NvmeHost, NvmeTimeouts, TransportAddress
from warren.node.nvmenames import NvmeVolume, host_nqn
from warren.node.nvmetarget import CONFIGFS, Configfs, Exports
from warren.node.nvmetree import ListenAddress
from warren.node.volumegroup import VolumeGroup

USER = 1234
SECRET, OTHER = b"known to root alone" * 2, b"known to others also" * 2
VOLUME = Volume(
    rabbit="rabbit-0", name="uid-0", size=320 * MIB, file_system="xfs", userid=USER, groupid=USER
)
TARGET = NvmeVolume("rabbit-0", VOLUME.name)
LISTENING = ListenAddress(address="10.0.0.1")


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "rabbit", reason="the node's part")
def test_a_rabbit_asks_nodes_to_prove_who_they_are() -> None:
    lvm.configure()
    lvm.make("flash", "/dev/vda")
    disk = VolumeGroup("rabbit-0", "flash", 1024 * MIB)
    asyncio.run(BlockFlash(lambda rabbit: disk, Path("/tmp")).make(VOLUME))
    asyncio.run(Exports("rabbit-0", disk.attach, LISTENING).export(VOLUME.name, ["node1"]))
    meeting.tell("offered to all who say so")
    meeting.wait("read by a user")
    exports = Exports("rabbit-0", disk.attach, LISTENING, secret=SECRET)
    key = CONFIGFS / "hosts" / host_nqn("node1") / nvmetree.KEY_ATTRIBUTE
    if not key.exists():
        with pytest.raises(NodeTrouble, match="the kernel lets nodes prove who they are from"):
            asyncio.run(exports.export(VOLUME.name, ["node1"]))
        meeting.tell("nothing can be proven here")
        return
    asyncio.run(exports.export(VOLUME.name, ["node1"]))
    assert key.stat().st_mode & 0o077 == 0
    # What the kernel shows is what was written.
    device, tree = asyncio.run(disk.attach(VOLUME.name)), Configfs().read()
    assert not nvmetree.export_steps(tree, TARGET, device, ["node1"], LISTENING, SECRET)
    meeting.tell("offered to the node")
    meeting.wait("let go of")
    asyncio.run(exports.withdraw(VOLUME.name))
    assert [path.name for path in (CONFIGFS / "hosts").iterdir() if path.name != "none"] == []


def read_by_a_user() -> str:
    """Return how a volume begins, or why a user's process is not told."""

    def reading() -> str:
        try:
            found = anyhost.read("10.0.0.1", 4420, host_nqn("node1"), TARGET.nqn)
        except anyhost.Refused as refused:
            return f"refused: {refused}"
        return found[:4].decode()

    told = users.acting_as(USER, reading)
    assert isinstance(told, str)
    return told


def node(secret: bytes | None, seconds: float) -> NvmeHost:
    policy = NvmeTimeouts(connect=seconds)
    return NvmeHost("node1", {"rabbit-0": TransportAddress(host="10.0.0.1")}, policy, secret=secret)


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "node", reason="the rabbit's part")
def test_a_node_proves_who_it_is_and_its_users_cannot() -> None:
    meeting.wait("offered to all who say so")
    assert read_by_a_user() == "XFSB"
    meeting.tell("read by a user")
    if not meeting.wait_either("offered to the node", "nothing can be proven here"):
        return
    told = read_by_a_user()
    assert told.startswith("refused: ")

    for secret in (None, OTHER):
        with pytest.raises(NodeTrouble, match="cannot be reached"):
            asyncio.run(node(secret, 3).connect("rabbit-0", VOLUME.name))
    own = node(SECRET, 60)
    device = asyncio.run(own.connect("rabbit-0", VOLUME.name))
    with open(device, "rb") as opened:
        assert opened.read(4) == b"XFSB"

    secrets = [*Path("/sys/class/nvme").glob("*/dhchap_secret")]
    assert "DHHC-1" in secrets[0].read_text()
    for path in secrets:
        with pytest.raises(AssertionError):
            users.acting_as(USER, path.read_text)
    asyncio.run(own.disconnect("rabbit-0", VOLUME.name))
    meeting.tell("let go of")
