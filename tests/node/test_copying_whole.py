"""What a copy has of its source: `rsync -aHAXn --checksum` finds nothing that it has not."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.node.copied import OLD, Copier
from tests.node.test_acl import USER, list_of
from warren.node import acl
from warren.node.copying.hardlinks import FilePair, HardLinks
from warren.node.nofollow import Directory

DEFAULT = "system.posix_acl_default"


def demanded(operation: Callable[..., object], *arguments: object) -> None:
    """Do what not every file system can."""
    try:
        operation(*arguments)
    except OSError as error:
        pytest.skip(f"{arguments[0]} cannot have {arguments[1]}: {error.strerror}")


def rich(copy: Copier, root: Path) -> Path:
    """A tree with a little of everything that can be copied, of the user's own."""
    for name in ("deep/er", "empty", "listed"):
        (root / name).mkdir(parents=True)
    (root / "one").write_bytes(b"1" * 100)
    (root / "deep" / "large").write_bytes(os.urandom(700_000))
    with (root / "deep" / "sparse").open("wb") as sparse:
        sparse.write(b"a" * 5000)
        sparse.seek(2**24)
        sparse.write(b"b" * 300_000)
        sparse.truncate(2**26)
    os.link(root / "one", root / "deep" / "also one")
    os.link(root / "one", root / "and one")
    os.link(root / "deep" / "large", root / "large, too")
    (root / "link").symlink_to("one")
    (root / "deep" / "dangling").symlink_to("nowhere/at/all")
    os.link(root / "link", root / "deep" / "link", follow_symlinks=False)
    demanded(os.setxattr, root / "one", "user.origin", b"here")
    demanded(os.setxattr, root / "one", "user.nothing", b"")
    demanded(os.setxattr, root / "deep", "user.kind", bytes(range(200)))
    demanded(os.setxattr, root / "empty", acl.NAME, list_of(0, 5, 5, (USER, 4, 5), user=7))
    demanded(os.setxattr, root / "listed", DEFAULT, list_of(5, 7, 0, (USER, 7, 5), user=7))
    (root / "listed" / "inherits").write_bytes(b"2")
    (root / "listed" / "inherits not").write_bytes(b"3")
    os.removexattr(root / "listed" / "inherits not", acl.NAME)
    own([root, *root.rglob("*")], copy)
    (root / "one").chmod(0o640)
    (root / "deep" / "large").chmod(0o444)
    (root / "deep" / "er").chmod(0o1775)
    os.chmod(root / "empty", os.stat(root / "empty").st_mode & 0o777 | 0o2000)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(OLD, OLD + number * 1_000_003), follow_symlinks=False)
    (root / "deep" / "er").chmod(0o1555)
    os.utime(root, ns=(OLD, OLD))
    return root


def own(paths: Sequence[Path], copy: Copier) -> None:
    for path in paths:
        os.chown(path, copy.user.userid, copy.user.groupid, follow_symlinks=False)


