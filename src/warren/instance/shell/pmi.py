"""The simple PMI-1 wire protocol, by which an MPI program finds itself (RFC 13).

Each task has a socket, whose number it finds in PMI_FD. What tasks put is with their shell until
all tasks are in a barrier; then the shells exchange it, and all tasks have everything.
A task that does not keep to the protocol is cut off, and the job with it.

Programs that do not speak it themselves load the library of libpmi.c, which does; they find
it in FLUX_PMI_LIBRARY_PATH, as with Flux.
"""

import asyncio
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.instance.shell.shellinfo import ShellInfo
from warren.rfc import fluid, taskmap
from warren.rpc.message import RpcError

NAME_MAX: Final = 64
KEY_MAX: Final = 64
VALUE_MAX: Final = 1024
MAPPING_KEY: Final = "PMI_process_mapping"
LIBRARY_VARIABLE: Final = "FLUX_PMI_LIBRARY_PATH"

_LINE_MAX: Final = 4096
_SPAWN_MAX: Final = 2**20
"""Bytes of a request to spawn, which has many lines, and is refused."""
_PAIR_PATTERN: Final = re.compile(r"\s*([^\s=]+)=(\S*)")
_NOT_OFFERED: Final = {
    "publish_name": "publish_result",
    "unpublish_name": "unpublish_result",
    "lookup_name": "lookup_result",
}


class ProtocolError(Exception):
    """A client does not keep to the protocol."""


@dataclass(frozen=True)
class JobAborted(Exception):
    """A client wants the whole job to end."""

    code: str
    message: str


class KeyValues:
    """What the tasks of a job tell each other, as one node has it."""

    def __init__(self, info: ShellInfo) -> None:
        self.name = fluid.f58plain(info.job)
        mapping = taskmap.to_pmi(info.taskmap)
        self._exchanged = {MAPPING_KEY: mapping if len(mapping) < VALUE_MAX else ""}
        self._unexchanged: dict[str, str] = {}

    def put(self, key: str, value: str) -> bool:
        """Take a pair; False where it is too long."""
        if not 0 < len(key) < KEY_MAX or len(value) >= VALUE_MAX:
            return False
        self._unexchanged[key] = value
        return True

    def get(self, key: str) -> str | None:
        return self._unexchanged.get(key, self._exchanged.get(key))

    def pair_at(self, index: int) -> tuple[str, str] | None:
        """Return a pair by its index, of those that were exchanged."""
        return next(islice(self._exchanged.items(), index, None), None)

    def unexchanged(self) -> dict[str, str]:
        """Return what was put here since the last exchange."""
        return dict(self._unexchanged)

    def add_exchanged(self, everything: Mapping[str, str]) -> None:
        """Take what all nodes have put."""
        self._exchanged.update(everything)
        self._unexchanged.clear()


