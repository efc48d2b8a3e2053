"""The parent of all shells on a machine: warm, single-threaded, and outliving the instance.

It has loaded everything that a shell needs, so that starting one is a fork. It
serves `shells` on the instance's bus, and tells `job-exec` of every end; after a
restart of the instance it connects again and tells what it has. Shells die with
their parent, and a new parent ends what it finds of an old one's.
"""

import errno
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warren.instance.shell.processes import descendants, marked
from warren.rpc import message, sockets
from warren.rpc.message import Message, RpcError

SERVICE: Final = "shells"
_RETRY: Final = 0.2
_CHUNK: Final = 2**16

Child = Callable[[int, int, str], int]
"""A shell's life: job, rank and host in, exit code out. Called in a fresh process."""


@dataclass
class _Shell:
    job: int
    rank: int
    process: int
    status: int | None = None


class ShellParent:
    """Forks shells on request, until it is told to end."""

    def __init__(self, path: Path, marker: str, child: Child) -> None:
        """`marker` is an environment entry, `NAME=value`, that all tasks of this instance carry."""
        self._path = path
        self._marker = marker
        self._child = child
        self._shells: dict[tuple[int, int], _Shell] = {}
        self._connection: socket.socket | None = None
        self._buffer = b""
        self._tag = 0
        self._ending = False

    def run(self) -> None:
        """Serve until SIGTERM; then end all shells."""
        self._clear()
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        while not self._ending:
            self._connect()
            watched: list[Any] = [reading]
            if self._connection is not None:
                watched.append(self._connection)
            ready, _, _ = select.select(watched, [], [], _RETRY if len(watched) == 1 else None)
            if reading in ready:
                os.read(reading, _CHUNK)
                self._reap()
            if self._connection in ready:
                self._receive()
        for shell in self._shells.values():
            self._kill(shell, signal.SIGKILL)
        self._clear()

    def _end(self, *_: object) -> None:
        self._ending = True

    # The instance

    def _connect(self) -> None:
        if self._connection is not None:
            return
        try:
            connection = sockets.connect(self._path)
        except OSError:
            return  # the instance is not there now; `run` waits a little
        self._connection, self._buffer = connection, b""
        self._ask("service.add", {"service": SERVICE})
        shells = [[shell.job, shell.rank, shell.status] for shell in self._shells.values()]
        self._ask("job-exec.hello", {"shells": shells})

    def _ask(self, topic: str, payload: dict[str, Any]) -> None:
        self._tag += 1
        self._send(Message(tag=self._tag, topic=topic, payload=message.pack(payload)))

    def _send(self, sent: Message) -> None:
        if self._connection is not None:
            try:
                self._connection.sendall(message.encode(sent))
            except OSError:
                self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self._drop()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            received = message.decode(line)
            if received.topic is not None:
                self._answer(received)
            elif received.errnum == errno.EEXIST:
                # The instance has not noticed yet that our last connection is gone.
                self._drop()
                time.sleep(_RETRY)
                return

    def _answer(self, received: Message) -> None:
        assert received.topic is not None
        method = received.topic.partition(".")[2]
        try:
            answer = self._methods()[method](message.unpack(received.payload))
        except (KeyError, RpcError, OSError) as error:
            number = getattr(error, "errnum", None) or getattr(error, "errno", None)
            self._send(Message(tag=received.tag, errnum=number or errno.EPROTO, error=str(error)))
        else:
            self._send(Message(tag=received.tag, errnum=0, payload=message.pack(answer or {})))

    def _methods(self) -> dict[str, Callable[[Any], dict[str, Any] | None]]:
        return {"start": self._start, "kill": self._kill_job, "forget": self._forget}

    # Shells

    def _start(self, payload: dict[str, Any]) -> None:
        place = (payload["id"], payload["rank"])
        if place in self._shells:
            return
        process = os.fork()
        if process == 0:
            self._become_shell(*place, payload["host"])
        self._shells[place] = _Shell(*place, process)

    def _become_shell(self, job: int, rank: int, host: str) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, signal.SIG_DFL)
            if self._connection is not None:
                self._connection.close()
            os.setsid()
            code = self._child(job, rank, host)
        except Exception:
            traceback.print_exc()  # nobody else could tell
        finally:
            # Not sys.exit: what the parent has set up is not the child's to unwind.
            os._exit(code)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                for shell in self._shells.values():
                    if shell.process == process and shell.status is None:
                        shell.status = status
                        exited = {"id": shell.job, "rank": shell.rank, "status": status}
                        self._ask("job-exec.exited", exited)

    def _kill_job(self, payload: dict[str, Any]) -> None:
        for shell in self._shells.values():
            if shell.job == payload["id"]:
                self._kill(shell, payload["signum"])

    def _kill(self, shell: _Shell, signum: int) -> None:
        if shell.status is not None:
            return
        victims = [shell.process]
        if signum == signal.SIGKILL:
            victims.extend(descendants(shell.process))
        for victim in victims:
            with suppress(ProcessLookupError):
                os.kill(victim, signum)

    def _forget(self, payload: dict[str, Any]) -> None:
        for place in [place for place in self._shells if place[0] == payload["id"]]:
            self._kill(self._shells[place], signal.SIGKILL)
            del self._shells[place]

    def _clear(self) -> None:
        """Kill every process of this instance's jobs that is left, until none is."""
        while left := marked(self._marker):
            for process in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)
