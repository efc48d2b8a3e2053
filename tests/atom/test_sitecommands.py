"""The site's commands: what they are told, and what comes of how they end."""

import asyncio
from pathlib import Path

import pytest

from warren.atom.config import SiteCommand
from warren.atom.registration import Registration
from warren.atom.sitecommands import SiteCommandRunner
from warren.dws.node import NodeTrouble

JOB = Registration(jobid="21[1].pbshost", uid=1000, exclusive=True)


def script(words: str, seconds: float = 20.0) -> SiteCommand:
    return SiteCommand(command=("/bin/sh", "-c", words), timeout=seconds)


def test_commands_are_told_of_the_job_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    found = tmp_path / "found"
    actions = SiteCommandRunner([script(f"env > {found}")], [], 1, "own")
    asyncio.run(actions.perform("start", JOB))
    told = dict(line.split("=", 1) for line in found.read_text().splitlines())
    assert {key: told[key] for key in told if key.startswith("ATOM_")} == {
        "ATOM_COMMAND_OF": "own:21[1].pbshost",
        "ATOM_EVENT": "start",
        "ATOM_JOBID": "21[1].pbshost",
        "ATOM_UID": "1000",
        "ATOM_EXCLUSIVE": "1",
    }
    assert set(told) - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "PATH",
        "ATOM_COMMAND_OF",
        "ATOM_EVENT",
        "ATOM_JOBID",
        "ATOM_UID",
        "ATOM_EXCLUSIVE",
    }


def test_commands_run_in_order_to_the_first_that_fails(tmp_path: Path) -> None:
    found = tmp_path / "found"
    counted: list[tuple[str, bool]] = []
    actions = SiteCommandRunner(
        [],
        [
            script(f"echo 1 >> {found}"),
            script(f"echo 2 >> {found}; echo disk full >&2; exit 3"),
            script(f"echo 3 >> {found}"),
        ],
        1,
        "own",
        lambda event, succeeded: counted.append((event, succeeded)),
    )
    with pytest.raises(NodeTrouble, match="/bin/sh: disk full"):
        asyncio.run(actions.perform("end", JOB))
    assert found.read_text() == "1\n2\n"
    assert counted == [("end", True), ("end", False)]


def test_a_command_has_so_long_and_no_longer(tmp_path: Path) -> None:
    with pytest.raises(NodeTrouble, match=r"/bin/sh did not end within 0\.2 s"):
        asyncio.run(
            SiteCommandRunner([script("sleep 60", 0.2)], [], 1, "own").perform("start", JOB)
        )


def test_no_more_run_at_a_time_than_are_allowed(tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    actions = SiteCommandRunner(
        [script(f"mkdir {busy} && sleep 0.05 && rmdir {busy}")], [], 1, "own"
    )

    async def many() -> None:
        await asyncio.gather(*(actions.perform("start", JOB) for _ in range(5)))

    asyncio.run(many())


def test_ends_that_hang_do_not_keep_jobs_from_starting(tmp_path: Path) -> None:
    actions = SiteCommandRunner([script("true")], [script("sleep 60", 61)], 1, "own")

    async def story() -> None:
        ending = asyncio.ensure_future(actions.perform("end", JOB))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            await actions.perform("start", JOB)
        ending.cancel()
        await asyncio.wait({ending})

    asyncio.run(story())


def test_what_cannot_be_run_is_the_commands_failure_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("os.pipe", full)
    with pytest.raises(NodeTrouble, match="no command can be run: Too many open files"):
        asyncio.run(SiteCommandRunner([script("true")], [], 1, "own").perform("start", JOB))
