"""A process that acts for a guest: it is asked with a line of JSON, and answers with another.

It is forked before its parent has an event loop or threads, and ends with its parent's end of the
socket between them, whichever way the parent ends.
"""

import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from warren.base.errors import UserMistake, WarrenError

_ANSWER_SECONDS: Final = 60.0
"""How long an answer is waited for, on a machine that has much else to do."""


class GuestProcess:
    """The parent's end of the connection to it."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self._pid = pid
        self._lines = connection.makefile("rwb")

    def ask(self, request: Any) -> Any:
        """Ask, and return the answer. Blocks. Raises UserMistake where there is none."""
        try:
            self._lines.write(json.dumps(request).encode() + b"\n")
            self._lines.flush()
            line = self._lines.readline()
        except TimeoutError:
            # Its answer may come yet, and is not to be taken for the next one.
            os.kill(self._pid, signal.SIGKILL)
            raise UserMistake("the guest's process does not answer.") from None
        except OSError:
            line = b""
        if not line:
            raise UserMistake("the guest's process has ended.")
        answer = json.loads(line)
        if "error" in answer:
            raise UserMistake(answer["error"])
        return answer["answer"]


@contextmanager
def running(
    become: Callable[[], object],
    handle_request: Callable[[Any], object],
    seconds: float = _ANSWER_SECONDS,
) -> Iterator[GuestProcess]:
    """Run a process that has first become the guest, and then acts as it is asked.

    What `handle_request` raises that has words for people reaches the caller.
    """
    parent_end, child_end = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            _serve(child_end, become, handle_request)
        finally:
            os._exit(0)
    child_end.close()
    try:
        with parent_end:
            parent_end.settimeout(seconds)
            yield GuestProcess(pid, parent_end)
    finally:
        # It has nothing to lose, and may wait for what never comes.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(
    connection: socket.socket, become: Callable[[], object], handle_request: Callable[[Any], object]
) -> None:
    # A terminal's interrupt is for the parent, whose end is ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Others learn from the parent's pipes that it has ended: no copy of them is kept here.
    max_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, max_descriptors)
    become()
    with connection.makefile("rwb") as lines:
        for line in lines:
            lines.write(json.dumps(_answer(handle_request, json.loads(line))).encode() + b"\n")
            lines.flush()


def _answer(handle_request: Callable[[Any], object], request: Any) -> dict[str, object]:
    try:
        return {"answer": handle_request(request)}
    except (WarrenError, OSError) as error:
        return {"error": str(error) or type(error).__name__}
