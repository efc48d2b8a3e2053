"""Processes beside the copier: what they are given arrives, and what they lose is copied again."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.node.copied import OLD, Copier, shape
from tests.node.processes import alive, eventually, zombies
from warren.base.processes import parents
from warren.dws.copies import staging
from warren.node.copying import copier, fastpath, workers
from warren.node.copying.retry import CopyAttempt
from warren.node.copying.workers import Answer, Batch, Workers, is_local, worker_count
from warren.node.nofollow import Directory

WORTH = 1000
"""Files from which on a copy has more processes."""


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Two open directories, to copy from and to."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    opened = [os.open(tmp_path / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("in", "out")]
    yield opened[0], opened[1]
    for each in opened:
        os.close(each)


@pytest.fixture
def forked() -> Iterator[Callable[[int], Workers]]:
    """Makes workers, which are closed in the end, and of which nothing is left then."""
    made: list[Workers] = []
    before = children()

    def fork(count: int) -> Workers:
        made.append(Workers(count))
        return made[-1]

    yield fork
    for each in made:
        each.close()
    assert children() == before
    assert zombies() == set()


def children() -> set[int]:
    return {process for process, parent in parents().items() if parent == os.getpid()}


def files(place: Path, names: Sequence[str]) -> Sequence[str]:
    for name in names:
        (place / name).write_bytes(os.fsencode(name))
        os.utime(place / name, ns=(OLD, OLD))
    return names


def batch(names: Sequence[str]) -> Batch:
    return Batch(Directory(None, ""), Directory(None, ""), names)


def all_answers(made: Workers) -> list[Answer]:
    return list(made.answers(wait=True))


def test_what_a_worker_is_given_arrives_and_what_is_different_is_left(
    tmp_path: Path, ends: tuple[int, int], forked: Callable[[int], Workers]
) -> None:
    odd = "\udcff\n\\"  # bytes that are no UTF-8 are names, too
    given = batch([*files(tmp_path / "in", ["a", odd]), "missing"])
    expected = fastpath.FastPathResult(2, 1 + len(os.fsencode(odd)), ["missing"])
    made = forked(1)

    assert made.submit(given, *ends)
    assert all_answers(made) == [Answer(given, expected)]
    assert shape(tmp_path / "out") == shape(tmp_path / "in")
    assert all_answers(made) == []


def test_the_longest_names_fit_into_a_message(
    tmp_path: Path, ends: tuple[int, int], forked: Callable[[int], Workers]
) -> None:
    longest = ["\udcff" * 253 + f"{number:02}" for number in range(workers.BATCH)]
    made = forked(1)

    assert made.submit(batch(files(tmp_path / "in", longest)), *ends)
    [answer] = all_answers(made)
    assert (answer.copied.file_count, answer.copied.skipped) == (workers.BATCH, [])


def test_no_worker_is_given_more_than_it_may_have_before_it_answers(
    ends: tuple[int, int], forked: Callable[[int], Workers]
) -> None:
    made = forked(2)
    stopped = children()
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    try:
        given = [made.submit(batch([f"{number}"]), *ends) for number in range(6)]
    finally:
        for each in stopped:
            os.kill(each, signal.SIGCONT)

    assert given == [True] * 4 + [False] * 2
    assert len(all_answers(made)) == 4


def test_what_a_worker_that_was_killed_was_given_is_left(
    ends: tuple[int, int], forked: Callable[[int], Workers]
) -> None:
    before = children()
    made = forked(1)
    [worker] = children() - before
    os.kill(worker, signal.SIGSTOP)
    given = [batch([f"{number}"]) for number in range(2)]
    assert all(made.submit(each, *ends) for each in given)
    os.kill(worker, signal.SIGKILL)

    assert all_answers(made) == [
        Answer(each, fastpath.FastPathResult(0, 0, each.names)) for each in given
    ]
    assert not made.submit(given[0], *ends)


def test_without_processes_nothing_is_taken(
    ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    made = Workers(2)
    assert not made.submit(batch(["a"]), *ends)
    made.close()


@pytest.mark.parametrize(
    ("cpus", "number", "expected"),
    [(1, WORTH, 0), (2, WORTH, 1), (2, WORTH - 1, 0), (4, WORTH, 3), (128, 10**6, 3)],
)
def test_as_many_workers_are_of_use_as_there_are_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: int, number: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cpus)))
    assert worker_count(number) == expected


def test_a_file_system_that_is_none_of_this_machines_disks_is_not_local() -> None:
    proc = os.open("/proc", os.O_RDONLY)
    try:
        assert not is_local(proc)
    finally:
        os.close(proc)
    assert not is_local(-1)


def large_tree(root: Path) -> None:
    """A tree for which a copy has more than one process, and a little of what they leave."""
    for directory in ("a", "a/b", "c"):
        (root / directory).mkdir(parents=True)
        files(root / directory, [f"{number}" for number in range(WORTH // 3)])
    (root / "a" / "link").symlink_to("0")
    os.link(root / "a" / "1", root / "c" / "other name")
    with (root / "c" / "large").open("wb") as file:
        file.write(os.urandom(2**20))


def test_a_large_tree_arrives_whole(copy: Copier) -> None:
    place = copy.place
    large_tree(place / "in")

    outcome = copy.well("in/", "out")

    assert outcome.last.files == 3 * (WORTH // 3) + 3
    is_whole = shape(place / "out") == shape(place / "in")
    assert is_whole
    assert os.path.samefile(place / "out" / "a" / "1", place / "out" / "c" / "other name")
    owners = {path.lstat().st_uid for path in (place / "out").rglob("*")}
    assert owners == {copy.user.userid}


def test_a_tree_whose_workers_are_killed_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_tree(tmp_path / "in")
    killed: list[int] = []

    class Mortal(Workers):
        """The workers of any machine, which are killed when they have something to do."""

        def __init__(self, count: int) -> None:
            before = children()
            super().__init__(min(count, 1))
            self.alive = children() - before

        def submit(self, batch: Batch, here: int, there: int) -> bool:
            while self.alive:
                killed.append(self.alive.pop())
                os.kill(killed[-1], signal.SIGSTOP)
                assert super().submit(batch, here, there)
                os.kill(killed[-1], signal.SIGKILL)
                return True
            return super().submit(batch, here, there)

    monkeypatch.setattr(copier, "Workers", Mortal)
    monkeypatch.setattr(copier, "is_local", lambda directory: True)
    monkeypatch.setattr(copier, "worker_count", lambda number: 1)
    plan = staging.plan(
        f"{tmp_path}/in/",
        f"{tmp_path}/out",
        source_is_file=False,
        destination_is_file=False,
        destination_is_directory=False,
        index=None,
    )
    assert copier.Copier(plan, CopyAttempt.of("", 0.0), is_tree=True).run()

    assert len(killed) == 1
    is_whole = shape(tmp_path / "out") == shape(tmp_path / "in")
    assert is_whole  # pytest would take long to show what differs
    assert zombies() == set()


@pytest.fixture
def seen(copy: Copier) -> Iterator[Callable[[], tuple[int, set[int]]]]:
    """Starts a copier, and stops it where it has workers; returns it and them."""
    descriptor = os.open(copy.place, os.O_RDONLY)
    try:
        if not is_local(descriptor) or not worker_count(WORTH):
            pytest.skip("copies on this machine's disk, or CPU, have one process")
    finally:
        os.close(descriptor)
    large_tree(copy.place / "in")
    with ExitStack() as started:

        def start() -> tuple[int, set[int]]:
            while True:  # a copy may have ended before it was looked at
                shutil.rmtree(copy.place / "out", ignore_errors=True)
                argv = copy.command("in", "out")
                process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
                started.enter_context(process)
                started.callback(process.kill)
                while process.poll() is None:
                    found = {each for each, parent in parents().items() if parent == process.pid}
                    if found:
                        process.send_signal(signal.SIGSTOP)
                        return process.pid, found

        yield start


def test_workers_do_not_outlive_a_copier_that_is_killed(
    seen: Callable[[], tuple[int, set[int]]],
) -> None:
    process, left = seen()
    os.kill(process, signal.SIGKILL)
    eventually(lambda: not left & alive())


def test_workers_have_the_credentials_of_their_copier(
    seen: Callable[[], tuple[int, set[int]]],
) -> None:
    def credentials(of: int) -> list[str]:
        lines = Path(f"/proc/{of}/status").read_text().splitlines()
        return [line for line in lines if line.startswith(("Uid", "Gid", "Groups", "Cap", "NoNew"))]

    process, left = seen()
    assert {(*credentials(each), Path(f"/proc/{each}").stat().st_uid) for each in left} == {
        (*credentials(process), Path(f"/proc/{process}").stat().st_uid)
    }
