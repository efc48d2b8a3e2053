"""The parent of all shells on a machine: warm, single-threaded, and outliving the instance.

It has loaded everything that a shell needs, so that starting one is a fork. It
serves `shells` on the instance's bus, and tells `job-exec` of every end; after a
restart of the instance it connects again and tells what it has. Shells die with
their parent, and a new parent ends what it finds in the cgroups of an old one's; what there
is without cgroups comes to the process above (`guard`).

A shell has ended when nothing is left of what it has started. What does not die is told
of, and waited for beside all else.
"""

import errno
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from warren.base import fuse
from warren.base.errors import WarrenError
from warren.base.processes import adopt_orphans, descendants, kill, kill_until_gone
from warren.instance.shell import cgroups
from warren.instance.shell.cgroups import Cgroup
from warren.instance.shell.signals import HELD
from warren.rpc import message, sockets
from warren.rpc.message import Message, RpcError

SERVICE: Final = "shells"
LISTENER: Final = "job-exec"
"""Where it tells what it has."""

_RETRY: Final = 0.2
_CHUNK: Final = 2**16
_LARGEST_FD: Final = 2**31 - 1
_NOTE: Final = 1000
"""Characters of the words with which a shell has not started; less than a pipe takes whole."""

_SOON, _LATE = 0.005, 1.0
"""Seconds after which what has been killed is looked at again, at first and at last."""

PATIENCE: Final = 10.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Which shell to start, and for whom."""

    id: int
    rank: int
    host: str
    userid: int
    J: str | None = None
    """The job's signed request, where the user is not the owner."""


class Shell(Protocol):
    """A shell's life, in a fresh process, which has nothing open but its standard streams."""

    def prepare(self, order: Order) -> bytes | None:
        """Become whom the shell is to be run as; return what of the request is proven.

        Raises WarrenError or OSError where there can be no such shell.
        """
        ...

    def live(self, order: Order, request: bytes | None) -> int:
        """Run the shell, and return its exit code. The signals HELD are blocked at first."""
        ...

    def clean(self, order: Order) -> int | None:
        """In the parent: remove what a shell that is dead has left on its node.

        Gives the process that does it, where that may take long.
        """
        ...


@dataclass(eq=False)
class _Shell:
    order: Order
    process: int
    cgroup: Cgroup | None
    status: int | None = None
    reported: bool = False
    """Whether the instance knows of the end."""
    note: str = ""
    left: list[int] = field(default_factory=list)
    """What has not died, long after it was killed."""

    @property
    def place(self) -> tuple[int, int]:
        return self.order.id, self.order.rank

    def end(self) -> dict[str, Any]:
        """Return what is said of it."""
        return {
            "id": self.order.id,
            "rank": self.order.rank,
            "status": self.status if self.reported else None,
            "note": self.note,
            "left": self.left,
        }


@dataclass
class _Dying:
    """A shell that has ended or was killed, and of which something may be left."""

    shell: _Shell
    since: float
    pause: float = _SOON
    next: float = 0.0
    giving_up: int = 0
    """The process that aborts what the rest waits for, if there has been any."""


