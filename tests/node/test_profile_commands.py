"""Commands of profiles, run on real volumes. Takes root."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.node.conftest import Nodes
from tests.node.copied import User
from warren.base.bytesize import MIB
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import NodeTrouble, Volume
from warren.node import filesystems
from warren.node.blocks import BlockFlash
from warren.node.loopdisk import LoopDisk
from warren.node.namespacednode import NamespacedNode

SIZES = {"xfs": 304 * MIB, "ext4": 32 * MIB, "raw": 8 * MIB}


def commands(kind: str, **lines: str) -> ProfileCommands:
    """Return a profile's commands, by the ends of their places with `_` for dots."""
    return ProfileCommands(
        file_system=kind,
        variables={"$USERID": "5", "$GROUPID": "6", "$JOBID": "7"},
        lines={
            f"data.{kind}Storage.{name.replace('_', '.')}": tuple(line.splitlines())
            for name, line in lines.items()
        },
    )


@dataclass(frozen=True)
class Rabbit:
    machine: NamespacedNode
    blocks: BlockFlash
    root: Path
    path: str
    user: User

    def make(self, kind: str, profile: ProfileCommands) -> None:
        asyncio.run(self.machine.make(self.volume(kind, profile)))

    def volume(self, kind: str, profile: ProfileCommands) -> Volume:
        return Volume(
            rabbit="rabbit1",
            name="a",
            size=SIZES[kind],
            file_system=kind,
            userid=0 if kind == "raw" else self.user.userid,
            groupid=0 if kind == "raw" else self.user.groupid,
            commands=profile,
        )

    def mount(self, kind: str, profile: ProfileCommands) -> None:
        asyncio.run(self.machine.mount("rabbit1", "a", kind, self.path, None, profile))

    def unmount(self, profile: ProfileCommands = NO_COMMANDS) -> None:
        asyncio.run(self.machine.unmount(self.path, 0, profile))

    def release(self, profile: ProfileCommands = NO_COMMANDS) -> None:
        asyncio.run(self.machine.release("rabbit1", "a", profile))

    @property
    def seen(self) -> Path:
        """The root directory, as the node sees it."""
        root = self.machine._namespace.root
        assert root is not None
        return root

    @property
    def told(self) -> list[str]:
        """What the commands have written."""
        file = self.root / "told"
        return file.read_text().splitlines() if file.exists() else []

    def tell(self, *words: str) -> str:
        """Return a line for a profile that writes its words down."""
        return " ".join([str(self.root / "tell"), *words])


@pytest.fixture
def rabbit(loop_devices: Path, nodes: Nodes, user: User) -> Iterator[Rabbit]:
    root = loop_devices / "flash"
    root.mkdir()
    tell = root / "tell"
    tell.write_text(f'#!/bin/sh\necho "$@" >> {root}/told\n')
    tell.chmod(0o755)
    disk = LoopDisk("rabbit1", root / "rabbit1", 1024 * MIB, None)
    blocks = BlockFlash(lambda rabbit: disk, root)
    machine = NamespacedNode("rabbit1", blocks, nodes.namespace())
    rabbit = Rabbit(machine, blocks, root, str(nodes.prefix / "job"), user)
    yield rabbit
    rabbit.unmount()
    rabbit.release()
    assert [path.name for path in root.glob("*.mount")] == []


