"""What is mounted is told of one path, whatever else is mounted."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.conftest import Nodes, mounts_of
from tests.node.usermounting import mount_dead
from warren.base import mountinfo
from warren.base.mountinfo import Mount
from warren.dws.node import Volume
from warren.node import mountpoints
from warren.node.directory import DirectoryFlash
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace


def run(namespace: HeldMountNamespace, *words: str) -> None:
    nsenter = asyncio.run(namespace.nsenter_command())
    subprocess.run([*nsenter, *words], check=True)


def in_table(namespace: HeldMountNamespace, path: Path) -> list[int]:
    mounts = mountinfo.read(Path(f"/proc/{namespace.holder}"))
    return [each.id for each in mounts if each.point == str(path)]


def test_what_is_on_top_at_a_path_is_told_with_its_id(nodes: Nodes) -> None:
    node = nodes.namespace()
    path = nodes.prefix / "job"
    run(node, "mkdir", str(path))
    assert node.mount_id(str(path)) is None

    for _ in range(2):
        run(node, "mount", "-t", "tmpfs", "none", str(path))
        assert node.mount_id(str(path)) == in_table(node, path)[-1]

    assert node.mount_id(str(path / "none")) is None
    assert node.mount_id(str(nodes.prefix / "none" / "job")) is None
    run(node, "ln", "-s", str(path), str(nodes.prefix / "link"))
    assert node.mount_id(str(nodes.prefix / "link")) is None
    run(node, "umount", str(path), str(path))


def test_a_file_may_be_mounted_on_a_file(nodes: Nodes) -> None:
    node = nodes.namespace()
    path = nodes.prefix / "device"
    run(node, "touch", str(path))
    run(node, "mount", "--bind", "/etc/passwd", str(path))

    assert [node.mount_id(str(path))] == in_table(node, path)
    assert node.mounts_below_prefix() == {str(path)}
    run(node, "umount", str(path))


def test_nothing_is_mounted_in_a_namespace_that_is_not_held(nodes: Nodes) -> None:
    assert nodes.namespace().mount_id("/proc") is None
    assert nodes.namespace().mounts_below_prefix() == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts for others")
def test_a_file_server_that_is_dead_is_asked_nothing(nodes: Nodes) -> None:
    node = nodes.namespace()
    path = nodes.prefix / "job"
    run(node, "mkdir", str(path))
    holder = node.holder
    assert holder is not None
    mount_dead(holder, 65534, path)

    assert [node.mount_id(str(path))] == in_table(node, path)
    assert node.mounts_below_prefix() == {str(path)}
    run(node, "umount", str(path))


def test_storage_is_mounted_and_unmounted_without_a_look_at_all_that_is_mounted(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users choose how long the table is: it would take minutes."""
    node = nodes.namespace()
    asyncio.run(node.ensure())
    machine = NamespacedNode("node1", DirectoryFlash(nodes.root / "flash", 2**30), node)
    path = str(nodes.prefix / "job")
    volume = Volume(
        rabbit="rabbit1",
        name="a",
        size=2**20,
        file_system="xfs",
        userid=os.geteuid(),
        groupid=os.getegid(),
    )

    def look(process_dir: Path) -> list[Mount]:
        raise AssertionError(f"{process_dir} is looked at")

    with monkeypatch.context() as patched:
        patched.setattr(mountinfo, "read", look)
        patched.setattr(mountinfo, "read_each", look)
        asyncio.run(machine.make(volume))
        asyncio.run(machine.mount("rabbit1", "a", "xfs", path))
        assert node.mounts_below_prefix() == {path}
        asyncio.run(machine.unmount(path))
        assert node.mounts_below_prefix() == set()
    asyncio.run(machine.release("rabbit1", "a"))


def test_all_that_is_mounted_at_a_path_is_detached_by_one_program(nodes: Nodes) -> None:
    node = nodes.namespace()
    path = nodes.prefix / "job"
    run(node, "mkdir", str(path))
    run(node, "sh", "-c", f"for _ in $(seq 40); do mount -t tmpfs none {path} || exit; done")
    before = mounts_of(node) - {str(path)}

    run(node, sys.executable, "-P", "-m", "warren.node.detaching", str(path))

    assert mounts_of(node) == before


def test_below_a_directory_what_is_in_a_mount_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/proc")

    assert list(mountpoints.mount_points_below(str(tmp_path))) == []
