"""A rabbit's flash as a volume group of a real device mapper, also one whose device fails."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.vm.inside import lvm
from warren.base.bytesize import MIB
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import Copy, CopyFailed, NodeTrouble, Volume
from warren.node.blocks import BlockFlash
from warren.node.busy import GracePeriod
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace
from warren.node.volumegroup import VolumeGroup

USER = GROUP = 1234
GIB = 1024 * MIB
SIZES = {"xfs": 320 * MIB, "ext4": 64 * MIB, "raw": 32 * MIB}


class Rabbit:
    """A rabbit and its only node, on a volume group."""

    def __init__(self, root: Path, group: str) -> None:
        self.disk = VolumeGroup("rabbit1", group, 10 * GIB)
        self.flash = BlockFlash(lambda rabbit: self.disk, root, grace_period=GracePeriod(seconds=0))
        self.namespace = HeldMountNamespace(root / "node", root / "mounts")
        self.machine = NamespacedNode("rabbit1", self.flash, self.namespace)

    def volume(self, name: str, kind: str) -> Volume:
        return Volume(
            rabbit="rabbit1", name=name, size=SIZES[kind],
            file_system=kind, userid=USER, groupid=GROUP,
        )  # fmt: skip

    def place(self, path: str) -> Path:
        """Where this process finds what the node has at `path`."""
        return Path(f"{self.namespace.root}{path}")

    def run(
        self, *words: str, userid: int = USER, text: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on the node as a user."""
        enter = ["nsenter", f"--target={self.namespace.holder}", "--mount"]
        user = ["setpriv", f"--reuid={userid}", f"--regid={userid}", "--clear-groups"]
        return subprocess.run(
            [*enter, *user, *words], input=text, capture_output=True, text=True, timeout=60
        )

    def make_and_mount(self, name: str, kind: str) -> str:
        path = f"{self.namespace.prefix}/{name}"

        async def main() -> None:
            await self.namespace.ensure()
            await self.machine.make(self.volume(name, kind))
            await self.machine.mount("rabbit1", name, kind, path)

        asyncio.run(main())
        return path

    def give_back(self, name: str, path: str) -> None:
        async def main() -> None:
            await self.machine.unmount(path, USER)
            await self.machine.release("rabbit1", name)

        asyncio.run(main())


def public(path: Path) -> Path:
    """Let users pass to a directory of a test."""
    for each in (path, *path.parents[:2]):
        each.chmod(0o755)
    return path


@pytest.fixture(scope="module", autouse=True)
def configured() -> None:
    lvm.configure("/dev/vdb")  # it is seen through what may fail
    lvm.make("flash", "/dev/vda")


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[Rabbit]:
    rabbit = Rabbit(public(tmp_path), "flash")
    yield rabbit
    rabbit.namespace.end()


def test_a_file_system_is_its_users_and_nothing_is_left_of_it(rabbit: Rabbit) -> None:
    path = rabbit.make_and_mount("a", "xfs")
    place = rabbit.place(path)
    written = rabbit.run("dd", "if=/dev/zero", f"of={path}/file", "bs=1M", "count=8")
    found = place.stat()

    assert (written.returncode, (place / "file").stat().st_size) == (0, 8 * MIB), written.stderr
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (USER, GROUP, 0o700)
    assert "Permission denied" in rabbit.run("ls", path, userid=4321).stderr
    assert os.statvfs(place).f_blocks > 0
    rabbit.give_back("a", path)
    assert lvm.volumes("flash") == set()
    assert not Path("/dev/flash/a").exists()


def test_a_user_has_a_raw_volume_as_a_device_that_shows_nothing_of_the_last_one(
    rabbit: Rabbit,
) -> None:
    path = rabbit.make_and_mount("a", "raw")
    written = rabbit.run("dd", f"of={path}", "bs=64K", text="secret--" * 8192)
    assert written.returncode == 0, written.stderr
    rabbit.give_back("a", path)
    path = rabbit.make_and_mount("b", "raw")
    read = rabbit.run("head", "-c", "65536", path)

    assert (read.returncode, set(read.stdout)) == (0, {"\0"})
    rabbit.give_back("b", path)
    assert lvm.volumes("flash") == set()


def test_thin_volumes_of_the_site_stay_beside_those_of_jobs(rabbit: Rabbit) -> None:
    lvm.run("lvcreate", "-y", "-q", "--type", "thin-pool", "-L", "64M", "-n", "pool", "flash")
    lvm.run("lvcreate", "-y", "-q", "-V", "32M", "--thinpool", "pool", "-n", "home", "flash")
    lvm.run("mkfs.ext4", "-q", "/dev/flash/home")
    free = asyncio.run(rabbit.machine.capacity())
    path = rabbit.make_and_mount("a", "ext4")
    rabbit.give_back("a", path)

    assert asyncio.run(rabbit.machine.capacity()) == free
    assert lvm.volumes("flash") == {"pool", "home"}
    lvm.run("e2fsck", "-f", "-n", "/dev/flash/home")
    lvm.run("lvremove", "-y", "-q", "flash/home", "flash/pool")


EXAMPLE = "data.ext4Storage.blockDeviceCommands.rabbitCommands"
"""Of these lines, what NNF's example profile has."""


