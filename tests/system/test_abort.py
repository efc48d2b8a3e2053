"""A job that is let go before its storage, in the whole system and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.world import DIRECTIVES, World, opened
from tests.system.test_timeouts import Slow, slow
from warren.base.objects import Change, Key, Remove, key_of
from warren.conductor.systemstatus import KEY
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Kept, NodeTrouble, Volume
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import outofservice
from warren.dws.rabbits.outofservice import ServiceAction
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.jobs.manager import InactiveJob
from warren.instance.rabbittable import RabbitTable
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


async def nnf_storages(control: Control) -> list[Any]:
    return list((await LocalClient(control.api.store).list(kinds.NNF_STORAGE)).items)


def out_of_reach(control: Control) -> set[str]:
    """Return the nodes that the SystemStatus calls Disabled."""
    nodes = control.api.store.get(kinds.SYSTEM_STATUS, KEY)["data"]["nodes"]
    return {node for node, word in nodes.items() if word == "Disabled"}


def lived(
    story: Story, *lives: Story, limits: RabbitTable, what: str = "unmount", kind: type[Slow] = Slow
) -> None:
    """Have a job whose nodes do not unmount for ten minutes let go, and see what comes of it."""

    async def main() -> None:
        async with opened() as world:
            world.config = Config(rabbit=limits)
            world.machine = slow(what, kind=kind)(world)
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
    await world.until(lambda: isinstance(control.instance.manager.find(job), InactiveJob))

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
    change = outofservice.change(
        rabbit(control), ServiceAction.ENABLE, by="ann", now=0.0, reason=""
    )
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


LIMITS = RabbitTable(epilog_timeout=60)


def test_of_a_job_that_was_let_go_there_is_a_summary_afterwards() -> None:
    """What `warren job storage` tells of it: where its storage was when it was let go."""

    async def story(world: World, control: Control, job: JobId) -> None:
        await let_go(world, control, job)
        await world.ended(control, job)
        found = orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "rabbit_storage")))
        assert found["desired"] == "PostRun"
        assert found["ready"] is False
        assert found["mounted"] == "compute-[00-03]"
        assert set(found["rabbits"]) == {"rabbit-0"}

    lived(story, limits=LIMITS)


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


def test_a_job_that_takes_its_time_to_copy_takes_nothing_out_of_service() -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await let_go(world, control, job)
        assert (await drained(control), rabbit(control).spec.state) == ({}, "Enabled")
        await world.ended(control, job)

    lived(story, limits=LIMITS, what="copy")


class Withheld(Slow):
    """A rabbit that gives no flash back before a moment: it is in use, or it fails."""

    trouble: NodeTrouble = Kept("rabbit-0/v is kept by process 7 (sleep of ann)")

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        if asyncio.get_running_loop().time() < self.moment:
            raise self.trouble
        await super().release(rabbit, name, profile)


class Failing(Withheld):
    trouble = NodeTrouble("lvremove: Input/output error")


def test_a_user_who_keeps_their_flash_takes_no_rabbit_from_others() -> None:
    """It is counted as the job's for as long as it is kept, and the rabbit serves other jobs."""

    async def story(world: World, control: Control, job: JobId) -> None:
        await let_go(world, control, job)
        assert (await drained(control), rabbit(control).spec.state) == ({}, "Enabled")
        assert "is kept by process 7" in world.workflow(control)["status"]["message"]
        small = {"dw": "#DW jobdw type=xfs capacity=1GiB name=small"}
        other = await world.submit(control, attributes=small, nodes=8)
        await world.until(lambda: len(world.seen) == 8)
        assert world.workflow(control)["status"]["state"] == "Teardown"
        await world.ended(control, job)
        await world.ended(control, other)

    lived(story, limits=LIMITS, what="", kind=Withheld)


def test_a_rabbit_that_fails_to_give_flash_back_is_disabled() -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await let_go(world, control, job)
        assert (await drained(control), rabbit(control).spec.state) == ({}, "Disabled")
        assert rabbit(control, "rabbit-1").spec.state == "Enabled"
        await world.ended(control, job)

    lived(story, limits=LIMITS, what="", kind=Failing)


def test_a_node_that_has_died_is_drained_and_its_rabbit_serves_others() -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await world.until(lambda: len(world.seen) == 4)
        await control.instance.resources.set_down(["compute-01"])
        await let_go(world, control, job)
        assert (await drained(control))["compute-01"] == REASON
        assert rabbit(control).spec.state == "Enabled"
        await world.ended(control, job)

    lived(story, limits=LIMITS, kind=Deaf)


class Deaf(Slow):
    """A node that does nothing any more, among others that unmount."""

    async def _take(self, what: str) -> None:
        if self._name == "compute-01":
            await super()._take(what)


