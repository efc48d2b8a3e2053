"""The parent of shells as a real process, on a real socket, under a real launcher."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.base.test_fuse import Silent, silent  # noqa: F401 - a fixture
from tests.harness import stuck
from tests.harness.tracing import traced
from tests.harness.users import TEST_USER
from tests.instance.parts import living, refused
from tests.instance.test_cgroups import hierarchy
from warren.base.processes import parents, pids_with_variable, process_status
from warren.instance.exec.execution import ShellsLost, ShellStuck
from warren.instance.exec.launcher import RemoteLauncher, ShellRefused
from warren.instance.shell import cgroups
from warren.instance.shell.parent import (
    DetachLeft,
    ShellParent,
    StartRequest,
    _Detaching,
    _DyingShell,
    _Shell,
    _state_and_cpu_ticks,
)
from warren.instance.shell.signals import TASK_SIGNAL_OFFSET
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus, Method
from warren.rpc.message import Request
from warren.rpc.server import serve

JOB = JobId(7)
PROGRAM = Path(__file__).with_name("toy_parent.py")


@dataclass
class Site:
    """Where shells and instances come and go."""

    place: Path
    marker: str
    way: str = "cgroups"
    """How processes are known: by their `cgroups`, or by their `parents`."""
    patience: float = 10.0
    """Seconds that what was killed has to die."""

    def __post_init__(self) -> None:
        self._parents: list[subprocess.Popen[bytes]] = []

    @property
    def socket(self) -> Path:
        return self.place / "local"

    def parent(self) -> "subprocess.Popen[bytes]":
        """Start a parent."""
        words = [str(self.socket), self.marker, str(self.place), self.way, str(self.patience)]
        with (self.place / "log").open("ab") as log:
            program = [sys.executable, str(PROGRAM), *words]
            started = subprocess.Popen(program, stdout=log, stderr=log)
        self._parents.append(started)
        return started

    def parent_process(self) -> int:
        """Return the process of the parent itself, below the one that was started."""
        return int((self.place / "parent").read_text())

    def end(self) -> None:
        for parent in self._parents:
            parent.terminate()
            parent.wait(120)

    async def shell(self, job: int, rank: int, but: int = 0) -> list[int]:
        """Wait for a shell, and return its process and what it has left behind."""
        place = self.place / f"{job}-{rank}"
        await until(lambda: place.exists() and int(place.read_text().split()[0]) != but)
        process, _, *left = place.read_text().split()
        return [int(process), *map(int, left)]

    def mounts(self) -> list[str]:
        """Return what has been said of users' mounts."""
        lines = (self.place / "log").read_text().splitlines()
        return [each for each in lines if each.startswith(("looking", "detached"))]

    def let_end(self, job: int, rank: int, code: int) -> None:
        end = self.place / f"{job}-{rank}.end"
        # Whole or not at all: the shell looks for it all the time.
        unfinished = end.with_suffix(".writing")
        unfinished.write_text(str(code))
        unfinished.rename(end)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what other processes are about to do."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def gone(*processes: int) -> None:
    await until(lambda: not set(processes) & parents().keys())


