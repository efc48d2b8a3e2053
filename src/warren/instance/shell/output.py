"""What tasks print, on its way to the job's log or to files (RFC 24).

What may wait is bounded: a task that prints faster than it is written down has to wait.
What goes to the log is bounded in all, since the log is in the instance's memory: the rest
is read and dropped, and the log says so, once. So is what the instance has no room for, which
is no reason to end a job: another user may have filled the disk.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from warren.base.clock import Clock
from warren.instance.shell.options import CannotRun, StreamOptions
from warren.instance.shell.plugins import WARNING
from warren.instance.shell.shellinfo import ShellInfo
from warren.instance.shell.tasks import Task
from warren.instance.shell.templates import fill_in, is_shared
from warren.rfc import eventlog, stdio
from warren.rfc.eventlog import Event
from warren.rpc.message import RpcError

STREAMS: Final = ("stdout", "stderr")
_MAX_PENDING: Final = 64
"""Pieces of output that may wait to be written down; then the tasks have to wait."""
_PIECE_BYTES: Final = 2**16
"""Bytes of a line that is written down though it is not complete."""
_BATCH_CHARACTERS: Final = 2**20
"""Characters of a log that are written at a time, but for the last event among them."""

Append = Callable[[str, str], Awaitable[None]]
"""Appends a text to a log in the guest namespace."""


class _File(msgspec.Struct):
    """An open file of output."""

    descriptor: int
    label: bool
    path: str
    broken: bool = False


class Output:
    """The output of one shell's tasks. `run` writes it down."""

    def __init__(self, clock: Clock, info: ShellInfo, append: Append) -> None:
        self._clock = clock
        self._info = info
        self._append = append
        self._pending: asyncio.Queue[Event | None] = asyncio.Queue(_MAX_PENDING)
        self._bytes_left = dict.fromkeys(STREAMS, info.options.output_limit)
        self._files: dict[str, _File] = {}
        self._cut_off = False
        """Whether the instance had no room for some of it."""

    # Files

    def truncate(self) -> None:
        """Empty the files that all shells write to. For the leader, before the others open them.

        Raises CannotRun.
        """
        for stream in map(self._stream, STREAMS):
            if stream.type == "file" and is_shared(stream.path):
                self._open(self._path(stream, 0), stream)

    def open_files(self) -> list[Event]:
        """Open the files of this node's tasks, and return the events that tell of them.

        Raises CannotRun.
        """
        events = []
        for name in STREAMS:
            stream = self._stream(name)
            if stream.type == "kvs":
                continue
            by_path: dict[str | None, list[int]] = {}
            for index, rank in enumerate(self._info.task_ranks):
                path = None
                if stream.type == "file":
                    path = self._path(stream, index)
                    self._open(path, stream)
                by_path.setdefault(path, []).append(rank)
            events += [
                stdio.redirect_event(self._clock.now(), name, ranks, path)
                for path, ranks in by_path.items()
            ]
        return events

    def _stream(self, name: str) -> StreamOptions:
        return self._info.options.stdout if name == "stdout" else self._info.options.stderr

    def _path(self, stream: StreamOptions, index: int) -> str:
        return str(Path(self._info.cwd or "/", fill_in(stream.path, self._info, index)))

    def _open(self, path: str, stream: StreamOptions) -> None:
        if path in self._files:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # A file of all nodes is the leader's to empty, and it has done so when the others come.
        if not self._info.options.append and (self._info.rank == 0 or not is_shared(stream.path)):
            flags |= os.O_TRUNC
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise CannotRun(f"output file {path}: {error.strerror}") from error
        self._files[path] = _File(descriptor, stream.label, path)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    # From the tasks

    async def forward(self, task: Task, name: str, index: int) -> None:
        """Pass on what a task writes to a stream, to its end."""
        stream, rank = self._stream(name), self._info.task_ranks[index]
        file = self._files[self._path(stream, index)] if stream.type == "file" else None
        # A terminal shows what there is of a line: a user may be asked to go on with it.
        by_line = stream.label or (
            stream.line_buffered and not self._info.options.pty.includes(rank)
        )
        incomplete = b""
        while chunk := await task.read(name):
            if by_line:
                chunk = incomplete + chunk
                end = chunk.rfind(b"\n") + 1
                if end == 0 and len(chunk) >= _PIECE_BYTES:
                    end = len(chunk)
                chunk, incomplete = chunk[:end], chunk[end:]
            if chunk:
                await self._put(name, rank, chunk, file, stream)
        if incomplete:
            await self._put(name, rank, incomplete, file, stream)
        if stream.type == "kvs":
            await self._pending.put(stdio.eof_event(self._clock.now(), name, rank))

    async def close_unstarted(self, index: int) -> None:
        """Close the output of a task which could not start."""
        for name in STREAMS:
            if self._stream(name).type == "kvs":
                eof = stdio.eof_event(self._clock.now(), name, self._info.task_ranks[index])
                await self._pending.put(eof)

    async def _put(
        self, name: str, rank: int, chunk: bytes, file: _File | None, stream: StreamOptions
    ) -> None:
        if file is not None:
            await self._write_file(file, rank, chunk)
        elif stream.type == "kvs":
            await self._put_log(name, rank, chunk)

    async def _put_log(self, name: str, rank: int, chunk: bytes) -> None:
        bytes_left = self._bytes_left[name]
        if bytes_left < 0:
            return
        self._bytes_left[name] = bytes_left - len(chunk)
        for start in range(0, min(len(chunk), bytes_left), _PIECE_BYTES):
            piece = chunk[start : min(start + _PIECE_BYTES, bytes_left)]
            await self._pending.put(stdio.data_event(self._clock.now(), name, rank, piece))
        if len(chunk) > bytes_left:
            self._bytes_left[name] = -1
            limit = self._info.options.output_limit
            message = (
                f"{name} of {self._info.host} is cut off after {limit} bytes: "
                "write it to a file, or raise shell option output.limit"
            )
            await self._warn(WARNING, message)

    async def _write_file(self, file: _File, rank: int, chunk: bytes) -> None:
        if file.broken:
            return
        if file.label:
            label = b"%d: " % rank
            chunk = b"".join(label + line for line in chunk.splitlines(keepends=True))
            if not chunk.endswith(b"\n"):
                chunk += b"\n"
        try:
            view = memoryview(chunk)
            while view:
                view = view[os.write(file.descriptor, view) :]
        except OSError as error:
            file.broken = True
            await self._warn(WARNING, f"output file {file.path}: {error.strerror}")

    async def _warn(self, level: int, message: str) -> None:
        now = self._clock.now()
        event = stdio.log_event(now, level, message, rank=self._info.rank, component="shell")
        await self._pending.put(event)

    # To the log

    async def end(self) -> None:
        """Close it: nothing more will come."""
        await self._pending.put(None)

    async def run(self) -> None:
        """Write down what comes, as much at a time as there is, to its end."""
        ended = False
        while not ended:
            events, texts, length = [], [], 0
            event = await self._pending.get()
            while event is not None:
                if not (self._cut_off and _is_data(event)):
                    events.append(event)
                    texts.append(eventlog.encode(event))
                    length += len(texts[-1])
                if length >= _BATCH_CHARACTERS or self._pending.empty():
                    break
                event = self._pending.get_nowait()
            ended = event is None
            if texts:
                await self._write_log(events, "".join(texts))

    async def _write_log(self, events: Sequence[Event], text: str) -> None:
        """Write events down; where there is no room for the output in them, all but that.

        And where there is none for that either, nothing. Raises RpcError.
        """
        try:
            await self._append("output", text)
        except RpcError as error:
            if error.errnum != errno.ENOSPC:
                raise
            if self._cut_off:
                return
            self._cut_off = True
            message = f"the output of {self._info.host} is cut off here: {error}"
            now = self._clock.now()
            warning = stdio.log_event(
                now, WARNING, message, rank=self._info.rank, component="shell"
            )
            remaining = [warning, *(event for event in events if not _is_data(event))]
            await self._write_log(remaining, "".join(map(eventlog.encode, remaining)))


def _is_data(event: Event) -> bool:
    """Return whether an event is of what a task has printed, and not that this has ended."""
    return "data" in event.context
