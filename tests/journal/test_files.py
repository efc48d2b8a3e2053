"""Files that are replaced as a whole, and files that are only ever appended to."""

import errno
import os
import stat
from pathlib import Path

import pytest

from warren.journal import files


def test_a_file_is_replaced_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    path.write_text("before")
    path.chmod(0o644)
    files.replace(path, b"after")

    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_dies_leaves_what_was_and_hinders_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.json"
    path.write_text("before")

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(os, "fsync", die)
        with pytest.raises(SystemExit):
            files.replace(path, b"half")
    assert path.read_text() == "before"

    files.replace(path, b"after")
    assert path.read_text() == "after"


def test_a_link_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("another's")
    (tmp_path / "site.new").symlink_to(other)
    files.replace(tmp_path / "site.json", b"ours")

    assert other.read_text() == "another's"


def test_lines_are_appended_to_a_file_of_the_owners_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    files.append(path, b"one\n")
    files.append(path, b"two\nthree\n")

    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    files.append(path, b"three\n")

    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_lines_that_do_not_fit_are_not_there_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    files.append(path, b"one\n")
    write = os.write

    def full(opened: int, data: memoryview) -> int:
        if len(data) < 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(opened, data[:4])

    with monkeypatch.context() as filling:
        filling.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            files.append(path, b"two\nthree\n")
    assert path.read_bytes() == b"one\n"


def test_nothing_is_appended_to_what_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a file"):
        files.append(tmp_path / "pipe", b"one\n")
