"""Commands of the site as processes, and what is left of them: nothing."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.logs import capture_logs
from warren.base.processes import pids_with_variable
from warren.instance.exec.commands import ProcessCommands
from warren.instance.exec.perilog import CommandNotStarted


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[ProcessCommands]:
    before = open_files()
    yield ProcessCommands(("WARREN_CLUSTER", str(tmp_path)))
    assert pids_with_variable(f"WARREN_CLUSTER={tmp_path}") == []
    assert open_files() <= before


def open_files() -> set[str]:
    return {each for each in os.listdir("/proc/self/fd") if Path("/proc/self/fd", each).exists()}


@contextmanager
def listening() -> Iterator[list[Any]]:
    """What is logged, though tests otherwise want to hear of errors only."""
    with capture_logs("info") as told:
        yield told


async def ended(commands: ProcessCommands, *argv: str, **environment: str) -> int:
    command = await commands.start(argv, environment)
    return await command.wait()


def python(program: str) -> tuple[str, ...]:
    return sys.executable, "-S", "-c", program


def test_a_command_has_its_variables_and_a_status(commands: ProcessCommands) -> None:
    program = "import os, sys; sys.exit(int(os.environ['FLUX_JOB_USERID']))"

    assert asyncio.run(ended(commands, *python(program), FLUX_JOB_USERID="7")) == 7 << 8
    assert asyncio.run(ended(commands, "kill", "-9", "0")) == signal.SIGKILL


def test_what_a_command_prints_is_told_as_far_as_it_is_bearable(
    commands: ProcessCommands,
) -> None:
    program = "print('x' * 5000); [print(number) for number in range(200)]; print('end', end='')"
    with listening() as told:
        assert asyncio.run(ended(commands, *python(program), FLUX_JOB_ID="f1")) == 0

    lines = [each["line"] for each in told if each["event"] == "command says"]
    assert lines[:3] == ["x" * 1000, "0", "1"]
    assert len(lines) == 100
    assert told[0]["FLUX_JOB_ID"] == "f1"
    assert told[-1]["lines"] == 102


def test_a_command_that_is_not_there_is_said_to_be_so(commands: ProcessCommands) -> None:
    with pytest.raises(CommandNotStarted, match="/no/such/program: No such file or directory"):
        asyncio.run(ended(commands, "/no/such/program"))


def test_a_command_that_too_many_open_files_leave_no_pipe_is_said_not_to_have_started(
    commands: ProcessCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def started() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pipe", full)
            await commands.start(("true",), {})

    with pytest.raises(CommandNotStarted, match="true: Too many open files"):
        asyncio.run(started())


def test_a_signal_reaches_all_that_a_command_has_started(commands: ProcessCommands) -> None:
    async def stopped() -> int:
        command = await commands.start(("sh", "-c", "sleep 1000 & sleep 1000"), {})
        command.signal(signal.SIGTERM)
        return await command.wait()

    assert asyncio.run(stopped()) == signal.SIGTERM


def test_what_a_command_leaves_behind_in_its_group_is_ended_with_it(
    commands: ProcessCommands,
) -> None:
    ending = asyncio.wait_for(ended(commands, "sh", "-c", "sleep 1000 & exit 3"), 60)

    assert asyncio.run(ending) == 3 << 8


def test_what_an_earlier_life_has_left_is_ended(tmp_path: Path) -> None:
    async def left() -> int:
        command = await ProcessCommands(("WARREN_CLUSTER", str(tmp_path))).start(
            ("sh", "-c", "setsid sleep 1000 & sleep 1000"), {}
        )
        await ProcessCommands(("WARREN_CLUSTER", str(tmp_path))).kill_leftovers()
        return await command.wait()

    assert asyncio.run(left()) == signal.SIGKILL


def test_what_lasts_stays_until_its_own_job_is_cleared(tmp_path: Path) -> None:
    mark = ("WARREN_CLUSTER", str(tmp_path))

    def living() -> int:
        return len(pids_with_variable("=".join(mark)))

    async def story() -> None:
        commands = ProcessCommands(mark, enter_node=lambda node: ["env", f"ON={node}"])
        starts = ("/bin/sh", "-c", 'test "$ON" = n1 && (sleep 1000 >/dev/null 2>&1 &)')
        for job in ("f1", "f2"):
            command = await commands.start(starts, {"WARREN_NODE": "n1"}, job)
            assert await command.wait() == 0
        assert living() == 2
        # A new life ends what was cut short, and lets alone what lasts.
        await ProcessCommands(mark).kill_leftovers()
        assert living() == 2
        await ProcessCommands(mark).kill_leftovers("f1")
        assert living() == 1
        await commands.kill_leftovers("f2")
        assert living() == 0

    asyncio.run(story())


def test_a_command_for_a_whole_job_that_is_not_there_is_said_to_be_so_wherever_it_is_to_run() -> (
    None
):
    commands = ProcessCommands(("WARREN_CLUSTER", "x"), enter_node=lambda node: ["env"])

    async def start() -> None:
        await commands.start(("/no/such/program",), {"WARREN_NODE": "n1"}, "f1")

    with pytest.raises(CommandNotStarted, match="/no/such/program: there is no such program"):
        asyncio.run(start())


def test_a_command_whose_start_is_cut_short_does_not_go_on(commands: ProcessCommands) -> None:
    async def cut_short() -> None:
        starting = asyncio.ensure_future(commands.start(("sleep", "1000"), {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(cut_short())


def test_commands_know_where_the_instance_is(tmp_path: Path) -> None:
    commands = ProcessCommands(("WARREN_CLUSTER", str(tmp_path)), uri="local:///there")

    asyncio.run(ended(commands, "sh", "-c", f'echo "$FLUX_URI" > {tmp_path}/uri'))

    assert (tmp_path / "uri").read_text() == "local:///there\n"
