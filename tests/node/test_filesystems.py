"""The kinds of file systems: what a machine needs to make them."""

import asyncio
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from warren.dws.commandlines import ProfileCommands
from warren.dws.node import NodeTrouble, Volume
from warren.node import filesystems, filesystemsupport
from warren.node.blocks import BlockFlash
from warren.node.filesystems import DlmCluster
from warren.node.loopdisk import LoopDisk


@pytest.mark.parametrize(
    ("programs", "kernel", "lacked"),
    [
        (filesystems.PROGRAMS, filesystems.kernel_types(), {}),
        (
            [each for each in filesystems.PROGRAMS if each != "mkfs.xfs"],
            filesystems.kernel_types(),
            {"xfs": "mkfs.xfs is not installed"},
        ),
        (
            [each for each in filesystems.PROGRAMS if each not in ("mkfs.ext4", "debugfs")],
            filesystems.kernel_types(),
            dict.fromkeys(("ext4", "gfs2"), "mkfs.ext4 and debugfs are not installed"),
        ),
        (
            filesystems.PROGRAMS,
            filesystems.kernel_types() - {"xfs"},
            {"xfs": "the kernel has no xfs"},
        ),
    ],
)
def test_a_machine_lacks_a_type_without_its_programs_or_its_kernel(
    programs: list[str], kernel: set[str], lacked: dict[str, str]
) -> None:
    found = filesystems.unsupported_types(set(programs).__contains__, kernel.__contains__)
    assert {kind: why for kind, why in found.items() if kind != "lustre"} == lacked


def test_this_machine_is_asked_for_its_programs_and_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for all programs but those of xfs, whatever is installed here."""
    for name in (*filesystems.PROGRAMS, "setpriv", "modprobe"):
        if name != "mkfs.xfs":
            program = tmp_path / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert asyncio.run(filesystemsupport.unsupported_types())["xfs"] == "mkfs.xfs is not installed"


# gfs2 of nodes that are machines of their own

LAB = DlmCluster(name="lab", journals=3)
VOLUME = Volume(rabbit="r0", name="u-0", size=2**30, file_system="gfs2", userid=5, groupid=6)


def mkfs(line: str | None = None, cluster: DlmCluster | None = LAB) -> list[str]:
    lines = {} if line is None else {f"data.gfs2Storage.{filesystems.MKFS_COMMAND_LINE}": (line,)}
    volume = replace(VOLUME, commands=ProfileCommands(file_system="gfs2", lines=lines))
    (command, *_), _ = filesystems.make_commands(volume, "/dev/x", "", cluster)
    return command


def test_a_gfs2_of_a_cluster_is_made_with_its_lock_table_and_journals() -> None:
    table = filesystems.lock_table(VOLUME, LAB)
    assert re.fullmatch(r"lab:[0-9a-f]{16}", table)
    assert filesystems.lock_table(replace(VOLUME, name="u-1"), LAB) != table
    assert mkfs() == ["mkfs.gfs2", "-O", "-q", "-K", "-p", "lock_dlm", "-t", table,
                      "-j", "3", "-J", "8", "/dev/x"]  # fmt: skip
    assert filesystems.source("gfs2", "/dev/x", LAB).arguments == (
        "-t", "gfs2", "-o", "nodev,nosuid", "/dev/x",
    )  # fmt: skip


def test_the_example_profile_of_nnf_makes_a_gfs2_of_a_cluster() -> None:
    found = mkfs("-j2 -p $PROTOCOL -t $CLUSTER_NAME:$LOCK_SPACE $DEVICE")
    table = filesystems.lock_table(VOLUME, LAB)
    assert found == ["mkfs.gfs2", "-j2", "-p", "lock_dlm", "-t", table, "/dev/x", "-q", "-O"]


def test_nodes_of_one_machine_have_an_ext4_in_its_place() -> None:
    """ADR 077."""
    assert mkfs(cluster=None)[0] == "mkfs.ext4"


def test_a_machine_of_a_cluster_lacks_gfs2_without_its_own_programs() -> None:
    kernel = filesystems.kernel_types()
    found = filesystems.unsupported_types(
        set(filesystems.PROGRAMS).__contains__, kernel.__contains__, LAB
    )
    assert found["gfs2"] == "mkfs.gfs2 and gfs2_edit are not installed"
    without = kernel - {"gfs2"}
    every = {*filesystems.PROGRAMS, "mkfs.gfs2", "gfs2_edit"}
    found = filesystems.unsupported_types(every.__contains__, without.__contains__, LAB)
    assert found["gfs2"] == "the kernel has no gfs2"


def test_a_gfs2_is_not_made_as_what_two_kernels_would_destroy(tmp_path: Path) -> None:
    disk = LoopDisk("r0", tmp_path / "r0", 2**30, None)
    blocks = BlockFlash(lambda rabbit: disk, tmp_path, one_kernel=False)

    with pytest.raises(NodeTrouble, match=r"network\.cluster") as caught:
        asyncio.run(blocks.make(VOLUME))
    assert caught.value.fatal
    assert blocks.volumes("r0") == {}
    assert "network.cluster" in asyncio.run(blocks.unsupported_types("r0"))["gfs2"]