@pytest.fixture(params=["cgroups", "parents"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A site of whose shells none is left."""
    if request.param == "cgroups" and cgroups.cluster_cgroups(str(tmp_path)) is None:
        pytest.skip("this user makes no cgroups here")
    site = Site(tmp_path, f"TOY={uuid.uuid4()}", request.param)
    yield site
    site.end()
    assert pids_with_variable(site.marker) == []
    assert cgroups.base_cgroups(str(tmp_path)) == []


async def signed(_: Request) -> dict[str, Any]:
    """Return what only the shells of guests are given."""
    return {"J": "signed"}


@asynccontextmanager
async def instance(site: Site) -> AsyncIterator[RemoteLauncher]:
    """One life of an instance."""
    bus = Bus(os.geteuid())
    launcher = RemoteLauncher(bus.handle(), bus.owner)
    bus.register("job-exec", launcher.methods())
    bus.register("job-info", {"lookup": Method(signed)})
    async with living(lambda: serve(bus, site.socket)):
        yield launcher


async def start(launcher: RemoteLauncher, job: int, rank: int = 0, host: str = "node0") -> None:
    await launcher.start(JobId(job), rank, host, os.geteuid())


def lived(life: Callable[[], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(300):
            await life()

    asyncio.run(main())


def test_shells_are_started_and_their_ends_are_told(site: Site) -> None:
    """Statement 003.9: shells are started directly where the jobs are the owner's own."""
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0)
            await start(launcher, JOB, 1)
            assert await launcher.started_jobs() == {JOB: frozenset({0, 1})}
            for rank, code in ((1, 3), (0, 0)):
                await site.shell(JOB, rank)
                site.let_end(JOB, rank, code)
                assert await launcher.wait(JOB, rank) == code << 8

    lived(main)


def test_an_end_is_told_to_all_who_wait_for_it_and_to_who_comes_after(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB)
            waiting = asyncio.gather(launcher.wait(JOB, 0), launcher.wait(JOB, 0))
            site.let_end(JOB, 0, 5)
            assert list(await waiting) == [5 << 8, 5 << 8]
            assert await launcher.wait(JOB, 0) == 5 << 8

    lived(main)


def test_a_parent_may_be_there_before_the_instance_is(site: Site) -> None:
    parent = site.parent()

    async def main() -> None:
        await asyncio.sleep(0.5)
        assert parent.poll() is None
        async with instance(site) as launcher:
            assert await launcher.started_jobs() == {}

    lived(main)


def test_a_shell_that_has_started_is_not_started_again(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB)
            first = await site.shell(JOB, 0)
            await start(launcher, JOB)
        (site.place / f"{JOB}-0").unlink()
        async with instance(site) as launcher:
            # This one does not know, and asks.
            launcher._hello_received.set()
            await start(launcher, JOB)
            assert parents()[first[0]]
            assert not (site.place / f"{JOB}-0").exists()

    lived(main)


def test_shells_live_on_while_the_instance_restarts(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            for rank in (0, 1):
                await start(launcher, JOB, rank)
            ended, running = [(await site.shell(JOB, rank))[0] for rank in (0, 1)]
        site.let_end(JOB, 0, 9)
        await gone(ended)
        async with instance(site) as launcher:
            assert await launcher.started_jobs() == {JOB: frozenset({0, 1})}
            assert await launcher.wait(JOB, 0) == 9 << 8
            assert running in parents()
            site.let_end(JOB, 1, 0)
            assert await launcher.wait(JOB, 1) == 0

    lived(main)


def test_a_signal_goes_to_the_shells_of_its_job(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            other = JobId(8)
            for job, rank in ((JOB, 0), (JOB, 1), (other, 0)):
                await start(launcher, job, rank)
                await site.shell(job, rank)
            await launcher.kill(JOB, signal.SIGTERM)
            for rank in (0, 1):
                assert await launcher.wait(JOB, rank) == signal.SIGTERM
            assert (await site.shell(other, 0))[0] in parents()

    lived(main)


def test_a_signal_for_tasks_does_not_kill_a_shell_that_cannot_pass_it_on_yet(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB)
            await launcher.kill(JOB, TASK_SIGNAL_OFFSET + signal.SIGINT)
            site.let_end(JOB, 0, 3)
            assert await launcher.wait(JOB, 0) == 3 << 8

    lived(main)


def test_a_kill_reaches_what_the_shells_have_started(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host="messy")
            shell, left = await site.shell(JOB, 0)
            assert pids_with_variable(site.marker) == [left]
            await launcher.kill(JOB, signal.SIGKILL)
            assert await launcher.wait(JOB, 0) == signal.SIGKILL
            await gone(shell, left)

    lived(main)


@pytest.mark.parametrize("host", ["messy", "scrubbed"])
def test_a_shell_has_ended_when_nothing_of_it_is_left(site: Site, host: str) -> None:
    """Statement 003.11: lingering tasks and shells are cleaned up."""
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0, host)
            await start(launcher, JOB, 1, "messy")
            shell, left = await site.shell(JOB, 0)
            others = await site.shell(JOB, 1)
            os.kill(shell, signal.SIGKILL)
            assert await launcher.wait(JOB, 0) == signal.SIGKILL
            assert left not in parents()
            assert set(others) < set(parents())

    lived(main)


def test_what_does_not_die_is_told_of_and_holds_nothing_up(site: Site) -> None:
    """A process in a frozen cgroup of the first version is deaf to the last signal."""
    freezer = hierarchy("freezer")
    if freezer is None or os.geteuid() != 0:
        pytest.skip("nothing can be made not to die here: there is no freezer, or no root")
    site.patience = 0.2
    site.parent()
    ice = freezer / f"warren-test-{uuid.uuid4()}"
    ice.mkdir()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0, "messy")
            await start(launcher, JOB, 1)
            shell, left = await site.shell(JOB, 0)
            (ice / "cgroup.procs").write_text(str(left))
            (ice / "freezer.state").write_text("FROZEN")
            os.kill(shell, signal.SIGKILL)
            with pytest.raises(ShellStuck, match=rf"do not die: \[{left}\]"):
                await launcher.wait(JOB, 0)
            site.let_end(JOB, 1, 0)
            assert await launcher.wait(JOB, 1) == 0

            (ice / "freezer.state").write_text("THAWED")
            await gone(left)

    try:
        lived(main)
    finally:
        (ice / "freezer.state").write_text("THAWED")
        ice.rmdir()


def test_a_user_who_traces_what_is_left_of_a_job_keeps_it_not_from_dying(site: Site) -> None:
    site.parent()
    userid = os.geteuid() or TEST_USER

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JOB, 0, "messy", userid)
            _, left = await site.shell(JOB, 0)
            with traced(left, userid=userid) as tracer:
                await launcher.kill(JOB, signal.SIGKILL)
                assert await launcher.wait(JOB, 0) == signal.SIGKILL
                assert left not in parents()
                assert tracer.wait(60) == -signal.SIGKILL

    lived(main)


