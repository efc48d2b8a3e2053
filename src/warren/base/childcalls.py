"""Calls that may hang, such as questions about processes of the machine, made in a child process.

Most files below /proc/PID wait while that process is in the middle of execve(2), and a file
server of its user's can keep it there without end: execve closes files, which FUSE asks the
server about. With Linux 6.18, `status`, `cgroup`, `mountinfo`, and the lists of
descriptors and threads do not wait; `stat`, `environ`, `maps`, `wchan`, pidfd_getfd(2) and links
do. Such a wait ends only when the process that waits is killed. So it is a child that asks.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")

_SILENCE_SECONDS: Final = 1.0
"""Seconds without an answer, and without work of the child, after which the rest is silent."""

TIMEOUT: Final = 30.0
"""Seconds that all calls may take: answers can be made to come slowly."""

_STALL_SECONDS: Final = 0.05
"""Seconds without an answer after which the child calls twice as many at a time."""

_KILL_TIMEOUT: Final = 1.0
"""Seconds that the child is waited for once it is killed.

It may be at what cannot be killed, and goes when that does.
"""

_CHUNK: Final = 2**16

_unreaped: Final[list["subprocess.Popen[bytes]"]] = []
"""Children that were killed, and were not waited for to their end."""


class Silent(Enum):
    """What stands for the answer that did not come."""

    SILENT = "silent"


SILENT: Final = Silent.SILENT


def call_in_child(
    function: Callable[..., T],
    subjects: Sequence[S],
    *args: object,
    silence: float = _SILENCE_SECONDS,
    timeout: float = TIMEOUT,
) -> list[T | Silent]:
    """Return what a function answers to each subject and `args`; SILENT where it hangs.

    It is a function of a module, which a child process calls in several threads: what goes in
    and out is JSON. After `silence` seconds without an answer, and `timeout` seconds in all, what
    has not answered is silent. Raises OSError where the child cannot call it.
    """
    answers: list[T | Silent] = [SILENT] * len(subjects)
    if not subjects:
        return answers
    for dead in [each for each in _unreaped if each.poll() is not None]:
        with suppress(ValueError):  # another thread has removed it
            _unreaped.remove(dead)
    request = [function.__module__, function.__qualname__, subjects, args, timeout]
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdout:
        try:
            # Not as arguments of the command, which all users can read.
            with child.stdin:
                child.stdin.write(json.dumps(request).encode())
            lines = _read_lines(child.pid, child.stdout.fileno(), silence, timeout)
            for count, line in enumerate(lines, start=1):
                index, answers[index] = json.loads(line)
                if count == len(answers):
                    break
        finally:
            child.kill()
            try:
                child.wait(_KILL_TIMEOUT)
            except subprocess.TimeoutExpired:
                _unreaped.append(child)
    return answers


def _read_lines(pid: int, descriptor: int, silence: float, timeout: float) -> Iterator[bytes]:
    """Yield the lines that the child writes, until it is silent or `timeout` seconds are over."""
    deadline = time.monotonic() + timeout
    poller = select.poll()  # its number may be any: select takes those below 1024
    poller.register(descriptor, select.POLLIN)
    line = b""
    wait = timeout  # until it has begun, which depends on no call
    while (seconds_left := deadline - time.monotonic()) > 0:
        if not poller.poll(1000 * min(wait, seconds_left)):
            if _is_running(pid):
                continue
            return
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            raise ChildProcessError("the child process has ended too early")
        *lines, line = (line + chunk).split(b"\n")
        yield from filter(None, lines)
        wait = silence


def _is_running(pid: int) -> bool:
    """Return whether a thread of a process works, or waits for a CPU to do so."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                if "\nState:\tR" in (thread / "status").read_text(errors="replace"):
                    return True
    return False


def main() -> None:
    """Run the child: answer what standard input asks, each answer as soon as it is there."""
    module, name, subjects, args, timeout = json.load(sys.stdin)
    # The parent may die meanwhile.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, timeout)
    function = getattr(importlib.import_module(module), name)
    _write_line(b"")
    _ChildThreads(function, subjects, args).run()


class _ChildThreads:
    """The child's threads: one at first, and twice as many each time that all of them hang."""

    def __init__(
        self, function: Callable[..., Any], subjects: Sequence[Any], args: Sequence[Any]
    ) -> None:
        self._function = function
        self._args = args
        self._subjects = deque(enumerate(subjects))
        self._unanswered = len(subjects)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Answer for each subject, and end the process, if need be from within a thread."""
        threads, unanswered_before = 0, -1
        while self._subjects:
            if unanswered_before in (-1, self._unanswered):
                started = self._start_threads(min(max(threads, 1), len(self._subjects)))
                if not started:
                    break  # no more are to be had, and what hangs now is silent
                threads += started
                with self._lock:
                    _write_line(b"")  # no silence yet: more is being asked
            unanswered_before = self._unanswered
            time.sleep(_STALL_SECONDS)
        if not threads:
            self._call_each()  # better than to call silent what was not asked
        # For good, so that what hangs now is seen to wait: a thread ends the process.
        threading.Event().wait()

    def _start_threads(self, count: int) -> int:
        """Start some threads; return how many of them could be started."""
        for started in range(count):
            try:
                threading.Thread(target=self._call_each, daemon=True).start()
            except RuntimeError:
                return started
        return count

    def _call_each(self) -> None:
        try:
            while self._subjects:
                try:
                    index, subject = self._subjects.popleft()
                except IndexError:
                    return  # another thread has the last
                answer = self._function(subject, *self._args)
                with self._lock:
                    _write_line(json.dumps([index, answer]).encode())
                    self._unanswered -= 1
                    if self._unanswered == 0:
                        os._exit(0)
        except BaseException:
            traceback.print_exc()  # nothing else could report it
            os._exit(1)


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
