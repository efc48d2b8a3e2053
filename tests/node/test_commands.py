"""Programs that a node runs: their words, their failures, and their end."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.node.processes import LIMITS, alive, eventually, zombies
from warren.dws.node import NodeTrouble
from warren.node import commands

LASTS = "sleep 1000 & echo $! > {pid}; echo begun; wait"
"""A program whose child would outlive it, and writes down who that is."""


def lasting(pid: Path) -> list[str]:
    return ["sh", "-c", LASTS.format(pid=shlex.quote(str(pid)))]


def child_of(pid: Path) -> int:
    eventually(lambda: pid.exists() and pid.read_text().strip())
    return int(pid.read_text())


def test_a_command_gives_what_it_printed_and_not_its_complaints() -> None:
    assert asyncio.run(commands.run(["sh", "-c", "echo out; echo err >&2"])) == "out\n"


def test_complaints_are_given_too_where_they_are_wanted() -> None:
    said = asyncio.run(commands.run(["sh", "-c", "echo err >&2; echo out"], merged=True))

    assert said == "err\nout\n"


def test_words_are_passed_on_as_they_are_and_no_shell_reads_them() -> None:
    said = asyncio.run(commands.run(["echo", "a  b", "$HOME", "; exit 1"]))

    assert said == "a  b $HOME ; exit 1\n"


def test_a_command_does_not_read_what_its_agent_is_told() -> None:
    program = "import asyncio; from warren.node import commands; "
    program += "print(asyncio.run(commands.run(['cat'])))"
    said = subprocess.check_output([sys.executable, "-c", program], input="words", text=True)

    assert said == "\n"


def test_output_that_is_not_utf_8_is_no_trouble() -> None:
    assert asyncio.run(commands.run(["printf", r"\377ok"])) == "\ufffdok"


def test_a_failure_is_told_in_the_commands_own_words() -> None:
    with pytest.raises(NodeTrouble, match=r"^sh: no luck today$") as caught:
        asyncio.run(commands.run(["sh", "-c", "echo 'no  luck\n today' >&2; exit 3"]))

    assert not caught.value.fatal


def test_of_many_words_the_last_ones_are_told() -> None:
    program = "import sys; sys.stderr.write('x' * 100_000 + ' the end'); sys.exit(1)"

    with pytest.raises(NodeTrouble, match=r"x the end$") as caught:
        asyncio.run(commands.run([sys.executable, "-c", program]))

    assert len(str(caught.value)) < 5000


def test_a_failure_without_words_is_told_by_its_status() -> None:
    with pytest.raises(NodeTrouble, match=r"^false: exit status 1$"):
        asyncio.run(commands.run(["false"]))


def test_a_command_that_was_killed_is_told_by_its_signal() -> None:
    with pytest.raises(NodeTrouble, match=r"^sh: killed by signal 9$"):
        asyncio.run(commands.run(["sh", "-c", "kill -9 $$"]))


def test_a_program_that_is_not_there_is_a_trouble() -> None:
    with pytest.raises(NodeTrouble, match="/no/such-program cannot be run: it is not there"):
        asyncio.run(commands.run(["/no/such-program"]))


def test_the_time_limit_ends_a_command_with_all_that_it_has_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    for seconds in LIMITS:
        with pytest.raises(NodeTrouble, match=f"^sh did not end within {seconds:g} s$"):
            asyncio.run(commands.run(lasting(pid), seconds=seconds))
        if pid.exists() and pid.read_text().strip():
            break
    child = int(pid.read_text())
    eventually(lambda: child not in alive())


def test_a_command_that_cannot_die_is_told_of_and_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that waits for a server which does not answer."""
    ended = asyncio.Event()
    end = commands._end

    async def late(process: Any, free: Any) -> None:
        await ended.wait()
        await end(process, free)

    async def main() -> None:
        monkeypatch.setattr(commands, "_end", late)
        monkeypatch.setattr(commands, "_KILL_TIMEOUT", 0.1)
        with pytest.raises(NodeTrouble, match="did not end within"):
            await commands.run(["sleep", "600"], seconds=0.1)
        assert len(commands._completions) == 1
        ended.set()
        await asyncio.wait({*commands._completions})

    asyncio.run(main())
    assert zombies() == set()


