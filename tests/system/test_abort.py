"""A job that is let go before its storage, in the whole system and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from tests.system.test_timeouts import slow
from warren.base.objects import Change, Key
from warren.conductor.systemstatus import KEY
from warren.daemons.compose import Control
from warren.dws import kinds, labels, outofservice
from warren.dws.objects import Storage, read
from warren.dws.outofservice import Action
from warren.instance.config import Config, Rabbit
from warren.instance.jobs.manager import Inactive
from warren.kube.server.local import LocalClient
from warren.rfc.fluid import JobId

DW = {"dw": "\n".join(DIRECTIVES)}
REASON = "failed to unmount rabbit"
NODES = ("compute-00", "compute-01", "compute-02", "compute-03")

Story = Callable[[World, Control, JobId], Awaitable[None]]


def rabbit(control: Control, name: str = "rabbit-0") -> Storage:
    return read(control.api.store.get(kinds.STORAGE, Key("default", name)), Storage)


async def drained(control: Control) -> dict[str, str]:
    """Return why nodes are drained, by node."""
    found = await control.instance.bus.handle().rpc("resource.status")
    return {each["name"]: each["reason"] for each in found["nodes"] if "reason" in each}


def out_of_reach(control: Control) -> set[str]:
    """Return the nodes that the SystemStatus calls Disabled."""
    nodes = control.api.store.get(kinds.SYSTEM_STATUS, KEY)["data"]["nodes"]
    return {node for node, word in nodes.items() if word == "Disabled"}


def lived(story: Story, *lives: Story, limits: Rabbit, what: str = "unmount") -> None:
    """Have a job whose nodes do not unmount for ten minutes let go, and see what comes of it."""

    async def main() -> None:
        async with opened() as world:
            world.config = Config(rabbit=limits)
            world.machine = slow(what)(world)
            submitted: list[JobId] = []

            async def live(told: Story, control: Control) -> None:
                if not submitted:
                    submitted.append(await world.submit(control, attributes=DW))
                await told(world, control, submitted[0])

            for each in (story, *lives):
                await world.live(lambda control, told=each: live(told, control))  # type: ignore[misc]

    with capture_logs():
        virtual.run(main())


async def let_go(world: World, control: Control, job: JobId) -> None:
    await world.until(lambda: isinstance(control.instance.manager.find(job), Inactive))

    def annotations() -> Any:
        return world.workflow(control)["metadata"].get("annotations", {})

    await world.until(lambda: labels.ABORTED in annotations())
    await asyncio.sleep(1)


async def dealt_with(world: World, control: Control, job: JobId) -> None:
    await let_go(world, control, job)
    assert await drained(control) == dict.fromkeys(NODES, REASON)
    assert out_of_reach(control) == set(NODES)
    found = rabbit(control)
    assert found.spec.state == "Disabled"
    name = world.workflow(control)["metadata"]["name"]
    reason = f"workflow {name} timed out with an active allocation on this rabbit"
    assert found.metadata.annotations["disable_reason"] == reason
    assert outofservice.note(found.metadata.annotations, labels.DISABLED)["reason"] == reason
    assert rabbit(control, "rabbit-1").spec.state == "Enabled"


async def put_back(world: World, control: Control, job: JobId) -> None:
    """What an admin puts back stays in service, while the Teardown goes on."""
    client = LocalClient(control.api.store)
    change = outofservice.change(rabbit(control), Action.ENABLE, by="ann", now=0.0, reason="")
    await client.patch(change)
    assert "disable_reason" not in rabbit(control).metadata.annotations
    await control.instance.bus.handle().rpc("resource.undrain", {"targets": "compute-[00-03]"})
    await asyncio.sleep(1)
    assert out_of_reach(control) == set()
    # Any change has it looked at again.
    key = Key("default", world.workflow(control)["metadata"]["name"])
    touched = {"metadata": {"annotations": {"note": "looked at"}}}
    await client.patch(Change(kind=kinds.WORKFLOW, key=key, patch=touched))
    await asyncio.sleep(1)
    assert (await drained(control), rabbit(control).spec.state) == ({}, "Enabled")
    await world.ended(control, job)
    await world.assert_nothing_left(control)


LIMITS = Rabbit(epilog_timeout=60)


def test_abort_drains_nodes_still_mounted_and_disables_rabbits_that_hold_flash() -> None:
    """Statement 000.42: nodes that have it mounted, and rabbits with allocations of the job."""

    async def story(world: World, control: Control, job: JobId) -> None:
        await dealt_with(world, control, job)
        await put_back(world, control, job)

    lived(story, limits=LIMITS)


def test_what_an_admin_puts_back_stays_in_service_after_a_restart() -> None:
    async def again(world: World, control: Control, job: JobId) -> None:
        await asyncio.sleep(1)
        assert out_of_reach(control) == set(NODES)
        await put_back(world, control, job)

    lived(dealt_with, again, limits=LIMITS)


def test_a_request_that_does_not_arrive_is_not_missed() -> None:
    """The job's record says what is to be done."""

    async def story(world: World, control: Control, job: JobId) -> None:
        control.instance.bus.unregister("dws")
        await dealt_with(world, control, job)
        await put_back(world, control, job)

    lived(story, limits=LIMITS)


def test_what_is_unmounted_is_not_drained() -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await let_go(world, control, job)
        assert await drained(control) == {}
        assert rabbit(control).spec.state == "Disabled"
        await world.ended(control, job)

    lived(story, limits=LIMITS, what="copy")


@pytest.mark.parametrize("of_guest", [True, False])
def test_a_guests_word_disables_no_rabbit(of_guest: bool) -> None:
    """Any user may raise any exception on a job: only the instance and its owner let jobs go."""

    async def story(world: World, control: Control, job: JobId) -> None:
        def state() -> Any:
            return (world.workflow(control).get("status") or {}).get("state")

        await world.until(lambda: state() == "PostRun")
        entry = control.instance.manager.found(job)
        userid = entry.job.userid + 1 if of_guest else entry.job.userid
        raised = {"type": "dws-epilog-timeout", "severity": 0, "note": "", "userid": userid}
        control.instance.manager.processor.post(entry, "exception", raised)
        await asyncio.sleep(5)
        over = isinstance(control.instance.manager.find(job), Inactive)
        state_of_rabbit = rabbit(control).spec.state
        assert (over, state_of_rabbit) == ((False, "Enabled") if of_guest else (True, "Disabled"))
        await world.ended(control, job)

    lived(story, limits=Rabbit())
