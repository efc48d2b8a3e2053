"""Tasks as processes. The spawner changes its process for good, so it runs in one of its own."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from typing import Any

import pytest

from warren.base.processes import descendants, parents, pids_with_variable, send_signal


def spawning(program: str, *words: str) -> Any:
    """Run the body of a coroutine that has a `spawner`; return what it returns."""
    body = textwrap.indent(textwrap.dedent(program).strip(), "    ")
    script = f"""
import asyncio, json, os, signal, sys, time
from warren.instance.shell.tasks import CannotStart, ProcessSpawner

async def ended(task):
    outputs = []
    for stream in ("stdout", "stderr"):
        text = b""
        while chunk := await task.read(stream):
            text += chunk
        outputs.append(text.decode())
    return [await task.wait(), *outputs]

async def steps(spawner, words):
{body}

async def main(*words):
    spawner = ProcessSpawner()
    said = await steps(spawner, words)
    # What a task leaves may end after its pipes have. A loop that is closing must hear of no end:
    # a shell cleans up before, too.
    await spawner.clean_up()
    return said

print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
"""
    command = [sys.executable, "-W", "error", "-c", script, *words]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    return json.loads(said.stdout)


def run(command: list[str], environment: dict[str, str], cwd: Path | None = None) -> Any:
    """Run one task to its end: its wait status, its output, its complaints."""
    program = """
    command, environment, cwd = map(json.loads, words)
    try:
        return await ended(await spawner.start(command, environment, cwd))
    except CannotStart as error:
        return str(error)
    """
    place = None if cwd is None else str(cwd)
    return spawning(program, *map(json.dumps, (command, environment, place)))


@pytest.fixture
def mark() -> dict[str, str]:
    """An environment entry to know a test's processes by."""
    return {"PATH": os.environ["PATH"], "MARK": str(uuid.uuid4())}


def left(mark: dict[str, str]) -> list[int]:
    return pids_with_variable(f"MARK={mark['MARK']}")


def test_a_task_gives_its_output_and_its_status(mark: dict[str, str]) -> None:
    script = "echo out; echo err >&2; exit 3"

    assert run(["sh", "-c", script], mark) == [3 << 8, "out\n", "err\n"]


def test_a_task_that_was_killed_gives_its_signal(mark: dict[str, str]) -> None:
    assert run(["sh", "-c", "kill -9 $$"], mark) == [9, "", ""]


def test_a_task_has_its_own_environment_and_no_other(mark: dict[str, str]) -> None:
    _, output, _ = run(["env"], mark)

    assert sorted(output.splitlines()) == sorted(f"{name}={value}" for name, value in mark.items())


def test_a_task_begins_in_its_directory(mark: dict[str, str], tmp_path: Path) -> None:
    assert run(["pwd"], mark, tmp_path) == [0, f"{tmp_path}\n", ""]


def test_a_task_reads_nothing(mark: dict[str, str]) -> None:
    assert run(["cat"], mark) == [0, "", ""]


def test_a_task_that_prints_much_prints_all_of_it(mark: dict[str, str]) -> None:
    status, output, _ = run(["sh", "-c", "yes | head -c 1000000"], mark)

    assert (status, len(output)) == (0, 1_000_000)


def test_why_a_task_cannot_start_is_told_in_a_sentence(
    mark: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "text").touch(0o644)
    nowhere = tmp_path / "nowhere"

    assert run(["/no/such-program"], mark) == "/no/such-program: No such file or directory"
    assert run([str(tmp_path / "text")], mark) == f"{tmp_path}/text: Permission denied"
    told = run(["true"], mark, nowhere)
    assert told == f"working directory {nowhere}: No such file or directory"


def test_a_signal_goes_to_the_task_and_all_of_its_group(mark: dict[str, str]) -> None:
    program = """
    task = await spawner.start(["sh", "-c", "sleep 1000 & echo on; wait"], dict([words]), None)
    await task.read("stdout")
    task.signal(signal.SIGTERM)
    return await ended(task)
    """

    # All of the group: the end of the output is where both have ended.
    assert spawning(program, "MARK", mark["MARK"]) == [15, "", ""]


def test_a_signal_to_a_task_that_is_over_is_no_trouble(mark: dict[str, str]) -> None:
    program = """
    task = await spawner.start(["true"], {}, None)
    await ended(task)
    task.signal(signal.SIGTERM)
    """

    assert spawning(program) is None


def test_a_task_is_bound_to_its_cpus_and_the_shell_is_not() -> None:
    program = """
    from warren.instance.shell.tasks import Inherited
    ours = os.sched_getaffinity(0)
    inherited = Inherited(cpus=frozenset({max(ours)}))
    command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    said = await ended(await spawner.start(command, os.environ, None, inherited))
    return [said, max(ours), os.sched_getaffinity(0) == ours]
    """
    said, last, unbound = spawning(program)

    assert said == [0, f"{last}\n", ""]
    assert unbound


def test_a_task_whose_cpus_are_not_there_is_not_started_elsewhere() -> None:
    program = """
    from warren.instance.shell.tasks import Inherited
    try:
        await spawner.start(["true"], os.environ, None, Inherited(cpus=frozenset({65000})))
    except CannotStart as error:
        return str(error)
    """

    assert spawning(program) == "the task cannot be bound to CPUs 65000: Invalid argument"


