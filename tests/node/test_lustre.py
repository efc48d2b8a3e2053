"""Lustre's commands, run with stand-ins on PATH: no package has the real ones. Takes root."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.node.conftest import Nodes
from warren.base.bytesize import MIB
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import LUSTRE, LustreMount, LustreTarget, NodeTrouble, Volume
from warren.dws.storage import storageprofiles
from warren.node import filesystems, filesystemsupport, lustre
from warren.node.blocks import BlockFlash
from warren.node.loopdisk import LoopDisk
from warren.node.namespacednode import NamespacedNode

STAND_INS = {
    "zpool": """
case "$1" in
  create) for last; do :; done; echo "$6" >> pools ;;
  import) echo "$5" >> pools ;;
  destroy) grep -vx "$2" pools > left; mv left pools ;;
  list) cat pools; exit ;;
esac
[ ! -e "fail-$1" ] || exit 1
""",
    "mkfs.lustre": '[ ! -e fail-mkfs ] || { echo "mkfs.lustre: no" >&2; exit 5; }',
    "mount.lustre": "",
    "lctl": '[ "$1" != list_nids ] || { echo 10.0.0.1@tcp; echo 10.0.0.1@o2ib; exit; }',
    "mount": """
case " $* " in
  *" lustre "*)
    [ ! -e fail-mount ] || { echo "mount.lustre: no MGS" >&2; exit 5; }
    for word; do case "$word" in /*) path=$word ;; esac; done
    exec MOUNT -t tmpfs lustre "$path" ;;
esac
exec MOUNT "$@"
""",
    "mountpoint": "",
}


@dataclass(frozen=True)
class Rabbit:
    root: Path
    flash: Path
    nodes: Nodes

    def blocks(self) -> BlockFlash:
        disk = LoopDisk("rabbit1", self.flash / "rabbit1", 64 * MIB, None)
        return BlockFlash(lambda rabbit: disk, self.flash)

    def machine(self) -> NamespacedNode:
        return NamespacedNode("rabbit1", self.blocks(), self.nodes.namespace())

    def volume(self, kind: str = "ost", index: int = 2) -> Volume:
        return Volume(
            rabbit="rabbit1",
            name="a",
            size=8 * MIB,
            file_system=LUSTRE,
            userid=0,
            groupid=0,
            commands=storageprofiles.lustre_commands(None, kind, {"$JOBID": "f7"}),
            target=LustreTarget(
                kind=kind, index=index, file_system_name="aaaaaaaa", mgs_address="10.0.0.9@tcp"
            ),
        )

    def make(self, volume: Volume | None = None) -> None:
        asyncio.run(self.blocks().make(volume or self.volume()))

    def release(self) -> None:
        asyncio.run(self.blocks().release("rabbit1", "a", self.volume().commands))

    def fails(self, name: str, *, fails: bool = True) -> None:
        mark = self.root / f"fail-{name}"
        mark.touch() if fails else mark.unlink()

    def ran(self) -> list[list[str]]:
        """Return the commands that were run since, but for looks, with the device as DEVICE."""
        file = self.root / "ran"
        lines = file.read_text().splitlines() if file.exists() else []
        file.write_text("")
        found = [line.split("\t") for line in lines]
        return [
            ["DEVICE" if word.startswith("/dev/loop") else word for word in words]
            for words in found
            if words[:2] not in (["zpool", "list"], ["lctl", "list_nids"])
            and (words[0] != "mount" or "lustre" in words)
        ]

    @property
    def point(self) -> str:
        return str(self.flash / "rabbit1-a.mount")


@pytest.fixture
def rabbit(loop_devices: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rabbit]:
    root, flash = loop_devices / "stand-ins", loop_devices / "flash"
    root.mkdir()
    flash.mkdir()
    mount = shutil.which("mount")
    for name, body in STAND_INS.items():
        program = root / name
        line = f'cd {root}\n(printf %s {name}; printf "\\t%s" "$@"; echo) >> ran\n'
        program.write_text(f"#!/bin/sh\n{line}{body.replace('MOUNT', str(mount))}\n")
        program.chmod(0o755)
    (root / "pools").touch()
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    rabbit = Rabbit(root, flash, nodes)
    yield rabbit
    for mark in root.glob("fail-*"):
        mark.unlink()
    rabbit.release()
    assert (root / "pools").read_text() == ""
    assert not Path(rabbit.point).exists()


MADE = [
    ["zpool", "create", "-O", "canmount=off", "-o", "cachefile=none", "warren-a", "DEVICE"],
    ["mkfs.lustre", "--ost", "--fsname=aaaaaaaa", "--mgsnode=10.0.0.9@tcp", "--index=2",
     "--backfstype=zfs", "--mkfsoptions=nnf:jobid=f7", "warren-a/ost2"],
]  # fmt: skip


def served(rabbit: Rabbit) -> list[list[str]]:
    return [["mount", "-t", "lustre", "warren-a/ost2", rabbit.point]]


def test_a_target_is_made_once_and_served_until_it_goes(rabbit: Rabbit) -> None:
    rabbit.make()
    assert rabbit.ran() == [*MADE, *served(rabbit)]
    rabbit.make()
    assert rabbit.ran() == []

    rabbit.release()
    assert rabbit.ran() == [["zpool", "destroy", "warren-a"]]
    assert not os.path.ismount(rabbit.point)
    rabbit.release()
    assert rabbit.ran() == []


def test_a_target_of_a_machine_that_was_started_anew_is_served_again(rabbit: Rabbit) -> None:
    rabbit.make()
    subprocess.run(["umount", rabbit.point], check=True)
    (rabbit.root / "pools").write_text("")
    rabbit.ran()

    rabbit.make()
    imported = ["zpool", "import", "-d", "DEVICE", "-N", "warren-a"]
    assert rabbit.ran() == [imported, *served(rabbit)]
    (rabbit.root / "pools").write_text("warren-a\n")


@pytest.mark.parametrize("step", ["create", "mkfs"])
def test_what_was_begun_of_a_target_is_begun_anew(rabbit: Rabbit, step: str) -> None:
    rabbit.fails(step)
    with pytest.raises(NodeTrouble):
        rabbit.make()
    rabbit.fails(step, fails=False)
    rabbit.ran()

    rabbit.make()
    assert rabbit.ran() == [["zpool", "destroy", "warren-a"], *MADE, *served(rabbit)]


def test_a_target_that_cannot_be_served_yet_is_not_made_anew(rabbit: Rabbit) -> None:
    rabbit.fails("mount")
    with pytest.raises(NodeTrouble, match=r"mount.lustre: no MGS"):
        rabbit.make()
    rabbit.fails("mount", fails=False)
    rabbit.ran()

    rabbit.make()
    assert rabbit.ran() == served(rabbit)


def test_what_is_to_be_run_once_a_target_is_served_is_run(rabbit: Rabbit) -> None:
    volume = rabbit.volume("mgt", 0)
    commands = volume.commands
    lines = {
        **commands.lines,
        "data.lustreStorage.mgtOptions.commandlines.postActivate": ("mountpoint $MOUNT_PATH",),
    }
    asked = type(commands)(variables=commands.variables, lines=lines, file_system=LUSTRE)
    rabbit.make(replace(volume, commands=asked))

    assert rabbit.ran()[1:] == [
        ["mkfs.lustre", "--mgs", "--backfstype=zfs", "--mkfsoptions=nnf:jobid=f7", "warren-a/mgt0"],
        ["mount", "-t", "lustre", "warren-a/mgt0", rabbit.point],
        ["mountpoint", rabbit.point],
    ]


def test_what_a_file_system_has_for_its_mgs_is_run_to_the_first_that_fails(rabbit: Rabbit) -> None:
    vectors = [
        ["lctl", "set_param", "-P", "osc.aaaaaaaa-*.checksums=1"],
        ["mkfs.lustre", "--dryrun", "a b"],
        ["lctl", "conf_param", "aaaaaaaa.sys.timeout=200"],
    ]
    for _ in range(2):
        asyncio.run(rabbit.machine().configure_mgs(vectors))
        assert rabbit.ran() == vectors

    rabbit.fails("mkfs")
    why = r"preMountCommands of the profile \(mkfs.lustre --dryrun 'a b'\): mkfs.lustre: no"
    with pytest.raises(NodeTrouble, match=why):
        asyncio.run(rabbit.machine().configure_mgs(vectors))
    assert rabbit.ran() == vectors[:2]


def test_what_is_to_be_run_before_a_target_ends_is_run_once_and_keeps_no_target(
    rabbit: Rabbit,
) -> None:
    before = "data.lustreStorage.ostOptions.commandlines.preDeactivate"
    after = "data.lustreStorage.clientOptions.commandlines.rabbitPostTeardown"
    for line, words in (
        ("mountpoint $MOUNT_PATH $POOL_NAME", ["mountpoint", rabbit.point, "warren-a"]),
        ("mkfs.lustre --no", ["mkfs.lustre", "--no"]),
    ):
        commands = replace_lines(rabbit.volume().commands, {before: line, after: "lctl gone"})
        rabbit.make()
        rabbit.ran()
        rabbit.fails("mkfs")
        for _ in range(2):
            asyncio.run(rabbit.blocks().release("rabbit1", "a", commands))
        rabbit.fails("mkfs", fails=False)
        ended = [words, ["zpool", "destroy", "warren-a"]]
        assert rabbit.ran() == [*ended, ["lctl", "gone"], ["lctl", "gone"]]


def replace_lines(commands: ProfileCommands, more: Mapping[str, str]) -> ProfileCommands:
    lines = {**commands.lines, **{place: (line,) for place, line in more.items()}}
    return ProfileCommands(variables=commands.variables, lines=lines, file_system=LUSTRE)


@pytest.mark.parametrize("side", ["rabbit", "compute"])
def test_what_is_to_be_run_around_a_clients_mount_is_run_once_each(
    rabbit: Rabbit, side: str
) -> None:
    place = f"data.lustreStorage.clientOptions.commandlines.{side}"
    around = ("PreMount", "PostMount", "PreUnmount", "PostUnmount")
    commands = replace_lines(
        ProfileCommands(), {f"{place}{each}": f"lctl {each} $FS_NAME" for each in around[:2]}
        | {f"{place}{each}": f"lctl {each} $MOUNT_PATH" for each in around[2:]},
    )  # fmt: skip
    machine, path = rabbit.machine(), str(rabbit.nodes.prefix / "job")
    source = LustreMount(address="10.0.0.9@tcp", name="aaaaaaaa", userid=0, groupid=0)
    for _ in range(2):
        asyncio.run(machine.mount_lustre(source, path, commands))
    before, mounted, after = rabbit.ran()
    assert (before, after) == (["lctl", "PreMount", "aaaaaaaa"], ["lctl", "PostMount", "aaaaaaaa"])
    assert mounted[0] == "mount"
    for _ in range(2):
        asyncio.run(machine.unmount(path, 0, commands))
    assert rabbit.ran() == [["lctl", "PreUnmount", path], ["lctl", "PostUnmount", path]]


def test_what_can_never_be_run_keeps_no_client_mounted(rabbit: Rabbit) -> None:
    place = "data.lustreStorage.clientOptions.commandlines.rabbit"
    lines = {f"{place}{each}": f"lctl {each} $POOL_NAME" for each in ("PreUnmount", "PostUnmount")}
    commands = replace_lines(ProfileCommands(), lines)
    machine, path = rabbit.machine(), str(rabbit.nodes.prefix / "job")
    source = LustreMount(address="10.0.0.9@tcp", name="aaaaaaaa", userid=0, groupid=0)
    asyncio.run(machine.mount_lustre(source, path))
    rabbit.ran()
    asyncio.run(machine.unmount(path, 0, commands))
    assert rabbit.ran() == []
    assert machine._namespace.mount_id(path) is None


def test_a_client_mounts_a_file_system_and_the_first_gives_it_to_its_user(rabbit: Rabbit) -> None:
    machine, path = rabbit.machine(), str(rabbit.nodes.prefix / "job")
    source = LustreMount(address="10.0.0.9@tcp", name="aaaaaaaa", userid=1050, groupid=1051)
    for _ in range(2):
        asyncio.run(machine.mount_lustre(source, path))

    (mounted,) = [words for words in rabbit.ran() if path in words]
    assert mounted == ["mount", "-t", "lustre", "10.0.0.9@tcp:/aaaaaaaa", path, "-o",
                       "nodev,nosuid"]  # fmt: skip
    found = os.stat(f"{machine._namespace.root}{path}")
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1050, 1051, 0o700)
    os.chmod(f"{machine._namespace.root}{path}", 0o750)
    asyncio.run(machine.mount_lustre(source, path))
    assert os.stat(f"{machine._namespace.root}{path}").st_mode & 0o777 == 0o750
    asyncio.run(machine.unmount(path))


def test_a_machine_with_the_programs_and_no_kernel_for_them_says_so(rabbit: Rabbit) -> None:
    lacked = asyncio.run(filesystemsupport.unsupported_types())["lustre"]
    known = Path("/proc/filesystems").read_text().split()
    assert lacked == "the kernel has no lustre" or "lustre" in known
    every = {*filesystems.PROGRAMS, "mkfs.lustre", "mount.lustre", "zpool", "lctl"}
    found = filesystems.unsupported_types(
        every.__contains__, filesystems.kernel_types().__contains__
    )
    assert found == {}


def test_where_servers_are_found_is_the_first_address_of_the_machine(rabbit: Rabbit) -> None:
    assert asyncio.run(lustre.lnet_nid()) == "10.0.0.1@tcp"
