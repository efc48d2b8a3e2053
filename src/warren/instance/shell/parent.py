"""The parent of all shells on a machine: warm, single-threaded, and outliving the instance.

It has loaded everything that a shell needs, so that starting one is a fork. It
serves `shells` on the instance's bus, and tells `job-exec` of every end; after a
restart of the instance it connects again and tells what it has. Shells die with
their parent, and a new parent ends what it finds in the cgroups of an old one's; what there
is without cgroups comes to the process above (`subreaper`).

A shell has ended when nothing is left of what it has started. What does not die is told
of, and waited for beside all else; but not what only a tracer holds, which runs no more (ADR 104).
"""

import errno
import fcntl
import gc
import os
import random
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from warren.base import fuse, memoryfiles, tracers
from warren.base.errors import WarrenError
from warren.base.printable import printable
from warren.base.processes import adopt_orphans, descendants, kill, kill_until_gone
from warren.instance.shell import cgroups
from warren.instance.shell.cgroups import Cgroup
from warren.instance.shell.signals import TASK_SIGNALS
from warren.rpc import message, sockets
from warren.rpc.message import Message, RpcError

SERVICE: Final = "shells"
EXEC_SERVICE: Final = "job-exec"
"""Where it tells what it has."""

_RETRY_DELAY: Final = 0.2
"""Seconds until an instance that is not there is looked for again."""
_CHUNK: Final = 2**16
_LARGEST_FD: Final = 2**31 - 1
_LONGEST_NOTE: Final = 1000
"""Characters of the words with which a shell has not started; less than a pipe takes whole."""

_OUTPUT_BYTES: Final = 2**16
"""Bytes that a shell may print."""
_LOGGED_BYTES: Final = 2**12
"""Bytes of that which are logged: the last, as of a traceback the end says most."""
_MOST_LINES: Final = 40
_SEALS: Final = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_SPARE_DESCRIPTORS: Final = 320
"""How many open files are left for all else, whatever shells there are: to kill takes most."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 1.0
"""Seconds after which what has been killed is looked at again, at first and at last."""

KILL_TIMEOUT: Final = 10.0
"""Seconds that what was killed has to die before it is told of."""

DETACH_TIMEOUT: Final = 30.0
"""Seconds without work in which what detaches users' mounts hangs: it is looked at so often."""
_MOST_DETACH_TIMEOUTS: Final = 10
"""As many of these may it take in all: users choose how much there is to do."""
_DETACH_RETRY_DELAY: Final = 1.0
"""Seconds until it is tried again to start such a process."""
_LONGEST_QUESTION: Final = 4096
"""Bytes in which it asks who is absent, and is answered: what one message takes at once."""
_BYTES_PER_USERID: Final = 11
_MORE_IS_LEFT: Final = 3
"""The exit code of one that has asked for some of the users only."""
_CPU_TICKS: Final = slice(11, 13)
"""CPU time in user and kernel mode, among the fields of /proc/PID/stat after the name."""
_RUNNING: Final = "R"
"""The first of these fields, the state, of what runs or waits for a CPU."""

_HELD_AT_ONCE: Final = 4
"""How many cgroups with processes that tracers hold are looked at when a shell has ended."""

AskAbsent = Callable[[Sequence[int]], Collection[int]]
"""Return those of some users, by their ids, of whom no shell is on a host now."""
DetachLeft = Callable[[AskAbsent], int]
"""Detach what users have left mounted; return how many mounts."""


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which shell to start, and for which user."""

    id: int
    rank: int
    host: str
    userid: int
    J: str | None = None
    """The job's signed request, where the user is not the owner."""


