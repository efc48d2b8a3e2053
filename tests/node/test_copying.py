"""The copier, run as the program that it is."""

import asyncio
import ctypes
import errno
import json
import os
import pwd
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.base.test_fuse import Silent, silent  # noqa: F401 - a fixture
from tests.dws.builders import DEEP
from tests.harness import users
from tests.harness.users import TEST_USER
from tests.node.copied import OLD, Copier, User, copier_at, shape, tree
from tests.node.processes import alive, eventually
from tests.node.test_acl import USER, list_of
from warren.base.bytesize import MIB
from warren.base.processes import descendants
from warren.dws.node import Copy, CopyFailed, NodeTrouble, Progress
from warren.node import acl, commands, copiers, copying, nofollow
from warren.node.nofollow import Directory, Tree

# What is copied


def test_a_tree_arrives_whole(copy: Copier) -> None:
    source = tree(copy.place / "in")
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)


def test_modes_and_times_arrive(copy: Copier) -> None:
    source = tree(copy.place / "in")
    (source / "one").chmod(0o640 if copy.user.userid == os.geteuid() else 0o644)
    (source / "deep" / "two").chmod(0o755)
    (source / "empty").chmod(0o755)
    for path in (source / "one", source / "deep" / "two", source / "empty", source / "deep"):
        os.utime(path, ns=(OLD, OLD))
    copy.well("in/", "out")

    for name in ("one", "deep/two", "empty", "deep"):
        before, after = os.stat(source / name), os.stat(copy.place / "out" / name)
        assert after.st_mode == before.st_mode, name
        assert after.st_mtime_ns == OLD, name


def test_an_access_control_list_arrives_and_its_mask_is_no_users_right(copy: Copier) -> None:
    source = tree(copy.place / "in")
    listed = {
        "one": list_of(0, 5, 5, (USER, 4, 5)),
        "deep": list_of(0, 5, 5, (USER, 4, 5), user=7),  # its user is to come in
    }
    for name, found in listed.items():
        try:
            os.setxattr(source / name, acl.NAME, found)
        except OSError as error:
            pytest.skip(f"no access control lists here: {error.strerror}")
    copy.well("in/", "out")

    for name in listed:
        before, after = source / name, copy.place / "out" / name
        assert os.getxattr(after, acl.NAME) == os.getxattr(before, acl.NAME)
        assert after.stat().st_mode == before.stat().st_mode


def test_a_directory_that_is_copied_by_its_name_keeps_its_mode_and_times(copy: Copier) -> None:
    source = tree(copy.place / "in")
    source.chmod(0o555)
    os.utime(source, ns=(OLD, OLD))
    copy.well("in", "out")

    found = os.stat(copy.place / "out" / "in")
    assert found.st_mode & 0o777 == 0o555
    assert found.st_mtime_ns == OLD


def test_a_destination_keeps_its_own_mode_when_contents_are_copied_into_it(copy: Copier) -> None:
    tree(copy.place / "in").chmod(0o555)
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    copy.well("in/", "out")

    assert os.stat(copy.place / "out").st_mode & 0o777 == 0o777


def test_no_user_becomes_another_by_a_copy(copy: Copier) -> None:
    (copy.place / "tool").touch()
    (copy.place / "tool").chmod(0o6755)
    copy.well("tool", "copied")

    assert os.stat(copy.place / "copied").st_mode & 0o7777 == 0o755


def test_the_copies_are_the_users(copy: Copier) -> None:
    tree(copy.place / "in")
    copy.well("in", "out")

    for path in (copy.place / "out").rglob("*"):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (copy.user.userid, copy.user.groupid), path


def test_a_file_of_many_chunks_arrives_with_its_holes_as_zeros(copy: Copier) -> None:
    size = 100 * 2**20
    with open(copy.place / "big", "wb") as big:
        for place in (0, 32 * 2**20 - 3, 64 * 2**20, size - 6):
            big.seek(place)
            big.write(b"warren")
    outcome = copy.well("big", "copied")

    assert outcome.last.bytes == size
    assert subprocess.run(["cmp", copy.place / "big", copy.place / "copied"]).returncode == 0


def test_holes_of_a_file_stay_holes(copy: Copier) -> None:
    """A file that is longer than any disk is copied in no time, and takes no room."""
    source, target = copy.place / "source", copy.place / "target"
    with source.open("wb") as file:
        file.write(b"a" * 5000)
        file.seek(2**40)
        file.write(b"b" * 300_000)
        file.truncate(2**43)
    if source.stat().st_blocks * 512 > 2**30:
        pytest.skip("files have no holes here")

    outcome = copy.well("source", "target")
    assert outcome.last.bytes == 2**43
    assert 0 < outcome.last.rate * outcome.last.seconds < 2**21  # holes are not copied
    assert target.stat().st_size == 2**43
    assert target.stat().st_blocks * 512 < 2**21
    with target.open("rb") as file:
        assert file.read(6000) == b"a" * 5000 + bytes(1000)
        file.seek(2**40 - 10)
        assert file.read(300_020) == bytes(10) + b"b" * 300_000 + bytes(10)


