"""The agents of a rabbit and of its node, each with the objects that it is for."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.vm.inside import lvm, meeting
from tests.vm.inside.api import Api, served
from warren.base.bytesize import MIB
from warren.base.objects import Key, Remove
from warren.daemons import network
from warren.daemons.network import Network
from warren.dws import kinds, labels
from warren.node.blocks import BlockFlash
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace
from warren.node.nvmetarget import CONFIGFS
from warren.node.volumegroup import VolumeGroup

USER = 1234
NETWORK = Network(listen="10.0.0.1", rabbits={"rabbit-0": "10.0.0.1"}, connect=60.0)
PATH = "/run/nodes/mounts/job/scratch"
NAMESPACE = HeldMountNamespace(Path("/run/nodes/own"), Path("/run/nodes/mounts"))
SHARE = Key("rabbit-0", "default-wf-0-xfs-0")
MOUNT = Key("node1", "default-wf-0-computes")


def flash(*nodes: str) -> dict[str, object]:
    return {"allocations": [{"capacity": 320 * MIB, "access": ["rabbit-0", *nodes]}]}


async def ready(api: Api) -> str:
    """Ask for storage, and return its volume when it is there."""
    reference = {"kind": "NnfNodeBlockStorage", "name": SHARE.name, "namespace": SHARE.namespace}
    spec = {
        "count": 1,
        "capacity": 20 * MIB,
        "fileSystemType": "xfs",
        "userID": USER,
        "groupID": USER,
        "blockReference": reference,
    }
    metadata = {"name": SHARE.name, "namespace": SHARE.namespace}
    own = {**metadata, "finalizers": [labels.NODE_STORAGE_FINALIZER]}
    block = {**metadata, "finalizers": [labels.NODE_BLOCK_STORAGE_FINALIZER]}
    await api.create(kinds.NNF_NODE_BLOCK_STORAGE, {"metadata": block, "spec": flash()})
    made = await api.create(kinds.NNF_NODE_STORAGE, {"metadata": own, "spec": spec})
    await api.when(
        kinds.NNF_NODE_STORAGE, SHARE, lambda found: found.get("status", {}).get("ready")
    )
    return f"{made['metadata']['uid']}-0"


def offered() -> list[str]:
    return sorted(path.name for path in (CONFIGFS / "subsystems").iterdir())


def wait_withdrawn() -> None:
    end = time.monotonic() + meeting.SECONDS
    while offered():
        assert time.monotonic() < end, "it is offered still"
        time.sleep(0.2)


def kernel_log() -> str:
    found = []
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            found.append(os.read(log, 8192).decode(errors="replace"))
    os.close(log)
    return "".join(found)


def devices() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/block").glob("nvme*"))


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "rabbit", reason="the node's part")
def test_a_rabbits_agent_makes_offers_and_gives_back() -> None:
    lvm.configure()
    lvm.make("flash", "/dev/vda")
    disk = VolumeGroup("rabbit-0", "flash", 1024 * MIB)
    blocks = BlockFlash(lambda rabbit: disk, Path("/tmp"))
    own, exports = network.rabbit_flash(NETWORK, "rabbit-0", blocks, disk)

    async def main() -> None:
        await NAMESPACE.ensure()
        machine = NamespacedNode("rabbit-0", own, NAMESPACE)
        async with served("rabbit-0", machine, rabbit=True, exports=exports) as api:
            volume = await ready(api)
            assert offered() == []
            await api.change(kinds.NNF_NODE_BLOCK_STORAGE, SHARE, flash("node1"))
            (meeting.PLACE / "volume").write_text(volume)
            meeting.tell("offered")
            await asyncio.to_thread(meeting.wait, "unmounted")
            await api.change(kinds.NNF_NODE_BLOCK_STORAGE, SHARE, flash())
            await asyncio.to_thread(wait_withdrawn)
            assert "failed to allocate queue" not in kernel_log()
            meeting.tell("withdrawn")
            await asyncio.to_thread(meeting.wait, "asked")
            # It goes also while it is offered.
            await api.change(kinds.NNF_NODE_BLOCK_STORAGE, SHARE, flash("node1"))
            for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE):
                await api.delete(Remove(kind=kind, key=SHARE))
            for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE):
                await api.when(kind, SHARE, lambda found: not found)

    asyncio.run(main())
    assert offered() == []
    assert lvm.volumes("flash") == set()


@pytest.mark.skipif(os.environ["WARREN_GUEST"] != "node", reason="the rabbit's part")
def test_a_nodes_agent_attaches_mounts_and_lets_go() -> None:
    meeting.wait("offered")
    volume = (meeting.PLACE / "volume").read_text()
    own, host = network.compute_flash(NETWORK, "node1")
    lvm_device = {"deviceType": "nvme", "volumeGroup": "rabbit-0", "logicalVolume": volume}
    mount = {
        "mountPath": PATH,
        "type": "xfs",
        "userID": USER,
        "groupID": USER,
        "device": {"type": "lvm", "lvm": lvm_device},
    }

    async def main() -> None:
        await NAMESPACE.ensure()
        machine = NamespacedNode("node1", own, NAMESPACE)
        async with served("node1", machine, rabbit=False, detach=host.disconnect) as api:
            finalizers = [labels.CLIENT_MOUNT_FINALIZER]
            metadata = {"name": MOUNT.name, "namespace": "node1", "finalizers": finalizers}
            spec = {"node": "node1", "desiredState": "mounted", "mounts": [mount]}
            await api.create(kinds.CLIENT_MOUNT, {"metadata": metadata, "spec": spec})
            await api.when(kinds.CLIENT_MOUNT, MOUNT, _all("mounted"))
            await host.disconnect_unused()  # as an agent that starts does
            assert devices() != []
            # To ask whether the rabbit is reached disturbs nothing.
            for _ in range(3):
                assert await host.why_unreached("rabbit-0") is None
            enter = ["nsenter", f"--target={NAMESPACE.holder}", "--mount"]
            user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
            words = ["dd", "if=/dev/zero", f"of={PATH}/file", "bs=1M", "count=8", "conv=fsync"]
            await asyncio.to_thread(subprocess.check_call, [*enter, *user, *words])
            await api.change(kinds.CLIENT_MOUNT, MOUNT, {"desiredState": "unmounted"})
            await api.when(kinds.CLIENT_MOUNT, MOUNT, _all("unmounted"))
            assert devices() == []
            await host.connect("rabbit-0", volume)
            assert devices() != []
            await host.disconnect_unused()
            assert devices() == []
            await api.delete(Remove(kind=kinds.CLIENT_MOUNT, key=MOUNT))
            await api.when(kinds.CLIENT_MOUNT, MOUNT, lambda found: not found)

    asyncio.run(main())
    meeting.tell("unmounted")
    # A rabbit whose kernel has nothing to offer refuses.
    meeting.wait("withdrawn")
    assert asyncio.run(host.why_unreached("rabbit-0")) is None
    meeting.tell("asked")


def _all(state: str) -> Callable[[Any], bool]:
    def told(found: Any) -> bool:
        status = found.get("status", {})
        return bool(status.get("allReady")) and status["mounts"][0]["state"] == state

    return told