def test_a_shell_has_ended_when_what_is_left_of_it_runs_no_more(site: Site) -> None:
    """Two processes that trace each other never die: no node is drained for what does nothing."""
    site.patience = 1.0
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0, "messy")
            _, left = await site.shell(JOB, 0)
            # Root's are not killed; an ordinary user's are not before the shell has ended.
            with traced(left, userid=os.geteuid()):
                await launcher.kill(JOB, signal.SIGKILL)
                assert await launcher.wait(JOB, 0) == signal.SIGKILL
            await gone(left)

    lived(main)


@pytest.mark.parametrize("site", ["cgroups"], indirect=True)
def test_what_a_tracer_held_leaves_no_cgroup_behind_once_it_has_let_go(site: Site) -> None:
    site.patience = 1.0
    site.parent()

    def cgroups_of_shells() -> list[str]:
        return [
            name for base in cgroups.base_cgroups(str(site.place)) for name, _ in base.children()
        ]

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0, "messy")
            _, left = await site.shell(JOB, 0)
            with traced(left, userid=os.geteuid()):
                await launcher.kill(JOB, signal.SIGKILL)
                assert await launcher.wait(JOB, 0) == signal.SIGKILL
            await gone(left)

            # When the next shell ends, it is seen.
            site.let_end(JOB, 1, 0)
            await start(launcher, JOB, 1)
            assert await launcher.wait(JOB, 1) == 0
            await until(lambda: cgroups_of_shells() == [])

    lived(main)


def test_what_is_held_by_a_user_who_traces_it_holds_no_parent_up_at_its_end(site: Site) -> None:
    parent = site.parent()
    userid = os.geteuid() or TEST_USER

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JOB, 0, "messy", userid)
            _, left = await site.shell(JOB, 0)
            with traced(left, userid=userid) as tracer:
                parent.terminate()
                await asyncio.to_thread(parent.wait, 60)
                assert left not in parents()
                assert tracer.wait(60) == -signal.SIGKILL

    lived(main)


