"""Persistent storage as its users list, share and destroy it over the socket (ADR 057)."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.workloads import Workloads
from tests.harness.world import World, opened
from warren.base.accounts import user_name
from warren.base.objects import Change, Key
from warren.base.times import parse_rfc3339
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.objects.workflows import State
from warren.dws.persistent import expiry
from warren.dws.persistent.sharing import Sharing
from warren.instance.config import Config
from warren.instance.simulated import TaskBehavior
from warren.instance.storagetables import StorageTable
from warren.kube.client import Conflict, NotFound
from warren.lifecycle.states import Result
from warren.rpc.message import RpcError
from warren.wlm.embedded import persistentservice

CREATE = "#DW create_persistent type=xfs capacity=1GiB name=pers"
USE = {"dw": "#DW persistentdw name=pers"}
SITE = ClusterShape(rabbits=2, computes_per_rabbit=2)
NODES = ("compute-00", "compute-02")
PERS = Key("default", "pers")
US = os.getuid()
ALICE, BOB, MALLORY = US + 1, US + 2, US + 3
TEAM = 77


def told(
    story: Callable[[World, Control], Awaitable[None]],
    play: Callable[..., TaskBehavior] = lambda *_: TaskBehavior(),
    owner: int = ALICE,
    most: float | None = None,
) -> None:
    async def main() -> None:
        async with opened(SITE, play) as world:
            workloads = Workloads(world)
            world.config = Config(storage=StorageTable(persistent_max=most))

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    await workloads.make(control, "maker", CREATE, userid=owner)
                    await workloads.finish(control, "maker", NODES)
                    await story(world, control)

            await world.live(life)

    virtual.run(main())


async def asked(control: Control, userid: int, topic: str, **payload: Any) -> Any:
    return await control.instance.bus.handle(userid).rpc(f"persistent.{topic}", payload)


async def listed(control: Control, userid: int) -> list[Any]:
    found: list[Any] = (await asked(control, userid, "list"))["persistent"]
    return found


async def refused(control: Control, userid: int, topic: str, **payload: Any) -> tuple[int, str]:
    with pytest.raises(RpcError) as caught:
        await asked(control, userid, topic, **payload)
    return caught.value.errnum, str(caught.value)


def instance(control: Control) -> Any:
    return control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)


def is_gone(control: Control) -> bool:
    try:
        instance(control)
    except NotFound:
        return True
    return False


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[int, Collection[int]]:
    """Return the groups of users, for tests to fill in."""
    found: dict[int, Collection[int]] = {}
    whole = persistentservice.PersistentService.__init__

    def made(self: Any, client: Any, informers: Any, clock: Any, most: Any) -> None:
        whole(self, client, informers, clock, most, lambda userid: found.get(userid, ()))

    monkeypatch.setattr(persistentservice.PersistentService, "__init__", made)
    return found


def test_users_are_told_of_what_they_may_use_and_the_instances_owner_of_all(
    groups: dict[int, Collection[int]],
) -> None:
    groups[BOB] = {TEAM}

    async def story(world: World, control: Control) -> None:
        (found,) = await listed(control, ALICE)
        assert found == (await listed(control, US))[0]
        assert {key: found[key] for key in ("name", "type", "userid", "state", "rabbits")} == {
            "name": "pers",
            "type": "xfs",
            "userid": ALICE,
            "state": "Active",
            "rabbits": ["rabbit-0", "rabbit-1"],
        }
        assert found["capacity"] >= 2 * 2**30
        assert found["jobs"] == found["workflows"] == []
        assert await listed(control, BOB) == []
        await asked(control, ALICE, "share", name="pers", add={"groups": [TEAM]})
        await world.until(lambda: True)
        assert [each["name"] for each in await listed(control, BOB)] == ["pers"]
        assert await listed(control, BOB + 1) == []

    told(story)


def test_its_owner_shares_it_and_takes_that_back() -> None:
    async def story(world: World, control: Control) -> None:
        more = {"users": [BOB], "groups": [TEAM]}
        answer = await asked(control, ALICE, "share", name="pers", add=more)
        assert answer["persistent"]["shared"] == {**more, "everyone": False}
        assert instance(control)["metadata"]["annotations"] == {
            labels.SHARED_WITH: f"uid:{BOB},gid:{TEAM}"
        }
        await asked(control, US, "share", name="pers", add={"everyone": True})
        annotations = instance(control)["metadata"]["annotations"]
        assert annotations[labels.IGNORE_UID] == "true"
        await asked(control, ALICE, "share", name="pers", remove={**more, "everyone": True})
        assert not instance(control)["metadata"].get("annotations")

    told(story)


def test_jobs_of_a_user_it_is_shared_with_are_accepted_and_others_are_refused() -> None:
    """Issue 15: two users share one, with its owner's consent, and a third is refused."""

    async def story(world: World, control: Control) -> None:
        await asked(control, ALICE, "share", name="pers", add={"users": [BOB]})
        await world.until(lambda: True)
        with pytest.raises(RpcError, match="another user's"):
            await world.submit(control, nodes=1, attributes=USE)
        await asked(control, ALICE, "share", name="pers", add={"users": [US]})
        await world.until(lambda: True)
        job = await world.submit(control, nodes=1, attributes=USE)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED

    told(story)


