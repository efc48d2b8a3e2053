"""What containers have printed, read while they print: by the reader of the files that are kept."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Object
from warren.node.podlogs import PodLog, PodLogs
from warren.node.podprocess import outputlog
from warren.node.podprocess.outputlog import OutputLog


def pod(node: str = "rabbit-0", uid: str = "uid") -> Object:
    return {"metadata": {"name": "p", "uid": uid}, "spec": {"nodeName": node}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of a pod."""
    place = tmp_path / "pods" / "rabbit-0" / "uid"
    place.mkdir(parents=True)
    return place


def opened(place: Path, lines: int | None = None, container: str = "app") -> PodLog:
    return PodLogs(place.parents[1]).open(pod(), container, lines)


def rest(log: PodLog) -> bytes:
    """Return all that there is now."""

    async def read() -> bytes:
        return b"".join([piece async for piece in _pieces(log)])

    return asyncio.run(read())


async def _pieces(log: PodLog):  # type: ignore[no-untyped-def]
    while piece := await log.read():
        yield piece


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file keeps little."""
    monkeypatch.setattr(outputlog, "_LEAST_KEPT_BYTES", 40)


@pytest.fixture
def writer(place: Path, small: None) -> Iterator[OutputLog]:
    """What a pod's process writes a container's output with."""
    log = OutputLog(str(place / "app.log"))
    yield log
    log.close()


def test_all_that_is_kept_is_read_and_then_what_comes(place: Path, writer: OutputLog) -> None:
    with closing(opened(place)) as log:
        writer.write(b"one\n")
        assert rest(log) == b"one\n"
        assert rest(log) == b""
        writer.write(b"two\n")
        assert rest(log) == b"two\n"


def test_a_reader_goes_on_in_the_file_that_follows(place: Path, writer: OutputLog) -> None:
    with closing(opened(place)) as log:
        writer.write(b"a" * 30)
        assert rest(log) == b"a" * 30
        writer.write(b"b" * 9)  # the last of the first file
        writer.write(b"c" * 30)
        writer.write(b"d" * 30)
        assert rest(log) == b"b" * 9 + b"c" * 30 + b"d" * 30
        writer.write(b"e")
        assert rest(log) == b"e"


def test_a_new_reader_begins_with_the_older_file(place: Path, writer: OutputLog) -> None:
    for each in (b"a", b"b", b"c"):
        writer.write(each * 30)
    with closing(opened(place)) as log:
        assert rest(log) == b"b" * 30 + b"c" * 30


def test_nothing_is_read_of_a_container_that_has_printed_nothing(place: Path) -> None:
    with closing(opened(place)) as log:
        assert rest(log) == b""
        (place / "app.log").write_bytes(b"late")
        assert rest(log) == b"late"


@given(
    pieces=st.lists(st.text("ab\n", max_size=25), max_size=6),
    lines=st.integers(0, 8),
    size=st.integers(1, 9),
)
def test_the_last_lines_are_those_of_both_files(
    pieces: list[str], lines: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("pods") / "rabbit-0" / "uid"
    place.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outputlog, "_LEAST_KEPT_BYTES", 40)
        patched.setattr("warren.node.podlogs._PIECE_BYTES", size)
        writer = OutputLog(str(place / "app.log"))
        for each in pieces:
            writer.write(each.encode())
        files = [place / "app.log.1", place / "app.log"]
        kept = b"".join(each.read_bytes() for each in files if each.exists())
        with closing(opened(place, lines)) as log:
            assert rest(log) == b"".join(kept.splitlines(keepends=True)[-lines:] if lines else ())
            writer.write(b"more")
            assert rest(log) == b"more"
        writer.close()


@pytest.mark.parametrize(
    ("node", "uid", "container"),
    [
        ("..", "uid", "app"),
        ("rabbit-0/uid", "..", "app"),
        ("rabbit-0", "uid", "../uid/app"),
        ("rabbit-0", "uid", ".process"),
        ("rabbit-0", "other", "app"),
        ("rabbit-0", "uid\0", "app"),
        ("", "uid", "app"),
        ("r" * 300, "uid", "app"),
        ("link", "uid", "app"),
    ],
)
def test_nothing_is_found_by_odd_names(place: Path, node: str, uid: str, container: str) -> None:
    for name in (".process.log", "app.log"):
        (place / name).write_bytes(b"not for you")
    (place.parents[1] / "link").symlink_to("rabbit-0")
    log = PodLogs(place.parents[1]).open(pod(node, uid), container, None)
    with closing(log), pytest.raises(FileNotFoundError, match="nothing is here of what the pod"):
        rest(log)


def test_what_is_no_file_is_passed_over(place: Path) -> None:
    (place / "secret").write_bytes(b"not for you")
    os.mkfifo(place / "app.log")
    (place / "app.log.1").mkdir()
    with closing(opened(place)) as log:
        assert rest(log) == b""


def test_links_are_not_followed(place: Path) -> None:
    (place / "secret").write_bytes(b"not for you")
    (place / "app.log").symlink_to("secret")
    with closing(opened(place)) as log:
        assert rest(log) == b""


def test_a_reader_leaves_no_file_open(place: Path, writer: OutputLog) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for lines in (None, 0, 1, 100):
        with closing(opened(place, lines)) as log:
            for each in (b"a\n", b"b", b"c\n"):
                writer.write(each * 15)
                rest(log)
    assert len(os.listdir("/proc/self/fd")) == before