def differences(source: Path, target: Path) -> list[str]:
    """What rsync would have to do to make a target its source."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not here")
    argv = ["rsync", "-aHAXn", "--checksum", "--itemize-changes", "--delete"]
    told = subprocess.check_output([*argv, f"{source}/", f"{target}/"], text=True)
    return told.splitlines()


def test_rsync_finds_nothing_that_a_copy_lacks(copy: Copier) -> None:
    source = rich(copy, copy.place / "in")
    outcome = copy.well("in", "out")

    assert differences(source, copy.place / "out" / "in") == []
    assert outcome.last.links == 3
    assert outcome.last.directories == 5
    assert outcome.last.remark == ""


def test_rsync_finds_nothing_after_a_copy_over_something_else(copy: Copier) -> None:
    source = rich(copy, copy.place / "in")
    target = copy.place / "out" / "in"
    (target / "deep").mkdir(parents=True)
    (target / "one").write_bytes(b"older, and longer" * 100)
    os.link(target / "one", target / "deep" / "large")
    (target / "link").symlink_to("elsewhere")
    demanded(os.setxattr, target / "one", "user.older", b"gone")
    demanded(os.setxattr, target / "deep", DEFAULT, list_of(7, 7, 7, (USER, 7, 5), user=7))
    demanded(os.setxattr, target / "one", acl.NAME, list_of(7, 7, 7, (USER, 7, 5), user=7))
    own([target.parent, target, *target.rglob("*")], copy)
    copy.well("in", "out")

    assert differences(source, target) == []


def test_a_target_that_hands_down_access_control_lists_hands_them_to_no_copy(copy: Copier) -> None:
    source = rich(copy, copy.place / "in")
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    demanded(os.setxattr, copy.place / "out", DEFAULT, list_of(7, 7, 7, (USER, 7, 5), user=7))
    copy.well("in", "out")

    assert differences(source, copy.place / "out" / "in") == []


def test_times_of_links_arrive(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "link").symlink_to("nowhere")
    os.utime(copy.place / "in" / "link", ns=(OLD, OLD), follow_symlinks=False)
    copy.well("in", "out")

    assert (copy.place / "out" / "in" / "link").lstat().st_mtime_ns == OLD


def test_names_of_one_file_are_names_of_one_copy(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "first").write_bytes(b"x" * 300_000)
    for number in range(500):
        os.link(copy.place / "in" / "first", copy.place / "in" / str(number))
    outcome = copy.well("in/", "out")

    copied = list((copy.place / "out").iterdir())
    assert len(copied) == outcome.last.files == 501
    assert len({path.stat().st_ino for path in copied}) == 1
    assert copied[0].stat().st_nlink == 501


def test_what_names_a_file_outside_of_the_copy_is_not_changed_by_it(copy: Copier) -> None:
    """Of an earlier result, another program may have kept the files under other names."""
    (copy.place / "in").write_text("new")
    (copy.place / "out").write_text("precious")
    own([copy.place / "out"], copy)
    os.link(copy.place / "out", copy.place / "kept")
    copy.well("in", "out")

    assert (copy.place / "out").read_text() == "new"
    assert (copy.place / "kept").read_text() == "precious"


def test_of_privileges_nothing_is_copied(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "tool").touch()
    own([copy.place / "in", copy.place / "in" / "tool"], copy)
    (copy.place / "in" / "tool").chmod(0o7755)
    (copy.place / "in").chmod(0o7755)
    copy.well("in", "out")

    assert os.stat(copy.place / "out" / "in" / "tool").st_mode & 0o7777 == 0o755
    assert os.stat(copy.place / "out" / "in").st_mode & 0o7777 == 0o3755


# How many are remembered


def names(number: int) -> FilePair:
    place = Directory(None, "")
    return (place, str(number), place, str(number))


def linked(tmp_path: Path, count: int) -> os.stat_result:
    (tmp_path / "0").touch()
    for number in range(1, count):
        os.link(tmp_path / "0", tmp_path / str(number))
    return os.stat(tmp_path / "0")


def test_a_file_is_forgotten_when_all_of_its_names_have_been_seen(tmp_path: Path) -> None:
    known, found = linked(tmp_path, 3), HardLinks()
    first, second, third = names(0), names(1), names(2)

    assert found.first_copy(known, first) is None
    assert found.first_copy(known, second) is second  # it is not copied yet
    assert list(found.mark_copied(known, first)) == [second]
    assert found.first_copy(known, second) is first
    assert found.first_copy(known, third) is first
    assert found.first_copy(known, names(3)) is None


def test_names_wait_in_vain_for_one_that_fails_and_are_copied_then(tmp_path: Path) -> None:
    known, found = linked(tmp_path, 2), HardLinks()
    first, second = names(0), names(1)

    assert found.first_copy(known, first) is None
    assert found.first_copy(known, second) is second
    assert list(found.mark_failed(known, first)) == [second]
    assert found.first_copy(known, second) is None


def test_more_files_than_are_remembered_are_copied_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    known, other = linked(tmp_path, 3), linked(tmp_path / "other", 3)
    found = HardLinks(limit=1)

    assert found.first_copy(known, names(0)) is None
    for number in range(3):
        assert found.first_copy(other, names(number)) is None
        assert list(found.mark_copied(other, names(number))) == []
