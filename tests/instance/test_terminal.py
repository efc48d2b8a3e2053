"""Pseudo-terminals, with real ones in this process; tasks on them are in `test_tasks`."""

import asyncio
import os
import termios
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any

import pytest

from warren.instance.shell.terminal import Terminal, UnseenOutput, WatchedTerminal


def really(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(120):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def opened(terminal: Terminal) -> AsyncIterator[int]:
    """A terminal whose task has begun; gives the task's end."""
    task = os.dup(terminal.slave)
    terminal.close_slave()
    try:
        yield task
    finally:
        terminal.close()
        with suppress(OSError):  # the test may have closed it
            os.close(task)


@really
async def test_what_is_printed_is_read_to_the_end() -> None:
    terminal = Terminal()
    async with opened(terminal) as task:
        os.write(task, b"one\n")
        assert await terminal.read() == b"one\r\n"
        os.write(task, b"last")
        os.close(task)
        assert [await terminal.read(), await terminal.read()] == [b"last", b""]


@really
async def test_what_is_typed_is_not_printed_unless_a_user_sits_there() -> None:
    for terminal, printed in ((Terminal(), b"done"), (Terminal(echo=True), b"typed\r\ndone")):
        async with opened(terminal) as task:
            writer = terminal.input_descriptor()
            os.write(writer, terminal.encode_input(b"typed\n", eof=False))
            os.close(writer)
            assert os.read(task, 100) == b"typed\n"
            os.write(task, b"done")
            read = await terminal.read()
            while len(read) < len(printed):
                read += await terminal.read()
            assert read == printed


@pytest.mark.parametrize("typed", [b"", b"line\n", b"no end"])
@really
async def test_a_task_that_reads_lines_reads_their_end(typed: bytes) -> None:
    terminal = Terminal()
    async with opened(terminal) as task:
        writer = terminal.input_descriptor()
        os.write(writer, terminal.encode_input(typed, eof=False))
        os.write(writer, terminal.encode_input(b"", eof=True))
        os.close(writer)
        read = b""
        while chunk := os.read(task, 100):
            read += chunk
        assert read == typed


@really
async def test_a_task_that_reads_keys_reads_no_end() -> None:
    terminal = Terminal()
    async with opened(terminal) as task:
        modes = termios.tcgetattr(task)
        modes[3] &= ~termios.ICANON
        termios.tcsetattr(task, termios.TCSANOW, modes)

        assert terminal.encode_input(b"q", eof=True) == b"q"


@really
async def test_a_terminal_has_the_size_that_it_is_given() -> None:
    terminal = Terminal((50, 132))
    async with opened(terminal) as task:
        assert termios.tcgetwinsize(task) == (50, 132)
        terminal.resize(10, 20)
        assert termios.tcgetwinsize(task) == (10, 20)
    terminal.resize(1, 1)  # closed by now


@really
async def test_a_closed_terminal_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    terminal = Terminal()
    terminal.close()
    terminal.close()

    assert len(os.listdir("/proc/self/fd")) == before


# A client looks


@really
async def test_who_looks_sees_each_byte_once_and_then_the_end() -> None:
    unseen = UnseenOutput()
    unseen.add(b"one")
    assert await unseen.read_from(0) == (0, b"one", False)
    assert await unseen.read_from(0) == (0, b"one", False), "an answer that was lost"
    looking = asyncio.create_task(unseen.read_from(3))
    await asyncio.sleep(0)
    assert not looking.done()
    unseen.add(b"two")
    assert await looking == (3, b"two", False)
    unseen.end()
    assert await unseen.read_from(4) == (4, b"wo", False)
    assert await unseen.read_from(6) == (6, b"", True)
    assert await unseen.read_from(99) == (6, b"", True)


async def fill(task: int) -> int:
    """Print until the terminal takes no more; return how much that was."""
    os.set_blocking(task, False)
    written = 0
    while True:
        try:
            written += os.write(task, b"x" * 1000)
        except BlockingIOError:
            return written


@really
async def test_a_task_that_is_not_attached_to_waits_and_loses_nothing() -> None:
    terminal = WatchedTerminal(max_unseen=10)
    async with opened(terminal) as task:
        reading = asyncio.create_task(terminal.read())
        await fill(task)
        _, kept, _ = await terminal.unseen.read_from(0)
        await fill(task)
        await asyncio.sleep(0.01)
        assert (await terminal.unseen.read_from(0))[1] == kept, "it goes on reading"
        assert not reading.done()
        reading.cancel()


@really
async def test_what_was_seen_is_not_written_down() -> None:
    terminal = WatchedTerminal(drain_timeout=100)
    async with opened(terminal) as task:
        reading = asyncio.create_task(terminal.read())
        os.write(task, b"seen")
        assert await terminal.unseen.read_from(0) == (0, b"seen", False)
        terminal.on_task_exit()
        os.close(task)
        assert await terminal.unseen.read_from(4) == (4, b"", True)
        assert await reading == b""


@pytest.mark.parametrize("looked", [False, True], ids=["never looked", "looks no more"])
@really
async def test_what_is_never_attached_to_is_written_down_in_the_end(looked: bool) -> None:
    # Who never looked is not waited for at all.
    terminal = WatchedTerminal(drain_timeout=0.01 if looked else 1000)
    async with opened(terminal) as task:
        reading = asyncio.create_task(terminal.read())
        os.write(task, b"unseen")
        if looked:
            assert await terminal.unseen.read_from(0) == (0, b"unseen", False)
        terminal.on_task_exit()
        os.close(task)
        assert [await reading, await terminal.read()] == [b"unseen", b""]


@really
async def test_what_an_ended_task_has_left_prints_no_more_than_is_kept() -> None:
    terminal = WatchedTerminal(max_unseen=10, drain_timeout=0.01)
    async with opened(terminal) as task:
        terminal.on_task_exit()
        written = await fill(task)
        read = await terminal.read()
        os.close(task)
        while chunk := await terminal.read():
            read += chunk
        assert len(read) == written
