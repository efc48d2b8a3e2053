"""Tracers that keep processes from dying (ptrace(2))."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")

TRACE: Final = """
import ctypes, signal, sys, threading
signal.alarm(600)
def trace():
    for each in sys.argv[2:]:
        assert ctypes.CDLL(None).ptrace(0x4206, int(each), 0, 0x40) == 0
    print("traced", flush=True)
    threading.Event().wait()
if sys.argv[1] == "thread":
    threading.Thread(target=trace).start()
else:
    trace()
"""
"""PTRACE_SEIZE with PTRACE_O_TRACEEXIT (ptrace(2)): they stop at their ends, until we let go.

It lets go in the end also where the tests were killed, who would have killed it.
"""


def command(*threads: int, by: str = "process", python: str = sys.executable) -> list[str]:
    """Return the command that traces some threads, by the first thread of a process or another."""
    return [python, "-c", TRACE, by, *map(str, threads)]


@contextmanager
def traced(*threads: int, by: str = "process", userid: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a process of a user trace some threads; it is ended with the block.

    Skip where Yama lets users trace nothing but their own children.
    """
    if userid != 0 and _YAMA.exists() and int(_YAMA.read_text()) > 0:
        pytest.skip("users trace only their own children here")
    with subprocess.Popen(
        # The tests' own is not every user's to run.
        command(*threads, by=by, python="/usr/bin/python3"),
        user=userid,
        stdout=subprocess.PIPE,
        cwd="/",
    ) as tracer:
        try:
            assert tracer.stdout is not None
            assert tracer.stdout.readline() == b"traced\n"
            yield tracer
        finally:
            tracer.kill()