def test_what_dies_while_it_is_told_of_was_held_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Between the look whether a shell is gone and the look at what is left of it."""
    parent = ShellParent(tmp_path / "local", NoShell(), str(tmp_path), kill_timeout=0.0)
    shell = _Shell(StartRequest(id=JOB, rank=0, host="node0", userid=1), 0, None, status=9)
    parent._dying.append(_DyingShell(shell, since=-1.0))
    monkeypatch.setattr(parent, "_is_gone", lambda _: False)
    monkeypatch.setattr(parent, "_leftovers", lambda _: [])
    try:
        parent._check_dying()
        assert [each.shell for each in parent._dying] == [shell]
        assert capfd.readouterr().err == ""
    finally:
        os.close(parent._notes_reader)
        os.close(parent._notes_writer)
        for each in cgroups.base_cgroups(str(tmp_path)):
            assert each.remove()


@pytest.mark.parametrize("site", ["cgroups"], indirect=True)
def test_what_waits_in_execve_for_ever_holds_nothing_up(site: Site) -> None:
    site.parent()

    async def main(hanging: int) -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0)
            await start(launcher, JOB, 1)
            shell, *_ = await site.shell(JOB, 0)
            (of_shell,) = (
                cgroup._path
                for base in cgroups.base_cgroups(str(site.place))
                for name, cgroup in base.children()
                if name.startswith(f"{JOB}-0.")
            )
            (of_shell / "cgroup.procs").write_text(str(hanging))
            os.kill(shell, signal.SIGKILL)
            # It is asked what it waits for, then.
            await until(lambda: process_status(Path(f"/proc/{hanging}"))["State"].startswith("D"))
            await asyncio.sleep(3.0)
            site.let_end(JOB, 1, 0)
            assert await launcher.wait(JOB, 1) == 0

    with stuck.in_exec(TEST_USER) as process:
        lived(lambda: main(process.pid))


def test_a_shell_that_waits_for_a_silent_file_server_can_be_killed(
    site: Site,
    silent: Silent,  # noqa: F811
) -> None:
    site.parent()
    (site.place / "look").write_text(f"{silent.place}/x")

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JOB, 0, "waiting", TEST_USER)
            await until(silent.asked.is_set)
            await launcher.kill(JOB, signal.SIGKILL)
            assert await launcher.wait(JOB, 0) == signal.SIGKILL

    lived(main)


def test_a_shell_that_cannot_be_says_why(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0, "refusing")
            words = f"not as user {os.geteuid()} by None"
            with pytest.raises(ShellRefused, match=words):
                await launcher.wait(JOB, 0)
        async with instance(site) as launcher:
            # Also to an instance that comes later.
            with pytest.raises(ShellRefused, match=words):
                await launcher.wait(JOB, 0)
            await launcher.forget(JOB)
            with pytest.raises(ShellsLost, match="restarted"):
                await launcher.wait(JOB, 0)

    lived(main)


@pytest.mark.parametrize("failing", ["os.fork", "warren.instance.shell.cgroups.Cgroups.make"])
def test_where_no_process_can_be_made_the_job_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    parent = ShellParent(tmp_path / "local", NoShell(), str(tmp_path))
    if parent._cgroups is None and "make" in failing:
        pytest.skip("this user makes no cgroups here")

    def fail(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(failing, fail)
    try:
        parent._start({"id": JOB, "rank": 0, "host": "node0", "userid": 1})
        [shell] = parent._shells.values()
        assert shell.report() == {
            "id": JOB,
            "rank": 0,
            "status": 1 << 8,
            "note": "the shell cannot be started: Resource temporarily unavailable",
            "left": [],
        }
    finally:
        os.close(parent._notes_reader)
        os.close(parent._notes_writer)
        for each in cgroups.base_cgroups(str(tmp_path)):
            assert each.remove()


def test_where_there_are_too_many_open_files_what_a_shell_prints_is_lost_and_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ShellParent(tmp_path / "local", NoShell(), str(tmp_path))
    parent._cgroups = None

    with monkeypatch.context() as patch:
        patch.setattr("resource.getrlimit", lambda which: (256, 256))
        patch.setattr("os.fork", lambda: 2**22 + 1)
        parent._start({"id": JOB, "rank": 0, "host": "node0", "userid": 1})
    [shell] = parent._living.values()
    parent._log_output(shell)
    assert (shell.note, shell.output) == ("", None)
    os.close(parent._notes_reader)
    os.close(parent._notes_writer)
    for each in cgroups.base_cgroups(str(tmp_path)):
        assert each.remove()


class NoShell:
    """A shell that never is."""

    def prepare(self, start: StartRequest) -> bytes | None:
        raise AssertionError

    def run_shell(self, start: StartRequest, proven_payload: bytes | None) -> int:
        raise AssertionError

    def clean(self, start: StartRequest) -> int | None:
        raise AssertionError

    def left_mounts(self, host: str) -> DetachLeft | None:
        raise AssertionError


def test_signals_to_shells_that_have_ended_are_no_trouble(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            site.let_end(JOB, 0, 0)
            await start(launcher, JOB)
            await launcher.wait(JOB, 0)
            for signum in (signal.SIGTERM, signal.SIGKILL):
                await launcher.kill(JOB, signum)
                await launcher.kill(JobId(99), signum)
            await launcher.forget(JobId(99))

    lived(main)


def test_a_job_that_is_forgotten_can_be_started_anew(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB)
            (first,) = await site.shell(JOB, 0)
            await launcher.forget(JOB)
            assert await launcher.started_jobs() == {}
            await gone(first)

            await start(launcher, JOB)
            (second,) = await site.shell(JOB, 0, but=first)
            assert second in parents()
            with pytest.raises(ShellsLost):
                await launcher.wait(JOB, 1)

    lived(main)


def test_a_shell_with_a_bug_ends_with_a_status(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host="broken")
            assert await launcher.wait(JOB, 0) == 1 << 8

    lived(main)


def test_what_a_shell_prints_is_told_at_its_end_with_its_name(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host="broken")
            await launcher.wait(JOB, 0)

    lived(main)
    said = f"job {JOB}, shell 0: RuntimeError: a shell with a bug"
    assert said in (site.place / "log").read_text().splitlines()


def test_what_a_shell_prints_without_end_is_cut_off_and_waits_for_nobody(site: Site) -> None:
    """A user has what the processes of theirs have open, and passes it on."""
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host="talkative")
            (process,) = await site.shell(JOB, 0)
            assert not (site.place / "log").samefile(f"/proc/{process}/fd/1")
            assert not (site.place / "log").samefile(f"/proc/{process}/fd/2")
            site.let_end(JOB, 0, 0)
            await launcher.wait(JOB, 0)

    lived(main)
    told = (site.place / "log").read_text()
    assert len(told) < 200_000
    assert told.count("\n") <= 42
    assert "\x1b" not in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has userfaultfd(2) here")
def test_a_write_that_never_ends_keeps_no_other_shell_waiting(site: Site) -> None:
    """The page that it is to write is one of a file server of the user's, say."""
    site.parent()
    other = JobId(JOB + 1)

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host="stalling")
            await start(launcher, other)
            await site.shell(JOB, 0)
            await site.shell(other, 0)
            site.let_end(JOB, 0, 0)
            site.let_end(other, 0, 0)
            await launcher.wait(JOB, 0)
            await launcher.wait(other, 0)

    lived(main)


