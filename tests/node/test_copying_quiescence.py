"""Files that are written to while they are copied, within one tick of the clock of their times."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.copied import OLD
from warren.dws.copies import staging
from warren.node.copying import copier, fastpath, quiescence
from warren.node.copying.retry import CopyAttempt

TICK = 10_000_000
SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND + 123


def times(modified: int, changed: int) -> os.stat_result:
    """What is known of a file with these times, in nanoseconds."""
    rest = {"st_mtime_ns": modified, "st_ctime_ns": changed}
    return os.stat_result([0] * 10, rest)


@pytest.mark.parametrize(
    ("modified", "changed", "left"),
    [
        (NOW - TICK, NOW - TICK, 0),
        (NOW - TICK + 1, NOW - TICK + 1, 1),
        (NOW, NOW, TICK),
        # One of the times is older: a write now would be seen by it.
        (OLD, NOW, 0),
        (NOW, NOW - TICK, 0),
        # The clock of a file server is ahead, by little or by much.
        (NOW + SECOND, NOW + SECOND, TICK),
        (NOW + 3 * SECOND, NOW + 3 * SECOND, 0),
        (NOW + 10**18, NOW - 1, TICK - 1),
        (NOW + 10**18, NOW - TICK, 0),
        # Whole seconds.
        (NOW - 123, NOW - 123, SECOND + TICK - 123),
        (NOW - 123 - SECOND, NOW - 123 - SECOND, TICK - 123),
        (NOW - 123 - 2 * SECOND, NOW - 123 - 2 * SECOND, 0),
    ],
)
def test_a_file_is_waited_for_until_its_time_would_be_another(
    modified: int, changed: int, left: int
) -> None:
    assert quiescence.nanoseconds_to_wait(times(modified, changed), NOW) == left


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.write_bytes(b"words")
    return path


@pytest.fixture
def waiting(written: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[float]]:
    """Return what has a file be written to in so many waits, of those that it returns."""
    clock = [written.stat().st_mtime_ns]

    def often(times: int) -> list[float]:
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            clock[0] += int(seconds * SECOND)
            if len(waits) <= times:
                written.write_bytes(b"other")
                os.utime(written, ns=(clock[0], clock[0]))

        monkeypatch.setattr(time, "sleep", sleep)
        monkeypatch.setattr(time, "time_ns", lambda: clock[0])
        return waits

    return often


def copied(source: Path, *below: str) -> bool:
    plan = staging.Plan(str(source), str(source.parent), below or ("out",), contents_only=False)
    return copier.Copier(plan, CopyAttempt.of("", 0), is_tree=False).run()


@pytest.mark.parametrize("times", [0, 1])
def test_a_file_that_was_written_to_just_now_is_copied_a_tick_later(
    written: Path, waiting: Callable[[int], list[float]], times: int
) -> None:
    waits = waiting(times)

    assert copied(written)
    assert len(waits) == times + 1
    assert (written.parent / "out").read_bytes() == written.read_bytes()


def test_a_file_that_is_written_to_again_and_again_is_told(
    written: Path, waiting: Callable[[int], list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    waiting(100)

    assert not copied(written)
    assert capsys.readouterr().err == f"{written}: is being written to\n"
    assert not (written.parent / "out").exists()


@pytest.mark.parametrize("way", ["short", "long"])
def test_a_write_that_is_under_way_when_a_file_is_opened_is_waited_for(
    tmp_path: Path, written: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It has set the time already, and the file system has it end before it says where data is."""
    began = written.stat()
    monkeypatch.setattr(time, "time_ns", lambda: began.st_mtime_ns + 2 * SECOND)
    seek = os.lseek

    def end_write(descriptor: int, position: int, how: int) -> int:
        if how == os.SEEK_DATA:
            written.write_bytes(b"whole")
            os.utime(written, ns=(began.st_atime_ns, began.st_mtime_ns))
        return seek(descriptor, position, how)

    monkeypatch.setattr(os, "lseek", end_write)
    written.write_bytes(b"whol?")
    os.utime(written, ns=(began.st_atime_ns, began.st_mtime_ns))
    (tmp_path / "out").mkdir()
    above, there = (os.open(path, os.O_RDONLY) for path in (tmp_path, tmp_path / "out"))
    if way == "short":
        assert fastpath.copy("in", above, there) == len("whole")
    else:
        assert copied(written, "out", "in")

    assert (tmp_path / "out" / "in").read_bytes() == b"whole"
    os.close(above)
    os.close(there)
