"""What users have mounted on a node goes when they have nothing there any more."""

import asyncio
import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.users import TEST_USER
from tests.node.conftest import Nodes as NodesOfTest
from tests.node.usermounting import mount_dead, mounted_silent
from warren.base import mountinfo
from warren.node import detaching, usermounts
from warren.node.usermounts import UserMount, detach_left, left_behind

GONE, PRESENT = 1000, 1001


def mount(number: int, point: str | None, userid: int | None = GONE, parent: int = 1) -> UserMount:
    """A mount whose file system has the same number as it has."""
    return UserMount(number, parent, number, userid, point)


def line(
    number: int, point: str, kind: str = "fuse.sshfs", options: str = "rw,user_id=1000"
) -> bytes:
    return f"{number} 1 0:{number} / {point} rw shared:1 - {kind} x {options}\n".encode()


def points(node: Sequence[UserMount], machine_devices: Sequence[int] = ()) -> list[str | None]:
    return [each.point for each in left_behind(node, machine_devices, {GONE})]


def test_mounts_of_absent_users_are_left_behind() -> None:
    table = [
        line(2, "/fuse", "fuse"),
        line(3, "/sshfs"),
        line(4, "/block", "fuseblk"),
        line(5, "/of_one_who_is_there", options="rw,user_id=1001,group_id=1000"),
        line(6, "/roots", options="rw,user_id=0"),
        line(7, "/another_type", "fusectl"),
        line(8, "/nobody_says_whose", options="rw"),
    ]

    node = usermounts.read(mountinfo.read_each(io.BytesIO(b"".join(table))))
    assert set(points(node)) == {"/fuse", "/sshfs", "/block"}


def test_what_the_machine_has_mounted_as_well_is_not_whatever_its_path() -> None:
    assert points([mount(2, "/home/u/m"), mount(3, "/home/u/n")], [2]) == ["/home/u/n"]


def test_of_several_at_one_point_the_last_goes_first_and_long_paths_last() -> None:
    node = [mount(2, "/a/b/c"), mount(3, "/a/b/c", parent=2), mount(4, "/a"), mount(5, "/a/b")]

    assert [each.id for each in left_behind(node, (), {GONE})] == [4, 5, 3, 2]


def test_nobody_goes_into_a_mount_of_one_who_is_there_but_into_those_of_root() -> None:
    """A user's server might never answer."""
    node = [mount(2, "/a", PRESENT), mount(3, "/a", parent=2), mount(4, "/a/b"), mount(5, "/ab")]

    assert points(node) == ["/a", "/ab"]
    assert points(node, [2]) == ["/a", "/ab"]
    assert points([mount(2, "/", 0), mount(3, "/home", 0), mount(4, "/home/a")]) == ["/home/a"]


def test_what_has_a_mount_in_it_that_stays_does_so_too_and_not_what_only_hides_one() -> None:
    node = [
        mount(2, "/a"),
        mount(3, "/a/b", parent=2),
        mount(4, "/a/b/c", PRESENT, parent=3),
        mount(5, "/d/e", PRESENT),
        mount(6, "/d"),
        mount(7, "/a/z", parent=2),  # through a server that might never answer
    ]

    assert points(node) == ["/d"]


def test_what_has_anything_in_it_that_is_not_fuse_stays() -> None:
    """Storage, say: it would go with it."""
    table = [line(2, "/a"), line(3, "/a/b", "xfs", "rw").replace(b"3 1", b"3 2"), line(4, "/c")]

    assert points(usermounts.read(mountinfo.read_each(io.BytesIO(b"".join(table))))) == ["/c"]


def test_mounts_whose_paths_users_make_long_keep_nothing_else_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    detached: list[int] = []

    def detach_one(mount_id: int, *_: object) -> bool:
        detached.append(mount_id)
        return True

    monkeypatch.setattr(usermounts, "detach", detach_one)
    inner = line(3, "/a" + "/d" * 2**20).replace(b"3 1", b"3 2")
    node = io.BytesIO(line(2, "/a") + inner + line(4, "/b"))

    assert detach_left("node7", node, io.BytesIO(), lambda userids: userids) == 2
    assert sorted(detached) == [2, 4]
    said = "node7: mounts of users may stay: File name too long\n"
    assert capsys.readouterr().err == said


