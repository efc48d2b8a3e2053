"""Access control lists, and what is left of them where there are none."""

import os
import struct
from pathlib import Path

import pytest

from warren.node import acl

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
ANYBODY = 0xFFFFFFFF


def written(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def list_of(
    group: int, mask: int, other: int, *named: tuple[int, int, int], user: int = 6
) -> bytes:
    return written(
        (USER_OBJ, user, ANYBODY),
        *(each for each in named if each[0] == USER),
        (GROUP_OBJ, group, ANYBODY),
        *(each for each in named if each[0] == GROUP),
        (MASK, mask, ANYBODY),
        (OTHER, other, ANYBODY),
    )


@pytest.mark.parametrize(
    ("mode", "found", "left"),
    [
        # The mask is no right of the group.
        (0o640, list_of(0, 4, 0, (USER, 4, 5)), 0o600),
        (0o660, list_of(4, 6, 0, (USER, 6, 5)), 0o640),
        (0o640, list_of(7, 4, 0, (USER, 4, 5)), 0o640),
        # Whom the list keeps out is not let in as one of the group, or as another.
        (0o664, list_of(6, 6, 4, (USER, 0, 5)), 0o600),
        (0o664, list_of(6, 6, 4, (GROUP, 0, 5)), 0o660),
        (0o664, list_of(6, 6, 4, (USER, 4, 5), (GROUP, 6, 7)), 0o644),
        (0o600, list_of(6, 0, 0), 0o600),
    ],
)
def test_a_mode_without_the_list_lets_no_user_do_more(mode: int, found: bytes, left: int) -> None:
    assert oct(acl.mode_without_acl(mode, found)) == oct(left)


def test_a_file_without_a_list_has_none(tmp_path: Path) -> None:
    with (tmp_path / "plain").open("wb") as plain:
        assert acl.read(plain.fileno()) is None


def test_a_list_is_read_as_it_was_set(tmp_path: Path) -> None:
    found = list_of(0, 4, 0, (USER, 4, 5))
    with (tmp_path / "listed").open("wb") as listed:
        try:
            os.setxattr(listed.fileno(), acl.NAME, found)
        except OSError as error:
            pytest.skip(f"no access control lists here: {error.strerror}")
        assert acl.read(listed.fileno()) == found
        assert os.fstat(listed.fileno()).st_mode & 0o777 == 0o640