# What users have left mounted

ONE, OTHER = TEST_USER, TEST_USER + 1


async def end(site: Site, launcher: RemoteLauncher, job: int, rank: int = 0) -> None:
    site.let_end(job, rank, 0)
    await launcher.wait(JobId(job), rank)


def test_what_users_have_mounted_goes_from_a_host_with_the_last_of_their_shells_there(
    site: Site,
) -> None:
    (site.place / "mounted").write_text(f"{ONE} {OTHER}")
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JobId(1), 0, "node0", ONE)
            await launcher.start(JobId(2), 0, "node0", ONE)
            await launcher.start(JobId(2), 1, "node1", ONE)
            await launcher.start(JobId(3), 0, "node0", OTHER)
            await launcher.start(JobId(4), 0, "node2", os.geteuid())
            await end(site, launcher, 4)
            await end(site, launcher, 2, 1)
            told = ["looking node1", f"detached node1 {ONE} {OTHER}"]
            await until(lambda: site.mounts() == told)
            await end(site, launcher, 2)
            (site.place / "looking").touch()
            await end(site, launcher, 1)
            await until(lambda: site.mounts()[2:] == ["looking node0"])
            # One process at a time, and then another for what has ended meanwhile.
            await end(site, launcher, 3)
            (site.place / "looking").unlink()
            again = ["looking node0", f"detached node0 {ONE} {OTHER}"] * 2
            await until(lambda: site.mounts()[2:] == again)

    lived(main)


def test_what_a_user_mounts_whose_next_shell_starts_while_it_is_looked_stays(site: Site) -> None:
    (site.place / "mounted").write_text(f"{ONE} {OTHER}")
    (site.place / "looking").touch()
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JobId(1), 0, "node0", ONE)
            await end(site, launcher, 1)
            await until(lambda: site.mounts() == ["looking node0"])
            await launcher.start(JobId(2), 0, "node0", ONE)
            (site.place / "looking").unlink()
            await until(lambda: site.mounts()[1:] == [f"detached node0 {OTHER}"])

    lived(main)


def test_where_no_process_can_be_made_for_it_what_users_have_mounted_goes_later(
    site: Site,
) -> None:
    (site.place / "mounted").write_text(f"{ONE}")
    (site.place / "forkless").touch()
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JobId(1), 0, "node0", ONE)
            await end(site, launcher, 1)
            await until(lambda: site.mounts() == ["looking node0", f"detached node0 {ONE}"])
            assert not (site.place / "forkless").exists()

    lived(main)