@pytest.mark.parametrize(
    ("kind", "options"), [("xfs", "-L $JOBID-x -f $DEVICE"), ("ext4", "-L $JOBID-x $DEVICE")]
)
def test_a_profiles_mkfs_makes_a_file_system_that_is_its_users_all_the_same(
    rabbit: Rabbit, kind: str, options: str
) -> None:
    profile = commands(kind, fileSystemCommands_rabbitCommands_mkfs=options)
    rabbit.make(kind, profile)
    rabbit.mount(kind, profile)

    source = asyncio.run(rabbit.blocks.source("rabbit1", "a", kind)).arguments[-1]
    label = subprocess.check_output(["blkid", "-p", "-o", "value", "-s", "LABEL", source])
    assert label == b"7-x\n"
    found = os.stat(f"{rabbit.seen}{rabbit.path}")
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (
        rabbit.user.userid, rabbit.user.groupid, 0o700,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-L $FOO $DEVICE", r"rabbitCommands.mkfs: there is no variable '\$FOO'"),
        ("-L $MGS_NID $DEVICE", r"rabbitCommands.mkfs: \$MGS_NID has no value here"),
        ("-L x /dev/null", r"mkfs of the profile does not name \$DEVICE"),
        ("-L x; $DEVICE", "; is for a shell"),
    ],
)
def test_a_line_that_cannot_be_run_fails_for_good_and_names_its_place(
    rabbit: Rabbit, line: str, why: str
) -> None:
    with pytest.raises(NodeTrouble, match=why) as caught:
        rabbit.make("ext4", commands("ext4", fileSystemCommands_rabbitCommands_mkfs=line))
    assert caught.value.fatal


def test_a_volume_that_its_profile_fails_is_made_again_from_the_start(rabbit: Rabbit) -> None:
    profile = commands("ext4", userCommands_postSetup=f"{rabbit.tell('again')}\nfalse")
    for _ in range(2):
        with pytest.raises(NodeTrouble, match=r"postSetup of the profile \(false\): false: exit"):
            rabbit.make("ext4", profile)
    assert rabbit.told == ["again", "again"]
    with pytest.raises(NodeTrouble, match="does not exist"):
        rabbit.mount("ext4", profile)

    rabbit.make("ext4", NO_COMMANDS)
    rabbit.mount("ext4", NO_COMMANDS)


@pytest.mark.parametrize("kind", ["xfs", "ext4", "raw"])
def test_commands_around_a_volume_come_in_their_order(rabbit: Rabbit, kind: str) -> None:
    profile = commands(
        kind,
        blockDeviceCommands_rabbitCommands_userCommands_preActivate=rabbit.tell("activating"),
        blockDeviceCommands_rabbitCommands_userCommands_postDeactivate=rabbit.tell("off"),
        userCommands_postActivate=rabbit.tell("activated", "$DEVICE"),
        userCommands_postSetup=rabbit.tell("set", "up", "$USERID:$GROUPID"),
        userCommands_preTeardown=rabbit.tell("going", "$MOUNT_PATH"),
        userCommands_preDeactivate=rabbit.tell("deactivated", "$DEVICE"),
        userCommands_postTeardown=rabbit.tell("gone", "$JOBID"),
    )
    rabbit.make(kind, profile)
    rabbit.make(kind, profile)
    assert [line.split()[0] for line in rabbit.told] == ["activating", "activated", "set"]
    assert rabbit.told[2] == "set up 5:6"

    rabbit.release(profile)
    rabbit.release(profile)
    told = [line.split()[0] for line in rabbit.told[3:]]
    assert told[:4] == ["going", "deactivated", "off", "gone"]


def test_what_fails_before_a_volume_goes_does_not_keep_its_flash(rabbit: Rabbit) -> None:
    profile = commands("ext4", userCommands_preTeardown="false", userCommands_postTeardown="false")
    rabbit.make("ext4", profile)

    rabbit.release(profile)
    assert rabbit.blocks.volumes("rabbit1") == {}


def test_a_volume_that_an_agent_has_left_mounted_for_a_moment_goes(rabbit: Rabbit) -> None:
    rabbit.make("ext4", NO_COMMANDS)
    point = rabbit.root / "rabbit1-a.mount"
    point.mkdir()
    source = asyncio.run(rabbit.blocks.source("rabbit1", "a", "ext4"))
    subprocess.run(["mount", *source.arguments, point], check=True)

    rabbit.release()
    assert not point.exists()
    assert rabbit.blocks.volumes("rabbit1") == {}