class TaskSession:
    """The shell's side of the protocol towards one task, line by line; it knows no sockets."""

    def __init__(
        self, info: ShellInfo, pairs: KeyValues, enter: Callable[["TaskSession"], None]
    ) -> None:
        """`enter` is called when the task comes to a barrier, which is answered later."""
        self._info = info
        self._pairs = pairs
        self._enter = enter
        self._initialized = False
        self._spawn_bytes = 0
        self.in_barrier = False
        """Whether it is in a barrier."""
        self.finalized = False

    def answer(self, line: bytes) -> str | None:
        """Return the answer to a line, without its newline, if there is one now.

        Raises ProtocolError, or JobAborted.
        """
        text = _text(line)
        if self._spawn_bytes:
            return self._spawn(text)
        if self.in_barrier or self.finalized:
            raise ProtocolError("a request that does not wait for its answer")
        if text.strip() == "mcmd=spawn":
            self._spawn_bytes = 1
            return None
        arguments = dict(_parse_pairs(text))
        command = arguments.get("cmd")
        if command is None:
            raise ProtocolError(f"a line without a command: {text[:80]!r}")
        if not self._initialized and command != "init":
            raise ProtocolError(f"{command} before init")
        return self._command(command, arguments, text)

    def _spawn(self, text: str) -> str | None:
        self._spawn_bytes += len(text) + 1
        if self._spawn_bytes > _SPAWN_MAX:
            raise ProtocolError("a request to spawn without an end")
        if text.strip() != "endcmd":
            return None
        self._spawn_bytes = 0
        return "cmd=spawn_result rc=-1 errcodes=-1"

    def _command(self, command: str, arguments: Mapping[str, str], text: str) -> str | None:
        match command:
            case "init":
                return self._init(arguments)
            case "get_maxes":
                return (
                    f"cmd=maxes rc=0 kvsname_max={NAME_MAX} keylen_max={KEY_MAX} "
                    f"vallen_max={VALUE_MAX}"
                )
            case "get_appnum":
                return "cmd=appnum rc=0 appnum=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname rc=0 kvsname={self._pairs.name}"
            case "get_universe_size":
                return f"cmd=universe_size rc=0 size={self._info.task_count}"
            case "put":
                return self._put(arguments, text)
            case "get":
                return self._get(arguments)
            case "getbyidx":
                return self._get_by_index(arguments)
            case "barrier_in":
                self.in_barrier = True
                self._enter(self)
                return None
            case "finalize":
                self.finalized = True
                return "cmd=finalize_ack rc=0"
            case "abort":
                raise JobAborted(arguments.get("exitcode", "1"), text.partition("error_msg=")[2])
        result = _NOT_OFFERED.get(command)
        if result is None:
            raise ProtocolError(f"an unknown command: {command[:80]!r}")
        return f"cmd={result} rc=-1 msg=not_offered"

    def _init(self, arguments: Mapping[str, str]) -> str:
        version, subversion = arguments.get("pmi_version", ""), arguments.get("pmi_subversion", "")
        if not version.isdecimal() or not subversion.isdecimal():
            raise ProtocolError("init without the client's version")
        if int(version) < 1:
            return "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1"
        self._initialized = True
        return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"

    def _put(self, arguments: Mapping[str, str], text: str) -> str:
        name, key = arguments.get("kvsname"), arguments.get("key")
        # A value is the rest of the line: it may have blanks in it.
        value = text.partition(" value=")[2]
        if name is None or key is None or " value=" not in text:
            raise ProtocolError("put takes kvsname, key and value")
        if name != self._pairs.name:
            return "cmd=put_result rc=-1 msg=unknown_kvsname"
        if not self._pairs.put(key, value):
            return "cmd=put_result rc=-1 msg=too_long"
        return "cmd=put_result rc=0 msg=success"

    def _get(self, arguments: Mapping[str, str]) -> str:
        name, key = arguments.get("kvsname"), arguments.get("key")
        if name is None or key is None:
            raise ProtocolError("get takes kvsname and key")
        value = self._pairs.get(key) if name == self._pairs.name else None
        if value is None:
            return "cmd=get_result rc=-1 msg=unknown_key"
        return f"cmd=get_result rc=0 msg=success value={value}"

    def _get_by_index(self, arguments: Mapping[str, str]) -> str:
        index = arguments.get("idx", "")
        if not index.isdecimal() or len(index) > 9:
            raise ProtocolError("getbyidx takes idx")
        pair = self._pairs.pair_at(int(index))
        if pair is None:
            return "cmd=getbyidx_results rc=-2 reason=no_more_keyvals"
        key, value = pair
        return f"cmd=getbyidx_results rc=0 nextidx={int(index) + 1} key={key} val={value}"


def _text(line: bytes) -> str:
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise ProtocolError("a line that is not ASCII") from None
    if not text.replace("\t", " ").isprintable():
        raise ProtocolError("a line with control characters")
    return text


def _parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    for match in _PAIR_PATTERN.finditer(text):
        yield match[1], match[2]
        if match[1] == "value":
            return