@pytest.mark.parametrize("of_guest", [True, False])
def test_a_guests_word_disables_no_rabbit(of_guest: bool) -> None:
    """Any user may raise any exception on a job: only the instance and its owner let jobs go."""

    async def story(world: World, control: Control, job: JobId) -> None:
        def state() -> Any:
            return (world.workflow(control).get("status") or {}).get("state")

        await world.until(lambda: state() == "PostRun")
        await asyncio.sleep(1)  # nodes have been asked to unmount
        entry = control.instance.manager.active_job(job)
        userid = entry.job.userid + 1 if of_guest else entry.job.userid
        raised = {"type": "dws-epilog-timeout", "severity": 0, "note": "", "userid": userid}
        control.instance.manager.processor.post(entry, "exception", raised)
        await asyncio.sleep(5)
        over = isinstance(control.instance.manager.find(job), InactiveJob)
        state_of_rabbit = rabbit(control).spec.state
        assert (over, state_of_rabbit) == ((False, "Enabled") if of_guest else (True, "Disabled"))
        await world.ended(control, job)

    lived(story, limits=RabbitTable())


class Broken(Slow):
    """A rabbit that makes no file system any more once it is broken."""

    broken = False

    async def make(self, volume: Volume) -> None:
        if Broken.broken:
            raise NodeTrouble("mkfs.xfs: Input/output error", fatal=True)
        await super().make(volume)


RETURNING = RabbitTable(epilog_timeout=60, return_to_service=True)


def test_nodes_and_rabbits_return_to_service_by_themselves_where_a_site_wants_it() -> None:
    """Not before the storage is unmounted and destroyed, and a rabbit not before a test."""

    async def story(world: World, control: Control, job: JobId) -> None:
        await dealt_with(world, control, job)
        key = Key("default", "self-test-rabbit-0")
        # Touched, it is looked at again, and still holds the flash.
        touched = {"metadata": {"annotations": {"note": "looked at"}}}
        change = Change(kind=kinds.STORAGE, key=Key("default", "rabbit-0"), patch=touched)
        await LocalClient(control.api.store).patch(change)
        await asyncio.sleep(5)
        assert key not in [key_of(each) for each in await nnf_storages(control)]
        await world.ended(control, job)
        await world.until(lambda: rabbit(control).spec.state == "Enabled")
        await asyncio.sleep(5)
        assert (await drained(control), out_of_reach(control)) == ({}, set())
        carried = rabbit(control).metadata.annotations
        assert labels.DISABLED not in carried
        assert labels.SELF_TEST not in carried
        assert rabbit(control).status.status == "Ready"
        await world.assert_nothing_left(control)

    lived(story, limits=RETURNING)


@pytest.mark.parametrize("late", [False, True])
def test_a_workflow_that_an_admin_deletes_takes_them_out_of_service_and_back_too(
    late: bool,
) -> None:
    """Before the job is let go, as an admin does to one that hangs, or after."""

    async def story(world: World, control: Control, job: JobId) -> None:
        def state() -> Any:
            return (world.workflow(control).get("status") or {}).get("state")

        await world.until(lambda: state() == "PostRun")
        if late:
            await dealt_with(world, control, job)
        key = key_of(world.workflow(control))
        await LocalClient(control.api.store).delete(Remove(kind=kinds.WORKFLOW, key=key))
        await dealt_with(world, control, job)
        await world.ended(control, job)
        await world.until(lambda: rabbit(control).spec.state == "Enabled")
        await asyncio.sleep(5)
        assert (await drained(control), out_of_reach(control)) == ({}, set())
        await world.assert_nothing_left(control)

    lived(story, limits=RETURNING)


def test_what_an_admin_drains_or_disables_does_not_return_by_itself() -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await dealt_with(world, control, job)
        request = {"targets": "compute-00", "reason": "dimm", "mode": "overwrite"}
        await control.instance.bus.handle().rpc("resource.drain", request)
        client = LocalClient(control.api.store)
        change = outofservice.change(
            rabbit(control), ServiceAction.DISABLE, by="ann", now=0.0, reason="fan", force=True
        )
        await client.patch(change)
        await world.ended(control, job)
        await asyncio.sleep(60)
        assert await drained(control) == {"compute-00": "dimm"}
        assert rabbit(control).spec.state == "Disabled"

    lived(story, limits=RETURNING)


def test_a_rabbit_that_fails_its_test_stays_disabled_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await dealt_with(world, control, job)
        monkeypatch.setattr(Broken, "broken", True)
        await world.ended(control, job)
        await asyncio.sleep(60)
        found = rabbit(control)
        assert found.spec.state == "Disabled"
        assert "its self-test failed: " in found.status.message
        assert found.status.message.endswith("mkfs.xfs: Input/output error")
        assert await drained(control) == {}
        await world.assert_nothing_left(control)

    lived(story, limits=RETURNING, kind=Broken)


@pytest.mark.parametrize("moment", [0.0, 1.0, 600.0, 601.0])
def test_a_restart_on_the_way_back_loses_nothing(moment: float) -> None:
    async def story(world: World, control: Control, job: JobId) -> None:
        await let_go(world, control, job)
        await asyncio.sleep(moment)

    async def again(world: World, control: Control, job: JobId) -> None:
        await world.ended(control, job)
        await world.until(lambda: rabbit(control).spec.state == "Enabled")
        await asyncio.sleep(5)
        assert await drained(control) == {}
        await world.assert_nothing_left(control)

    lived(story, again, limits=RETURNING)