def test_jobs_that_began_before_it_was_shared_otherwise_let_in_whom_it_is_shared_with_now() -> None:
    """Nodes mount again what they have mounted when their agents start anew."""

    def lists(world: World) -> list[Sharing]:
        return [each for flash in world.flash.values() for each in flash.shared.values()]

    async def main() -> None:
        async with opened(SITE) as world:
            workloads = Workloads(world)

            async def life(control: Control) -> None:
                await workloads.make(control, "maker", CREATE, userid=ALICE)
                await workloads.finish(control, "maker", NODES)
                await asked(control, ALICE, "share", name="pers", add={"users": [BOB]})
                await workloads.make(control, "early", USE["dw"], userid=ALICE)
                await workloads.reach(control, "early", State.PRE_RUN, NODES)
                assert lists(world) == [Sharing(users=frozenset({BOB}))] * 2
                change = {"remove": {"users": [BOB]}, "add": {"groups": [TEAM]}}
                await asked(control, ALICE, "share", name="pers", **change)
                await world.until(lambda: lists(world) == [Sharing(groups=frozenset({TEAM}))] * 2)

            async def later(control: Control) -> None:
                await asyncio.sleep(60)
                assert lists(world) == [Sharing(groups=frozenset({TEAM}))] * 2
                await workloads.finish(control, "early", NODES)

            await world.live(life)
            await world.live(later)

    virtual.run(main())


@pytest.mark.parametrize("shared", [False, True])
def test_another_user_neither_shares_nor_destroys_it(shared: bool) -> None:
    async def story(world: World, control: Control) -> None:
        if shared:
            await asked(control, ALICE, "share", name="pers", add={"users": [BOB]})
        before = instance(control)
        for topic, more in (("share", {"add": {"users": [BOB + 1]}}), ("destroy", {})):
            number, words = await refused(control, BOB, topic, name="pers", **more)
            assert number == errno.EPERM
            assert f"The persistent storage 'pers' is {user_name(ALICE)}'s: only that user" in words
        assert instance(control) == before

    told(story)


@pytest.mark.parametrize("who", [ALICE, US])
def test_its_owner_or_the_instances_destroys_it_without_a_job(who: int) -> None:
    async def story(world: World, control: Control) -> None:
        for _ in range(2):
            await asked(control, who, "destroy", name="pers")
        await world.until(lambda: is_gone(control))
        assert all(not flash.volumes for flash in world.flash.values())
        number, words = await refused(control, who, "destroy", name="pers")
        assert (number, words) == (errno.ENOENT, "There is no persistent storage named 'pers'.")

    told(story)


def test_what_a_job_uses_is_not_destroyed_and_says_which_job_that_is() -> None:
    async def story(world: World, control: Control) -> None:
        job = await world.submit(control, nodes=1, attributes=USE)
        await world.until(lambda: instance(control)["spec"].get("consumerReferences"))
        number, words = await refused(control, US, "destroy", name="pers")
        assert number == errno.EBUSY
        assert "cannot be destroyed while 1 job" in words
        await world.until(lambda: True)
        assert (await listed(control, US))[0]["jobs"] == [job]
        await world.cancel(control, job)
        await world.ended(control, job)
        await asked(control, US, "destroy", name="pers")
        await world.until(lambda: is_gone(control))

    told(story, lambda *_: TaskBehavior(seconds=1000), owner=US)