def test_names_may_be_anything(copy: Copier) -> None:
    source = copy.place / "in"
    source.mkdir()
    for name in ("-rf", "a b", "new\nline", "Größe", '"quoted"'):
        (source / name).write_text(name)
    (copy.place / "in" / os.fsdecode(b"not utf-8 \xff")).touch()
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)


def test_many_files_arrive(copy: Copier) -> None:
    source = copy.place / "in"
    for number in range(1000):
        path = source / str(number % 7) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    outcome = copy.well("in/", "out")

    assert outcome.last.total_files == 1000
    assert shape(copy.place / "out") == shape(source)


# Where it goes (dws-spec section 11.3)


def test_a_file_goes_to_the_name_that_it_is_given(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    copy.well("in", "a/b/out")

    assert (copy.place / "a/b/out").read_text() == "new"


def test_a_file_takes_the_place_of_a_file(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    (copy.place / "out").write_text("older, and longer")
    (copy.place / "out").chmod(0o666)
    os.chown(copy.place / "out", copy.user.userid, copy.user.groupid)
    copy.well("in", "out")

    assert (copy.place / "out").read_text() == "new"


@pytest.mark.parametrize("destination", ["out", "out/"])
def test_a_file_goes_into_a_directory_that_is_there(copy: Copier, destination: str) -> None:
    (copy.place / "in").write_text("new")
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    copy.well("in", destination)

    assert shape(copy.place / "out") == {"in": b"new"}


def test_a_file_goes_into_a_directory_that_a_slash_asks_for(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    copy.well("in", "out/")

    assert shape(copy.place / "out") == {"in": b"new"}


@pytest.mark.parametrize("destination", ["out", "out/"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("source", "arrives"), [("in", "in/file"), ("in/", "file")])
def test_a_slash_after_the_source_asks_for_the_contents(
    copy: Copier, source: str, arrives: str, destination: str, there: bool
) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "file").write_text("new")
    if there:
        (copy.place / "out").mkdir()
        (copy.place / "out").chmod(0o777)
    copy.well(source, destination)

    assert (copy.place / "out" / arrives).read_text() == "new"
    assert len([path for path in (copy.place / "out").rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(
    ("source", "destination", "arrives"),
    [
        ("nnf/rabbit1-0/", "out", "out/rabbit1-0/deep/file"),
        ("nnf/rabbit1-0", "out", "out/rabbit1-0/deep/file"),
        ("nnf/rabbit1-0/deep", "out", "out/rabbit1-0/deep/file"),
        ("nnf/rabbit1-0/deep/", "out/", "out/rabbit1-0/file"),
        ("nnf/rabbit1-0/deep/file", "out/", "out/rabbit1-0/file"),
        ("nnf/rabbit1-0/deep/file", "out", "rabbit1-0/out"),
    ],
)
def test_what_comes_from_node_local_storage_goes_into_an_index_directory(
    copy: Copier, source: str, destination: str, arrives: str
) -> None:
    (copy.place / "nnf" / "rabbit1-0" / "deep").mkdir(parents=True)
    (copy.place / "nnf" / "rabbit1-0" / "deep" / "file").write_text("new")
    copy.well(source, destination, index="rabbit1-0")

    assert (copy.place / arrives).read_text() == "new"


@pytest.mark.parametrize(("source", "arrives"), [("way", "way/file"), ("way/", "file")])
def test_a_link_that_is_named_as_the_source_stands_for_its_directory(
    copy: Copier, source: str, arrives: str
) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "file").write_text("new")
    (copy.place / "way").symlink_to("in")
    copy.well(source, "out")

    assert (copy.place / "out" / arrives).read_text() == "new"


def test_a_dangling_link_that_is_named_as_the_source_is_copied_as_it_is(copy: Copier) -> None:
    (copy.place / "way").symlink_to("nowhere")
    copy.well("way", "out")

    assert (copy.place / "out").readlink() == Path("nowhere")


def test_a_copy_does_not_write_through_a_link_that_is_in_its_place(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    (copy.place / "precious").write_text("precious")
    (copy.place / "precious").chmod(0o666)
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    (copy.place / "out" / "in").symlink_to("../precious")
    copy("in", "out/")

    assert (copy.place / "precious").read_text() == "precious"


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_what_arrives_in_a_colleagues_files_and_directories_has_arrived(public: Path) -> None:
    """As with `cp -r`: a directory that a group shares has files of all of its users."""
    userid, colleague = users.userids()
    copier = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    source = tree(public / "in")
    (public / "out" / "deep").mkdir(parents=True)
    (public / "out" / "deep" / "two").write_bytes(b"older")
    for path in (public / "out", public / "out" / "deep", public / "out" / "deep" / "two"):
        os.chown(path, colleague, -1)
        path.chmod(0o777)
    outcome = copier.well("in/", "out")

    assert shape(public / "out") == shape(source)
    assert (public / "out" / "deep" / "two").stat().st_uid == colleague
    assert outcome.last.remark == (
        "modes, times and attributes of the source are not kept by what others own there"
    )


# Once more, after a restart


def test_a_copy_that_is_repeated_changes_nothing(copy: Copier) -> None:
    source = tree(copy.place / "in")
    copy.well("in", "out")
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)


def test_what_is_not_writable_can_be_copied_again(copy: Copier) -> None:
    source = tree(copy.place / "in")
    for path in (source / "one", source / "deep" / "two"):
        path.chmod(0o444)
    for path in (source / "deep" / "er", source / "deep", source):
        path.chmod(0o555)
    copy.well("in", "out")
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)
    assert os.stat(copy.place / "out" / "in" / "deep").st_mode & 0o777 == 0o555


# What fails


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("locked/file", "Permission denied"),
        ("in/file", "Not a directory"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_source_that_cannot_be_reached_is_told_with_the_reason(
    copy: Copier, source: str, reason: str
) -> None:
    locked = copy.place / "locked"
    locked.mkdir()
    locked.chmod(0)
    (copy.place / "in").touch()

    outcome = copy(source, "out")

    locked.chmod(0o700)
    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/{source}: {reason}"]


def test_a_source_that_is_not_there_is_told(copy: Copier) -> None:
    outcome = copy("nowhere", "out")

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/nowhere: No such file or directory"]
    assert not (copy.place / "out").exists()


def test_what_cannot_be_read_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    source = tree(copy.place / "in")
    (source / "one").chmod(0)
    (source / "deep" / "er").chmod(0)
    outcome = copy("in", "out")

    assert outcome.status == copying.FAILED
    assert sorted(outcome.complaints) == [
        f"{source}/deep/er: Permission denied",
        f"{source}/one: Permission denied",
    ]
    assert (copy.place / "out" / "in" / "deep" / "two").read_bytes() == b"2" * 20_000
    assert (copy.place / "out" / "in" / "link").is_symlink()
    assert outcome.last.files == outcome.last.total_files - 1


def test_what_is_neither_file_nor_link_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    source = tree(copy.place / "in")
    os.mkfifo(source / "pipe")
    outcome = copy("in/", "out")

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{source}/pipe: is neither a file nor a link"]
    assert (copy.place / "out" / "one").exists()


def test_a_file_in_the_place_of_a_directory_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    for number in range(10):
        (copy.place / "in" / str(number)).mkdir(parents=True)
        (copy.place / "in" / str(number) / "file").touch()
    for number in range(3):
        (copy.place / "out" / str(number)).touch()
    outcome = copy("in/", "out")

    assert outcome.status == copying.FAILED
    for number in range(3):
        assert f"{copy.place}/out/{number}: File exists" in outcome.complaints
    for number in range(3, 10):
        assert (copy.place / "out" / str(number) / "file").exists()


def test_a_directory_in_the_place_of_a_link_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    tree(copy.place / "in")
    (copy.place / "out" / "link").mkdir(parents=True)
    (copy.place / "out").chmod(0o777)
    outcome = copy("in/", "out")

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/out/link: File exists"]
    assert (copy.place / "out" / "one").exists()


def test_a_destination_that_cannot_be_made_is_told(copy: Copier) -> None:
    (copy.place / "in").touch()
    (copy.place / "locked").mkdir(mode=0o555)
    outcome = copy("in", "locked/out/")

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/locked/out: Permission denied"]


def test_a_write_that_fails_is_told_with_the_name_of_the_file(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "long").write_bytes(b"x" * 100_000)
    (copy.place / "in" / "short").write_bytes(b"x")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    outcome = copy("in", "out", before=limited)

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/out/in/long: File too large"]
    assert (copy.place / "out" / "in" / "short").read_bytes() == b"x"


def test_of_many_failures_some_are_told_and_the_others_counted(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    for number in range(25):
        os.mkfifo(copy.place / "in" / f"pipe{number}")
    outcome = copy("in", "out")

    assert outcome.status == copying.FAILED
    assert len(outcome.complaints) == 11
    assert outcome.complaints[-1] == "and 15 more"


# What stands in the way, and what changes while a copy is made


def special(path: Path, kind: str) -> None:
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "a symbolic link":
        path.symlink_to("elsewhere")
    elif kind == "a directory":
        path.mkdir()
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    if kind != "a symbolic link":
        path.chmod(0o777)


KINDS = ("a FIFO", "a socket", "a device", "a symbolic link", "a directory")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_not_written_to_and_the_rest_is_copied(copy: Copier, kind: str) -> None:
    tree(copy.place / "in")
    (copy.place / "out" / "deep").mkdir(parents=True)
    for place in (copy.place / "out", copy.place / "out" / "deep"):
        place.chmod(0o777)
    special(copy.place / "out" / "one", kind)
    special(copy.place / "out" / "deep" / "two", kind)
    outcome = copy("in/", "out")

    assert outcome.status == copying.FAILED
    words = f"there is {kind} where a file is to be copied to"
    assert sorted(outcome.complaints) == [
        f"{copy.place}/out/{name}: {words}" for name in ("deep/two", "one")
    ]
    assert (copy.place / "out" / "deep" / "er" / "nothing").exists()
    assert (copy.place / "out" / "link").is_symlink()
    assert not (copy.place / "out" / "elsewhere").exists()


@pytest.mark.parametrize("kind", KINDS[:3])
def test_what_is_no_file_is_not_read_from(copy: Copier, kind: str) -> None:
    special(copy.place / "in", kind)
    outcome = copy("in", "out")

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/in: is neither a file nor a link"]


def test_a_link_in_the_place_of_a_directory_leads_nowhere(copy: Copier) -> None:
    tree(copy.place / "in")
    (copy.place / "elsewhere").mkdir()
    (copy.place / "elsewhere").chmod(0o777)
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    (copy.place / "out" / "deep").symlink_to("../elsewhere")
    outcome = copy("in/", "out")

    assert outcome.complaints == [f"{copy.place}/out/deep: File exists"]
    assert (copy.place / "out" / "one").exists()
    assert list((copy.place / "elsewhere").iterdir()) == []


def test_the_paths_that_the_user_names_may_lead_through_links(copy: Copier) -> None:
    tree(copy.place / "in")
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    (copy.place / "there").symlink_to("out")
    (copy.place / "here").symlink_to(".")
    copy.well("here/in", "there/more")

    assert shape(copy.place / "out" / "more" / "in") == shape(copy.place / "in")


# Links in storage, which others may have made


def shared(copy: Copier) -> str:
    """Make a storage, and something of the user's beside it; return its path."""
    for name in ("storage", "storage/own", "private"):
        (copy.place / name).mkdir()
        (copy.place / name).chmod(0o777)
    (copy.place / "private" / "key").write_text("secret")
    return f"{copy.place}/storage"


OUT = "leads out of the storage through a link"


@pytest.mark.parametrize("end", ["out", "out/", "out/deeper", "own/../out/"])
def test_a_link_in_storage_has_nothing_written_outside_of_it(copy: Copier, end: str) -> None:
    storage = shared(copy)
    (copy.place / "in").write_text("words")
    (copy.place / "storage" / "out").symlink_to("../private")
    outcome = copy("in", f"storage/{end}", destination_storage=storage)

    assert outcome.status == copying.FAILED
    (told,) = outcome.complaints
    assert told.endswith(f": {OUT}")
    assert [path.name for path in (copy.place / "private").iterdir()] == ["key"]


@pytest.mark.parametrize("source", ["in", "in/", "in/key", "through/link/key"])
def test_a_link_in_storage_has_nothing_read_outside_of_it(copy: Copier, source: str) -> None:
    storage = shared(copy)
    (copy.place / "storage" / "in").symlink_to(copy.place / "private")
    (copy.place / "storage" / "through").mkdir()
    (copy.place / "storage" / "through" / "link").symlink_to("../in")
    outcome = copy(f"storage/{source}", "out/", source_storage=storage)

    assert outcome.status == copying.FAILED
    (told,) = outcome.complaints
    assert told.endswith(f": {OUT}")
    assert not (copy.place / "out").exists()


def test_links_that_stay_in_a_storage_lead_where_they_lead(copy: Copier) -> None:
    storage = shared(copy)
    tree(copy.place / "storage" / "run-1")
    (copy.place / "storage" / "latest").symlink_to("run-1")
    (copy.place / "storage" / "there").symlink_to(copy.place / "storage" / "own")
    copy.well("storage/latest", "out", source_storage=storage)
    copy.well("storage/latest/", "storage/there/more", None, source_storage=storage,
              destination_storage=storage)  # fmt: skip

    assert shape(copy.place / "out" / "latest") == shape(copy.place / "storage" / "run-1")
    assert shape(copy.place / "storage" / "own" / "more") == shape(copy.place / "out" / "latest")


def test_a_link_to_a_file_is_copied_as_it_is_wherever_it_leads(copy: Copier) -> None:
    storage = shared(copy)
    (copy.place / "storage" / "key").symlink_to("../private/key")
    copy.well("storage/key", "out", source_storage=storage)

    assert (copy.place / "out").readlink() == Path("../private/key")


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
@pytest.mark.parametrize("whose", ["the user's", "the other one's"])
def test_nothing_is_written_into_a_file_that_another_has_made_in_storage(
    public: Path, whose: str
) -> None:
    userid, other = users.userids()
    copier = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    storage = shared(copier)
    root = public / "storage"
    root.chmod(0o1777)
    os.chown(root, userid if whose == "the user's" else other, 0)
    (public / "in").write_text("secret")
    os.chown(public / "in", userid, -1)
    (public / "in").chmod(0o600)
    (root / "in").touch(mode=0o666)
    (root / "in").chmod(0o666)
    os.chown(root / "in", other, -1)
    with (root / "in").open() as kept:
        outcome = copier("in", "storage/", destination_storage=storage)
        assert kept.read() == ""

    if whose == "the user's":  # who may remove it, and has a file of its own then
        assert outcome.complaints == []
        assert ((root / "in").stat().st_uid, (root / "in").read_text()) == (userid, "secret")
    else:
        assert outcome.complaints == [f"{root}/in: Operation not permitted"]


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_nothing_is_copied_into_a_directory_that_another_has_made_in_storage(
    public: Path,
) -> None:
    userid, other = users.userids()
    copier = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    storage = shared(copier)
    tree(public / "in")
    (public / "storage" / "in" / "deep").mkdir(parents=True)
    for path in (public / "storage" / "in", public / "storage" / "in" / "deep"):
        path.chmod(0o777)
    os.chown(public / "storage" / "in", userid, -1)
    os.chown(public / "storage" / "in" / "deep", other, -1)
    outcome = copier("in", "storage/", destination_storage=storage)

    assert f"{public}/storage/in/deep: is another user's directory" in outcome.complaints
    assert list((public / "storage" / "in" / "deep").iterdir()) == []
    assert (public / "storage" / "in" / "one").exists()


def test_a_directory_in_storage_that_becomes_a_link_leads_nowhere(public: Path) -> None:
    (public / "storage").mkdir()
    (public / "storage" / "in").symlink_to("..")
    storage, path = f"{public}/storage", f"{public}/storage/in/more"
    with pytest.raises(NotADirectoryError):
        Tree(path, os.O_RDONLY, within=storage)
    with pytest.raises(NotADirectoryError):
        nofollow.make_directories(path, storage)
    with pytest.raises(OSError, match="is not in"):
        nofollow.make_directories(f"{public}/elsewhere", storage)

    assert [path.name for path in public.iterdir()] == ["storage"]


@pytest.mark.parametrize("source", ["r-0/", "r-0/file"])
def test_an_index_directory_that_was_there_keeps_its_mode(copy: Copier, source: str) -> None:
    (copy.place / "r-0").mkdir()
    (copy.place / "r-0" / "file").write_text("new")
    (copy.place / "out" / "r-0").mkdir(parents=True)
    for path in (copy.place / "out", copy.place / "out" / "r-0"):
        os.chown(path, copy.user.userid, copy.user.groupid)
    (copy.place / "out" / "r-0").chmod(0o555)
    copy.well(source, "out/", index="r-0")

    assert stat.S_IMODE((copy.place / "out" / "r-0").stat().st_mode) == 0o555
    assert (copy.place / "out" / "r-0" / "file").read_text() == "new"


def test_an_index_directory_that_is_a_link_leads_nowhere(copy: Copier) -> None:
    (copy.place / "r-0").mkdir()
    (copy.place / "r-0" / "file").write_text("new")
    for name in ("out", "elsewhere"):
        (copy.place / name).mkdir()
        (copy.place / name).chmod(0o777)
    (copy.place / "out" / "r-0").symlink_to("../elsewhere")
    outcome = copy("r-0/", "out", index="r-0")

    assert outcome.complaints == [f"{copy.place}/out/r-0: File exists"]
    assert list((copy.place / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "destination", "told"),
    [
        ("st/ckpt", "st/ckpt", "ckpt"),
        ("st/ckpt", "st/", "ckpt"),
        ("st/d", "st", "d"),
        ("st/d/", "st/d", "d"),
        ("st/latest/", "st/d", "d"),
        ("st/dangling", "st/", "dangling"),
        ("st/one", "st/two", "two"),
    ],
)
def test_a_copy_onto_itself_is_told_and_loses_nothing(
    copy: Copier, source: str, destination: str, told: str
) -> None:
    place = copy.place / "st"
    tree(place / "d")
    (place / "ckpt").write_bytes(b"precious")
    (place / "one").write_bytes(b"of two names")
    os.link(place / "one", place / "two")
    (place / "latest").symlink_to("d")
    (place / "dangling").symlink_to("nowhere")
    (place / "d").chmod(0o555)
    for path in (place, *place.rglob("*")):
        os.chown(path, copy.user.userid, copy.user.groupid, follow_symlinks=False)
    before, modes = shape(place), {path: path.lstat().st_mode for path in place.rglob("*")}
    outcome = copy(source, destination)

    assert shape(place) == before
    assert {path: path.lstat().st_mode for path in place.rglob("*")} == modes
    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{place}/{told}: is what is to be copied there"]


def test_a_tree_that_is_copied_over_links_to_its_own_files_tells_each_and_loses_none(
    copy: Copier,
) -> None:
    for name in ("in", "out"):
        (copy.place / name).mkdir()
    for name in ("one", "two"):
        (copy.place / "in" / name).write_text(name)
        os.link(copy.place / "in" / name, copy.place / "out" / name)
    for path in (copy.place / "out", *copy.place.glob("*/*")):
        os.chown(path, copy.user.userid, copy.user.groupid)
    outcome = copy("in/", "out")

    assert sorted(outcome.complaints) == [
        f"{copy.place}/out/{name}: is what is to be copied there" for name in ("one", "two")
    ]
    assert shape(copy.place / "in") == {"one": b"one", "two": b"two"}


def test_a_directory_is_not_copied_into_itself(copy: Copier) -> None:
    tree(copy.place / "in").chmod(0o777)
    outcome = copy("in", "in/copy")

    assert outcome.complaints == [f"{copy.place}/in/copy/in: a directory is not copied into itself"]
    assert (copy.place / "in" / "copy" / "in" / "deep" / "two").exists()


def test_a_tree_deeper_and_wider_than_a_process_may_have_files_open_arrives(copy: Copier) -> None:
    descriptor = os.open(copy.place, os.O_RDONLY)
    for _ in range(600):  # deeper than a path may be long, too
        os.mkdir("deep-deep-deep", 0o755, dir_fd=descriptor)
        below = os.open("deep-deep-deep", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptor))
    for number in range(300):
        os.mkdir(f"wide{number}", dir_fd=descriptor)
    os.close(descriptor)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))

    try:
        outcome = copy("deep-deep-deep", "out", before=limited)
    finally:
        # The longest of these paths only `rm` can name.
        trees = [str(copy.place / name) for name in ("deep-deep-deep", "out")]
        subprocess.run(["rm", "-rf", *trees], check=True)

    assert (outcome.status, outcome.complaints) == (0, [])
    assert outcome.last.files == outcome.last.total_files == 600


READS = """
import os, sys
from warren.node import nofollow
try:
    nofollow.open_to_read("in", os.open(sys.argv[1], os.O_RDONLY))
except nofollow.NotAFile as found:
    print(found)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize(
    ("kind", "told"),
    [("a FIFO", "a FIFO"), ("a symbolic link", "Too many levels of symbolic links")],
)
def test_what_has_just_taken_a_files_place_is_not_read_or_waited_for(
    public: Path, kind: str, told: str
) -> None:
    special(public / "in", kind)
    (public / "elsewhere").write_text("precious")
    command = [sys.executable, "-c", READS, str(public)]

    assert subprocess.check_output(command, text=True, timeout=120).strip() == told


def test_a_directory_that_becomes_a_link_in_the_middle_leads_nowhere(public: Path) -> None:
    for name in ("tree/inside", "elsewhere"):
        (public / name).mkdir(parents=True)
    (public / "elsewhere" / "secret").touch()
    found = Tree(str(public / "tree"), os.O_RDONLY, spare=0)
    inside = Directory(found.top, "inside")
    assert os.listdir(found.acquire(inside)) == []
    (public / "tree" / "inside").rename(public / "tree" / "away")
    (public / "tree" / "inside").symlink_to("../elsewhere")

    assert os.listdir(found.acquire(inside)) == []  # while it is in use, it is what it was
    found.release(inside)
    found.release(inside)
    with pytest.raises(NotADirectoryError):
        found.acquire(inside)
    os.close(found.top.descriptor)


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_a_directory_that_another_user_puts_in_the_place_of_ones_own_is_not_used(
    public: Path,
) -> None:
    """Whose it was when it was made does not matter: it may have been opened anew since."""
    userid, other = users.userids()
    (public / "tree" / "inside").mkdir(parents=True)
    os.chown(public / "tree" / "inside", userid, -1)
    found = Tree(str(public / "tree"), os.O_PATH, owner=userid, spare=0)
    inside = Directory(found.top, "inside")
    found.acquire(inside)
    found.release(inside)
    (public / "tree" / "inside").rename(public / "tree" / "away")
    (public / "tree" / "inside").mkdir()
    os.chown(public / "tree" / "inside", other, -1)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(PermissionError, match="is another user's directory"):
        found.acquire(inside)
    assert os.listdir("/proc/self/fd") == before
    os.close(found.top.descriptor)


# Progress


@pytest.mark.parametrize("line", ["", "hello\n", "{}\n", "[1]\n", '{"bytes": 1}\n', "null\n", DEEP])
def test_what_no_copier_says_is_not_taken_for_progress(line: str) -> None:
    with pytest.raises(NodeTrouble, match=r"^the copier said "):
        copying.progress(line)


def test_a_copier_that_is_newer_than_its_agent_may_tell_more() -> None:
    told = {"bytes": 5, "total_bytes": 10, "files": 1, "total_files": 2, "seconds": 0.5}
    known = copying.progress(json.dumps(told))
    assert copying.progress(json.dumps({**told, "inodes": 7})) == known
    assert known.percent == 50


def test_progress_is_told_while_it_is_made_and_never_goes_back(copy: Copier) -> None:
    total = much(copy)
    size = total * LARGE

    async def main() -> list[Progress]:
        work = copy.work("in/", "out", rate=size // 3)
        return [each async for each in copiers.run(work)]

    told = asyncio.run(main())

    assert len(told) > 1
    for before, after in pairwise(told):
        assert before.bytes <= after.bytes <= after.total_bytes == size
        assert before.files <= after.files <= after.total_files == total
    assert told[-1].files == total


# Its end


SLOWLY: dict[str, Any] = {"rate": MIB // 4}
"""However long a loaded machine lets a test wait, it finds the copier at work."""

LARGE = MIB // 2


def much(copy: Copier) -> int:
    """Make a tree `in` that takes a minute to copy slowly; return how many files it has."""
    (copy.place / "in").mkdir()
    for number in range(32):
        (copy.place / "in" / str(number)).write_bytes(bytes([number + 1]) * LARGE)
    return 32


def test_closing_the_iterator_ends_the_copier(copy: Copier) -> None:
    much(copy)

    async def main() -> None:
        lines = commands.stream_lines(copy.command("in", "out", **SLOWLY))
        async with aclosing(lines) as told:  # type: ignore[type-var]
            await anext(told)
            assert copier_at(copy.place)

    asyncio.run(main())

    eventually(lambda: not copier_at(copy.place))


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


async def stopped(copy: Copier) -> int:
    """Stop the copier, and return its id."""
    (process,) = copier_at(copy.place)
    os.kill(process, signal.SIGSTOP)
    await asyncio.to_thread(eventually, lambda: state(process) == "T")
    return process


def test_a_copier_that_is_stopped_and_says_nothing_is_ended_all_the_same(copy: Copier) -> None:
    much(copy)

    async def main() -> None:
        lines = copiers.run(copy.work("in", "out", **SLOWLY))
        async with aclosing(lines) as told:  # type: ignore[type-var]
            await anext(told)
            await stopped(copy)

    asyncio.run(main())

    assert not copier_at(copy.place)


def test_a_copier_that_waits_for_a_silent_server_of_its_users_is_ended_all_the_same(
    silent: Silent,  # noqa: F811 - a fixture
) -> None:
    work = Copy(
        source=f"{silent.place}/in",
        destination=f"{silent.place}/out",
        index=None,
        userid=TEST_USER,
        groupid=TEST_USER,
    )

    async def main() -> None:
        lines = copiers.run(work)
        copying = asyncio.ensure_future(anext(lines))
        assert await asyncio.to_thread(silent.asked.wait, 60)
        (process,) = copier_at(silent.place)
        copying.cancel()
        # Without an end of its own, the test would wait as long as the copier.
        ended, _ = await asyncio.wait({copying}, timeout=60)
        assert ended
        assert process not in alive()

    asyncio.run(main())


def test_the_command_of_a_profile_that_waits_for_a_silent_server_is_ended_with_its_copier(
    silent: Silent,  # noqa: F811 - a fixture
) -> None:
    work = Copy(
        source="/etc/passwd",
        destination=f"/tmp/nowhere-{TEST_USER}",
        index=None,
        userid=TEST_USER,
        groupid=TEST_USER,
        command=["ls", str(silent.place)],
    )

    async def main() -> None:
        lines = copiers.run(work)
        await anext(lines)
        assert await asyncio.to_thread(silent.asked.wait, 60)
        (copier,) = copier_at(Path(work.destination))
        (command,) = descendants(copier)
        ending = asyncio.ensure_future(lines.aclose())  # type: ignore[attr-defined]
        ended, _ = await asyncio.wait({ending}, timeout=60)
        assert ended
        assert not {copier, command} & alive()

    asyncio.run(main())


def test_a_copier_that_is_killed_says_nothing_of_what_it_copied(copy: Copier) -> None:
    much(copy)

    async def main() -> None:
        lines = copiers.run(copy.work("in", "out", **SLOWLY))
        async with aclosing(lines) as told:  # type: ignore[type-var]
            await anext(told)
            (process,) = copier_at(copy.place)
            os.kill(process, signal.SIGKILL)
            async for _ in told:
                pass

    with pytest.raises(NodeTrouble, match=r"^the copier has ended: killed by signal 9$") as caught:
        asyncio.run(main())
    assert not isinstance(caught.value, CopyFailed)


def test_what_a_copier_could_not_copy_is_told_as_its_own_words(copy: Copier) -> None:
    async def main() -> None:
        async for _ in copiers.run(copy.work("nowhere", "out")):
            pass

    with pytest.raises(CopyFailed, match=r"nowhere: No such file or directory$"):
        asyncio.run(main())


# Whose it is


@contextmanager
def at_work(copier: Copier) -> Iterator[int]:
    """A copier in the middle of its work, for the length of a block."""
    much(copier)
    with subprocess.Popen(copier.command("in", "out", **SLOWLY), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def status(task: Path) -> dict[str, str]:
    lines = (task / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_every_thread_of_a_copier_is_its_user_for_files_and_has_no_capabilities(
    copy: Copier,
) -> None:
    with at_work(copy) as process:
        tasks = [status(task) for task in Path(f"/proc/{process}/task").iterdir()]

    assert len(tasks) > 2
    for each in tasks:
        assert int(each["Uid"].split()[3]) == copy.user.userid
        assert int(each["Gid"].split()[3]) == copy.user.groupid
        assert {int(each[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Amb")} == {0}
        assert each["NoNewPrivs"] == "1"


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_a_user_can_do_nothing_to_the_process_that_copies_for_it(public: Path) -> None:
    userid, _ = users.userids()
    copier = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    libc = ctypes.CDLL(None, use_errno=True)

    def attacks(process: int) -> dict[str, Any]:
        came: dict[str, Any] = {}
        for name in ("SIGSTOP", "SIGKILL", "SIGTERM"):
            try:
                os.kill(process, getattr(signal, name))
                came[name] = "done"
            except OSError as error:
                came[name] = errno.errorcode[error.errno or 0]
        for name in ("mem", "environ", "fd", "maps", "cwd", "root/etc"):
            try:
                path = f"/proc/{process}/{name}"
                if name in ("fd", "cwd", "root/etc"):
                    os.listdir(path)
                else:
                    os.close(os.open(path, os.O_RDONLY))
                came[name] = "done"
            except OSError as error:
                came[name] = errno.errorcode[error.errno or 0]
        done = libc.ptrace(16, process, None, None)  # PTRACE_ATTACH
        came["ptrace"] = "done" if done == 0 else errno.errorcode[ctypes.get_errno()]
        try:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (0, 0))
            came["prlimit"] = "done"
        except OSError as error:
            came["prlimit"] = errno.errorcode[error.errno or 0]
        return came

    with at_work(copier) as process:
        came = users.acting_as(userid, lambda: attacks(process))
        ids = status(Path(f"/proc/{process}"))
        bounding = int(ids["CapBnd"], 16)

    assert set(came.values()) <= {"EPERM", "EACCES"}, came
    for kind in ("Uid", "Gid"):
        assert not {"0", str(userid)} & set(ids[kind].split()[:3])
    assert bounding == 0


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_a_link_into_proc_gives_a_user_nothing_of_the_copiers(public: Path) -> None:
    # Files there look at the ids of the process, and not at those for files. This one is harmless.
    userid, _ = users.userids()
    copier = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    known = Path("/proc/sys/kernel/domainname")
    before = known.read_text()
    (public / "domainname").write_text("changed")
    (public / "way").symlink_to(known.parent)
    outcome = copier("domainname", "way/")
    after = known.read_text()
    if after != before:
        known.write_text(before)

    assert outcome.status == copying.FAILED
    assert after == before


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_a_copier_reads_what_its_user_may_read_and_no_more(public: Path) -> None:
    userid, other = users.userids()
    copier = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    (public / "in").mkdir()
    for name, owner in (("roots", 0), ("others", other), ("own", userid)):
        (public / "in" / name).touch(mode=0o600)
        os.chown(public / "in" / name, owner, owner)
    outcome = copier("in/", "out")

    assert sorted(outcome.complaints) == [
        f"{public}/in/{name}: Permission denied" for name in ("others", "roots")
    ]
    assert [path.name for path in (public / "out").iterdir()] == ["own"]


AGENT = """
import asyncio, os, sys
from warren.node import commands

sys.argv[-1] = str(os.getpid())

async def main():
    async for line in commands.stream_lines(sys.argv[1:]):
        print(line, flush=True)

asyncio.run(main())
"""


def test_the_copier_dies_with_its_agent(copy: Copier) -> None:
    total = much(copy)
    command = [sys.executable, "-c", AGENT, *copy.command("in", "out", **SLOWLY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert json.loads(agent.stdout.readline())["total_files"] == total
        assert copier_at(copy.place) - {agent.pid}
        agent.kill()

    eventually(lambda: not copier_at(copy.place))


def test_a_copier_copies_nothing_whose_agent_has_died_before_it_has_begun(copy: Copier) -> None:
    """The kernel tells of no parent that was gone when it was asked to."""
    (copy.place / "in").write_text("x")
    begun = [*copy.command("in", "out")[:-1], str(2**22 + 1)]  # no process has such a number
    done = subprocess.run(begun, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert not (copy.place / "out").exists()


def test_a_destination_may_be_as_many_directories_deep_as_a_path_can_name(tmp_path: Path) -> None:
    (tmp_path / "stays").touch()
    levels = (4000 - len(str(tmp_path))) // 2
    deep = str(tmp_path) + "/d" * levels
    nofollow.make_directories(deep)
    nofollow.make_directories(deep)
    assert os.path.isdir(deep)
    os.removedirs(deep)  # shutil.rmtree, which pytest takes, calls itself for each level


def test_of_a_destination_whose_path_is_too_long_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        nofollow.make_directories(str(tmp_path) + "/d" * 3000)
    assert [*tmp_path.iterdir()] == []


def test_a_file_in_the_place_of_a_destination_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        nofollow.make_directories(f"{tmp_path}/file")
    with pytest.raises(NotADirectoryError):
        nofollow.make_directories(f"{tmp_path}/file/in/it")