class ShellLife(Protocol):
    """A shell's life, in a fresh process, which has nothing open but its standard streams."""

    def prepare(self, start: StartRequest) -> bytes | None:
        """Become the user of the shell; return the payload of its signed request if that is proven.

        Raises WarrenError or OSError where there can be no such shell.
        """
        ...

    def run_shell(self, start: StartRequest, proven_payload: bytes | None) -> int:
        """Run the shell, and return its exit code. TASK_SIGNALS are blocked at first."""
        ...

    def clean(self, start: StartRequest) -> int | None:
        """In the parent: remove what a shell that is dead has left on its node.

        Gives the process that does it, where that may take long.
        """
        ...

    def left_mounts(self, host: str) -> DetachLeft | None:
        """In the parent: return what detaches what users have left mounted on a host.

        It is called in a process of its own; None if there can be nothing.
        """
        ...


class _Shell(msgspec.Struct, eq=False):
    start: StartRequest
    pid: int
    cgroup: Cgroup | None
    status: int | None = None
    reported: bool = False
    """Whether the instance knows of the end."""
    note: str = ""
    output: int | None = None
    """A file in memory, with what it has printed."""
    surviving_pids: list[int] = msgspec.field(default_factory=list)
    """What has not died, long after it was killed."""

    @property
    def key(self) -> tuple[int, int]:
        return self.start.id, self.start.rank

    def report(self) -> dict[str, Any]:
        """Return what is said of it."""
        return {
            "id": self.start.id,
            "rank": self.start.rank,
            "status": self.status if self.reported else None,
            "note": self.note,
            "left": self.surviving_pids,
        }


class _DyingShell(msgspec.Struct):
    """A shell that has ended or was killed, and of which something may be left."""

    shell: _Shell
    since: float
    pause: float = _FIRST_PAUSE
    """Seconds between the last look at it and the next."""
    next_check: float = 0.0
    freeing_pid: int = 0
    """The process that ends what keeps the rest from dying, if there has been any."""


class _Detaching(msgspec.Struct):
    """A process that detaches what users have left mounted on a host."""

    host: str
    pid: int
    since: float
    deadline: float
    """When it is looked whether it has worked since the last time."""
    connection: socket.socket | None
    """By which it asks who is absent; None when it is answered."""
    cpu_ticks: str | None = None
    """What it had worked when it was looked at last."""


