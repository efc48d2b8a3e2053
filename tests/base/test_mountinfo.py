"""The table of mounts, some of whose names users choose."""

import io
import os
from pathlib import Path

import pytest

from warren.base import mountinfo
from warren.base.mountinfo import Mount

CGROUP = (
    b"30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:3 - cgroup2 cgroup2 rw,nsdelegate\n"
)


def read(tmp_path: Path, *lines: bytes) -> list[Mount]:
    (tmp_path / "mountinfo").write_bytes(b"".join(lines))
    return mountinfo.read(tmp_path)


def test_a_line_is_read_with_as_many_optional_fields_as_it_has(tmp_path: Path) -> None:
    cgroup, disk = read(
        tmp_path,
        CGROUP,
        b"31 30 259:1 /a\\040b /c\\134\\012d rw - xfs /dev/nvme0n1p1 rw,prjquota\n",
    )

    assert cgroup == Mount(
        30, 24, os.makedev(0, 26), "/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate"
    )
    assert disk == Mount(31, 30, os.makedev(259, 1), "/a b", "/c\\\nd", "xfs", "rw,prjquota")


@pytest.mark.parametrize(
    "name", [b"\xff", b"\x0c", b"\x85", "\u2028".encode(), "\u00a0-\u00a0cgroup2\u00a0x".encode()]
)
def test_a_user_who_mounts_under_an_odd_name_changes_nothing_else(
    tmp_path: Path, name: bytes
) -> None:
    odd = b"32 24 0:44 / /home/u/" + name + b" rw - fuse.sshfs host:" + name + b" rw,user_id=1000\n"

    found, cgroup = read(tmp_path, odd, CGROUP)

    assert (found.point, found.type) == (f"/home/u/{os.fsdecode(name)}", "fuse.sshfs")
    assert cgroup.point == "/sys/fs/cgroup"


def test_what_this_process_sees_mounted_can_be_read() -> None:
    assert "/proc" in {each.point for each in mountinfo.read(Path("/proc/self"))}


def test_a_process_that_is_gone_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mountinfo.read(tmp_path)


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 2**16 + 1, 3 * 2**16 - 8, 10**6])
def test_of_a_line_that_users_make_long_only_the_names_before_its_type_are_left_out(
    length: int,
) -> None:
    end = rb" rw shared:1 - fuse.a\040-\040b \040-\040 rw,user_id=8" + b"\n"
    path = b"/" + b"d" * (length - len(end) - 15)
    table = b"31 30 0:44 /r " + path + end

    first, long, last = mountinfo.read_each(io.BytesIO(CGROUP + table + CGROUP))

    assert first == last == mountinfo.parse(CGROUP.rstrip())
    assert len(table) == length
    kept = ("/r", path.decode()) if length <= 2**16 else ("", "")
    assert long == Mount(31, 30, os.makedev(0, 44), *kept, "fuse.a - b", "rw,user_id=8")


def test_what_is_at_a_path_that_no_program_takes_has_a_device_and_is_no_mount_point(
    tmp_path: Path,
) -> None:
    deep = b"/d" * 2**17
    lines = [b"40 24 0:50 / " + deep + b" rw - fuse.x x rw,user_id=1000\n", CGROUP]

    assert [each.point for each in read(tmp_path, *lines)] == ["/sys/fs/cgroup"]
    devices = list(mountinfo.read_devices(tmp_path))
    assert devices == [(40, os.makedev(0, 50)), (30, os.makedev(0, 26))]
