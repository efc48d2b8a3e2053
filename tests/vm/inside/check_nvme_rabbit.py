"""A rabbit that offers a volume, and what is left of that."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.vm.inside import lvm, meeting
from warren.base.bytesize import MIB
from warren.dws.node import Volume
from warren.node import nvmetree
from warren.node.blocks import BlockFlash
from warren.node.nvmenames import NvmeVolume
from warren.node.nvmetarget import CONFIGFS, Configfs, Exports
from warren.node.nvmetree import ListenAddress
from warren.node.volumegroup import VolumeGroup

USER = 1234
VOLUME = Volume(
    rabbit="rabbit-0", name="uid-0", size=320 * MIB, file_system="xfs", userid=USER, groupid=USER
)
LISTENING = ListenAddress(address="10.0.0.1")


class Rabbit:
    def __init__(self) -> None:
        lvm.configure()
        self.disk = VolumeGroup("rabbit-0", "flash", 1024 * MIB)
        self.flash = BlockFlash(lambda rabbit: self.disk, Path("/tmp"))
        self.exports = Exports("rabbit-0", self.disk.attach, LISTENING)

    def export(self, *nodes: str) -> None:
        asyncio.run(self.exports.export(VOLUME.name, nodes))


@pytest.fixture(scope="module")
def rabbit() -> Rabbit:
    rabbit = Rabbit()
    if not lvm.groups():
        lvm.make("flash", "/dev/vda")
        asyncio.run(rabbit.flash.make(VOLUME))
    return rabbit


def configured() -> set[str]:
    """What is in the tree of targets, but for what is always there."""
    return {
        str(path.relative_to(CONFIGFS))
        for kind in ("subsystems", "ports", "hosts")
        for path in (CONFIGFS / kind).iterdir()
        if kind != "hosts" or path.name != "none"
    }


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "first", reason="another part's")
def test_a_volume_is_offered_until_the_power_goes(rabbit: Rabbit) -> None:
    rabbit.export("node1")
    target = NvmeVolume("rabbit-0", VOLUME.name)
    device = asyncio.run(rabbit.disk.attach(VOLUME.name))
    # What the kernel shows is what was written: it is not written again under those who use it.
    assert not nvmetree.export_steps(Configfs().read(), target, device, ["node1"], LISTENING)
    meeting.tell("offered")
    meeting.wait("the end of this guest")


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "second", reason="another part's")
def test_it_is_offered_again_and_nothing_is_left_when_it_is_released(rabbit: Rabbit) -> None:
    rabbit.export("node1")
    meeting.wait("unmounted")
    rabbit.export()

    assert configured() == set()
    asyncio.run(rabbit.flash.release(VOLUME.rabbit, VOLUME.name))
    assert lvm.volumes("flash") == set()

    asyncio.run(rabbit.flash.make(VOLUME))
    rabbit.export("node1")
    meeting.tell("offered once more")
    meeting.wait("the end of this guest")