class Pmi(ShellPlugin):
    """The plugin. Tasks of one node share a `KeyValues`, and enter barriers together."""

    def __init__(self, library: Path = Path(sys.prefix) / "lib/warren/libpmi.so") -> None:
        """`library` is for programs that load one, if it was built."""
        self._library = library
        self._shell_sockets: dict[int, socket.socket] = {}
        """The shell's ends of the tasks' sockets, by rank."""
        self._task_sockets: dict[int, socket.socket] = {}
        self._socket_by_session: dict[TaskSession, socket.socket] = {}
        self._in_barrier: list[TaskSession] = []
        self._exchange_count = 0
        self._pairs: KeyValues | None = None

    async def init(self, shell: RunningShell) -> None:
        if shell.info.options.pmi:
            self._pairs = KeyValues(shell.info)
            if self._library.is_file():
                # A user's own, as Flux's, speaks the same protocol.
                shell.environment.setdefault(LIBRARY_VARIABLE, str(self._library))

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if self._pairs is None:
            return
        shell_socket, task_socket = socket.socketpair()
        shell_socket.setblocking(False)
        self._shell_sockets[task.rank], self._task_sockets[task.rank] = shell_socket, task_socket
        task.descriptors.append(task_socket.fileno())
        task.environment["PMI_FD"] = str(task_socket.fileno())
        task.environment["PMI_RANK"] = str(task.rank)
        task.environment["PMI_SIZE"] = str(shell.info.task_count)
        task.environment.pop("PMI_SPAWNED", None)  # of a job that this one was submitted from

    async def task_fork(self, shell: RunningShell, task: TaskStart) -> None:
        task_socket = self._task_sockets.pop(task.rank, None)
        if task_socket is None:
            return
        task_socket.close()
        assert self._pairs is not None
        shell_socket = self._shell_sockets[task.rank]
        session = TaskSession(shell.info, self._pairs, lambda entered: self._enter(shell, entered))
        self._socket_by_session[session] = shell_socket
        buffer = bytearray()
        asyncio.get_running_loop().add_reader(
            shell_socket.fileno(), self._receive, shell, task.rank, session, buffer
        )

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        self._close(task.rank)

    def exit(self, shell: RunningShell) -> None:
        for rank in list(self._shell_sockets):
            self._close(rank)

    def _close(self, rank: int) -> None:
        shell_socket = self._shell_sockets.pop(rank, None)
        if shell_socket is not None:
            asyncio.get_running_loop().remove_reader(shell_socket.fileno())
            shell_socket.close()

    # From a task

    def _receive(
        self, shell: RunningShell, rank: int, session: TaskSession, buffer: bytearray
    ) -> None:
        try:
            data = self._shell_sockets[rank].recv(_LINE_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._close(rank)
            return
        buffer += data
        try:
            while (end := buffer.find(b"\n")) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                answer = session.answer(line)
                if answer is not None:
                    self._send(session, answer)
            if len(buffer) > _LINE_MAX:
                raise ProtocolError("a line without an end")
        except ProtocolError as error:
            self._close(rank)
            shell.background(shell.fail(f"task {rank} breaks the PMI protocol: {error}"))
        except JobAborted as error:
            self._close(rank)
            message = f": {error.message}" if error.message else ""
            note = f"task {rank} aborts the job with code {error.code[:10]}{message[:200]}"
            shell.background(shell.fail(note))

    def _send(self, session: TaskSession, answer: str) -> None:
        line = f"{answer}\n".encode()
        try:
            sent = self._socket_by_session[session].send(line)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the task is gone; its end will be told
        if sent != len(line):
            raise ProtocolError("answers that it does not read")

    # Barriers

    def _enter(self, shell: RunningShell, session: TaskSession) -> None:
        self._in_barrier.append(session)
        if len(self._in_barrier) == len(shell.info.task_ranks):
            entered, self._in_barrier = self._in_barrier, []
            shell.background(self._exchange(shell, entered))

    async def _exchange(self, shell: RunningShell, entered: list[TaskSession]) -> None:
        assert self._pairs is not None
        self._exchange_count += 1
        try:
            everything = await shell.peers.exchange(
                f"pmi-{self._exchange_count}", self._pairs.unexchanged()
            )
        except RpcError:
            # A shell has failed: its tasks will not come, and these are told so.
            answer = "cmd=barrier_out rc=-1"
        else:
            self._pairs.add_exchanged(everything)
            answer = "cmd=barrier_out rc=0"
        for session in entered:
            session.in_barrier = False
            try:
                self._send(session, answer)
            except ProtocolError as error:
                await shell.fail(f"a task breaks the PMI protocol: {error}")