def test_what_hangs_at_what_users_have_mounted_is_killed_and_the_next_host_has_its_turn(
    site: Site,
) -> None:
    (site.place / "mounted").write_text(f"{ONE}")
    (site.place / "silent").write_text("node0")
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JobId(1), 0, "node0", ONE)
            await launcher.start(JobId(1), 1, "node1", ONE)
            await end(site, launcher, 1)
            await until(lambda: site.mounts() == ["looking node0"])
            await end(site, launcher, 1, 1)
            await until(lambda: f"detached node1 {ONE}" in site.mounts())
            log = (site.place / "log").read_text()
            assert (
                log.count("node0: mounts of users may stay: the process that detaches them hangs")
                == 1
            )
            (site.place / "silent").unlink()
            await launcher.start(JobId(2), 0, "node0", ONE)
            await end(site, launcher, 2)
            await until(lambda: f"detached node0 {ONE}" in site.mounts())

    lived(main)


Detacher = tuple[ShellParent, "subprocess.Popen[bytes]", list[tuple[str, str]]]


@pytest.fixture
def detacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Detacher]:
    """A parent, at the time 0.0, with a process that detaches since then, and its next states."""
    states: list[tuple[str, str]] = []
    module = "warren.instance.shell.parent"
    monkeypatch.setattr(f"{module}._state_and_cpu_ticks", lambda _: states.pop(0))
    parent = ShellParent(tmp_path / "local", NoShell(), str(tmp_path), detach_timeout=10.0)
    with subprocess.Popen(["sleep", "1000"]) as process:
        parent._detaching = _Detaching("node0", process.pid, 0.0, 10.0, None)
        yield parent, process, states
        process.kill()
    os.close(parent._notes_reader)
    os.close(parent._notes_writer)


def look(parent: ShellParent, *times: float) -> None:
    """Look at what is not to be killed yet."""
    for now in times:
        assert parent._detaching is not None
        assert parent._detaching.deadline == now
        parent._check_hanging(parent._detaching, now)
    assert parent._detaching is not None


def test_what_works_at_what_users_have_mounted_is_given_time_and_what_is_killed_is_alone_there(
    detacher: Detacher, capsys: pytest.CaptureFixture[str]
) -> None:
    """What hangs may not even die. What waits for a CPU does not hang."""
    parent, process, states = detacher
    states += [("S", "1 0"), ("S", "1 1"), ("R", "1 1"), ("S", "1 1")]
    look(parent, 10.0, 20.0, 30.0)
    assert parent._detaching is not None
    parent._check_hanging(parent._detaching, 40.0)
    assert parent._detaching is None
    assert process.wait() == -signal.SIGKILL
    parent._left_hosts["node0"] = None
    assert parent._next_left_host() is None
    parent._end_detaching(process.pid, signal.SIGKILL)
    assert parent._next_left_host() == "node0"
    said = "node0: mounts of users may stay: the process that detaches them hangs, and is killed\n"
    assert capsys.readouterr().err == said


