"""The fast path of small files: what goes it arrives whole, all else is left to the slow path."""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.node.copied import OLD, Copier
from warren.node.copying import fastpath, metadata
from warren.node.copying.transfer import SMALL_FILE_BYTES


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Two open directories, to copy from and to."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    opened = [os.open(tmp_path / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("in", "out")]
    yield opened[0], opened[1]
    for each in opened:
        os.close(each)


def old(path: Path) -> None:
    """Have a file be one that was not written to just now."""
    os.utime(path, ns=(OLD, OLD), follow_symlinks=False)


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o777, 0o400, 0o000])
@pytest.mark.parametrize("size", [0, 1, SMALL_FILE_BYTES])
def test_a_small_file_arrives_with_mode_and_times(
    tmp_path: Path, ends: tuple[int, int], size: int, mode: int
) -> None:
    data = os.urandom(size)
    (tmp_path / "in" / "file").write_bytes(data)
    os.utime(tmp_path / "in" / "file", ns=(OLD, OLD + 1))
    (tmp_path / "in" / "file").chmod(mode)
    if not os.access(tmp_path / "in" / "file", os.R_OK):
        assert fastpath.copy("file", *ends) is None
        return
    old = os.umask(0o077)
    try:
        assert fastpath.copy("file", *ends) == size
    finally:
        os.umask(old)

    known = (tmp_path / "out" / "file").stat()
    assert (stat.S_IMODE(known.st_mode), known.st_mtime_ns) == (mode, OLD + 1)
    (tmp_path / "out" / "file").chmod(0o400)
    assert (tmp_path / "out" / "file").read_bytes() == data


def test_no_user_becomes_another_by_the_short_way(tmp_path: Path, ends: tuple[int, int]) -> None:
    (tmp_path / "in" / "file").touch()
    (tmp_path / "in" / "file").chmod(0o6755)
    old(tmp_path / "in" / "file")

    assert fastpath.copy("file", *ends) == 0
    assert stat.S_IMODE((tmp_path / "out" / "file").stat().st_mode) == 0o755


def attributed(path: Path) -> None:
    path.write_bytes(b"x")
    try:
        os.setxattr(path, "user.a", b"b")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system has no extended attributes")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SMALL_FILE_BYTES)


def linked(path: Path) -> None:
    path.write_bytes(b"x")
    os.link(path, path.with_name("other"))


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,  # which would wait for a writer
        os.mkdir,
        lambda path: path.symlink_to("elsewhere"),
        lambda path: None,
        lambda path: path.write_bytes(bytes(SMALL_FILE_BYTES + 1)),
        attributed,
        sparse,
        linked,
    ],
    ids=["FIFO", "directory", "link", "nothing", "large", "attributes", "sparse", "hard link"],
)
def test_what_is_more_than_a_small_file_is_left_alone(
    tmp_path: Path, ends: tuple[int, int], make: Callable[[Path], object]
) -> None:
    (tmp_path / "in" / "elsewhere").write_text("precious")
    make(tmp_path / "in" / "file")
    with suppress(FileNotFoundError):
        old(tmp_path / "in" / "file")

    assert fastpath.copy("file", *ends) is None
    assert os.listdir(ends[1]) == []


def test_nothing_that_is_there_is_written_to(tmp_path: Path, ends: tuple[int, int]) -> None:
    (tmp_path / "in" / "file").write_bytes(b"new")
    old(tmp_path / "in" / "file")
    (tmp_path / "out" / "file").write_bytes(b"old")

    assert fastpath.copy("file", *ends) is None
    assert (tmp_path / "out" / "file").read_bytes() == b"old"


@pytest.mark.parametrize("change", [b"xy", b"zz", b"zzz"], ids=["shorter", "other", "longer"])
def test_a_file_that_changes_while_it_is_read_is_left_to_the_long_way(
    tmp_path: Path, ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    (tmp_path / "in" / "file").write_bytes(b"xyz"[: max(2, len(change))])
    os.utime(tmp_path / "in" / "file", ns=(OLD, OLD))
    read = os.read

    def read_and_change(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        (tmp_path / "in" / "file").write_bytes(change)
        return data

    monkeypatch.setattr(os, "read", read_and_change)

    assert fastpath.copy("file", *ends) is None


def test_a_file_that_grows_before_it_is_read_is_left_to_the_long_way(
    tmp_path: Path, ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "file").write_bytes(b"xyz")
    old(tmp_path / "in" / "file")
    read = os.read

    def grow_and_read(descriptor: int, size: int) -> bytes:
        (tmp_path / "in" / "file").write_bytes(b"xyz and more")
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", grow_and_read)

    assert fastpath.copy("file", *ends) is None
    assert os.listdir(ends[1]) == []


def test_a_file_that_was_written_to_just_now_is_left_to_the_long_way(
    tmp_path: Path, ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it written to once more, its time would be the same."""
    (tmp_path / "in" / "file").write_bytes(b"xyz")
    written = (tmp_path / "in" / "file").stat().st_mtime_ns

    monkeypatch.setattr(time, "time_ns", lambda: written + 4_000_000)
    assert fastpath.copy("file", *ends) is None
    assert os.listdir(ends[1]) == []
    monkeypatch.setattr(time, "time_ns", lambda: written + 1_010_000_000)
    assert fastpath.copy("file", *ends) == 3


def test_a_directory_that_hands_down_an_access_control_list_is_known(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        assert not metadata.has_default_acl(descriptor)
        # u::rwx,g::r-x,o::--- as the default of what is made in it.
        entries = "02000000 01000700ffffffff 04000500ffffffff 20000000ffffffff"
        os.setxattr(descriptor, "system.posix_acl_default", bytes.fromhex(entries))
        assert metadata.has_default_acl(descriptor)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system has no access control lists")
    finally:
        os.close(descriptor)


def test_what_goes_the_short_way_and_what_goes_the_long_one_arrive_together(copy: Copier) -> None:
    source = copy.place / "in"
    for at in range(3):
        (source / f"d{at}").mkdir(parents=True)
        for number in range(40):
            (source / f"d{at}" / str(number)).write_bytes(bytes([number]) * (number % 7))
        (source / f"d{at}" / "large").write_bytes(os.urandom(SMALL_FILE_BYTES + 1))
        os.link(source / "d0" / "7", source / f"d{at}" / "linked")
        for path in (source / f"d{at}").iterdir():
            os.utime(path, ns=(OLD, OLD))
    there = copy.place / "out" / "d1"
    there.mkdir(parents=True)
    (there / "3").write_bytes(b"what was there before")
    for path in (there.parent, there, there / "3"):
        os.chown(path, copy.user.userid, copy.user.groupid)
    outcome = copy.well("in/", "out")

    assert outcome.last.files == 3 * 42
    for path in source.rglob("*"):
        if path.is_file():
            arrived = copy.place / "out" / path.relative_to(source)
            assert arrived.read_bytes() == path.read_bytes()
            assert arrived.stat().st_mtime_ns == OLD
    assert os.path.samefile(copy.place / "out" / "d0" / "7", copy.place / "out" / "d2" / "linked")
