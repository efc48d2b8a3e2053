"""Files that a job brings: where they end up, and where they may not."""

import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.instance.shell.archive import BadArchive, extract

TEXT = {"mode": 0o100640, "encoding": "utf-8", "data": "text\n"}


def test_files_of_each_kind_are_written(tmp_path: Path) -> None:
    archive = {
        "text": TEXT,
        "below/the/binary": {"mode": 0o100755, "size": 2, "encoding": "base64", "data": "//4="},
        "conf.json": {"mode": 0o100600, "data": {"a": [1, "ä"]}},
        "empty": {"mode": 0o100600},
        "dir": {"mode": 0o40700},
        "link": {"mode": 0o120777, "data": "text"},
    }
    extract(archive, tmp_path)

    assert (tmp_path / "text").read_text() == "text\n"
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) == 0o640
    assert (tmp_path / "below/the/binary").read_bytes() == b"\xff\xfe"
    assert (tmp_path / "conf.json").read_text() == '{"a":[1,"ä"]}'
    assert (tmp_path / "empty").read_bytes() == b""
    assert (tmp_path / "dir").is_dir()
    assert (tmp_path / "link").readlink() == Path("text")


def test_a_list_of_files_has_their_paths(tmp_path: Path) -> None:
    extract([{"path": "a/b", **TEXT}], tmp_path)

    assert (tmp_path / "a/b").read_text() == "text\n"


def test_a_file_of_a_jobspec_is_no_setuid_program(tmp_path: Path) -> None:
    extract({"x": {**TEXT, "mode": 0o106755}}, tmp_path)

    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        ("x", "an object or a list"),
        ([TEXT], "a file has no path"),
        (["x"], "a file has no path"),
        ({"": TEXT}, "a file has no path"),
        ({"x": "text"}, "x: a file is an object"),
        ({"../x": TEXT}, "../x: the path leads out"),
        ({"/etc/x": TEXT}, "/etc/x: the path leads out"),
        ({"a/../../x": TEXT}, "leads out"),
        ({"./": TEXT}, "leads out"),
        ({"x": {**TEXT, "mode": "644"}}, "x: mode is '644'"),
        ({"x": {**TEXT, "mode": 0o20644}}, "x: mode 20644 is of no file"),
        ({"x": {**TEXT, "encoding": "blobvec"}}, "x: encoding 'blobvec' is not"),
        ({"x": {**TEXT, "data": 1}}, "x: encoding 'utf-8' is not utf-8 or base64 with a text"),
        ({"x": {**TEXT, "encoding": "base64"}}, "x: the data is not base64"),
        ({"x": {**TEXT, "size": 1}}, "x: size is 1, and there are 5 bytes"),
        ({"x": {"mode": 0o120777}}, "x: a symbolic link has no target"),
    ],
)
def test_an_archive_that_is_none_writes_nothing(archive: Any, problem: str, tmp_path: Path) -> None:
    if isinstance(archive, dict):
        archive = {"good": TEXT, **archive}
    with pytest.raises(BadArchive, match=problem.replace("(", r"\(")):
        extract(archive, tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("through", ["link/x", "link"])
def test_nothing_is_written_through_a_link(through: str, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()
    outside.mkdir()
    target = {"mode": 0o120777, "data": str(outside if "/" in through else outside / "x")}
    with pytest.raises(OSError, match="link"):
        extract([{"path": "link", **target}, {"path": through, **TEXT}], inside)

    assert list(outside.iterdir()) == []


_NAMES = st.lists(st.sampled_from(["a", "..", ".", "", "link", "b"]), min_size=1, max_size=4)
_FILES = st.sampled_from([TEXT, {"mode": 0o120777, "data": ".."}, {"mode": 0o40700}])


@given(files=st.lists(st.tuples(_NAMES.map("/".join), _FILES), max_size=5))
def test_no_archive_leaves_its_directory(
    files: list[tuple[str, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    around = tmp_path_factory.mktemp("around")
    inside = around / "inside"
    inside.mkdir()
    with suppress(BadArchive, OSError):
        extract([{"path": path, **file} for path, file in files], inside)

    assert [each.name for each in around.iterdir()] == ["inside"]