def test_a_volume_is_made_activated_and_deactivated_as_its_profile_says_it(
    rabbit: Rabbit,
) -> None:
    profile = ProfileCommands(
        file_system="ext4",
        lines={
            f"{EXAMPLE}.lvCreate": (
                "--zero n --activate n --size $LV_SIZE --stripes $DEVICE_NUM --stripesize=32KiB "
                "--name $LV_NAME $VG_NAME",
            ),
            f"{EXAMPLE}.lvChange.activate": ("--activate ey $VG_NAME/$LV_NAME",),
            f"{EXAMPLE}.lvChange.deactivate": ("--activate n $VG_NAME/$LV_NAME",),
        },
    )
    volume = replace(rabbit.volume("a", "ext4"), commands=profile)

    def active() -> str:
        return lvm.run("lvs", "--noheadings", "-o", "lv_active_locally", "flash/a").strip()

    asyncio.run(rabbit.machine.make(volume))
    assert active() == "active locally"

    lvm.run("lvchange", "-an", "flash/a")  # as after a start of the machine
    asyncio.run(rabbit.machine.make(volume))
    assert active() == "active locally"
    asyncio.run(rabbit.machine.release("rabbit1", "a", profile))
    assert lvm.volumes("flash") == set()


class Failing:
    """A device of the device mapper on another one. It fails when it is told to."""

    path = "/dev/mapper/failing"

    def __init__(self, below: str) -> None:
        sectors = int(lvm.run("blockdev", "--getsz", below))
        self._whole = f"0 {sectors} linear {below} 0"
        # Up always, but that each write fails.
        self._read_only = f"0 {sectors} flakey {below} 0 0 60 1 error_writes"
        self._gone = f"0 {sectors} error"
        lvm.run("dmsetup", "create", "failing", text=self._whole)

    def _become(self, table: str) -> None:
        lvm.run("dmsetup", "suspend", "--nolockfs", "--noflush", "failing")
        lvm.run("dmsetup", "load", "failing", text=table)
        lvm.run("dmsetup", "resume", "failing")

    def refuse_writes(self) -> None:
        self._become(self._read_only)

    def fail(self) -> None:
        self._become(self._gone)

    def recover(self) -> None:
        self._become(self._whole)

    def end(self) -> None:
        lvm.run("dmsetup", "remove", "failing")


@pytest.fixture(scope="module")
def failing() -> Iterator[Failing]:
    device = Failing("/dev/vdb")
    lvm.make("weak", device.path)
    yield device
    lvm.run("vgremove", "-y", "-q", "weak")
    device.end()


@pytest.fixture
def weak(tmp_path: Path, failing: Failing) -> Iterator[Rabbit]:
    rabbit = Rabbit(public(tmp_path), "weak")
    yield rabbit
    rabbit.namespace.end()


def copied(rabbit: Rabbit, source: Path, destination: str) -> None:
    async def main() -> None:
        copy = Copy(
            source=str(source), destination=destination, index=None, userid=USER, groupid=GROUP
        )
        async for _ in rabbit.machine.copy(copy):
            pass

    asyncio.run(main())


def test_a_copy_to_flash_that_takes_no_writes_fails_and_says_so(
    weak: Rabbit, failing: Failing
) -> None:
    source = Path("/run/source")
    source.write_bytes(os.urandom(16 * MIB))
    source.chmod(0o644)
    path = weak.make_and_mount("a", "xfs")
    failing.refuse_writes()
    try:
        with pytest.raises(CopyFailed, match="Input/output error"):
            copied(weak, source, f"{path}/file")
    finally:
        failing.recover()

    weak.give_back("a", path)
    assert lvm.volumes("weak") == set()


def test_a_volume_whose_device_fails_is_not_ready_and_is_made_when_it_works(
    weak: Rabbit, failing: Failing
) -> None:
    asyncio.run(weak.disk.reserve(weak.volume("a", "xfs")))
    asyncio.run(weak.disk.attach("a"))
    failing.refuse_writes()
    try:
        with pytest.raises(NodeTrouble, match=r"(?i)input/output error|write failed"):
            asyncio.run(weak.machine.make(weak.volume("a", "xfs")))
        with pytest.raises(NodeTrouble, match="does not exist"):
            asyncio.run(weak.flash.source("rabbit1", "a", "xfs"))
    finally:
        failing.recover()

    path = weak.make_and_mount("a", "xfs")
    weak.give_back("a", path)
    assert lvm.volumes("weak") == set()


def test_what_cannot_be_read_from_flash_is_not_copied_in_part(
    weak: Rabbit, failing: Failing
) -> None:
    path = weak.make_and_mount("a", "ext4")
    file = weak.place(path) / "file"
    file.write_bytes(os.urandom(8 * MIB))
    os.chown(file, USER, GROUP)
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")
    target = Path("/run/results")
    target.mkdir()
    os.chown(target, USER, GROUP)
    failing.fail()
    try:
        with pytest.raises(CopyFailed, match="Input/output error"):
            copied(weak, Path(f"{path}/file"), f"{target}/file")
    finally:
        failing.recover()

    weak.give_back("a", path)
    assert lvm.volumes("weak") == set()