def test_of_paths_that_are_too_long_in_all_the_shortest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usermounts, "_MOST_CHARACTERS", 10)
    table = [
        line(2, "/1234"),
        line(3, "/1"),
        line(4, "/123"),
        line(5, "/12"),
        line(6, "/" + 9 * "d"),
    ]

    kept = [
        each.point for each in usermounts.read(mountinfo.read_each(io.BytesIO(b"".join(table))))
    ]
    assert kept == [None, "/1", "/123", "/12", None]


def test_a_path_that_is_not_kept_of_one_who_is_there_keeps_no_other_where_it_is() -> None:
    assert points([mount(2, None, PRESENT), mount(3, "/a")]) == ["/a"]


def test_only_ordinary_users_of_the_nodes_own_fuse_mounts_are_asked_for() -> None:
    node = [
        b"30 1 0:30 / /a rw,relatime shared:1 - fuse.sshfs u@h:/ rw,user_id=1000,group_id=1\n",
        b"31 1 0:31 / /b rw,relatime - fuse x rw,user_id=1002,group_id=1\n",
        b"32 1 0:32 / /c rw,relatime - fuse x rw,user_id=0,group_id=0\n",
        rb"33 1 0:33 / /d\040-\040fuse rw,relatime - xfs x rw,user_id=1003" + b"\n",
        b"34 1 0:34 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n",
    ]
    machine = [b"99 1 0:31 / /b rw,relatime - fuse x rw,user_id=1002,group_id=1\n"]
    asked: list[Sequence[int]] = []

    def nobody(userids: Sequence[int]) -> Sequence[int]:
        asked.append(userids)
        return ()

    for lines in (node, node[1:]):
        node_table, machine_table = (io.BytesIO(b"".join(each)) for each in (lines, machine))
        assert detach_left("node1", node_table, machine_table, nobody) == 0
        assert asked == [[1000]]


