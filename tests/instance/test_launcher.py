"""The launcher's side of the talk with the parent of shells, in virtual time."""

import asyncio

import pytest

from tests.instance.parts import OWNER, settle, virtually
from warren.instance.exec.execution import ShellsLost
from warren.instance.exec.launcher import RemoteLauncher, ShellRefused
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus, Method
from warren.rpc.message import Payload, Request

JOB = JobId(7)


def shell(rank: int, status: int | None, note: str = "") -> dict[str, object]:
    """What a parent tells of a shell."""
    return {"id": JOB, "rank": rank, "status": status, "note": note, "left": []}


class PaperParent:
    """The `shells` service of a parent that only takes notes, and what a parent tells."""

    def __init__(self) -> None:
        self.bus = Bus(OWNER)
        self.launcher = RemoteLauncher(self.bus.handle(), OWNER)
        self.bus.register("job-exec", self.launcher.methods())
        self.asked: list[tuple[str, Payload]] = []
        self.slow = asyncio.Event()
        self.slow.set()

    def come(self) -> None:
        def method(name: str) -> Method:
            async def answer(request: Request) -> Payload:
                self.asked.append((name, request.payload))
                await self.slow.wait()
                return {}

            return Method(answer)

        names = ("start", "kill", "forget")
        self.bus.register("shells", {name: method(name) for name in names})

    def go(self) -> None:
        self.bus.unregister("shells")

    async def hello(self, **statuses: int | None) -> None:
        """Have shells of `rank_N`."""
        shells = [shell(int(name[5:]), status) for name, status in statuses.items()]
        await self.bus.handle().rpc("job-exec.hello", {"shells": shells})

    async def exited(self, rank: int, status: int, note: str = "") -> None:
        told = shell(rank, status, note)
        await self.bus.handle().rpc("job-exec.exited", told)


@virtually
async def test_nothing_is_known_before_the_parent_has_said_what_it_has() -> None:
    parent = PaperParent()
    asking = asyncio.ensure_future(parent.launcher.started_jobs())
    waiting = asyncio.ensure_future(parent.launcher.wait(JOB, 0))
    await settle()
    assert not asking.done()
    assert not waiting.done()

    await parent.hello(rank_0=None, rank_1=256)
    assert await asking == {JOB: frozenset({0, 1})}
    assert await parent.launcher.wait(JOB, 1) == 256
    await parent.exited(0, 15)
    assert await waiting == 15


@virtually
async def test_what_is_asked_is_asked_again_until_the_parent_is_there() -> None:
    parent = PaperParent()
    await parent.hello()
    starting = asyncio.ensure_future(parent.launcher.start(JOB, 0, "node0", OWNER))
    killing = asyncio.ensure_future(parent.launcher.kill(JOB, 9))
    await asyncio.sleep(100)
    assert not starting.done()
    assert not killing.done()

    parent.come()
    await asyncio.gather(starting, killing)
    start = {"id": JOB, "rank": 0, "host": "node0", "userid": OWNER}
    assert sorted(name for name, _ in parent.asked) == ["kill", "start"]
    assert ("start", start) in parent.asked


@virtually
async def test_what_is_known_to_run_is_not_asked_for() -> None:
    parent = PaperParent()
    parent.come()
    await parent.hello(rank_0=None)
    await parent.launcher.start(JOB, 0, "node0", OWNER)

    assert parent.asked == []


@virtually
async def test_an_end_may_be_told_before_the_start_is_answered() -> None:
    parent = PaperParent()
    parent.come()
    parent.slow.clear()
    await parent.hello()
    starting = asyncio.ensure_future(parent.launcher.start(JOB, 0, "node0", OWNER))
    await settle()
    await parent.exited(0, 256)
    parent.slow.set()
    await starting

    assert await parent.launcher.wait(JOB, 0) == 256


@virtually
async def test_a_shell_is_known_though_the_parent_was_restarted_while_it_was_asked() -> None:
    parent = PaperParent()
    await parent.hello()
    starting = asyncio.ensure_future(parent.launcher.start(JOB, 0, "node0", OWNER))
    await settle()
    await parent.hello()
    parent.come()
    await starting

    assert await parent.launcher.started_jobs() == {JOB: frozenset({0})}


@virtually
async def test_what_a_new_parent_does_not_have_is_lost() -> None:
    parent = PaperParent()
    await parent.hello(rank_0=None, rank_1=None)
    waiting = asyncio.ensure_future(parent.launcher.wait(JOB, 0))
    await settle()
    await parent.hello(rank_1=None)

    with pytest.raises(ShellsLost):
        await waiting
    assert await parent.launcher.started_jobs() == {JOB: frozenset({1})}


@virtually
async def test_the_end_of_an_unknown_shell_is_no_trouble() -> None:
    parent = PaperParent()
    await parent.hello()
    await parent.exited(0, 256)

    assert await parent.launcher.started_jobs() == {}


# Other users' jobs


@virtually
async def test_another_users_shell_is_ordered_with_what_he_has_signed() -> None:
    """Statement 003.9: shells of others are started by what they have signed.
    Statement 003.24: J is passed to who starts a job for another user.
    """
    parent = PaperParent()

    async def lookup(request: Request) -> Payload:
        assert request.payload == {"id": JOB, "keys": ["J"]}
        return {"id": JOB, "J": "what he has signed"}

    parent.bus.register("job-info", {"lookup": Method(lookup)})
    parent.come()
    await parent.hello()
    await parent.launcher.start(JOB, 0, "node0", OWNER + 1)

    [(_, order)] = parent.asked
    assert order["userid"] == OWNER + 1
    assert order["J"] == "what he has signed"


@virtually
async def test_why_a_shell_could_not_be_is_told_to_who_waits_until_it_is_forgotten() -> None:
    parent = PaperParent()
    parent.come()
    await parent.hello(rank_0=None)
    waiting = asyncio.ensure_future(parent.launcher.wait(JOB, 0))
    await settle()
    await parent.exited(0, 256, "not proven")
    for asked in (waiting, parent.launcher.wait(JOB, 0)):
        with pytest.raises(ShellRefused, match="not proven"):
            await asked

    await parent.launcher.forget(JOB)
    await parent.launcher.start(JOB, 0, "node0", OWNER)
    await parent.exited(0, 0)
    assert await parent.launcher.wait(JOB, 0) == 0
