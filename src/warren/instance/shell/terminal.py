"""Pseudo-terminals: what a task has for its standard streams instead of pipes.

Of a terminal without a client, what is printed is written down as other output is. Of one with
a client, what was not shown yet is kept, up to a limit: then the task has to wait, as
before any terminal that is slower than it. What was not shown in the end is written down.
"""

import asyncio
import os
import termios
from contextlib import suppress
from typing import Final

from warren.instance.shell.reading import Reader

MOST_UNSEEN_BYTES: Final = 2**16
"""Bytes that a task may have printed and no client has read."""
DRAIN_TIMEOUT: Final = 5.0
"""Seconds that an attached client has for the last of it, when the task has ended."""
DEFAULT_SIZE: Final = (24, 80)
"""Rows and columns of a terminal whose size was not set."""

_LOCAL_MODES, _CHARACTERS = 3, 6
"""Indexes in what `termios.tcgetattr` returns."""


class Terminal:
    """A pseudo-terminal: its master, and its slave until the task has that."""

    def __init__(self, size: tuple[int, int] = DEFAULT_SIZE, *, echo: bool = False) -> None:
        """Open one, of so many rows and columns. Raises OSError where there is none.

        With `echo` it prints what is typed, for clients that cannot see it otherwise.
        """
        self._master, self._slave = os.openpty()
        self._closed = False
        os.set_blocking(self._master, False)
        if not echo:
            modes = termios.tcgetattr(self._slave)
            modes[_LOCAL_MODES] &= ~termios.ECHO
            termios.tcsetattr(self._slave, termios.TCSANOW, modes)
        self.resize(*size)
        self._reader = Reader(os.dup(self._master))
        self._last_typed = b"\n"
        """The last byte that the task was given to read."""

    @property
    def slave(self) -> int:
        """The descriptor that is the task's terminal, until `close_slave`."""
        return self._slave

    def close_slave(self) -> None:
        """Leave the slave to the task: when no process has it open any more, reading ends."""
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1

    def on_task_exit(self) -> None:
        """Note that the task has ended. What it has printed may still be read."""

    def close(self) -> None:
        """Close all of it."""
        if not self._closed:
            self._closed = True
            self.close_slave()
            self._reader.close()
            os.close(self._master)

    async def read(self) -> bytes:
        """Return what is to be written down, as soon as there is some; nothing at the end."""
        return await self._reader.read()

    def resize(self, rows: int, columns: int) -> None:
        """Change the size, which tells the programs on the terminal. A closed one is let be."""
        if not self._closed:
            with suppress(termios.error):  # the task has just gone
                termios.tcsetwinsize(self._master, (rows, columns))

    # What is typed

    def input_descriptor(self) -> int:
        """Return a descriptor of the caller's own to type with. It does not block."""
        return os.dup(self._master)

    def encode_input(self, chunk: bytes, *, eof: bool) -> bytes:
        """Return what to write so that the task reads `chunk`, and with `eof` the end after it.

        A terminal has no end by itself. Where lines are typed, a character says so: at the
        beginning of a line, and once more where the line before it is not complete.
        """
        self._last_typed = chunk[-1:] or self._last_typed
        if not eof:
            return chunk
        try:
            modes = termios.tcgetattr(self._master)
        except termios.error:  # the task has just gone
            return chunk
        if not modes[_LOCAL_MODES] & termios.ICANON:
            return chunk
        end: bytes = modes[_CHARACTERS][termios.VEOF]
        return chunk + (end if self._last_typed == b"\n" else end * 2)


class UnseenOutput:
    """What was printed and not seen yet. Its bytes are counted from the first that ever was."""

    def __init__(self) -> None:
        self.was_read = False
        """Whether a client has ever looked."""
        self._first_offset = 0
        self._bytes = bytearray()
        self._ended_printing = False
        self._changed = asyncio.Event()

    def add(self, chunk: bytes) -> None:
        """Add what was printed."""
        self._bytes += chunk
        self._notify()

    def take(self) -> bytes:
        """Take all that no client has read."""
        taken = bytes(self._bytes)
        self._first_offset += len(taken)
        self._bytes.clear()
        self._notify()
        return taken

    def end(self) -> None:
        """Close it: nothing more will be printed."""
        self._ended_printing = True
        self._notify()

    async def wait_below(self, count: int) -> None:
        """Wait until fewer than so many bytes are unseen."""
        while len(self._bytes) >= count:
            await self._changed.wait()

    async def read_from(self, seen: int) -> tuple[int, bytes, bool]:
        """Wait for something to see; return where it begins, what it is, and whether that is all.

        `seen` is how much was seen before, and is not kept any longer. A client that asks again
        because an answer was lost gets the same again.
        """
        self.was_read = True
        if seen > self._first_offset:
            count = min(seen - self._first_offset, len(self._bytes))
            del self._bytes[:count]
            self._first_offset += count
            self._notify()
        while not self._bytes and not self._ended_printing:
            await self._changed.wait()
        return self._first_offset, bytes(self._bytes), self._ended_printing and not self._bytes

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class WatchedTerminal(Terminal):
    """A terminal with a client: what is to be written down is what it has not read."""

    def __init__(
        self,
        size: tuple[int, int] = DEFAULT_SIZE,
        *,
        max_unseen: int = MOST_UNSEEN_BYTES,
        drain_timeout: float = DRAIN_TIMEOUT,
    ) -> None:
        super().__init__(size, echo=True)
        self.unseen = UnseenOutput()
        self._max_unseen = max_unseen
        self._drain_timeout = drain_timeout
        self._task_exited = asyncio.Event()
        self._client_gone = False
        """Whether no client is attached any more."""

    def on_task_exit(self) -> None:
        self._task_exited.set()

    async def read(self) -> bytes:
        while chunk := await self._reader.read():
            if self._client_gone:
                return chunk
            self.unseen.add(chunk)
            if not await self._wait_seen(self._max_unseen):
                # The task has ended, and has left a process that prints on.
                self._client_gone = True
                return self.unseen.take()
        self._client_gone = self._client_gone or not await self._wait_seen(1)
        remaining = self.unseen.take()
        if not remaining:
            self.unseen.end()
        return remaining

    async def _wait_seen(self, count: int) -> bool:
        """Wait until all but a few bytes were seen, when the task has ended only for a while."""
        seen_task = asyncio.ensure_future(self.unseen.wait_below(count))
        exit_task = asyncio.ensure_future(self._task_exited.wait())
        try:
            await asyncio.wait({seen_task, exit_task}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(
                {seen_task}, timeout=self._drain_timeout if self.unseen.was_read else 0
            )
            return seen_task.done()
        finally:
            seen_task.cancel()
            exit_task.cancel()
            await asyncio.wait({seen_task, exit_task})
