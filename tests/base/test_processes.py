"""Processes of the machine, also those that keep it from looking at them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.harness import stuck
from tests.harness.users import TEST_USER
from tests.node.processes import eventually
from warren.base import processes


def test_a_process_that_does_not_answer_is_alive_and_carries_nothing_that_is_seen() -> None:
    with stuck.in_exec(TEST_USER) as process:
        assert processes.parents()[process.pid] == os.getpid()
        assert process.pid in processes.descendants(os.getpid())
        name, _, value = stuck.MARKER.partition("=")
        environment = {**os.environ, name: value}
        with subprocess.Popen(["sleep", "600"], env=environment) as other:
            try:
                assert processes.pids_with_variable(stuck.MARKER) == [other.pid]
            finally:
                other.kill()


ENDS_FIRST = """
import ctypes, os, signal, threading
signal.alarm(600)
threading.Thread(target=threading.Event().wait).start()
print("in", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""


def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDS_FIRST], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            eventually(
                lambda: "Z" in processes.process_status(Path(f"/proc/{process.pid}"))["State"]
            )
            assert process.pid in processes.parents()
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert process.pid not in processes.parents()
        finally:
            process.kill()