def test_a_job_that_waits_never_gets_what_another_user_has_made_of_the_name_since() -> None:
    async def story(world: World, control: Control) -> None:
        workloads = Workloads(world)
        await asked(control, ALICE, "share", name="pers", add={"users": [BOB]})
        await workloads.make(control, "waits", USE["dw"], userid=BOB)
        await workloads.reach(control, "waits", State.PROPOSAL)
        await asked(control, ALICE, "destroy", name="pers")
        await world.until(lambda: is_gone(control))
        await workloads.make(control, "other", CREATE, userid=MALLORY)
        await workloads.finish(control, "other", NODES)
        await asked(control, MALLORY, "share", name="pers", add={"everyone": True})

        status = await workloads.reach(control, "waits", State.SETUP, NODES)

        assert status["status"] == "Error"
        assert "is not the one that this job asked for" in status["message"]
        assert not instance(control)["spec"].get("consumerReferences")
        await workloads.make(control, "again", USE["dw"], userid=BOB)
        assert (await workloads.reach(control, "again", State.SETUP, NODES))["ready"]

    told(story)


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        ({}, errno.EPROTO),
        ({"name": 7}, errno.EPROTO),
        ({"name": "pers", "add": {"users": ["bob"]}}, errno.EPROTO),
        ({"name": "pers", "add": {"users": [-1]}}, errno.EINVAL),
        ({"name": "pers", "add": {"groups": [2**32 - 1]}}, errno.EINVAL),
        ({"name": "pers", "add": {"users": list(range(101))}}, errno.EINVAL),
        ({"name": "gone", "add": {"everyone": True}}, errno.ENOENT),
        ({"name": "../x", "add": {"everyone": True}}, errno.ENOENT),
    ],
)
def test_what_cannot_be_shared_is_refused_and_changes_nothing(payload: Any, number: int) -> None:
    async def story(world: World, control: Control) -> None:
        before = instance(control)
        assert (await refused(control, ALICE, "share", **payload))[0] == number
        assert instance(control) == before

    told(story)


# Expiry


def expires(control: Control) -> float | None:
    return expiry.from_annotations(instance(control)["metadata"].get("annotations") or {})


async def kept_until(control: Control, moment: float | None, userid: int = US) -> Any:
    return await asked(control, userid, "expire", name="pers", expires=moment)


def test_what_no_job_uses_is_destroyed_when_it_expires_and_not_before() -> None:
    async def story(world: World, control: Control) -> None:
        moment = world.clock.now() // 1 + 900
        found = (await kept_until(control, moment))["persistent"]
        assert found["expires"] == expires(control) == moment
        await asyncio.sleep(moment - world.clock.now() - 1)
        assert not is_gone(control)
        await asyncio.sleep(5)
        assert is_gone(control)
        assert all(not flash.volumes for flash in world.flash.values())

    told(story, owner=US)


def test_what_jobs_use_is_destroyed_when_the_last_has_ended_and_no_more_begin() -> None:
    async def story(world: World, control: Control) -> None:
        job = await world.submit(control, nodes=1, attributes=USE)
        await world.until(lambda: instance(control)["spec"].get("consumerReferences"))
        await kept_until(control, world.clock.now() + 100)
        await asyncio.sleep(500)
        assert not is_gone(control)
        assert instance(control)["spec"]["state"] == "Active"
        with pytest.raises(RpcError, match="The persistent storage 'pers' has expired at"):
            await world.submit(control, nodes=1, attributes=USE)
        await world.cancel(control, job)
        await world.ended(control, job)
        await asyncio.sleep(5)
        assert is_gone(control)

    told(story, lambda *_: TaskBehavior(seconds=100_000), owner=US)