class ShellParent:
    """Forks shells on request, until it is told to end."""

    def __init__(
        self,
        socket_path: Path,
        life: ShellLife,
        unique_name: str,
        *,
        suffix: str = "",
        outlives_instance: bool = True,
        kill_timeout: float = KILL_TIMEOUT,
        detach_timeout: float = DETACH_TIMEOUT,
    ) -> None:
        """`unique_name` is what no other parent on the machine is called, but its predecessors.

        Its cgroups, and with them what they have left, are found by it.

        `suffix` ends the names of the services, where each node has a parent of its own. One that
        does not outlive the instance (`outlives_instance`) ends when the instance has gone.
        `kill_timeout` is how many seconds what has been killed has to die before it is told of, and
        `detach_timeout` how many seconds without work what detaches users' mounts is let hang.
        """
        self._socket_path = socket_path
        self._life = life
        self._unique_name = unique_name
        self._suffix = suffix
        self._outlives_instance = outlives_instance
        self._kill_timeout = kill_timeout
        self._detach_timeout = detach_timeout
        self._cgroups = cgroups.cluster_cgroups(unique_name)
        self._shells: dict[tuple[int, int], _Shell] = {}
        self._living: dict[int, _Shell] = {}
        """All that have not ended, by their processes."""
        self._dying: list[_DyingShell] = []
        self._held_cgroups: deque[Cgroup] = deque()
        """Those of shells that have ended, with what a tracer holds in them."""
        self._cleaning_pids: set[int] = set()
        """Processes that remove what shells have left."""
        self._shell_counts: Counter[tuple[str, int]] = Counter()
        """How many shells that are not gone a user has on a host."""
        self._left_hosts: dict[str, None] = {}
        """Hosts on which a user has nothing any more, who may have left something mounted."""
        self._detaching: _Detaching | None = None
        self._next_detaching = 0.0
        """When another can be started, since there could be none."""
        self._hanging_detachers: dict[int, str] = {}
        """Those that were killed and have not died yet, with their hosts."""
        self._connection: socket.socket | None = None
        self._buffer = b""
        self._tag = 0
        self._ending = False
        self._notes_reader, self._notes_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serve until SIGTERM, or until the instance has gone; then end all shells."""
        adopt_orphans()
        self._end_all_leftovers()
        gc.freeze()  # or a shell would go through all that is here, and have it copied
        wakeup_reader, wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # What is to end with its instance must not end before it, which has jobs to end first.
        handler = self._end if self._outlives_instance else lambda *_: None
        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGINT, handler)
        while not self._ending:
            self._connect()
            ready = self._wait_readable(wakeup_reader)
            if wakeup_reader in ready:
                os.read(wakeup_reader, _CHUNK)
                self._reap()
            self._check_dying()
            if self._connection is not None and self._connection.fileno() in ready:
                self._receive()
            self._answer_detaching(ready)
            self._check_detaching()
        for shell in self._shells.values():
            self._kill(shell, signal.SIGKILL)
        self._end_all_leftovers()

    def _end(self, *_: object) -> None:
        self._ending = True

    def _wait_readable(self, wakeup_reader: int) -> set[int]:
        """Wait until something is to be done, and return which descriptors can be read."""
        readable = select.poll()  # their numbers may be any: select takes those below 1024
        readable.register(wakeup_reader, select.POLLIN)
        if self._connection is not None:
            readable.register(self._connection, select.POLLIN)
        if self._detaching is not None and self._detaching.connection is not None:
            readable.register(self._detaching.connection, select.POLLIN)
        seconds = self._idle_seconds()
        return {each for each, _ in readable.poll(None if seconds is None else 1000 * seconds)}

    def _idle_seconds(self) -> float | None:
        """Return how long nothing is to be done if nothing happens."""
        waits = [] if self._connection is not None else [_RETRY_DELAY]
        now = time.monotonic()
        waits += [max(0.0, dying.next_check - now) for dying in self._dying]
        if self._detaching is not None:
            waits.append(max(0.0, self._detaching.deadline - now))
        elif self._next_left_host() is not None:
            waits.append(max(0.0, self._next_detaching - now))
        return min(waits, default=None)

    # The instance

    def _connect(self) -> None:
        if self._connection is not None:
            return
        try:
            connection = sockets.connect(self._socket_path)
        except OSError:
            return  # the instance is not there now; `run` waits a little
        if sockets.peer_userid(connection) != os.geteuid():
            connection.close()  # whatever process this is, it gives no orders
            return
        self._connection, self._buffer = connection, b""
        shells = [shell.report() for shell in self._shells.values()]
        self._ask("service.add", {"service": f"{SERVICE}{self._suffix}"})
        self._ask(f"{EXEC_SERVICE}{self._suffix}.hello", {"shells": shells})

    def _ask(self, topic: str, payload: dict[str, Any]) -> None:
        self._tag += 1
        self._send(Message(tag=self._tag, topic=topic, payload=message.pack(payload)))

    def _send(self, outgoing: Message) -> None:
        if self._connection is not None:
            try:
                self._connection.sendall(message.encode(outgoing))
            except OSError:
                self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._ending = self._ending or not self._outlives_instance

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            received = message.decode(line)
            if received.topic is not None:
                self._answer(received)
            elif received.errnum == errno.EEXIST:
                # The instance has not noticed yet that our last connection is gone.
                self._disconnect()
                time.sleep(_RETRY_DELAY)
                return

    def _answer(self, received: Message) -> None:
        assert received.topic is not None
        method = received.topic.partition(".")[2]
        try:
            answer = self._methods()[method](message.unpack(received.payload))
        except (KeyError, msgspec.ValidationError, RpcError, OSError) as error:
            errnum = getattr(error, "errnum", None) or getattr(error, "errno", None)
            self._send(Message(tag=received.tag, errnum=errnum or errno.EPROTO, error=str(error)))
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
        start = msgspec.convert(payload, StartRequest)
        key = (start.id, start.rank)
        if key in self._shells:
            return
        cgroup, pid = None, -1
        output = _open_output()
        try:
            if self._cgroups is not None:
                cgroup = self._cgroups.make(f"{start.id}-{start.rank}")
            # They would kill a shell that has no handlers yet.
            signal.pthread_sigmask(signal.SIG_BLOCK, TASK_SIGNALS)
            pid = os.fork()
        except OSError as error:
            if cgroup is not None:
                cgroup.remove()
            if output is not None:
                os.close(output)
            shell = _Shell(start, 0, None, status=1 << 8)
            shell.note = f"the shell cannot be started: {error.strerror}"
            self._shells[key] = shell
            self._report(shell)
            return
        finally:
            if pid != 0:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, TASK_SIGNALS)
        if pid == 0:
            self._become_shell(start, cgroup, output)
        shell = _Shell(start, pid, cgroup, output=output)
        self._shells[key] = self._living[pid] = shell
        self._shell_counts[start.host, start.userid] += 1

    def _become_shell(self, start: StartRequest, cgroup: Cgroup | None, output: int | None) -> None:
        code = 1
        try:
            if output is None:
                output = os.open(os.devnull, os.O_WRONLY)
            # Our log is not a user's to write to, who may have what a process of theirs has open.
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, signal.SIG_DFL)
            os.setsid()
            # All but the way back: our connection is the owner's, and so are our locks.
            os.closerange(3, self._notes_writer)
            os.closerange(self._notes_writer + 1, _LARGEST_FD)
            try:
                if cgroup is not None:
                    cgroup.enter()
                proven_payload = self._life.prepare(start)
            except (WarrenError, OSError) as error:
                self._write_note(start, str(error))
            else:
                os.close(self._notes_writer)
                code = self._life.run_shell(start, proven_payload)
        except Exception:
            traceback.print_exc()  # nothing else could report it
        finally:
            # Not sys.exit: what the parent has set up is not the child's to unwind.
            os._exit(code)

    def _write_note(self, start: StartRequest, note: str) -> None:
        """In a shell that cannot be: tell the parent why."""
        line = msgspec.json.encode([start.id, start.rank, note[:_LONGEST_NOTE]])
        os.write(self._notes_writer, line + b"\n")

    def _read_notes(self) -> None:
        with suppress(BlockingIOError):
            for line in os.read(self._notes_reader, _CHUNK).splitlines():
                job, rank, note = msgspec.json.decode(line)
                if (job, rank) in self._shells:
                    self._shells[job, rank].note = note

    def _reap(self) -> None:
        self._read_notes()
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._cleaning_pids.discard(pid)
                self._end_detaching(pid, status)
                shell = self._living.pop(pid, None)
                if shell is not None:  # not an orphan that another process has left behind
                    shell.status = status
                    self._log_output(shell)
                    self._dying = [each for each in self._dying if each.shell is not shell]
                    self._dying.append(_DyingShell(shell, time.monotonic()))

    def _log_output(self, shell: _Shell) -> None:
        """Log what a shell that has ended has printed, as far as it was kept."""
        if shell.output is None:
            return
        output, shell.output = shell.output, None
        try:
            printed = os.pread(output, _OUTPUT_BYTES, 0).rstrip(b"\0")
        finally:
            os.close(output)
        job, rank = shell.key
        lines = printed[-_LOGGED_BYTES:].decode(errors="replace").splitlines()
        for line in lines[-_MOST_LINES:]:
            print(f"job {job}, shell {rank}: {printable(line)}", file=sys.stderr, flush=True)

    def _check_dying(self) -> None:
        """Forget shells of which nothing is left, and kill what is left of the others."""
        now = time.monotonic()
        for dying in [dying for dying in self._dying if dying.next_check <= now]:
            shell = dying.shell
            if shell.status is not None and self._is_gone(shell):
                self._end_dying(dying)
                continue
            is_overdue = shell.status is not None and now - dying.since > self._kill_timeout
            killed = self._leftovers(shell) if is_overdue else []
            self._kill_all(shell)
            if dying.pause == _LONGEST_PAUSE:
                self._free_leftovers(dying)
            dying.next_check = now + dying.pause
            dying.pause = min(dying.pause * 2, _LONGEST_PAUSE)
            if is_overdue:
                shell.surviving_pids = self._leftovers(shell)
                if not shell.surviving_pids:
                    continue  # the last has died meanwhile, or hides: the next look tells
                # What was forked since was not killed, and may go on.
                was_killed = set(killed).issuperset(shell.surviving_pids)
                if was_killed and all(map(tracers.is_over, shell.surviving_pids)):
                    self._warn(shell, "are held by tracers, and run no more")
                    self._end_dying(dying)
                else:
                    self._report(shell)

    def _end_dying(self, dying: "_DyingShell") -> None:
        """Forget a shell of which nothing is left that runs."""
        self._dying.remove(dying)
        shell = dying.shell
        shell.surviving_pids = []
        if shell.cgroup is not None:
            self._held_cgroups.appendleft(shell.cgroup)
        # Tracers that have let go since have told nobody. A user may have thousands, of which a few
        # are looked at in turn.
        for _ in range(min(len(self._held_cgroups), _HELD_AT_ONCE)):
            cgroup = self._held_cgroups.popleft()
            if not cgroup.remove():
                self._held_cgroups.append(cgroup)
        cleaning_pid = self._life.clean(shell.start)
        if cleaning_pid is not None:
            self._cleaning_pids.add(cleaning_pid)
        self._leave_host(shell.start.host, shell.start.userid)
        self._report(shell)

    def _free_leftovers(self, dying: "_DyingShell") -> None:
        """Have a process end what keeps the rest of a shell from dying, as that may take long."""
        if dying.freeing_pid in self._cleaning_pids:
            return
        leftovers = self._leftovers(dying.shell)

        def free() -> None:
            tracers.kill_tracers(leftovers, dying.shell.start.userid)
            fuse.abort_servers(leftovers, dying.shell.start.userid)

        with suppress(OSError):  # it is tried again
            dying.freeing_pid = self._fork_cleaning(free)

    def _fork_cleaning(self, clean: Callable[[], int | None], kept_fd: int = 2) -> int:
        """Start a process that does what may take long, and return it. Raises OSError.

        It has nothing open but its standard streams and `kept_fd`. What `clean` returns is its
        exit code.
        """
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.set_wakeup_fd(-1)
                for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                    signal.signal(signum, signal.SIG_DFL)
                # With our connection and our locks it would be taken for us, should it outlive us.
                os.closerange(3, kept_fd)
                os.closerange(max(kept_fd, 2) + 1, _LARGEST_FD)
                code = clean() or 0
            except Exception:
                traceback.print_exc()  # nothing else could report it
            finally:
                os._exit(code)
        self._cleaning_pids.add(pid)
        return pid

    # What users have left mounted

    def _leave_host(self, host: str, userid: int) -> None:
        """Count a shell that is gone; note down its host if it was the last of an ordinary user."""
        self._shell_counts[host, userid] -= 1
        if not self._shell_counts[host, userid]:
            del self._shell_counts[host, userid]
            if userid != os.geteuid():
                self._left_hosts[host] = None

    def _next_left_host(self) -> str | None:
        hanging = self._hanging_detachers.values()
        return next((each for each in self._left_hosts if each not in hanging), None)

    def _check_detaching(self) -> None:
        """Have what users have left mounted detached, on one host at a time."""
        now = time.monotonic()
        if self._detaching is not None:
            if self._detaching.deadline <= now:
                self._check_hanging(self._detaching, now)
            return
        if self._next_detaching > now:
            return
        while self._detaching is None and (host := self._next_left_host()) is not None:
            try:
                detach_left = self._life.left_mounts(host)
                if detach_left is not None:
                    self._start_detaching(host, detach_left)
            except OSError:  # there are too many processes or open files
                self._next_detaching = now + _DETACH_RETRY_DELAY
                return
            del self._left_hosts[host]

    def _start_detaching(self, host: str, detach_left: DetachLeft) -> None:
        """Start a process that detaches; it asks us who is absent when it has seen what there is.

        The tables of mounts are as long as users make them, and are not for us to read.
        """
        connection, childs_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with childs_end:
            try:
                connection.setblocking(False)
                detach = partial(_detach, detach_left, childs_end)
                pid = self._fork_cleaning(detach, childs_end.fileno())
            except OSError:
                connection.close()
                raise
        now = time.monotonic()
        self._detaching = _Detaching(host, pid, now, now + self._detach_timeout, connection)

    def _answer_detaching(self, ready: Collection[int]) -> None:
        """Tell a process that detaches which users have nothing on its host now.

        What the jobs mount that begin later is safe: it was not there when the process looked.
        """
        detaching = self._detaching
        if detaching is None or detaching.connection is None:
            return
        if detaching.connection.fileno() not in ready:
            return
        with detaching.connection as connection, suppress(OSError):
            question = connection.recv(_LONGEST_QUESTION)
            if question:  # or it has ended
                userids = msgspec.json.decode(question, type=list[int])
                absent = [each for each in userids if not self._shell_counts[detaching.host, each]]
                connection.send(msgspec.json.encode(absent))
        detaching.connection = None

    def _check_hanging(self, detaching: _Detaching, now: float) -> None:
        """Kill a process that detaches if it has not worked for so long, or takes too long."""
        state, cpu_ticks = _state_and_cpu_ticks(detaching.pid)
        has_worked = state == _RUNNING or cpu_ticks != detaching.cpu_ticks
        end = detaching.since + _MOST_DETACH_TIMEOUTS * self._detach_timeout
        if has_worked and now < end:
            detaching.cpu_ticks = cpu_ticks
            detaching.deadline = min(now + self._detach_timeout, end)
            return
        host = detaching.host
        trouble = "takes too long" if has_worked else "hangs"
        _warn_of_mounts(host, f"the process that detaches them {trouble}, and is killed")
        self._hanging_detachers[detaching.pid] = host
        with suppress(ProcessLookupError):
            os.kill(detaching.pid, signal.SIGKILL)
        self._close_detaching()

    def _end_detaching(self, pid: int, status: int) -> None:
        """Forget a process that has ended, if it is one that detaches."""
        self._hanging_detachers.pop(pid, None)
        if self._detaching is not None and self._detaching.pid == pid:
            host, code = self._detaching.host, os.waitstatus_to_exitcode(status)
            if code == _MORE_IS_LEFT:
                self._left_hosts[host] = None
            elif code != 0:  # as when the kernel kills it where memory is short
                _warn_of_mounts(host, f"the process that detaches them has ended with {code}")
            self._close_detaching()

    def _close_detaching(self) -> None:
        """Forget a process that detaches. The next one waits as long as it took."""
        if self._detaching is not None:
            now = time.monotonic()
            self._next_detaching = now + (now - self._detaching.since)
            if self._detaching.connection is not None:
                self._detaching.connection.close()
        self._detaching = None

    def _report(self, shell: _Shell) -> None:
        if not shell.reported and self._shells.get(shell.key) is shell:
            shell.reported = True
            if shell.surviving_pids:
                self._warn(shell, "do not die")
            self._ask(f"{EXEC_SERVICE}{self._suffix}.exited", shell.report())

    def _warn(self, shell: _Shell, trouble: str) -> None:
        """Tell the log what is the matter with the survivors of a shell."""
        job, rank = shell.key
        warning = f"job {job}, shell {rank}: processes {trouble}: {shell.surviving_pids}"
        print(warning, file=sys.stderr, flush=True)

    def _is_gone(self, shell: _Shell) -> bool:
        if shell.cgroup is not None:
            return shell.cgroup.remove()
        # A shell that comes to its end leaves nothing behind; to look takes time.
        return shell.status == 0 or not self._leftovers(shell)

    def _leftovers(self, shell: _Shell) -> list[int]:
        """Return what is there of a shell."""
        if shell.cgroup is not None:
            return shell.cgroup.pids()
        if shell.status is None:
            return [shell.pid, *descendants(shell.pid)]
        # What shells leave behind is ours, and it cannot be told any more which one has left it.
        return descendants(os.getpid(), excluded=self._living.keys() | self._cleaning_pids)

    def _kill_all(self, shell: _Shell) -> None:
        if shell.cgroup is not None:
            shell.cgroup.kill()
        else:
            kill(lambda: self._leftovers(shell))

    def _kill_job(self, payload: dict[str, Any]) -> None:
        for shell in self._shells.values():
            if shell.start.id == payload["id"]:
                self._kill(shell, payload["signum"])

    def _kill(self, shell: _Shell, signum: int) -> None:
        if shell.status is not None:
            return  # what is left of it is being killed
        if signum == signal.SIGKILL:
            self._kill_all(shell)
            # It may wait for a file server itself, as for the job's directory.
            if all(each.shell is not shell for each in self._dying):
                now = time.monotonic()
                self._dying.append(_DyingShell(shell, now, next_check=now + _FIRST_PAUSE))
        # Also then: it may have been too early for it to be in its cgroup.
        with suppress(ProcessLookupError):
            os.kill(shell.pid, signum)

    def _forget(self, payload: dict[str, Any]) -> None:
        for key in [key for key in self._shells if key[0] == payload["id"]]:
            self._kill(self._shells.pop(key), signal.SIGKILL)

    def _end_all_leftovers(self) -> None:
        """Kill every process of this instance's jobs that is left, until none is, or none dies."""
        survivors = kill_until_gone(
            self._all_leftovers, self._kill_timeout, self._kill_all_leftovers
        )
        if survivors:
            print("processes do not die:", *survivors, file=sys.stderr, flush=True)

    def _kill_all_leftovers(self) -> None:
        for cgroup in cgroups.base_cgroups(self._unique_name):
            cgroup.kill()
        kill(self._all_leftovers)
        # It is not known any more whose jobs they were of.
        for userid, pids in tracers.by_userid(self._all_leftovers()).items():
            tracers.kill_tracers(pids, userid)

    def _all_leftovers(self) -> set[int]:
        leftovers = set(descendants(os.getpid()))
        for cgroup in cgroups.base_cgroups(self._unique_name):
            if not cgroup.remove():
                leftovers.update(cgroup.pids())
        return leftovers


