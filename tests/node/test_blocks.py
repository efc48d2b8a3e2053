"""Volumes on loop devices, with real file systems on them. Takes root."""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from tests.node.conftest import Nodes, loop_devices_on
from tests.node.copied import User
from tests.node.processes import LIMITS, alive, eventually
from warren.base.bytesize import MIB
from warren.dws.node import NodeTrouble, Volume
from warren.dws.persistent.sharing import PRIVATE, NotShared, Sharing
from warren.node.blocks import BlockFlash
from warren.node.extents import UNIT, DiskSize, Extent, Extents
from warren.node.loopdisk import LoopDisk
from warren.node.namespaces import HeldMountNamespace
from warren.node.rootaccess import set_access

T = TypeVar("T")

CAPACITY = 1024 * MIB
SIZES = {"xfs": 304 * MIB, "ext4": 32 * MIB, "raw": 8 * MIB}
KINDS = list(SIZES)

LOOP_SET_STATUS64 = 0x4C04
LOOP_GET_STATUS64 = 0x4C05
FS_IOC_FIEMAP = 0xC020660B

OTHER = """
import asyncio, pathlib, sys
from warren.dws.node import Volume
from warren.node.loopdisk import LoopDisk

disk = LoopDisk("rabbit1", pathlib.Path(sys.argv[1]), int(sys.argv[2]), None)
names = sys.argv[3].split()

async def main():
    for name in names:
        await disk.reserve(Volume(rabbit="rabbit1", name=name, size=2**22, file_system="raw",
                                  userid=0, groupid=0))
    return await asyncio.gather(*(disk.attach(name) for name in names))

print(*asyncio.run(main()))
"""
"""What another agent does: reserve volumes, and attach them."""