class ShellParent:
    """Forks shells on request, until it is told to end."""

    def __init__(
        self,
        path: Path,
        shell: Shell,
        cluster: str,
        *,
        place: str = "",
        lasting: bool = True,
        patience: float = PATIENCE,
    ) -> None:
        """`cluster` is what no other cluster on the machine is called.

        `place` is what the parent of no other node of the instance is called, where each node
        has one of its own. One that is not `lasting` ends when the instance has gone.
        `patience` is how many seconds what has been killed has to die before it is told of.
        """
        self._path = path
        self._shell = shell
        self._cluster = cluster
        self._place = place
        self._lasting = lasting
        self._grace = patience
        self._cgroups = cgroups.of_this_machine(cluster)
        self._shells: dict[tuple[int, int], _Shell] = {}
        self._living: dict[int, _Shell] = {}
        """All that have not ended, by their processes."""
        self._dying: list[_Dying] = []
        self._cleaning: set[int] = set()
        """Processes that remove what shells have left."""
        self._connection: socket.socket | None = None
        self._buffer = b""
        self._tag = 0
        self._ending = False
        self._notes, self._noting = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serve until SIGTERM, or until the instance has gone; then end all shells."""
        adopt_orphans()
        self._clear()
        gc.freeze()  # or a shell would go through all that is here, and have it copied
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # What is to end with its instance must not end before it, which has jobs to end first.
        handler = self._end if self._lasting else lambda *_: None
        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGINT, handler)
        while not self._ending:
            self._connect()
            watched: list[Any] = [reading]
            if self._connection is not None:
                watched.append(self._connection)
            ready, _, _ = select.select(watched, [], [], self._patience())
            if reading in ready:
                os.read(reading, _CHUNK)
                self._reap()
            self._finish_dying()
            if self._connection in ready:
                self._receive()
        for shell in self._shells.values():
            self._kill(shell, signal.SIGKILL)
        self._clear()

    def _end(self, *_: object) -> None:
        self._ending = True

    def _patience(self) -> float | None:
        """Return how long nothing is to be done if nothing happens."""
        waits = [] if self._connection is not None else [_RETRY]
        now = time.monotonic()
        waits += [max(0.0, dying.next - now) for dying in self._dying]
        return min(waits, default=None)

    # The instance

    def _connect(self) -> None:
        if self._connection is not None:
            return
        try:
            connection = sockets.connect(self._path)
        except OSError:
            return  # the instance is not there now; `run` waits a little
        if sockets.peer(connection) != os.geteuid():
            connection.close()  # whatever process this is, it gives no orders
            return
        self._connection, self._buffer = connection, b""
        shells = [shell.end() for shell in self._shells.values()]
        self._ask("service.add", {"service": f"{SERVICE}{self._place}"})
        self._ask(f"{LISTENER}{self._place}.hello", {"shells": shells})

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
            self._ending = self._ending or not self._lasting

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
        except (KeyError, msgspec.ValidationError, RpcError, OSError) as error:
            number = getattr(error, "errnum", None) or getattr(error, "errno", None)
            self._send(Message(tag=received.tag, errnum=number or errno.EPROTO, error=str(error)))
        else:
            self._send(Message(tag=received.tag, errnum=0, payload=message.pack(answer or {})))

    def _methods(self) -> dict[str, Callable[[Any], dict[str, Any] | None]]:
        return {
            "start": self._start,
            "kill": self._kill_job,
            "forget": self._forget,
        }

    # Shells

    def _start(self, payload: dict[str, Any]) -> None:
        order = msgspec.convert(payload, Order)
        place = (order.id, order.rank)
        if place in self._shells:
            return
        cgroup, process = None, -1
        try:
            if self._cgroups is not None:
                cgroup = self._cgroups.make(f"{order.id}-{order.rank}")
            # They would kill a shell that has no handlers yet.
            signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
            process = os.fork()
        except OSError as error:
            if cgroup is not None:
                cgroup.remove()
            shell = _Shell(order, 0, None, status=1 << 8)
            shell.note = f"the shell cannot be started: {error.strerror}"
            self._shells[place] = shell
            self._tell(shell)
            return
        finally:
            if process != 0:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        if process == 0:
            self._become_shell(order, cgroup)
        self._shells[place] = self._living[process] = _Shell(order, process, cgroup)

    def _become_shell(self, order: Order, cgroup: Cgroup | None) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, signal.SIG_DFL)
            os.setsid()
            # All but the way back: our connection is the owner's, and so are our locks.
            os.closerange(3, self._noting)
            os.closerange(self._noting + 1, _LARGEST_FD)
            try:
                if cgroup is not None:
                    cgroup.enter()
                request = self._shell.prepare(order)
            except (WarrenError, OSError) as error:
                self._note(order, str(error))
            else:
                os.close(self._noting)
                code = self._shell.live(order, request)
        except Exception:
            traceback.print_exc()  # nothing else could report it
        finally:
            # Not sys.exit: what the parent has set up is not the child's to unwind.
            os._exit(code)

    def _note(self, order: Order, words: str) -> None:
        """In a shell that cannot be: tell the parent why."""
        line = msgspec.json.encode([order.id, order.rank, words[:_NOTE]])
        os.write(self._noting, line + b"\n")

    def _read_notes(self) -> None:
        with suppress(BlockingIOError):
            for line in os.read(self._notes, _CHUNK).splitlines():
                job, rank, words = msgspec.json.decode(line)
                if (job, rank) in self._shells:
                    self._shells[job, rank].note = words

    def _reap(self) -> None:
        self._read_notes()
        with suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return
                self._cleaning.discard(process)
                shell = self._living.pop(process, None)
                if shell is not None:  # not an orphan that another process has left behind
                    shell.status = status
                    self._dying = [each for each in self._dying if each.shell is not shell]
                    self._dying.append(_Dying(shell, time.monotonic()))

    def _finish_dying(self) -> None:
        """Forget shells of which nothing is left, and kill what is left of the others."""
        now = time.monotonic()
        for dying in [dying for dying in self._dying if dying.next <= now]:
            shell = dying.shell
            if shell.status is not None and self._gone(shell):
                self._dying.remove(dying)
                shell.left = []
                cleaning = self._shell.clean(shell.order)
                if cleaning is not None:
                    self._cleaning.add(cleaning)
                self._tell(shell)
                continue
            self._kill_all(shell)
            if dying.pause == _LATE:
                self._give_up_servers(dying)
            dying.next = now + dying.pause
            dying.pause = min(dying.pause * 2, _LATE)
            if shell.status is not None and now - dying.since > self._grace:
                shell.left = self._left(shell)
                self._tell(shell)

    def _give_up_servers(self, dying: "_Dying") -> None:
        """Have a process abort what the rest of a shell waits for, as that may take long."""
        if dying.giving_up in self._cleaning:
            return
        left = self._left(dying.shell)
        try:
            process = os.fork()
        except OSError:
            return  # it is tried again
        if process == 0:
            try:
                signal.set_wakeup_fd(-1)
                fuse.abort_servers(left, dying.shell.order.userid)
            except Exception:
                traceback.print_exc()  # nothing else could report it
            finally:
                os._exit(0)
        dying.giving_up = process
        self._cleaning.add(process)

    def _tell(self, shell: _Shell) -> None:
        if not shell.reported and self._shells.get(shell.place) is shell:
            shell.reported = True
            if shell.left:
                job, rank = shell.place
                words = f"job {job}, shell {rank}: processes do not die: {shell.left}"
                print(words, file=sys.stderr, flush=True)
            self._ask(f"{LISTENER}{self._place}.exited", shell.end())

    def _gone(self, shell: _Shell) -> bool:
        if shell.cgroup is not None:
            return shell.cgroup.remove()
        # A shell that comes to its end leaves nothing behind; to look takes time.
        return shell.status == 0 or not self._left(shell)

    def _left(self, shell: _Shell) -> list[int]:
        """Return what is there of a shell."""
        if shell.cgroup is not None:
            return shell.cgroup.processes()
        if shell.status is None:
            return [shell.process, *descendants(shell.process)]
        # What shells leave behind is ours, and it cannot be told any more which one has left it.
        return descendants(os.getpid(), excluded=self._living.keys() | self._cleaning)

    def _kill_all(self, shell: _Shell) -> None:
        if shell.cgroup is not None:
            shell.cgroup.kill()
        else:
            kill(lambda: self._left(shell))

    def _kill_job(self, payload: dict[str, Any]) -> None:
        for shell in self._shells.values():
            if shell.order.id == payload["id"]:
                self._kill(shell, payload["signum"])

    def _kill(self, shell: _Shell, signum: int) -> None:
        if shell.status is not None:
            return  # what is left of it is being killed
        if signum == signal.SIGKILL:
            self._kill_all(shell)
            # It may wait for a file server itself, as for the job's directory.
            if all(each.shell is not shell for each in self._dying):
                now = time.monotonic()
                self._dying.append(_Dying(shell, now, next=now + _SOON))
        # Also then: it may have been too early for it to be in its cgroup.
        with suppress(ProcessLookupError):
            os.kill(shell.process, signum)

    def _forget(self, payload: dict[str, Any]) -> None:
        for place in [place for place in self._shells if place[0] == payload["id"]]:
            self._kill(self._shells.pop(place), signal.SIGKILL)

    def _clear(self) -> None:
        """Kill every process of this instance's jobs that is left, until none is, or none dies."""
        left = kill_until_gone(self._left_at_all, self._grace, self._kill_left)
        if left:
            print("processes do not die:", *left, file=sys.stderr, flush=True)

    def _kill_left(self) -> None:
        for cgroup in cgroups.job_cgroups(self._cluster):
            cgroup.kill()
        kill(self._left_at_all)

    def _left_at_all(self) -> set[int]:
        found = set(descendants(os.getpid()))
        for cgroup in cgroups.job_cgroups(self._cluster):
            if not cgroup.remove():
                found.update(cgroup.processes())
        return found