def test_an_expiry_is_put_off_and_taken_back() -> None:
    async def story(world: World, control: Control) -> None:
        await kept_until(control, world.clock.now() + 100)
        await kept_until(control, world.clock.now() + 1000)
        await asyncio.sleep(500)
        assert not is_gone(control)
        found = await kept_until(control, None)
        assert found["persistent"]["expires"] is None
        await asyncio.sleep(1000)
        assert not is_gone(control)

    told(story, owner=US)


def test_a_job_that_would_go_beyond_the_expiry_is_refused_when_it_is_submitted() -> None:
    async def story(world: World, control: Control) -> None:
        await kept_until(control, world.clock.now() + 1000)
        await world.until(lambda: True)
        with pytest.raises(RpcError) as caught:
            await world.submit(control, nodes=1, attributes=USE, duration=2000.0)
        assert "before the job's time limit" in str(caught.value)
        assert "^^^^" in str(caught.value)
        job = await world.submit(control, nodes=1, attributes=USE, duration=500.0)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED

    told(story, owner=US)


def test_what_a_job_creates_expires_when_its_author_says() -> None:
    """By an attribute of the job: nothing is left without an expiry if the author goes away."""

    async def story(world: World, control: Control) -> None:
        await asked(control, US, "destroy", name="pers")
        await world.until(lambda: is_gone(control))
        moment = world.clock.now() // 1 + 1000
        job = await world.submit(control, nodes=1, attributes={"dw": CREATE, "dw_expires": moment})
        await world.ended(control, job)
        assert expires(control) == moment
        await asyncio.sleep(1010)
        assert is_gone(control)

    told(story, owner=US)


def test_a_restart_forgets_no_expiry() -> None:
    async def main() -> None:
        async with opened(SITE) as world:
            workloads = Workloads(world)

            async def before(control: Control) -> None:
                await workloads.make(control, "maker", CREATE, userid=US)
                await workloads.finish(control, "maker", NODES)
                await kept_until(control, world.clock.now() + 1000)

            async def after(control: Control) -> None:
                await asyncio.sleep(5)
                assert is_gone(control)

            async with asyncio.timeout(7200):
                await world.live(before)
                await asyncio.sleep(2000)
                await world.live(after)

    virtual.run(main())


def test_a_site_keeps_storage_no_longer_than_it_says() -> None:
    async def story(world: World, control: Control) -> None:
        made = parse_rfc3339(instance(control)["metadata"]["creationTimestamp"])
        await world.until(lambda: expires(control) == made + 1000)
        number, words = await refused(control, US, "expire", name="pers", expires=made + 2000)
        assert number == errno.EINVAL
        assert "storage.persistent-max" in words
        assert (await refused(control, US, "expire", name="pers", expires=None))[0] == errno.EINVAL
        await kept_until(control, made + 500)
        await asyncio.sleep(made + 600 - world.clock.now())
        assert is_gone(control)

    told(story, owner=US, most=1000)


@pytest.mark.parametrize("moment", [0, -1, 1e300])
def test_a_moment_that_is_over_or_none_is_refused(moment: float) -> None:
    async def story(world: World, control: Control) -> None:
        number, words = await refused(control, ALICE, "expire", name="pers", expires=moment)
        assert (number, words) == (errno.EINVAL, "Storage expires at a time in the future.")
        assert (await refused(control, BOB, "expire", name="pers", expires=2e9))[0] == errno.EPERM
        assert expires(control) is None

    told(story)


@pytest.mark.parametrize("conflicts", [1, 100])
def test_a_change_that_meets_another_is_decided_again(conflicts: int) -> None:
    async def story(world: World, control: Control) -> None:
        store = control.api.store
        whole, left = store.patch, [conflicts]

        async def patch(change: Change, **more: Any) -> Any:
            if change.kind == kinds.PERSISTENT_INSTANCE and left[0]:
                left[0] -= 1
                raise Conflict("changed")
            return await whole(change, **more)

        store.patch = patch  # type: ignore[method-assign]
        if conflicts == 1:
            await asked(control, ALICE, "share", name="pers", add={"users": [BOB]})
            assert labels.SHARED_WITH in instance(control)["metadata"]["annotations"]
        else:
            more = {"users": [BOB]}
            number, _ = await refused(control, ALICE, "share", name="pers", add=more)
            assert number == errno.EAGAIN
            left[0] = 0

    told(story)