@dataclass(frozen=True)
class Rabbit:
    """One rabbit's disk. Every action is done by an agent that knows nothing of the last one's."""

    root: Path
    user: User
    namespace: HeldMountNamespace
    """Where volumes are mounted: no namespace that is made meanwhile has a copy of it."""
    backing: Path | None = None

    @property
    def directory(self) -> Path:
        return self.root / "rabbit1"

    def disk(self) -> LoopDisk:
        return LoopDisk("rabbit1", self.directory, CAPACITY, self.backing)

    def blocks(self, seconds: float = 30.0) -> BlockFlash:
        disk = self.disk()
        return BlockFlash(lambda rabbit: disk, self.root, seconds=seconds)

    def volume(self, kind: str = "ext4", name: str = "a", size: int | None = None) -> Volume:
        return Volume(
            rabbit="rabbit1",
            name=name,
            size=size or SIZES.get(kind, UNIT),
            file_system=kind,
            userid=0 if kind == "raw" else self.user.userid,
            groupid=0 if kind == "raw" else self.user.groupid,
        )

    def make(self, kind: str = "ext4", name: str = "a", size: int | None = None) -> None:
        asyncio.run(self.blocks().make(self.volume(kind, name, size)))

    def release(self, name: str = "a") -> None:
        asyncio.run(self.blocks().release("rabbit1", name))

    def device(self, name: str = "a") -> str:
        return asyncio.run(self.disk().attach(name))

    def raw(self, name: str = "a") -> Path:
        """The device of a raw volume of root's, as it is when it is mounted."""
        return Path(asyncio.run(self.blocks().source("rabbit1", name, "raw")).arguments[-1])

    def volumes(self) -> dict[str, int]:
        return dict(self.blocks().volumes("rabbit1"))

    def loops(self) -> list[str]:
        return [loop.device for loop in loop_devices_on(self.root)]

    @contextmanager
    def mounted(self, kind: str = "ext4", name: str = "a") -> Iterator[Path]:
        """Mount a volume for the block; what is there is found at the path that is given."""
        source = asyncio.run(self.blocks().source("rabbit1", name, kind))
        nsenter = asyncio.run(self.namespace.nsenter_command())
        point = self.namespace.prefix / f"mount of {name}"
        seen = Path(f"{self.namespace.root}{point}")
        seen.touch() if source.is_file else seen.mkdir(exist_ok=True)
        subprocess.run([*nsenter, "mount", *source.arguments, point], check=True)
        try:
            yield seen
        finally:
            subprocess.run([*nsenter, "umount", point], check=True)

    def other(self, *names: str) -> "subprocess.Popen[str]":
        """Start another agent on the same disk."""
        words = [sys.executable, "-c", OTHER, str(self.directory), str(CAPACITY), " ".join(names)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def rabbit(loop_devices: Path, nodes: Nodes, user: User) -> Iterator[Rabbit]:
    rabbit = Rabbit(loop_devices, user, nodes.namespace())
    yield rabbit
    for name in rabbit.volumes():
        rabbit.release(name)


@pytest.fixture
def device_rabbit(loop_devices: Path, nodes: Nodes, user: User) -> Iterator[Rabbit]:
    """A rabbit with a block device, on which something was left."""
    file = loop_devices / "device"
    with file.open("wb") as opened:
        for _ in range(24):
            opened.write(b"secret--" * (MIB // 8))
    words = ["losetup", "--find", "--show", str(file)]
    device = subprocess.check_output(words, text=True).strip()
    rabbit = Rabbit(loop_devices, user, nodes.namespace(), Path(device))
    try:
        yield rabbit
        for name in rabbit.volumes():
            rabbit.release(name)
        assert rabbit.disk().loops() == []
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def write(kind: str, mounted: Path, data: bytes) -> None:
    """Leave something in what is mounted."""
    place = mounted if kind == "raw" else mounted / "data"
    with place.open("r+b" if kind == "raw" else "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def found(kind: str, mounted: Path, size: int) -> bytes:
    place = mounted if kind == "raw" else mounted / "data"
    with place.open("rb") as opened:
        return opened.read(size)


async def together(actions: Iterable[Awaitable[T]]) -> list[T]:
    """Do everything at once, and all of it even if something fails."""
    ends = await asyncio.gather(*actions, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [end for end in ends if not isinstance(end, BaseException)]


def detach(device: str) -> None:
    """Take a loop device away, as an administrator might."""
    subprocess.run(["losetup", "--detach", device], check=True)


def options(namespace: HeldMountNamespace) -> list[str]:
    """The type and the options of what was mounted last."""
    table = Path(f"/proc/{namespace.holder}/mounts").read_text()
    return table.splitlines()[-1].split()[2:4]


# Making


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_file_system_is_real_and_empty_and_its_users_own(rabbit: Rabbit, kind: str) -> None:
    rabbit.make(kind)

    with rabbit.mounted(kind) as path:
        kinds = options(rabbit.namespace)
        seen = path.stat()
        assert list(path.iterdir()) == []
        space = os.statvfs(path)

    assert kinds[0] == kind
    assert {"rw", "nodev", "nosuid"} <= set(kinds[1].split(","))
    assert (seen.st_uid, seen.st_gid) == (rabbit.user.userid, rabbit.user.groupid)
    assert stat.S_IMODE(seen.st_mode) == 0o700
    # The kernel keeps a little of ext4 for itself; root keeps some blocks.
    assert space.f_bavail > 0.97 * space.f_bfree


@pytest.mark.parametrize("before", ["nothing", "an older agent's directory"])
def test_only_root_reads_an_image_and_locks_a_disk(rabbit: Rabbit, before: str) -> None:
    """Wherever the directory is: that of an agent that is a service may be anywhere."""
    if before != "nothing":
        rabbit.directory.mkdir(mode=0o755)
        (rabbit.directory / "lock").touch(mode=0o644)
    old = os.umask(0o022)
    try:
        rabbit.make("ext4")
    finally:
        os.umask(old)
    assert stat.S_IMODE(rabbit.directory.stat().st_mode) == 0o700
    if rabbit.backing is None:
        assert stat.S_IMODE((rabbit.directory / "disk.img").stat().st_mode) == 0o600


def test_a_raw_volume_of_roots_is_a_block_device(rabbit: Rabbit) -> None:
    rabbit.make("raw")

    with rabbit.mounted("raw") as path:
        seen = path.stat()
        with path.open("rb") as opened:
            assert opened.seek(0, os.SEEK_END) == SIZES["raw"]

    assert stat.S_ISBLK(seen.st_mode)
    assert seen.st_uid == 0


def test_a_user_is_never_given_a_loop_device(rabbit: Rabbit) -> None:
    with pytest.raises(NodeTrouble, match="which only root may hold") as caught:
        asyncio.run(rabbit.blocks().make(replace(rabbit.volume("raw"), userid=rabbit.user.userid)))

    assert caught.value.fatal
    assert rabbit.volumes() == {}
    rabbit.make("ext4")
    seen = Path(rabbit.device()).stat()
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode) & stat.S_IRWXO) == (0, 0)


def test_a_raw_volume_that_an_older_agent_made_for_a_user_stays_roots(rabbit: Rabbit) -> None:
    asyncio.run(rabbit.disk().reserve(replace(rabbit.volume("raw"), userid=rabbit.user.userid)))
    asyncio.run(rabbit.disk().set_formatted("a"))

    assert rabbit.raw().stat().st_uid == 0


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_volume_holds_its_size_and_no_more(rabbit: Rabbit, kind: str) -> None:
    rabbit.make(kind)

    with rabbit.mounted(kind) as path:
        with (path / "half").open("wb") as opened:
            os.posix_fallocate(opened.fileno(), 0, SIZES[kind] // 2)
        with (
            (path / "more").open("wb") as opened,
            pytest.raises(OSError, match="No space") as caught,
        ):
            os.posix_fallocate(opened.fileno(), 0, SIZES[kind] // 2)

    assert caught.value.errno == errno.ENOSPC


MANY = Sharing(users=frozenset(range(70_000, 70_100)))


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_volume_that_its_users_have_filled_can_still_be_shared(rabbit: Rabbit, kind: str) -> None:
    rabbit.make(kind)

    with rabbit.mounted(kind) as path:
        with (path / "all").open("wb") as opened:
            done = subprocess.run(
                ["dd", "if=/dev/zero", "bs=1M", "status=none"],
                stdout=opened,
                stderr=subprocess.PIPE,
                user=rabbit.user.userid,
                group=rabbit.user.groupid,
                extra_groups=(),
                check=False,
            )
        assert b"No space left" in done.stderr
        set_access(path, MANY)
        set_access(path, PRIVATE)


def test_an_ext4_whose_owner_leaves_no_room_for_a_list_says_whom_it_lets_in(rabbit: Rabbit) -> None:
    """A guest may do it, with attributes of the root directory, as often as it likes."""
    rabbit.make("ext4")

    with rabbit.mounted("ext4") as path:
        some = Sharing(users=frozenset({70_000, 5}))
        set_access(path, some)
        os.setxattr(path, "user.large", b"x" * 900)  # the blocks of a small one have 1 KiB
        set_access(path, some)
        with pytest.raises(NotShared, match="its owner has to remove") as caught:
            set_access(path, MANY | some)
        assert (caught.value.owner_userid, caught.value.let_in) == (rabbit.user.userid, some)
        with pytest.raises(NotShared) as caught:
            set_access(path, MANY)  # without 5
        assert caught.value.let_in == PRIVATE
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_raw_volume_ends_where_the_next_one_begins(rabbit: Rabbit) -> None:
    rabbit.make("raw", "a")
    rabbit.make("raw", "b")
    write("raw", rabbit.raw("b"), b"of b")
    with rabbit.raw("a").open("r+b", buffering=0) as opened:
        opened.seek(SIZES["raw"] - 4)
        assert opened.write(b"the end") == 4
        with pytest.raises(OSError, match="No space left") as caught:
            opened.write(b"more")

    assert caught.value.errno == errno.ENOSPC
    assert found("raw", rabbit.raw("b"), 8) == b"of b\0\0\0\0"


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_made_is_never_made_again(rabbit: Rabbit, kind: str) -> None:
    rabbit.make(kind)
    with rabbit.mounted(kind) as path:
        write(kind, path, b"precious")
        rabbit.make(kind)
    rabbit.make(kind)
    detach(rabbit.device())
    rabbit.make(kind)

    with rabbit.mounted(kind) as path:
        assert found(kind, path, 8) == b"precious"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_agent_has_begun_is_made_whole_by_the_next(rabbit: Rabbit, kind: str) -> None:
    asyncio.run(rabbit.disk().reserve(rabbit.volume(kind)))
    write("raw", Path(rabbit.device()), os.urandom(2 * MIB))
    with pytest.raises(NodeTrouble, match="rabbit1/a does not exist") as caught:
        asyncio.run(rabbit.blocks().source("rabbit1", "a", kind))
    assert not caught.value.fatal

    rabbit.make(kind)

    with rabbit.mounted(kind) as path:
        if kind == "raw":
            assert found(kind, path, SIZES["raw"]) == bytes(SIZES["raw"])
        else:
            assert list(path.iterdir()) == []
        write(kind, path, b"works")
    assert rabbit.volumes() == {"a": SIZES[kind]}


def test_a_reservation_that_was_written_down_and_no_more_is_completed(rabbit: Rabbit) -> None:
    asyncio.run(rabbit.disk().reserve(rabbit.volume()))
    (rabbit.directory / "disk.img").unlink()

    rabbit.make()

    with rabbit.mounted() as path:
        write("ext4", path, b"works")


def test_a_full_rabbit_refuses_for_good_and_keeps_what_it_has(rabbit: Rabbit) -> None:
    rabbit.make("raw", "a", CAPACITY - UNIT)

    with pytest.raises(NodeTrouble, match=f"rabbit1 has {UNIT} bytes of flash left") as caught:
        rabbit.make("raw", "b", UNIT + 1)

    assert caught.value.fatal
    assert rabbit.volumes() == {"a": CAPACITY - UNIT}
    rabbit.make("raw", "c", UNIT)


def test_a_file_system_that_is_not_made_here_is_refused_for_good(rabbit: Rabbit) -> None:
    with pytest.raises(NodeTrouble, match="type zfs are not made here") as caught:
        rabbit.make("zfs")

    assert caught.value.fatal


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Gives a way to replace mkfs.xfs by a shell script."""

    def replace(script: str) -> Path:
        program = tmp_path / "bin" / "mkfs.xfs"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        return program

    return replace


def test_a_mkfs_that_fails_is_told_by_its_device_and_in_its_own_words(
    rabbit: Rabbit, fake: Callable[[str], Path]
) -> None:
    program = fake("echo 'not  today' >&2; exit 1")

    with pytest.raises(NodeTrouble, match=r"^/dev/loop\d+: mkfs\.xfs: not today$") as caught:
        rabbit.make("xfs")

    assert not caught.value.fatal
    with pytest.raises(NodeTrouble, match="does not exist"):
        asyncio.run(rabbit.blocks().source("rabbit1", "a", "xfs"))
    assert list(rabbit.root.glob("*.proto")) == []

    program.unlink()
    rabbit.make("xfs")
    with rabbit.mounted("xfs") as path:
        write("xfs", path, b"works")


def test_a_mkfs_that_hangs_is_ended_with_all_that_it_has_started(
    rabbit: Rabbit, fake: Callable[[str], Path]
) -> None:
    pid = rabbit.root / "pid"
    fake(f"sleep 1000 & echo $! > '{pid}'; wait")

    for seconds in LIMITS:
        said = rf"^/dev/loop\d+: mkfs\.xfs did not end within {seconds:g} s$"
        with pytest.raises(NodeTrouble, match=said):
            asyncio.run(rabbit.blocks(seconds=seconds).make(rabbit.volume("xfs")))
        if pid.exists() and pid.read_text().strip():
            break
    child = int(pid.read_text())
    eventually(lambda: child not in alive())


def test_who_comes_while_a_file_system_is_made_waits_and_does_not_make_it_again(
    rabbit: Rabbit, fake: Callable[[str], Path]
) -> None:
    count = rabbit.root / "count"
    fake(f"echo begun >> '{count}'; sleep 0.2; echo ended >> '{count}'")
    blocks = rabbit.blocks()

    async def main() -> None:
        await together(blocks.make(rabbit.volume("xfs")) for _ in range(4))

    asyncio.run(main())

    assert count.read_text().split() == ["begun", "ended"]


def test_volumes_are_made_side_by_side(rabbit: Rabbit) -> None:
    blocks = rabbit.blocks()
    names = [f"volume-{number}" for number in range(8)]

    async def main() -> None:
        await together(blocks.make(rabbit.volume("ext4", name)) for name in names)

    asyncio.run(main())

    assert len(rabbit.loops()) == len(names)
    for name in names:
        with rabbit.mounted("ext4", name) as path:
            assert list(path.iterdir()) == []


def test_a_directory_that_cannot_be_is_a_trouble(rabbit: Rabbit) -> None:
    rabbit.directory.touch()

    with pytest.raises(NodeTrouble, match="rabbit1: "):
        rabbit.make()

    rabbit.directory.unlink()


# Loop devices


def test_the_device_of_another_process_is_found_again(rabbit: Rabbit) -> None:
    with rabbit.other("a") as agent:
        assert agent.stdout is not None
        device = agent.stdout.read().strip()

    assert rabbit.device() == device
    assert rabbit.loops() == [device]


def test_agents_that_come_at_once_attach_one_device_to_each_volume(rabbit: Rabbit) -> None:
    names = ["a", "b", "c"]
    agents = [rabbit.other(*names) for _ in range(3)]

    async def here() -> list[str]:
        for name in names:
            await rabbit.disk().reserve(rabbit.volume("raw", name, UNIT))
        return await together(rabbit.disk().attach(name) for name in names * 4)

    told = {tuple(asyncio.run(here())[: len(names)])}
    for agent in agents:
        told.add(tuple(agent.communicate()[0].split()))
        assert agent.returncode == 0

    assert len(told) == 1
    assert sorted(rabbit.loops()) == sorted(told.pop())
    assert sorted(extent.offset for extent in rabbit.disk().loops()) == [0, UNIT, 2 * UNIT]


def test_a_device_that_has_vanished_is_attached_again(rabbit: Rabbit) -> None:
    rabbit.make()
    with rabbit.mounted() as path:
        write("ext4", path, b"precious")
    detach(rabbit.loops()[0])
    eventually(lambda: rabbit.loops() == [])

    with rabbit.mounted() as path:
        assert found("ext4", path, 8) == b"precious"


def test_a_disk_that_is_found_by_a_link_is_the_same_disk(rabbit: Rabbit) -> None:
    rabbit.make()
    link = rabbit.root / "link"
    link.symlink_to(rabbit.root)
    other = Rabbit(link, rabbit.user, rabbit.namespace)

    assert other.device() == rabbit.device()
    assert len(rabbit.loops()) == 1

    other.release()
    assert rabbit.loops() == []


def test_what_is_attached_to_an_image_that_was_removed_is_not_taken_for_the_new_one(
    rabbit: Rabbit,
) -> None:
    rabbit.make("raw")
    write("raw", rabbit.raw(), b"secret")
    (rabbit.directory / "volumes" / "a.json").unlink()
    (rabbit.directory / "disk.img").unlink()

    rabbit.make("raw")

    assert found("raw", rabbit.raw(), 8) == bytes(8)
    rabbit.release()
    assert rabbit.loops() == []


def move(device: Path | str, offset: int, size: int) -> None:
    """Have a loop device show another part of its file: 0 is all that follows."""
    with open(device, "r+b", buffering=0) as opened:
        status = bytearray(232)  # struct loop_info64
        fcntl.ioctl(opened, LOOP_GET_STATUS64, status)
        struct.pack_into("=QQ", status, 24, offset, size)
        fcntl.ioctl(opened, LOOP_SET_STATUS64, status)


def test_a_device_whose_window_was_moved_is_detached_when_its_volume_is_released(
    rabbit: Rabbit,
) -> None:
    rabbit.make("raw", "a")
    rabbit.make("ext4", "b")
    move(rabbit.raw("a"), 0, 0)

    rabbit.release("a")

    assert [loop.offset for loop in rabbit.disk().loops()] == [SIZES["raw"]]


def test_a_device_over_a_part_that_is_given_out_anew_is_detached_before(rabbit: Rabbit) -> None:
    rabbit.make("raw", "a")
    stray = rabbit.raw("a")
    move(stray, SIZES["raw"], UNIT)
    with contextlib.suppress(NodeTrouble):
        rabbit.make("ext4", "b")

    assert [(loop.offset, loop.size) for loop in rabbit.disk().strays()] == []
    shown = [(loop.offset, loop.size) for loop in rabbit.disk().loops()]
    assert shown == [(SIZES["raw"], SIZES["ext4"])]


def test_a_volume_is_not_made_under_a_stray_device_that_is_open(rabbit: Rabbit) -> None:
    rabbit.make("raw", "a")
    stray = rabbit.raw("a")
    move(stray, 0, 0)
    with stray.open("rb"):
        with pytest.raises(NodeTrouble, match="is in use") as caught:
            rabbit.make("ext4", "b")

        assert not caught.value.fatal
        assert [loop.device for loop in rabbit.disk().strays()] == [str(stray)]

    rabbit.make("ext4", "b")
    assert rabbit.disk().strays() == []


def test_a_device_that_shows_a_volume_is_no_stray(rabbit: Rabbit) -> None:
    rabbit.make("raw", "a")
    rabbit.make("ext4", "b")

    assert rabbit.disk().strays() == []
    asyncio.run(rabbit.disk().detach_stray(str(rabbit.raw("a"))))
    assert len(rabbit.loops()) == 2


# Releasing


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_what_is_mounted_is_not_released_and_may_be_later(rabbit: Rabbit, kind: str) -> None:
    rabbit.make(kind)
    with rabbit.mounted(kind) as path:
        write(kind, path, b"precious")
        with pytest.raises(NodeTrouble, match=r"rabbit1/a is in use") as caught:
            rabbit.release()

        assert not caught.value.fatal
        assert rabbit.volumes() == {"a": SIZES[kind]}
        write(kind, path, b"precious")

    with rabbit.mounted(kind) as path:
        assert found(kind, path, 8) == b"precious"

    rabbit.release()
    assert rabbit.volumes() == {}
    assert rabbit.loops() == []


def test_a_raw_volume_that_is_open_is_not_released(rabbit: Rabbit) -> None:
    rabbit.make("raw")
    device = rabbit.raw()
    with device.open("r+b", buffering=0) as opened:
        with pytest.raises(NodeTrouble, match="rabbit1/a is in use by"):
            rabbit.release()
        opened.write(b"precious")

    assert found("raw", rabbit.raw(), 8) == b"precious"


def test_a_raw_volume_holds_nothing_that_its_predecessor_has_left(rabbit: Rabbit) -> None:
    rabbit.make("raw", "a")
    write("raw", rabbit.raw("a"), b"secret--" * (SIZES["raw"] // 8))
    rabbit.release("a")
    rabbit.make("raw", "b")

    assert [loop.offset for loop in rabbit.disk().loops()] == [0]
    assert found("raw", rabbit.raw("b"), SIZES["raw"]) == bytes(SIZES["raw"])


def test_a_volume_whose_image_was_removed_is_released_all_the_same(rabbit: Rabbit) -> None:
    rabbit.make()
    (rabbit.directory / "disk.img").unlink()
    rabbit.release()

    assert rabbit.volumes() == {}
    assert rabbit.loops() == []
    rabbit.make()
    with rabbit.mounted() as path:
        write("ext4", path, b"again")


def test_what_was_released_takes_no_space_on_the_machine(rabbit: Rabbit) -> None:
    image = rabbit.directory / "disk.img"
    rabbit.make("raw")
    write("raw", rabbit.raw(), os.urandom(SIZES["raw"]))
    assert image.stat().st_blocks * 512 >= SIZES["raw"]

    rabbit.release()

    assert image.stat().st_blocks * 512 < MIB


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_volume_of_a_user_has_all_its_blocks_before_anything_is_written(
    rabbit: Rabbit, kind: str
) -> None:
    rabbit.make(kind)
    image = rabbit.directory / "disk.img"
    assert image.stat().st_blocks * 512 >= SIZES[kind]

    rabbit.release()

    assert image.stat().st_blocks * 512 < MIB


def test_the_kernel_takes_no_blocks_back_from_a_volume_that_is_mounted(rabbit: Rabbit) -> None:
    rabbit.make("ext4")
    image = rabbit.directory / "disk.img"
    (loop,) = LoopDisk("rabbit1", rabbit.directory, CAPACITY, None).loops()
    before = image.stat().st_blocks

    with rabbit.mounted("ext4"):
        # A thread of the kernel would zero inode tables, and so punch them out, when it has time.
        told = Path("/proc/fs/ext4", Path(loop.device).name, "options").read_text().split()
        assert not [each for each in told if each.startswith("init_itable")]

    assert image.stat().st_blocks >= before


def test_a_volume_that_would_leave_the_machine_no_room_is_refused_and_takes_none(
    rabbit: Rabbit,
) -> None:
    rabbit.make("ext4", "a")
    image = rabbit.directory / "disk.img"
    before = image.stat().st_blocks, image.stat().st_size
    full = LoopDisk("rabbit1", rabbit.directory, CAPACITY, None, headroom=2**60)

    with pytest.raises(NodeTrouble) as refusal:
        asyncio.run(full.reserve(rabbit.volume("ext4", "b")))

    assert str(refusal.value).startswith(
        f"no room for 32.0 MiB: its image is on the file system of {rabbit.directory}, which has "
    )
    assert "left and keeps 1024 PiB free" in str(refusal.value)
    assert not refusal.value.fatal  # another job may end
    assert list(rabbit.volumes()) == ["a"]
    # Not for a moment: the cluster's records are written beside it.
    assert (image.stat().st_blocks, image.stat().st_size) == before
    asyncio.run(full.reserve(rabbit.volume("ext4", "a")))  # and what is there stays


def test_users_who_fill_their_volumes_leave_the_machine_its_room(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    """Fill all volumes that a small file system lets in."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "none", small], check=True)
    try:
        disk = LoopDisk("rabbit1", small / "rabbit1", CAPACITY, None, headroom=16 * MIB)

        async def reserved() -> int:
            for number in range(9):
                try:
                    await disk.reserve(rabbit.volume("ext4", f"v{number}"))
                except NodeTrouble:
                    return number
            raise AssertionError("all have been let in")

        number = asyncio.run(reserved())
        assert number == 2
        with (small / "rabbit1" / "disk.img").open("r+b") as image:
            for _ in range(number * SIZES["ext4"] // MIB):
                image.write(os.urandom(MIB))
            image.flush()
        left = os.statvfs(small)
        assert left.f_bavail * left.f_frsize >= 16 * MIB
    finally:
        subprocess.run(["umount", small], check=True)


def test_releasing_twice_or_what_never_was_is_no_trouble(rabbit: Rabbit) -> None:
    rabbit.make()
    rabbit.release("b")
    rabbit.release("a")
    rabbit.release("a")

    assert rabbit.volumes() == {}


# Block devices as disks


@pytest.mark.parametrize("kind", ["ext4", "raw"])
def test_a_block_device_may_be_the_disk(device_rabbit: Rabbit, kind: str) -> None:
    device_rabbit.make(kind, "a", 8 * MIB)
    device_rabbit.make(kind, "b", 8 * MIB)
    for name in "ab":
        with device_rabbit.mounted(kind, name) as path:
            write(kind, path, f"of {name}".encode())
    for name in "ab":
        with device_rabbit.mounted(kind, name) as path:
            assert found(kind, path, 4) == f"of {name}".encode()

    assert [loop.backing for loop in device_rabbit.disk().loops()] == (
        [str(device_rabbit.backing)] * 2
    )
    assert not (device_rabbit.directory / "disk.img").exists()


def test_a_block_device_has_no_more_than_it_has(device_rabbit: Rabbit) -> None:
    assert asyncio.run(device_rabbit.blocks().capacity("rabbit1")) == 24 * MIB
    device_rabbit.make("raw", "a", 16 * MIB)

    with pytest.raises(NodeTrouble, match=f"rabbit1 has {8 * MIB} bytes of flash left"):
        device_rabbit.make("raw", "b", 12 * MIB)


def test_a_raw_volume_holds_nothing_that_was_on_the_device_before(device_rabbit: Rabbit) -> None:
    device_rabbit.make("raw")

    assert found("raw", device_rabbit.raw(), SIZES["raw"]) == bytes(SIZES["raw"])


def test_a_block_device_that_cannot_discard_is_released_all_the_same(
    device_rabbit: Rabbit, fake_fallocate: None
) -> None:
    device_rabbit.make("raw", "a")
    write("raw", device_rabbit.raw("a"), b"secret")
    device_rabbit.release("a")
    device_rabbit.make("raw", "b")

    assert device_rabbit.volumes() == {"b": SIZES["raw"]}
    assert found("raw", device_rabbit.raw("b"), 8) == bytes(8)


@pytest.fixture
def fake_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not punch holes."""
    program = tmp_path / "bin" / "fallocate"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'fallocate failed: Operation not supported' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


def pieces(image: Path) -> int:
    """Return in how many pieces an image is, written or not: FIEMAP of the kernel."""
    with image.open("rb") as opened:
        asked = bytearray(struct.pack("=QQIIII", 0, 2**64 - 1, 0, 0, 0, 0))
        fcntl.ioctl(opened, FS_IOC_FIEMAP, asked)
    return int(struct.unpack_from("=I", asked, 20)[0])


@pytest.fixture
def without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fallocate that makes no hole; the file that is returned says which were asked for."""
    found = shutil.which("fallocate")
    program, asked = tmp_path / "bin" / "fallocate", tmp_path / "holes"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
[ "$1" = --punch-hole ] || exec {found} "$@"
echo "$3 $5" >> {asked}
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return asked


def test_what_a_user_has_cut_into_pieces_is_joined_before_it_is_discarded(
    rabbit: Rabbit, without_holes: Path
) -> None:
    image = rabbit.directory / "disk.img"
    rabbit.make("xfs")
    with rabbit.mounted("xfs") as path, (path / "f").open("w+b", buffering=0) as opened:
        os.posix_fallocate(opened.fileno(), 0, 16 * MIB)
        for block in range(0, 16 * MIB, 8192):
            os.pwrite(opened.fileno(), b"a" * 4096, block)
        os.fsync(opened.fileno())
    try:
        cut = pieces(image)
    except OSError:
        pytest.skip("the file system of temporary files does not tell where its files are")
    if cut < 1000:
        pytest.skip("the file system of temporary files keeps what is written here and there whole")
    rabbit.release()

    assert without_holes.exists()
    assert pieces(image) < 100


def test_a_volume_is_discarded_in_pieces_between_which_others_have_the_disk(
    rabbit: Rabbit, without_holes: Path
) -> None:
    disk = LoopDisk("rabbit1", rabbit.directory, CAPACITY, None, piece=UNIT)

    async def reserve_while_another_is_given_back() -> bool:
        await disk.reserve(rabbit.volume("ext4", "a", 16 * UNIT))
        giving_back = asyncio.create_task(disk.give_back("a"))
        await asyncio.to_thread(eventually, without_holes.exists)
        await disk.reserve(rabbit.volume("ext4", "b", UNIT))
        found = "a" in disk.volumes()
        await giving_back
        return found

    assert asyncio.run(reserve_while_another_is_given_back())
    assert rabbit.volumes() == {"b": UNIT}
    holes = [line.split() for line in without_holes.read_text().splitlines()]
    assert holes == [[str(number * UNIT), str(UNIT)] for number in range(16)]


def test_a_block_device_that_is_not_there_is_a_trouble(
    loop_devices: Path, nodes: Nodes, user: User
) -> None:
    rabbit = Rabbit(loop_devices, user, nodes.namespace(), Path("/dev/no such device"))

    actions: list[Coroutine[Any, Any, object]] = [
        rabbit.blocks().capacity("rabbit1"),
        rabbit.blocks().make(rabbit.volume()),
    ]
    for action in actions:
        with pytest.raises(NodeTrouble, match="/dev/no such device: No such file"):
            asyncio.run(action)


def test_a_volume_whose_making_was_given_up_can_be_released_at_once(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    take = Extents.allocate

    def slowly(self: Extents, volume: Volume, space: DiskSize) -> Extent:
        begun.set()
        time.sleep(0.2)
        return take(self, volume, space)

    monkeypatch.setattr(Extents, "allocate", slowly)

    async def main() -> None:
        blocks = rabbit.blocks()
        making = asyncio.create_task(blocks.make(rabbit.volume()))
        await asyncio.to_thread(begun.wait)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        await blocks.release("rabbit1", "a")

    asyncio.run(main())
    assert rabbit.volumes() == {}
