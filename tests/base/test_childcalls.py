"""Looks at what may never answer."""

import gc
import os
import resource
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.node.processes import eventually, zombies
from warren.base import childcalls
from warren.base.childcalls import SILENT, call_in_child

HERE = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _tests_are_found_by_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def doubled(number: int, more: int = 0) -> int:
    """Answer, but for odd numbers."""
    if number % 2:
        threading.Event().wait()
    return 2 * number + more


def worked(seconds: float) -> float:
    """Answer when so many seconds of CPU time are used."""
    while time.thread_time() < seconds:
        pass
    return seconds


def arguments(_: int, secret: str) -> list[str]:
    """Return the command by which the child was started, and what it was asked for."""
    return [Path("/proc/self/cmdline").read_text(), secret]


def killed(_: int) -> None:
    """End the child."""
    os.kill(os.getpid(), 9)


def wrong(_: int) -> int:
    """Fail."""
    return 1 // 0


def test_what_answers_is_answered_whatever_does_not() -> None:
    numbers = [3, 2, 5, 7, 4, 9, 11, 8]

    answers = call_in_child(doubled, numbers, 1, silence=2.0)

    assert answers == [SILENT, 5, SILENT, SILENT, 9, SILENT, SILENT, 17]


def test_as_many_may_hang_as_there_are() -> None:
    numbers = [*range(1, 401, 2), 400]
    assert call_in_child(doubled, numbers, silence=2.0) == [*[SILENT] * 200, 800]


def test_what_takes_long_is_not_silent_while_it_is_worked_at() -> None:
    assert call_in_child(worked, [0.2, 0.3], silence=0.05) == [0.2, 0.3]


ONLY_THREADS = """
import os, threading

left, refused, start = {}, 0, threading.Thread.start

def start_one_of_few(thread):
    global left, refused
    if left:
        left -= 1
        return start(thread)
    refused += 1
    if refused > 1:
        os._exit(1)
    raise RuntimeError("can't start new thread")

threading.Thread.start = start_one_of_few
"""
"""What has a child start a few threads only, and end where it does not leave it at that."""


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_child_without_more_threads_asks_with_those_it_has_and_is_silent_once_they_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(ONLY_THREADS.format(count))
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{tmp_path}")

    answers = call_in_child(doubled, [2, 1, 3, 4])

    assert answers == [4, SILENT, SILENT, SILENT]


def test_a_look_ends_when_its_time_is_over_though_answers_come() -> None:
    assert call_in_child(doubled, [1], silence=600, timeout=1.0) == [SILENT]


def test_nothing_is_looked_at_where_there_is_nothing() -> None:
    assert call_in_child(wrong, []) == []


def test_no_user_reads_what_is_asked_for() -> None:
    ((command, secret),) = call_in_child(arguments, [1], "a secret")  # type: ignore[misc]
    assert secret == "a secret"
    assert "secret" not in command


@pytest.mark.parametrize("function", [killed, wrong])
def test_a_look_that_cannot_be_made_is_no_answer(function: object) -> None:
    with pytest.raises(ChildProcessError, match="has ended too early"):
        call_in_child(function, [1])  # type: ignore[arg-type]


def test_a_child_that_is_slow_to_die_is_reaped_by_a_later_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(childcalls, "_KILL_TIMEOUT", 0.0)
        assert call_in_child(doubled, [1], silence=0.1) == [SILENT]
    gc.collect()  # which would tell of a child that was let go of

    eventually(lambda: call_in_child(doubled, [2]) == [4] and not zombies())


def test_a_process_with_many_open_files_is_answered() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        for _ in range(1100):
            opened.enter_context(open(os.devnull))
        assert call_in_child(doubled, [2]) == [4]
