"""What tasks read: sent to the job's service, or from a file (RFC 24).

The leader takes what comes to `<service>.stdin`, writes it to `guest.input`, feeds its tasks, and
has the other shells feed theirs; then it answers. So a sender of one piece after the other
is never ahead of the slowest reader by more than a piece and a pipe. A task that has
ended, or has closed its input, reads nothing and holds up no other.

A piece whose answer was lost may be sent again: it bears a `sequence` among those of its
`input_descriptor`, and is fed once.
"""

import asyncio
import binascii
import errno
import os
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.instance.shell.templates import fill_in
from warren.instance.shell.terminal import Terminal
from warren.rfc import idset, stdio
from warren.rfc.errors import BadFormat
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError

KEY: Final = "input"
STREAM: Final = "stdin"
MOST_INPUT_BYTES: Final = 64 * 2**20
"""Bytes of input that a job keeps in the KVS, which is in the instance's memory."""


class Stdin(ShellPlugin):
    """The plugin."""

    def __init__(self) -> None:
        self._input_descriptors: dict[int, int] = {}
        """The ends of pipes that this node's tasks read from, by rank; or of their terminals."""
        self._terminals: dict[int, Terminal] = {}
        self._room_waits: dict[int, asyncio.Future[None]] = {}
        """What waits for room in those pipes, by rank."""
        self._tasks_started = asyncio.Event()
        """Set when this node's tasks are there, or could not be started."""
        self._file_descriptors: list[int] = []
        self._bytes_accepted = 0
        self._last_number = 0
        """The number of the last piece that was passed on, or taken."""
        self._sequences: dict[str, int] = {}
        """The sequence number of the last piece that was taken, by writer."""
        self._closed = False
        self._lock = asyncio.Lock()

    # Callbacks

    async def init(self, shell: RunningShell) -> None:
        info, stdin = shell.info, shell.info.options.stdin
        now = shell.clock.now()
        header = stdio.header_event(now, info.task_count, [STREAM])
        if stdin.type == "service":
            shell.serve(STREAM, Method(lambda request: self._serve(shell, request), guest=True))
            shell.initial_logs[KEY] = [header]
        elif stdin.type == "file":
            for index in range(len(info.task_ranks)):
                path = Path(info.cwd or "/", fill_in(stdin.path, info, index))
                try:
                    self._file_descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                except OSError as error:
                    raise CannotRun(f"input file {path}: {error.strerror}") from error
            shell.initial_logs[KEY] = [
                header,
                stdio.redirect_event(now, STREAM, stdio.ALL, stdin.path),
            ]

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if shell.info.options.stdin.type == "service" and task.terminal is not None:
            self._input_descriptors[task.rank] = task.terminal.input_descriptor()
            self._terminals[task.rank] = task.terminal
        elif shell.info.options.stdin.type == "service":
            task.stdin, descriptor = os.pipe()
            os.set_blocking(descriptor, False)
            self._input_descriptors[task.rank] = descriptor
        elif self._file_descriptors:
            task.stdin = self._file_descriptors[task.index]

    async def task_fork(self, shell: RunningShell, task: TaskStart) -> None:
        if task.stdin is not None:
            os.close(task.stdin)
            task.stdin = None

    async def start(self, shell: RunningShell) -> None:
        self._file_descriptors.clear()
        self._tasks_started.set()

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        self._close(task.rank)

    def exit(self, shell: RunningShell) -> None:
        for rank in list(self._input_descriptors):
            self._close(rank)
        for descriptor in self._file_descriptors:
            with suppress(OSError):
                os.close(descriptor)

    # The service

    async def _serve(self, shell: RunningShell, request: Request) -> Payload:
        shell.check_permitted(request)
        if shell.info.rank == 0:
            work = self._accept_once(shell, request.payload)
        else:
            work = self._accept_forwarded(request.payload)
        # The sender may go, or lose the connection: what was begun is fed to its end.
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shell.background(_run_and_answer(work, answer))
        await asyncio.shield(answer)
        return {}

    async def _accept_forwarded(self, payload: Payload) -> None:
        """Take a piece from the leader."""
        chunk, ranks, eof = _read_request(payload)
        number = payload.get("number")
        if not isinstance(number, int):
            raise RpcError(errno.EPROTO, "stdin goes to the leader of the job's shells")
        async with self._lock:
            # What comes again, since the answer was lost, was fed before.
            if number > self._last_number:
                self._last_number = number
                await self._feed(ranks, chunk, eof=eof)

    async def _accept_once(self, shell: RunningShell, payload: Payload) -> None:
        """Take a piece as the leader, unless it was taken before."""
        chunk, ranks, eof = _read_request(payload)
        writer, sequence = payload.get("writer"), payload.get("sequence")
        async with self._lock:
            if isinstance(writer, str) and isinstance(sequence, int):
                if sequence <= self._sequences.get(writer, 0):
                    return
                await self._accept(shell, payload, chunk, ranks, eof=eof)
                self._sequences[writer] = sequence
            else:
                await self._accept(shell, payload, chunk, ranks, eof=eof)

    async def _accept(
        self,
        shell: RunningShell,
        payload: Payload,
        chunk: bytes,
        ranks: Iterable[int] | None,
        *,
        eof: bool,
    ) -> None:
        if self._closed:
            raise RpcError(errno.EPIPE, "the job's standard input was closed before")
        # What is typed at a terminal may be a password, and is for the task alone.
        is_typed = shell.info.options.pty.interactive and ranks is not None and set(ranks) == {0}
        if not is_typed:
            await self._record(shell, chunk, ranks, eof=eof)
        self._closed = eof and ranks is None
        self._last_number += 1
        async with asyncio.TaskGroup() as feeding:
            feeding.create_task(self._feed(ranks, chunk, eof=eof))
            for other in range(1, len(shell.info.hosts)):
                forwarded = {**payload, "number": self._last_number}
                feeding.create_task(shell.peers.ask(other, STREAM, forwarded))

    async def _record(
        self, shell: RunningShell, chunk: bytes, ranks: Iterable[int] | None, *, eof: bool
    ) -> None:
        """Write a piece down. Raises RpcError where that would be too much for the KVS."""
        self._bytes_accepted += len(chunk)
        if self._bytes_accepted > MOST_INPUT_BYTES:
            message = (
                f"no more than {MOST_INPUT_BYTES} bytes of input go to a job: "
                "have it read a file (--input)"
            )
            raise RpcError(errno.EFBIG, message)
        now = shell.clock.now()
        ranks_text = stdio.ALL if ranks is None else idset.encode(ranks)
        if chunk:
            event = stdio.data_event(now, STREAM, ranks_text, chunk, eof=eof)
        else:
            event = stdio.eof_event(now, STREAM, ranks_text)
        if chunk or eof:
            await shell.append(KEY, [event])

    async def _feed(self, ranks: Iterable[int] | None, chunk: bytes, *, eof: bool) -> None:
        await self._tasks_started.wait()
        ranks_to_feed = (
            self._input_descriptors
            if ranks is None
            else [r for r in ranks if r in self._input_descriptors]
        )
        async with asyncio.TaskGroup() as writing:
            for rank in list(ranks_to_feed):
                writing.create_task(self._write(rank, chunk, eof=eof))

    async def _write(self, rank: int, chunk: bytes, *, eof: bool) -> None:
        if rank in self._terminals:
            chunk = self._terminals[rank].encode_input(chunk, eof=eof)
        view = memoryview(chunk)
        while view and rank in self._input_descriptors:
            try:
                view = view[os.write(self._input_descriptors[rank], view) :]
            except BlockingIOError:
                await self._wait_room(rank)
            except OSError:  # it is not read any more
                self._close(rank)
        if eof:
            self._close(rank)

    async def _wait_room(self, rank: int) -> None:
        """Wait until something can be written, or until the task reads no more."""
        loop = asyncio.get_running_loop()
        descriptor = self._input_descriptors[rank]
        self._room_waits[rank] = room = loop.create_future()
        loop.add_writer(descriptor, _resolve, room)
        try:
            await room
        finally:
            del self._room_waits[rank]
            if self._input_descriptors.get(rank) == descriptor:
                loop.remove_writer(descriptor)

    def _close(self, rank: int) -> None:
        descriptor = self._input_descriptors.pop(rank, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_writer(descriptor)
            os.close(descriptor)
        if rank in self._room_waits:
            # The loop does not look at the pipe any more: it would never say so.
            _resolve(self._room_waits[rank])


async def _run_and_answer(work: Coroutine[Any, Any, None], answer: "asyncio.Future[None]") -> None:
    """Do something, and answer how it has ended, if the client is there still."""
    try:
        await work
    except RpcError as error:
        answer.set_exception(error)
        answer.exception()  # it may not be asked for any more
    else:
        answer.set_result(None)


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _read_request(payload: Payload) -> tuple[bytes, tuple[int, ...] | None, bool]:
    """Read a request: what to feed, to which ranks (None: all), and whether that is the end."""
    stream, ranks = payload.get("stream", STREAM), payload.get("ranks", stdio.ALL)
    data, eof = payload.get("data", ""), payload.get("eof", False)
    encoding = payload.get("encoding", "UTF-8")
    if stream != STREAM or not isinstance(data, str) or not isinstance(eof, bool):
        raise RpcError(errno.EPROTO, "stdin takes stream, ranks, data, encoding and eof")
    try:
        decoded_ranks = None if ranks == stdio.ALL else idset.decode(str(ranks))
        if encoding == "base64":
            return binascii.a2b_base64(data, strict_mode=True), decoded_ranks, eof
        return data.encode(), decoded_ranks, eof
    except (BadFormat, ValueError) as error:
        raise RpcError(errno.EPROTO, f"stdin: {error}") from None
