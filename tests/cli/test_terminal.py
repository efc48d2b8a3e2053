"""The user's terminal while he sits before a job's. It must be a process's own, so each has one."""

import fcntl
import os
import subprocess
import sys
import termios

SCRIPT = """
import asyncio, os, signal, termios
NULL = os.open(os.devnull, os.O_RDONLY)
from warren.cli.job.terminal import UserTerminal, is_foreground

def raw():
    return not termios.tcgetattr(0)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

async def signalled(signum):
    os.kill(os.getpid(), signum)
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)

async def main():
    assert is_foreground(0)
    before = termios.tcgetattr(0)
    terminal = UserTerminal(0)
    assert terminal.make_raw() and raw()
    terminal.resized.clear()
    await signalled(signal.SIGWINCH)
    assert terminal.resized.is_set()
    termios.tcsetattr(0, termios.TCSANOW, before)  # as the user's shell does, that was told fg
    await signalled(signal.SIGCONT)
    assert raw(), "it is not raw after a stop"
    terminal.restore()
    terminal.restore()
    assert termios.tcgetattr(0) == before
    assert not terminal.make_raw(), "the tasks had ended"
    assert not UserTerminal(NULL).make_raw()

asyncio.run(main())
"""


def test_a_terminal_is_raw_from_entering_to_leaving_and_never_again() -> None:
    ours, theirs = os.openpty()

    def own() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        stdin=theirs,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=own,
        check=False,
        timeout=120,
    )
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