def test_what_works_without_end_at_what_users_have_mounted_is_killed_and_leaves_others_time(
    detacher: Detacher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users choose how long the table is that is read."""
    parent, process, states = detacher
    states += [("R", str(each)) for each in range(10)]
    look(parent, *[10.0 * each for each in range(1, 10)])
    assert parent._detaching is not None
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    parent._check_hanging(parent._detaching, 100.0)
    assert parent._detaching is None
    assert process.wait() == -signal.SIGKILL
    assert "node0: mounts of users may stay: the process" in (said := capsys.readouterr().err)
    assert "takes too long" in said
    parent._left_hosts["node1"] = None
    assert parent._next_left_host() == "node1"
    assert parent._next_detaching == 200.0


def test_what_runs_is_told_from_what_waits_and_from_what_is_gone() -> None:
    state, cpu_ticks = _state_and_cpu_ticks(os.getpid())
    assert state == "R"
    assert all(each.isdecimal() for each in cpu_ticks.split())
    assert _state_and_cpu_ticks(2**22 + 1) == ("", "")  # there are no such processes


@pytest.mark.parametrize(("status", "told"), [(0, ""), (1 << 8, "1"), (signal.SIGKILL, "-9")])
def test_that_what_detaches_has_failed_or_was_killed_is_told(
    detacher: Detacher, capsys: pytest.CaptureFixture[str], status: int, told: str
) -> None:
    """The kernel kills it where memory is short."""
    parent, process, _ = detacher
    parent._end_detaching(process.pid, status)
    assert parent._detaching is None
    said = capsys.readouterr().err
    assert said.startswith("node0: mounts of users may stay: ") == bool(told)
    assert said.rstrip().endswith(told)


def test_of_more_users_than_can_be_asked_for_the_others_are_asked_for_next(site: Site) -> None:
    userids = range(10**9, 10**9 + 500)
    (site.place / "mounted").write_text(" ".join(map(str, userids)))
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.start(JobId(1), 0, "node0", ONE)
            (site.place / "looking").touch()
            await end(site, launcher, 1)
            await until(lambda: site.mounts() == ["looking node0"])
            (site.place / "looking").unlink()
            await until(lambda: len(site.mounts()) > 1)
            first = {int(each) for each in site.mounts()[1].split()[2:]}
            assert 300 < len(first) < 400
            others = set(userids) - first
            (site.place / "mounted").write_text(" ".join(map(str, others)))
            told = " ".join(["detached node0", *map(str, sorted(others))])
            await until(lambda: told in site.mounts())

    lived(main)


def test_shells_end_with_their_parent(site: Site) -> None:
    parent = site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, 0, "messy")
            await start(launcher, JOB, 1)
            processes = [*await site.shell(JOB, 0), *await site.shell(JOB, 1)]
            parent.terminate()
            await asyncio.to_thread(parent.wait, 10)
            assert not set(processes) & parents().keys()

    lived(main)


def bystanders(site: Site) -> list["subprocess.Popen[bytes]"]:
    """Start processes that have what any user can have: the instance's address, a task's names."""
    addressed = {"FLUX_URI": f"local://{site.socket}"}
    task = {"FLUX_JOB_ID": "ƒ7", "FLUX_TASK_RANK": "0", "FLUX_KVS_NAMESPACE": "job-7"}
    return [
        subprocess.Popen(["sleep", "1000"], env={**os.environ, **variables})
        for variables in (addressed, {**addressed, **task})
    ]


@pytest.mark.parametrize("host", ["messy", "scrubbed"])
def test_what_is_left_of_a_parent_that_was_killed_ends_and_its_shells_are_lost(
    site: Site, host: str
) -> None:
    guard = site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host=host)
            shell, left = await site.shell(JOB, 0)
            waiting = asyncio.ensure_future(launcher.wait(JOB, 0))
            os.kill(site.parent_process(), signal.SIGKILL)
            assert await asyncio.to_thread(guard.wait, 10) == 128 + signal.SIGKILL
            assert not {shell, left} & parents().keys()

            site.parent()
            with pytest.raises(ShellsLost, match="parent process was restarted"):
                await waiting
            assert await launcher.started_jobs() == {}

    lived(main)


def test_a_new_parent_ends_what_is_left_in_cgroups_and_no_process_that_only_names_the_instance(
    site: Site,
) -> None:
    guard = site.parent()
    others = bystanders(site)

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB, host="scrubbed")
            shell, left = await site.shell(JOB, 0)
            guard.kill()
            guard.wait()
            os.kill(site.parent_process(), signal.SIGKILL)
            await gone(shell)
            assert left in parents()

            site.parent()
            with pytest.raises(ShellsLost, match="parent process was restarted"):
                await launcher.wait(JOB, 0)
            assert (left in parents()) is (site.way != "cgroups")
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
            assert [other.poll() for other in others] == [None, None]

    try:
        lived(main)
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_parent_goes_on_without_the_process_above_it(site: Site) -> None:
    guard = site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await start(launcher, JOB)
            await site.shell(JOB, 0)
            guard.kill()
            guard.wait()
            site.let_end(JOB, 0, 3)
            assert await launcher.wait(JOB, 0) == 3 << 8
            parent = site.parent_process()
            os.kill(parent, signal.SIGTERM)
            await gone(parent)  # nothing else waits for it

    lived(main)


def test_what_a_parent_does_not_understand_it_refuses_and_goes_on(site: Site) -> None:
    site.parent()

    async def main() -> None:
        async with instance(site) as launcher:
            await launcher.started_jobs()
            ask = launcher._handle.rpc
            for topic in ("dance", "start"):
                assert await refused(ask(f"shells.{topic}", {})) == errno.EPROTO
            await start(launcher, JOB)
            await site.shell(JOB, 0)

    lived(main)