def _detach(detach_left: DetachLeft, connection: socket.socket) -> int:
    """In a process for it: detach what users have left mounted; return an exit code."""
    is_partial = False

    def ask_absent(userids: Sequence[int]) -> Collection[int]:
        nonlocal is_partial
        most = _LONGEST_QUESTION // _BYTES_PER_USERID
        if len(userids) > most:
            # Any of them: those that come first may all be present.
            is_partial, userids = True, random.sample(userids, most)
        connection.send(msgspec.json.encode(userids))
        answer = connection.recv(_LONGEST_QUESTION)
        return set(msgspec.json.decode(answer, type=list[int])) if answer else ()

    detached_count = detach_left(ask_absent)
    return _MORE_IS_LEFT if is_partial and detached_count else 0


def _warn_of_mounts(host: str, trouble: str) -> None:
    print(f"{host}: mounts of users may stay: {trouble}", file=sys.stderr, flush=True)


def _state_and_cpu_ticks(pid: int) -> tuple[str, str]:
    """Return the state of a process of ours and its CPU time; "" if they are not to be had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], " ".join(fields[_CPU_TICKS])


def _open_output() -> int | None:
    """Return a file for what a shell prints; None, and it is lost, with too many open files.

    It is in memory, has its size from the beginning, and takes nothing beyond. So a user, who may
    write to it without end and pass it on, fills no disk. Nor does that keep this process waiting,
    as it does with a pipe while a write to that waits for a page of a file server of the user's.
    """
    try:
        output = memoryfiles.create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None  # no reason to refuse a shell
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if output >= soft_limit - _SPARE_DESCRIPTORS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        os.ftruncate(output, _OUTPUT_BYTES)
        fcntl.fcntl(output, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(output)
        return None
    return output