def test_a_volume_whose_agent_died_in_its_setup_is_made_anew(rabbit: Rabbit) -> None:
    with pytest.raises(NodeTrouble):
        rabbit.make("ext4", commands("ext4", userCommands_postSetup="false"))
    disk = LoopDisk("rabbit1", rabbit.root / "rabbit1", 1024 * MIB, None)
    device = asyncio.run(disk.attach("a"))
    (rabbit.root / "rabbit1-a.mount").mkdir()
    subprocess.run(["mount", device, rabbit.root / "rabbit1-a.mount"], check=True)

    rabbit.make("ext4", NO_COMMANDS)
    rabbit.mount("ext4", NO_COMMANDS)


def test_a_bare_device_is_bound_as_its_profile_says(rabbit: Rabbit) -> None:
    line = "-o bind $DEVICE $MOUNT_PATH -v"
    profile = commands("raw", fileSystemCommands_computeCommands_mount=line)
    rabbit.make("raw", profile)
    source = asyncio.run(rabbit.blocks.source("rabbit1", "a", "raw"))
    command = filesystems.mount_command(source, rabbit.path, profile)
    device = source.arguments[-1]
    assert command == ["mount", "-o", "bind", device, rabbit.path, "-v"]
    rabbit.mount("raw", profile)
    mounted = os.stat(f"{rabbit.seen}{rabbit.path}")
    assert mounted.st_rdev == os.stat(device).st_rdev


@pytest.mark.parametrize("side", ["rabbit", "compute"])
def test_a_profiles_mount_has_its_options_and_ours(rabbit: Rabbit, side: str) -> None:
    line = "-o noatime,suid,dev $DEVICE $MOUNT_PATH"
    profile = commands("ext4", **{f"fileSystemCommands_{side}Commands_mount": line})
    rabbit.make("ext4", NO_COMMANDS)
    rabbit.mount("ext4", profile)

    listed = (rabbit.seen.parent / "mounts").read_text().splitlines()
    (options,) = [line.split()[3].split(",") for line in listed if line.split()[1] == rabbit.path]
    assert {"noatime", "nosuid", "nodev"} <= {*options}


def test_commands_around_a_mount_come_once_each(rabbit: Rabbit) -> None:
    around = {
        f"fileSystemCommands_computeCommands_userCommands_{name}": rabbit.tell(name, "$MOUNT_PATH")
        for name in ("preMount", "postMount", "preUnmount", "postUnmount")
    }
    profile = commands("ext4", **around)
    rabbit.make("ext4", NO_COMMANDS)
    for _ in range(2):
        rabbit.mount("ext4", profile)
    assert rabbit.told == [f"preMount {rabbit.path}", f"postMount {rabbit.path}"]

    for _ in range(2):
        rabbit.unmount(profile)
    assert rabbit.told[2:] == [f"preUnmount {rabbit.path}", f"postUnmount {rabbit.path}"]


def test_a_mount_whose_commands_failed_is_finished_by_the_next_try(rabbit: Rabbit) -> None:
    name = "fileSystemCommands_computeCommands_userCommands_postMount"
    rabbit.make("ext4", NO_COMMANDS)
    with pytest.raises(NodeTrouble, match=r"postMount of the profile \(false\)"):
        rabbit.mount("ext4", commands("ext4", **{name: "false"}))
    assert rabbit.told == []

    rabbit.mount("ext4", commands("ext4", **{name: rabbit.tell("mounted")}))
    rabbit.mount("ext4", commands("ext4", **{name: rabbit.tell("mounted")}))
    assert rabbit.told == ["mounted"]


def test_what_stands_in_for_a_kind_does_not_know_the_words_of_its_profile(rabbit: Rabbit) -> None:
    """A gfs2 of one machine is an ext4 (ADR 077), which has no lock manager to be told of."""
    profile = commands(
        "gfs2",
        fileSystemCommands_rabbitCommands_mkfs="-j2 -t $CLUSTER_NAME:$LOCK_SPACE $DEVICE",
        fileSystemCommands_computeCommands_mount="-o acl,lockproto=x $DEVICE $MOUNT_PATH",
        userCommands_postSetup=rabbit.tell("set", "up"),
    )
    volume = replace(rabbit.volume("ext4", profile), file_system="gfs2")
    asyncio.run(rabbit.machine.make(volume))
    rabbit.mount("gfs2", profile)
    assert rabbit.told == ["set up"]