def test_a_command_that_is_not_waited_for_any_more_is_ended_and_reaped(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def main() -> None:
        running = asyncio.create_task(commands.run(lasting(pid)))
        await asyncio.to_thread(child_of, pid)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    child = child_of(pid)
    eventually(lambda: child not in alive())
    assert zombies() == set()


def test_a_command_that_is_given_up_at_any_moment_of_its_start_is_ended() -> None:
    async def main() -> None:
        for steps in range(30):
            running = asyncio.create_task(commands.run(["sh", "-c", "sleep 600 & wait"]))
            for _ in range(steps):
                await asyncio.sleep(0)
            time.sleep(0.02)  # noqa: ASYNC251 - we are slow, and the command is not
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                async with asyncio.timeout(60):
                    await running

    asyncio.run(main())
    assert zombies() == set()


def test_lines_come_while_the_command_runs(tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"echo one; while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.01; done; echo two"
    seen = []

    async def main() -> None:
        async for line in commands.stream_lines(["sh", "-c", waits]):
            seen.append(line)
            go.touch()

    asyncio.run(main())
    assert seen == ["one\n", "two\n"]


def test_lines_end_in_a_trouble_if_the_command_fails() -> None:
    seen = []

    async def main() -> None:
        async for line in commands.stream_lines(["sh", "-c", "echo one; echo too bad >&2; exit 1"]):
            seen.append(line)

    with pytest.raises(NodeTrouble, match=r"^too bad$"):
        asyncio.run(main())
    assert seen == ["one\n"]


def test_a_flood_of_complaints_does_not_stop_the_lines() -> None:
    program = "import sys; sys.stderr.write('x' * 1_000_000); print('done')"

    async def main() -> list[str]:
        return [line async for line in commands.stream_lines([sys.executable, "-c", program])]

    assert asyncio.run(main()) == ["done\n"]


def test_of_a_flood_of_complaints_no_more_is_kept_than_is_told() -> None:
    program = (
        "import sys\nfor _ in range(512): sys.stderr.write('x' * 65535 + ' ')\nsys.exit('last')"
    )

    async def story() -> None:
        async for _ in commands.stream_lines([sys.executable, "-c", program]):
            pass

    tracemalloc.start()
    try:
        with pytest.raises(NodeTrouble, match=r"xx last$"):
            asyncio.run(story())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 2**20


def test_closing_the_lines_ends_the_command_with_all_that_it_has_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def main() -> None:
        async with aclosing(commands.stream_lines(lasting(pid))) as lines:  # type: ignore[type-var]
            assert await anext(lines) == "begun\n"

    asyncio.run(main())
    child = child_of(pid)
    eventually(lambda: child not in alive())
    assert zombies() == set()


def test_a_command_does_not_outlive_the_agent_that_waits_for_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = ["sh", "-c", f"echo $$ > {shlex.quote(str(pid))}; exec sleep 1000"]
    program = "import asyncio, sys; from warren.node import commands; "
    program += "asyncio.run(commands.run(sys.argv[1:]))"
    with subprocess.Popen([sys.executable, "-c", program, *words]) as agent:
        child = child_of(pid)
        eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        agent.kill()

    eventually(lambda: child not in alive())


def test_another_users_command_may_print_as_much_as_it_likes() -> None:
    said = asyncio.run(
        commands.run_site_command(
            ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo $WORD"],
            {"WORD": "last", "PATH": "/usr/bin:/bin"},
            seconds=60,
        )
    )
    assert said.endswith("xlast")
    assert len(said) <= 4000


def test_what_a_command_leaves_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = f"sleep 1000 & echo $! > {shlex.quote(str(pid))}; echo begun"
    said = asyncio.run(
        commands.run_site_command(["sh", "-c", words], {"PATH": "/usr/bin:/bin"}, seconds=60)
    )
    assert said == "begun"
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_command_whose_start_is_given_up_twice_is_ended_all_the_same(tmp_path: Path) -> None:
    async def give_up(moment: int) -> None:
        """Cancel at some moment of the start, and again at the next."""
        words = f"sleep 1000 & echo $! >> {shlex.quote(str(tmp_path / 'pids'))}; wait"
        performing = asyncio.ensure_future(
            commands.run_site_command(["sh", "-c", words], {"PATH": "/usr/bin:/bin"}, seconds=60)
        )
        for _ in range(moment):
            await asyncio.sleep(0)
        performing.cancel()
        await asyncio.sleep(0)
        performing.cancel()
        await asyncio.wait({performing})
        assert performing.cancelled()

    async def many() -> None:
        for moment in range(1, 40):
            await give_up(moment)
        while commands._completions:
            await asyncio.wait(set(commands._completions))

    asyncio.run(many())
    pids = tmp_path / "pids"
    begun = [int(line) for line in pids.read_text().split()] if pids.exists() else []
    eventually(lambda: not set(begun) & alive())
