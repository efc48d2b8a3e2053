"""Root directories of storage that is shared: whom they let in."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.test_acl import GROUP, USER, list_of
from warren.dws.node import NodeTrouble
from warren.dws.persistent.sharing import PRIVATE, NotShared, Sharing
from warren.node import acl
from warren.node.rootaccess import set_access

BOTH = Sharing(users=frozenset({5}), groups=frozenset({7, 6}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root directory as it is made: its owner's alone."""
    found = tmp_path / "root"
    found.mkdir(mode=0o700)
    try:
        os.setxattr(found, acl.NAME, list_of(0, 0, 0, (USER, 0, 5), user=7))
        os.removexattr(found, acl.NAME)
    except OSError as error:
        pytest.skip(f"{tmp_path} has no access control lists: {error.strerror}")
    return found


def permissions(root: Path) -> tuple[str, bytes | None]:
    descriptor = os.open(root, os.O_RDONLY)
    try:
        return oct(os.fstat(descriptor).st_mode & 0o7777), acl.read(descriptor)
    finally:
        os.close(descriptor)


def test_a_root_directory_lets_in_with_whom_it_is_shared(root: Path) -> None:
    named = (USER, 7, 5), (GROUP, 7, 6), (GROUP, 7, 7)
    for _ in range(2):
        set_access(root, BOTH)
        assert permissions(root) == ("0o1770", list_of(0, 7, 0, *named, user=7))
    set_access(root, BOTH | Sharing(everyone=True))
    assert permissions(root) == ("0o1777", list_of(0, 7, 7, *named, user=7))
    set_access(root, Sharing(everyone=True))
    assert permissions(root) == ("0o1707", None)


@pytest.mark.parametrize("before", [BOTH, Sharing(everyone=True), BOTH | Sharing(everyone=True)])
def test_a_root_directory_is_its_owners_again_when_it_is_not_shared(
    root: Path, before: Sharing
) -> None:
    set_access(root, before)
    for _ in range(2):
        set_access(root, PRIVATE)
        assert permissions(root) == ("0o700", None)


def test_what_its_owner_lets_the_own_group_do_stays(root: Path) -> None:
    root.chmod(0o2750)
    set_access(root, BOTH)
    assert permissions(root)[0] == "0o3770"
    found = permissions(root)[1]
    assert found is not None
    assert acl.mode_without_acl(0o770, found) & 0o070 == 0o050
    set_access(root, PRIVATE)
    assert permissions(root) == ("0o2750", None)
    root.chmod(0o777)
    set_access(root, PRIVATE)
    assert permissions(root)[0] == "0o770"


def test_a_link_is_no_root_directory(root: Path) -> None:
    link = root.with_name("link")
    link.symlink_to(root)
    with pytest.raises(NodeTrouble, match="link cannot be shared"):
        set_access(link, BOTH)


class Full:
    """A file system that has no room for a list, but for one that is as long as what is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
        self._setxattr = os.setxattr
        self._number = number
        monkeypatch.setattr(os, "setxattr", self._set)

    def _set(self, descriptor: int, name: str, value: bytes) -> None:
        if len(value) > len(acl.read(descriptor) or bytes(28)):
            raise OSError(self._number, "there is no room")
        self._setxattr(descriptor, name, value)


@pytest.mark.parametrize("mode", [0o700, 0o770, 0o2777])
def test_those_with_whom_it_is_shared_stay_in_whatever_its_owner_makes_of_the_mode(
    root: Path, mode: int
) -> None:
    """The mode has the list's mask in place of the rights of the owner's group."""
    set_access(root, BOTH)
    as_shared = permissions(root)[1]
    root.chmod(mode)
    set_access(root, BOTH)
    assert permissions(root) == (oct(mode & 0o2000 | 0o1770), as_shared)


def test_without_room_those_stay_in_whatever_its_owner_makes_of_the_mode(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_access(root, Sharing(users=frozenset({5})))
    as_shared = permissions(root)[1]
    root.chmod(0o770)
    Full(monkeypatch)
    with pytest.raises(NotShared) as caught:
        set_access(root, BOTH)
    assert caught.value.let_in == Sharing(users=frozenset({5}))
    assert permissions(root) == ("0o1770", as_shared)


@pytest.mark.parametrize(
    ("before", "sharing", "let_in"),
    [
        (PRIVATE, BOTH, PRIVATE),
        (Sharing(users=frozenset({5})), BOTH, Sharing(users=frozenset({5}))),
        (Sharing(users=frozenset({4})), BOTH, PRIVATE),
        (Sharing(everyone=True), BOTH, PRIVATE),
        (
            Sharing(users=frozenset({4})),
            BOTH | Sharing(everyone=True),
            Sharing(everyone=True),
        ),
    ],
)
def test_without_room_those_stay_in_that_were_unless_some_are_to_go(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Sharing,
    sharing: Sharing,
    let_in: Sharing,
) -> None:
    set_access(root, before)
    with monkeypatch.context() as patch:
        Full(patch)
        with pytest.raises(NotShared) as caught:
            set_access(root, sharing)
    assert caught.value.let_in == let_in
    assert caught.value.owner_userid == os.geteuid()
    left = permissions(root)
    set_access(root, let_in)
    assert permissions(root)[1] == left[1]
    set_access(root, sharing)
    assert permissions(root)[1] is not None


def test_what_is_taken_away_takes_no_room(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_access(root, BOTH)
    Full(monkeypatch)
    set_access(root, Sharing(users=BOTH.users))
    set_access(root, PRIVATE)
    assert permissions(root) == ("0o700", None)


def test_other_trouble_with_a_root_directory_is_told_in_its_words(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Full(monkeypatch, errno.EIO)
    with pytest.raises(NodeTrouble, match="cannot be shared: there is no room") as caught:
        set_access(root, BOTH)
    assert not isinstance(caught.value, NotShared)


LISTS = [PRIVATE, BOTH, Sharing(everyone=True)]


@pytest.mark.parametrize("call", ["fstat", "fchmod", "setxattr"])
@pytest.mark.parametrize("mine", LISTS)
@pytest.mark.parametrize("others", LISTS)
@pytest.mark.parametrize("before", LISTS)
def test_nodes_that_set_it_at_the_same_time_let_nobody_in_by_the_owners_group(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Sharing,
    others: Sharing,
    mine: Sharing,
    call: str,
) -> None:
    """One of them has an older list, and sets the new one after it."""
    set_access(root, before)
    own_call: Callable[..., object] = getattr(os, call)

    def call_late(*arguments: object) -> object:
        monkeypatch.setattr(os, call, own_call)
        set_access(root, others)
        return own_call(*arguments)

    monkeypatch.setattr(os, call, call_late)
    set_access(root, mine)
    monkeypatch.setattr(os, call, own_call)
    set_access(root, BOTH)
    assert permissions(root)[0] == "0o1770"
    set_access(root, PRIVATE)
    assert permissions(root) == ("0o700", None)
