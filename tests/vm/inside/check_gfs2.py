"""A rabbit and a node that have a gfs2 mounted at the same time, the node over the network."""

import asyncio
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.vm.inside import dlm, lvm, meeting
from warren.base.bytesize import MIB
from warren.dws.node import Volume
from warren.node.blocks import BlockFlash
from warren.node.filesystems import DlmCluster
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace
from warren.node.nvmehost import NvmeHost, NvmeTimeouts, TransportAddress
from warren.node.nvmetarget import Exports
from warren.node.nvmetree import ListenAddress
from warren.node.remoteflash import RemoteFlash
from warren.node.volumegroup import VolumeGroup

USER = 1234
CLUSTER = DlmCluster(name=dlm.NAME, journals=2)
VOLUME = Volume(
    rabbit="rabbit-0", name="uid-0", size=320 * MIB, file_system="gfs2", userid=USER, groupid=USER
)
PATH = "/run/nodes/mounts/a"
NAMESPACE = HeldMountNamespace(Path("/run/nodes/own"), Path("/run/nodes/mounts"))


async def mount(machine: NamespacedNode) -> Path:
    await NAMESPACE.ensure()
    await machine.mount(VOLUME.rabbit, VOLUME.name, "gfs2", PATH)
    return Path(f"{NAMESPACE.root}{PATH}")


def as_user(*words: str) -> str:
    enter = ["nsenter", f"--target={NAMESPACE.holder}", "--mount"]
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    return subprocess.check_output([*enter, *user, *words], text=True, timeout=60)


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "rabbit", reason="the node's part")
def test_a_rabbit_has_it_while_a_node_has_it() -> None:
    lvm.configure()
    lvm.make("flash", "/dev/vda")
    disk = VolumeGroup("rabbit-0", "flash", 1024 * MIB)
    flash = BlockFlash(lambda rabbit: disk, Path("/tmp"), cluster=CLUSTER)
    exports = Exports("rabbit-0", disk.attach, ListenAddress(address="10.0.0.1"))
    machine = NamespacedNode("rabbit-0", flash, NAMESPACE)

    async def main() -> Path:
        await machine.make(VOLUME)
        root = await mount(machine)
        await exports.export(VOLUME.name, ["node1"])
        return root

    with dlm.member():
        root = asyncio.run(main())
        found = root.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (USER, USER, 0o700)
        assert _mounted_type() == "gfs2"
        as_user("sh", "-c", f"echo rabbit > {PATH}/file")
        meeting.tell("mounted")
        meeting.wait("node has locked")
        with (root / "file").open("r+") as opened:
            with pytest.raises(BlockingIOError):
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            meeting.tell("rabbit has seen the lock")
            fcntl.flock(opened, fcntl.LOCK_EX)
            assert opened.read() == "rabbit\nnode\n"
        meeting.wait("unmounted")
        asyncio.run(_let_go(machine, exports))
    assert lvm.volumes("flash") == set()


def _mounted_type() -> str:
    enter = ["nsenter", f"--target={NAMESPACE.holder}", "--mount"]
    return subprocess.check_output(
        [*enter, "findmnt", "-n", "-o", "FSTYPE", PATH], text=True
    ).strip()


async def _let_go(machine: NamespacedNode, exports: Exports) -> None:
    await machine.unmount(PATH, USER)
    await exports.export(VOLUME.name, [])
    await machine.release(VOLUME.rabbit, VOLUME.name)


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "node", reason="the rabbit's part")
def test_a_node_has_it_while_its_rabbit_has_it() -> None:
    host = NvmeHost(
        "node1", {"rabbit-0": TransportAddress(host="10.0.0.1")}, NvmeTimeouts(connect=60)
    )
    machine = NamespacedNode("node1", RemoteFlash(host, CLUSTER), NAMESPACE)
    with dlm.member():
        meeting.wait("mounted")
        root = asyncio.run(mount(machine))
        assert (root / "file").read_text() == "rabbit\n"
        with (root / "file").open("a") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            meeting.tell("node has locked")
            meeting.wait("rabbit has seen the lock")
            as_user("sh", "-c", f"echo node >> {PATH}/file")
        asyncio.run(machine.unmount(PATH, USER))
        asyncio.run(host.disconnect("rabbit-0", "uid-0"))
        meeting.tell("unmounted")