def test_what_comes_before_a_line_that_the_kernel_cannot_write_is_asked_for_all_the_same(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class CutOff(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            line = super().readline(-1 if size is None else size)
            if not line:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            return line

    asked: list[Sequence[int]] = []

    def nobody(userids: Sequence[int]) -> Sequence[int]:
        asked.append(userids)
        return ()

    line = b"30 1 0:30 / /a rw - fuse x rw,user_id=1000\n"
    assert detach_left("node1", CutOff(line), CutOff(b""), nobody) == 0
    assert asked == [[1000]]
    assert "node1: mounts of users may stay: Cannot allocate memory" in capfd.readouterr().err


# As root, with mounts

FUSE_TYPE = "fuse.dead"


def fuse_points(pid: int) -> list[str]:
    return [each.point for each in mountinfo.read(Path(f"/proc/{pid}")) if each.type == FUSE_TYPE]


DETACH_LEFT = """
import json, subprocess, sys
from pathlib import Path
from warren.daemons.clustershape import ClusterShape
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir

state_dir, isolated, meanwhile, *absent = sys.argv[1:]
shape = ClusterShape(rabbits=1, computes_per_rabbit=1, cores=1, capacity=2**30)
nodes = Nodes(StateDir(Path(state_dir)), shape, isolated=isolated == "True")
asked = []

def ask_absent(userids):
    asked.extend(userids)
    if meanwhile != "[]":
        nothing = subprocess.DEVNULL
        subprocess.run(json.loads(meanwhile), stdin=nothing, stdout=nothing, check=True)
    return set(map(int, absent)).intersection(userids)

detach_left = nodes.left_mounts("node1")
print(json.dumps([detach_left and detach_left(ask_absent), asked]))
"""


def detach(
    place: Path, *absent: int, isolated: bool = True, meanwhile: Sequence[str] = ()
) -> tuple[int | None, list[int]]:
    """Do what the parent of shells does, in a process that has one thread.

    Return how many mounts were detached, and the users who were asked for. `meanwhile` is a
    command that runs on the node before the answer.
    """
    program = [sys.executable, "-c", DETACH_LEFT, str(place), str(isolated)]
    words = [*program, json.dumps(meanwhile), *map(str, absent)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    detached, asked = json.loads(done.stdout)
    return detached, asked


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts for users")


def make_long(path: Path) -> str:
    """Make a directory whose path is longer than the kernel takes."""
    long = str(path)
    path.mkdir()
    here = os.open(long, os.O_PATH)
    for _ in range(30):
        os.mkdir("d" * 250, dir_fd=here)
        above, here = here, os.open("d" * 250, os.O_PATH, dir_fd=here)
        os.close(above)
        long += "/" + "d" * 250
    os.close(here)
    return long


@as_root
def test_they_are_detached_where_they_are_many_on_a_file_or_their_paths_are_long(
    nodes: NodesOfTest, tmp_path: Path
) -> None:
    holder = asyncio.run(nodes.namespace().ensure())
    odd, file = tmp_path / "a b\nc\\d", tmp_path / "file"
    odd.mkdir()
    file.touch()
    long = make_long(tmp_path / "long")
    mount_dead(holder, TEST_USER, odd, odd, file, long, *[tmp_path] * 20)
    mount_dead(holder, TEST_USER + 1, "/dev/shm")
    both = [TEST_USER, TEST_USER + 1]

    assert detach(tmp_path, isolated=False) == (None, [])
    assert detach(tmp_path) == (0, both)
    assert len(fuse_points(holder)) == 25
    # Also those that are hidden, by one after the other over the directory that they are in.
    assert detach(tmp_path, TEST_USER) == (24, both)
    assert fuse_points(holder) == ["/dev/shm"]
    assert detach(tmp_path, TEST_USER, TEST_USER + 1) == (1, [TEST_USER + 1])
    assert fuse_points(holder) == []
    assert detach(tmp_path, TEST_USER) == (0, [])
    subprocess.run(["rm", "-rf", str(tmp_path / "long")], check=True)


@as_root
def test_what_a_user_mounts_after_the_look_stays_also_at_the_same_place(
    nodes: NodesOfTest, tmp_path: Path
) -> None:
    holder = asyncio.run(nodes.namespace().ensure())
    for name in ("old", "same", "new"):
        (tmp_path / name).mkdir()
    mount_dead(holder, TEST_USER, tmp_path / "old", tmp_path / "same")
    program = [sys.executable, str(Path(__file__).with_name("usermounting.py")), str(TEST_USER)]
    new = [*program, str(tmp_path / "new"), str(tmp_path / "same")]

    assert detach(tmp_path, TEST_USER, meanwhile=new) == (1, [TEST_USER])
    assert sorted(fuse_points(holder)) == [f"{tmp_path}/new", *[f"{tmp_path}/same"] * 2]
    assert detach(tmp_path, TEST_USER) == (3, [TEST_USER])


@as_root
def test_a_server_that_lives_and_does_not_answer_is_asked_nothing(
    nodes: NodesOfTest, tmp_path: Path
) -> None:
    holder = asyncio.run(nodes.namespace().ensure())
    with mounted_silent(holder, TEST_USER, tmp_path):
        assert detach(tmp_path, TEST_USER) == (1, [TEST_USER])
        assert fuse_points(holder) == []


@as_root
def test_no_link_is_followed_to_a_mount(nodes: NodesOfTest, tmp_path: Path) -> None:
    holder = asyncio.run(nodes.namespace().ensure())
    (tmp_path / "d" / "m").mkdir(parents=True)
    mount_dead(holder, TEST_USER, tmp_path / "d" / "m")
    swap = ["sh", "-c", f"mv {tmp_path}/d {tmp_path}/e && ln -s e {tmp_path}/d"]

    assert detach(tmp_path, TEST_USER, meanwhile=swap) == (0, [TEST_USER])
    assert detach(tmp_path, TEST_USER) == (1, [TEST_USER])


@as_root
def test_another_file_system_with_the_same_id_is_not_detached(tmp_path: Path) -> None:
    mount_dead(os.getpid(), TEST_USER, tmp_path)
    [seen] = [each for each in mountinfo.read(Path("/proc/self")) if each.point == str(tmp_path)]
    try:
        assert not detaching.detach(seen.id, seen.point, seen.device + 1)
    finally:
        assert detaching.detach(seen.id, seen.point, seen.device)


@as_root
def test_what_the_machine_has_is_kept_on_the_node(nodes: NodesOfTest, tmp_path: Path) -> None:
    point = tmp_path / "of the machine"
    point.mkdir()
    mount_dead(os.getpid(), TEST_USER, point)
    try:
        holder = asyncio.run(nodes.namespace().ensure())
        assert fuse_points(holder) == [str(point)]

        assert detach(tmp_path, TEST_USER) == (0, [])
        assert fuse_points(holder) == [str(point)]
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)
