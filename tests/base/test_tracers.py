"""Processes that a tracer holds when they were killed."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.harness.tracing import traced
from tests.harness.users import TEST_USER
from tests.node.processes import eventually
from warren.base import processes, tracers

USER = os.geteuid() or TEST_USER
_THREADS = """
import signal, threading
signal.alarm(600)
thread = threading.Thread(target=threading.Event().wait)
thread.start()
print(thread.native_id, flush=True)
"""


@pytest.fixture
def killed() -> Iterator["subprocess.Popen[bytes]"]:
    """A process of a user's with two threads, which has told the second one's id."""
    argv = ["/usr/bin/python3", "-c", _THREADS]
    with subprocess.Popen(argv, user=USER, stdout=subprocess.PIPE, cwd="/") as process:
        yield process
        process.kill()


def is_held(process: int) -> bool:
    """Return whether a thread of a process is held by a tracer."""
    for thread in processes.threads(Path(f"/proc/{process}")):
        with suppress(OSError):  # it has just ended
            if processes.process_status(thread)["State"].startswith("t"):
                return True
    return False


def second_thread(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("by", ["process", "thread"])
@pytest.mark.parametrize("is_second", [False, True])
def test_what_a_tracer_holds_dies_when_the_tracer_is_killed(
    killed: "subprocess.Popen[bytes]", by: str, *, is_second: bool
) -> None:
    thread = second_thread(killed)
    with traced(thread if is_second else killed.pid, by=by, userid=USER) as tracer:
        assert not tracers.is_over(killed.pid)
        assert tracers.kill_tracers([killed.pid], USER) == set()
        killed.kill()
        eventually(lambda: is_held(killed.pid))
        eventually(lambda: tracers.is_over(killed.pid))

        # It is another user's, and root's are not told from the machine's own.
        assert tracers.kill_tracers([killed.pid], USER + 1) == set()
        assert tracers.kill_tracers([killed.pid], 0) == set()
        assert is_held(killed.pid)
        assert tracers.kill_tracers([killed.pid], USER) == {tracer.pid}
        assert killed.wait(60) == tracer.wait(60) == -9


def test_tracers_that_others_trace_are_killed_with_those(
    killed: "subprocess.Popen[bytes]",
) -> None:
    second_thread(killed)
    with ExitStack() as stack:
        chain = [killed.pid]
        for _ in range(3):
            chain.append(stack.enter_context(traced(chain[-1], userid=USER)).pid)
        killed.kill()
        eventually(lambda: is_held(killed.pid))
        assert tracers.kill_tracers([killed.pid], USER) == set(chain[1:])
        assert killed.wait(60) == -9


@pytest.mark.skipif(os.geteuid() != 0, reason="only root traces another user's processes")
def test_no_tracer_of_roots_is_killed(killed: "subprocess.Popen[bytes]") -> None:
    second_thread(killed)
    with traced(killed.pid, userid=0):
        killed.kill()
        eventually(lambda: is_held(killed.pid))
        assert tracers.kill_tracers([killed.pid], USER) == set()
        eventually(lambda: tracers.is_over(killed.pid))


def test_the_first_process_of_a_namespace_is_over_when_it_waits_for_what_is_held() -> None:
    argv = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*argv, "true"], user=USER, check=False).returncode != 0:
        pytest.skip("users make no namespaces here")
    with subprocess.Popen([*argv, "sh", "-c", "sleep 600 & wait"], user=USER) as outer:
        eventually(lambda: len(processes.descendants(outer.pid)) == 2)
        parents = processes.parents()
        below = processes.descendants(outer.pid)
        first, held = sorted(below, key=lambda each: parents[each] != outer.pid)
        with traced(held, userid=USER):
            assert not tracers.is_over(first)
            outer.kill()
            eventually(lambda: is_held(held))
            eventually(lambda: tracers.is_over(first))
        eventually(lambda: first not in processes.parents())


def test_what_has_ended_is_over() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert tracers.is_over(process.pid)
    assert tracers.kill_tracers([process.pid], USER) == set()
