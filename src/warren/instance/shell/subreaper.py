"""The process above the parent of shells: it adopts and ends orphans of the tasks.

A task that has left its session and cleared its environment cannot be known where there are no
cgroups, once its shell and the parent of shells have died. But it is an orphan then, which the
kernel gives to the nearest process above that adopts orphans: this one, which ends it. It does
nothing else, so that there is little it could die of; the parent of shells goes on without it.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable

from warren.base.processes import adopt_orphans, descendants, kill, kill_until_gone


def run_under_subreaper(
    run_child: Callable[[], int], on_child_exit: Callable[[], None], kill_timeout: float = 10.0
) -> int:
    """Run `run_child` in a child process, and return its exit code once no process below is left.

    SIGTERM and SIGINT are passed on to the child. `on_child_exit` is called in this process when
    the child has ended, while its number is not free yet. What does not die is told of after
    `kill_timeout` seconds, and left.
    """
    adopt_orphans()
    forwarded = (signal.SIGTERM, signal.SIGINT)
    # Until there is a process to pass them on to.
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
            code = run_child()
        except Exception:
            traceback.print_exc()  # nothing else could report it
        finally:
            # Not sys.exit: what this process has set up is not the child's to unwind.
            os._exit(code)
    for signum in forwarded:
        signal.signal(signum, lambda signum, _: os.kill(child, signum))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    for signum in forwarded:
        signal.signal(signum, signal.SIG_IGN)
    on_child_exit()
    _, status = os.waitpid(child, 0)
    survivors = kill_until_gone(_descendants, kill_timeout, lambda: kill(_descendants))
    if survivors:
        print("processes do not die:", *survivors, file=sys.stderr, flush=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _descendants() -> list[int]:
    return descendants(os.getpid())
