"""Small files that are replaced as a whole."""

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


def test_who_dies_while_writing_leaves_what_was_and_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.json"
    path.write_text("before")

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(files.os, "fsync", die)
        with pytest.raises(SystemExit):
            files.replace(path, b"half")
    assert path.read_text() == "before"

    files.replace(path, b"after")
    assert path.read_text() == "after"


def test_what_somebody_has_put_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("another's")
    (tmp_path / "site.new").symlink_to(other)
    files.replace(tmp_path / "site.json", b"ours")

    assert other.read_text() == "another's"