ON_A_TERMINAL = """
    from warren.instance.shell.tasks import Inherited
    from warren.instance.shell.terminal import Terminal
    terminal = Terminal((30, 90), echo=True)
    writer = terminal.input_descriptor()
    started = spawner.start(["sh", "-c", words[0]], os.environ, None, Inherited(terminal=terminal))
    task = await started
    terminal.close_slave()
"""


def test_a_task_on_a_terminal_has_it_for_all_its_streams_and_as_its_own() -> None:
    program = (
        ON_A_TERMINAL
        + """
    return await ended(task)
    """
    )
    script = "test -t 0 && test -t 1 && test -t 2 && stty size < /dev/tty && echo bad >&2; exit 3"

    assert spawning(program, script) == [3 << 8, "30 90\r\nbad\r\n", ""]


def test_keys_that_are_typed_at_a_terminal_are_signals_to_the_task() -> None:
    program = (
        ON_A_TERMINAL
        + """
    assert await task.read("stdout") == b"on\\r\\n"
    os.write(writer, b"\\x03")
    return await ended(task)
    """
    )

    status, printed, _ = spawning(program, "echo on; exec sleep 1000")
    assert (status, printed) == (2, "^C")


def test_what_a_task_leaves_on_its_terminal_is_ended(mark: dict[str, str]) -> None:
    program = (
        ON_A_TERMINAL
        + """
    status = await task.wait()
    await spawner.clean_up()
    return [*await ended(task), status]
    """
    )
    script = f"MARK={mark['MARK']}; export MARK; trap '' HUP; sleep 1000 & exit 0"

    assert spawning(program, script) == [0, "", "", 0]
    assert left(mark) == []


LEAVING = {
    "in its group": "sleep 1000 >&- 2>&- &",
    "in a session of its own": "setsid sleep 1000 >&- 2>&- &",
    "twice removed": "setsid sh -c 'sleep 1000 & exec sleep 1000' >&- 2>&- &",
    "with its output open": "sleep 1000 &",
    "deaf": "setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000; sleep 1000' >&- 2>&- &",
}


@pytest.mark.parametrize("leaving", LEAVING.values(), ids=LEAVING)
def test_what_tasks_leave_behind_is_ended(mark: dict[str, str], leaving: str) -> None:
    program = """
    task = await spawner.start(["sh", "-c", words[0] + " exit 0"], json.loads(words[1]), None)
    status = await task.wait()
    await asyncio.sleep(0.1)
    await spawner.clean_up()
    return [*await ended(task), status]
    """

    assert spawning(program, leaving, json.dumps(mark)) == [0, "", "", 0]
    assert left(mark) == []


def test_cleaning_up_where_nothing_is_left_is_no_trouble(mark: dict[str, str]) -> None:
    assert spawning("await spawner.clean_up()") is None


# Looking at processes


def test_processes_are_known_with_their_parents() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=-1) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())

        assert parents()[child] == process.pid
        assert {process.pid, child} <= set(descendants(os.getpid()))
        assert descendants(process.pid) == [child]
        assert descendants(child) == []
        os.kill(child, 9)


def test_a_process_that_has_ended_is_not_alive_though_it_is_not_reaped() -> None:
    with subprocess.Popen(["true"]) as process:
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
            continue
        assert process.pid not in parents()


def test_processes_are_found_by_a_whole_entry_of_their_environment(mark: dict[str, str]) -> None:
    longer = {**mark, "MARK": mark["MARK"] + "x"}
    with (
        subprocess.Popen(["sleep", "1000"], env=mark) as wanted,
        subprocess.Popen(["sleep", "1000"], env=longer) as other,
    ):
        for process in (wanted, other):
            while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                continue
        try:
            assert left(mark) == [wanted.pid]
        finally:
            wanted.kill()
            other.kill()


def test_a_signal_goes_to_no_process_that_is_not_meant_any_more() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        answers = iter([[process.pid], []])

        assert send_signal(lambda: next(answers), signal.SIGKILL) == set()
        assert process.poll() is None
        assert send_signal(lambda: [process.pid], signal.SIGKILL) == {process.pid}


def test_what_an_ended_task_has_left_in_its_group_gets_the_signals_of_the_group() -> None:
    program = """
    from warren.base.processes import parents
    task = await spawner.start(["sh", "-c", "sleep 1000 & echo $!"], os.environ, None)
    left = int(await task.read("stdout"))
    assert await task.wait() == 0
    assert left in parents()
    task.signal(signal.SIGKILL)
    while left in parents():
        await asyncio.sleep(0.01)
    task.signal(signal.SIGKILL)
    """
    assert spawning(program) is None


def test_no_process_finds_itself_by_its_mark() -> None:
    name, value = next(iter(os.environ.items()))

    assert os.getpid() not in pids_with_variable(f"{name}={value}")


def test_a_script_that_does_not_name_who_reads_it_is_read_by_sh(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $0 $1\n")
    script.chmod(0o755)

    assert run([str(script), "word"], {}) == [0, f"{script} word\n", ""]
    looked_for = {"PATH": f"/nowhere:{tmp_path}"}
    assert run(["script", "word"], looked_for) == [0, f"{script} word\n", ""]
