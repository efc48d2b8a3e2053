"""PersistentStorageInstances, and Workflows beside them (dws-spec section 7)."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.dws.builders import meta, need, raw_workflow
from tests.dws.test_persistent import CREATE, DESTROY, KEY, USE
from warren.base.objects import Change, Key, Kind
from warren.controllers.persistent import PersistentController
from warren.controllers.workflow import WorkflowController
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.persistent import expiry
from warren.kube.client import NotFound

HOUR = 3600.0
PERS = Key("default", "pers")
Story = Callable[[Api, PersistentController], Awaitable[None]]


def with_controller(story: Story, hidden: Collection[Kind] = ()) -> None:
    async def main(api: Api) -> None:
        await story(api, PersistentController(api, api.informers, api.clock))

    alone(main, hidden=hidden)


async def instance(api: Api, *users: str, state: str = "", userid: int = 1001, **more: Any) -> Any:
    references = [{"kind": "Workflow", "name": each, "namespace": "default"} for each in users]
    found = {
        "metadata": meta("pers", **{"finalizers": [labels.PERSISTENT_FINALIZER], **more}),
        "spec": {
            "name": "pers",
            "fsType": "xfs",
            "dwDirective": CREATE,
            "userID": userid,
            "state": "Active",
            "consumerReferences": references,
        },
    }
    if state:
        servers = {"kind": "Servers", "name": "pers", "namespace": "default"}
        found["status"] = {"state": state, "servers": servers}
    return await api.add(kinds.PERSISTENT_INSTANCE, found)


async def part(api: Api, kind: Kind, owner: Any, **rest: Any) -> None:
    """Make what has the name of an instance, and is its own."""
    own = {
        "dataworkflowservices.github.io/owner.kind": "PersistentStorageInstance",
        "dataworkflowservices.github.io/owner.name": "pers",
        "dataworkflowservices.github.io/owner.namespace": "default",
        "dataworkflowservices.github.io/owner.uid": owner["metadata"]["uid"],
        labels.PERSISTENT_NAME: "pers",
        labels.PERSISTENT_NAMESPACE: "default",
    }
    found = meta("pers", labels=own, finalizers=rest.pop("finalizers", []))
    await api.add(kind, {"metadata": found, **rest})


async def storage(api: Api, owner: Any, ready: bool = True, **rest: Any) -> None:
    spec = {"fileSystemType": "xfs", "allocationSets": []}
    await part(api, kinds.NNF_STORAGE, owner, spec=spec, status={"ready": ready}, **rest)


async def servers_released(api: Api) -> None:
    """Let go of the Servers, as the controller of NnfStorages does."""
    assert api.find(kinds.SERVERS, PERS)["metadata"]["deletionTimestamp"]
    await api.change(kinds.SERVERS, PERS, {"metadata": {"finalizers": []}})


def state(api: Api) -> Any:
    return api.find(kinds.PERSISTENT_INSTANCE, PERS)["status"]["state"]


def users(api: Api) -> list[str]:
    found = api.find(kinds.PERSISTENT_INSTANCE, PERS)["spec"].get("consumerReferences", [])
    return sorted(each["name"] for each in found)


# Its own life


def test_an_instance_lives_from_creating_through_active_to_its_end() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        async with running(api, controller.reconciler.run()):
            made = await instance(api, finalizers=[])
            assert api.keys(kinds.SERVERS) == [KEY]
            assert state(api) == "Creating"

            await storage(api, made, ready=False, finalizers=["controller"])
            assert state(api) == "Creating"
            await api.change(kinds.NNF_STORAGE, PERS, {"status": {"ready": True}}, status=True)
            assert state(api) == "Active"

            await api.remove(kinds.PERSISTENT_INSTANCE, PERS)
            assert state(api) == "Destroying"
            assert api.find(kinds.NNF_STORAGE, PERS)["metadata"]["deletionTimestamp"]
            assert api.keys(kinds.SERVERS) == [KEY]
            await api.change(kinds.NNF_STORAGE, PERS, {"metadata": {"finalizers": []}})
            await servers_released(api)
            assert api.keys(kinds.SERVERS) == []
            assert api.find(kinds.PERSISTENT_INSTANCE, PERS) is None

    with_controller(story)


def test_what_is_about_to_go_is_looked_for_past_the_informers() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        made = await instance(api, state="Active")
        await storage(api, made, finalizers=["controller"])
        await api.remove(kinds.PERSISTENT_INSTANCE, PERS)
        async with informed(api):
            assert await controller.reconcile(PERS) == 5
            assert api.find(kinds.NNF_STORAGE, PERS)["metadata"]["deletionTimestamp"]
            assert api.find(kinds.PERSISTENT_INSTANCE, PERS) is not None

    with_controller(story, hidden=[kinds.NNF_STORAGE])


def test_an_instance_that_goes_takes_its_pinned_profile_along_and_is_gone() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        made = await instance(api, state="Active")
        await part(api, kinds.NNF_STORAGE_PROFILE, made, data={})
        await api.remove(kinds.PERSISTENT_INSTANCE, PERS)
        async with informed(api):
            await controller.reconcile(PERS)
            assert api.keys(kinds.NNF_STORAGE_PROFILE) == []
            await caught_up()
            # Nothing is left that it would have to come back for.
            assert await controller.reconcile(PERS) is None
            assert api.find(kinds.PERSISTENT_INSTANCE, PERS) is None

    with_controller(story)


def test_an_instance_that_is_gone_is_nothing_to_do() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        async with informed(api):
            assert await controller.reconcile(PERS) is None
            await instance(api, state="Active")
            await api.remove(kinds.PERSISTENT_INSTANCE, PERS)
            # It has gone since it was seen.
            api.refusals["get", kinds.PERSISTENT_INSTANCE] = NotFound("gone")
            assert await controller.reconcile(PERS) is None
        assert api.asked == [
            ("get", kinds.PERSISTENT_INSTANCE)
        ]  # of what has its name, nothing is asked
        assert api.written == []

    with_controller(story)


def test_a_user_of_which_nothing_is_known_stays_and_of_one_that_is_seen_nothing_is_asked() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(USE, state="Setup"))
        await instance(api, "wf-0", state="Active")
        seen = api.find(kinds.PERSISTENT_INSTANCE, PERS)["spec"]["consumerReferences"]
        other = {"kind": "Other", "name": "other", "namespace": "default"}
        await api.change(
            kinds.PERSISTENT_INSTANCE, PERS, {"spec": {"consumerReferences": [other, *seen]}}
        )
        async with informed(api):
            await controller.reconcile(PERS)
        assert users(api) == ["other", "wf-0"]
        assert api.asked == []

    with_controller(story)


def test_news_of_users_that_stay_and_of_other_names_wake_no_instance() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(USE, state="Setup"))
        await instance(api, "wf-0", state="Active")
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = woken.append  # type: ignore[method-assign, assignment]
            labelled = {"metadata": {"labels": {"a": "b"}}}
            await api.change(kinds.WORKFLOW, Key("default", "wf"), labelled)
            await file_system(api, "other")
            assert woken == []

    with_controller(story)


def test_a_user_that_is_gone_without_a_word_is_taken_off() -> None:
    """The request that enters it may arrive late, after its Workflow has gone."""

    async def story(api: Api, controller: PersistentController) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(USE, state="Setup"))
        async with running(api, controller.reconciler.run()):
            await instance(api, "wf-0", "gone-0", state="Active")
            assert users(api) == ["wf-0"]
            await api.change(kinds.WORKFLOW, Key("default", "wf"), {"metadata": {"finalizers": []}})
            await api.remove(kinds.WORKFLOW, Key("default", "wf"))
            assert users(api) == []

    with_controller(story)


def test_a_user_that_was_not_seen_yet_is_not_taken_off() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(USE, state="Setup"))
        async with running(api, controller.reconciler.run()):
            await instance(api, "wf-0", state="Active")
            assert users(api) == ["wf-0"]

    with_controller(story, hidden=[kinds.WORKFLOW])


async def mgt(api: Api, *users: str) -> None:
    """Make an instance that is the MGT of Lustre file systems."""
    await instance(api, state="Active")
    references = [{"kind": "NnfStorage", "name": each, "namespace": "default"} for each in users]
    await api.change(kinds.PERSISTENT_INSTANCE, PERS, {"spec": {"consumerReferences": references}})


async def file_system(api: Api, name: str) -> None:
    spec = {"fileSystemType": "lustre", "allocationSets": []}
    await api.add(kinds.NNF_STORAGE, {"metadata": meta(name), "spec": spec})


def test_an_mgt_is_no_longer_used_by_a_file_system_that_is_gone() -> None:
    """It takes itself off where it is seen to be a user, which it may have become just before."""

    async def story(api: Api, controller: PersistentController) -> None:
        await file_system(api, "lus")
        async with running(api, controller.reconciler.run()):
            await mgt(api, "lus", "gone")
            assert users(api) == ["lus"]
            await api.remove(kinds.NNF_STORAGE, Key("default", "lus"))
            assert users(api) == []

    with_controller(story)


def test_a_file_system_that_was_not_seen_yet_is_not_taken_off_its_mgt() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        await file_system(api, "lus")
        async with running(api, controller.reconciler.run()):
            await mgt(api, "lus")
            assert users(api) == ["lus"]
        assert ("get", kinds.NNF_STORAGE) in api.asked

    with_controller(story, hidden=[kinds.NNF_STORAGE])


# Workflows beside it


def beside(story: Callable[[Api], Awaitable[None]]) -> None:
    """Tell a story of instances and Workflows, each with its controller."""

    async def main(api: Api) -> None:
        workflows = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        instances = PersistentController(api, api.informers, api.clock)
        async with running(api, workflows.reconciler.run(), instances.reconciler.run()):
            await story(api)

    alone(main)


async def workflow(api: Api, name: str, directive: str, at: str, userid: int = 1001) -> None:
    found = raw_workflow(directive, state=at, spec={"userID": userid})
    await api.add(kinds.WORKFLOW, {**found, "metadata": {**found["metadata"], "name": name}})


def status(api: Api, name: str) -> Any:
    return api.find(kinds.WORKFLOW, Key("default", name))["status"]


def test_users_that_come_and_go_at_the_same_time_do_not_lose_each_other() -> None:
    names = [f"user{number}" for number in range(5)]

    async def story(api: Api) -> None:
        await storage(api, await instance(api, state="Active"))
        for name in names:
            found = raw_workflow(USE, state="Setup")
            metadata = {**found["metadata"], "name": name}
            metadata.pop("resourceVersion")
            # Without waiting: all of them see the instance as it is before the first is entered.
            await api.store.create(kinds.WORKFLOW, {**found, "metadata": metadata})
        for _ in range(30):
            await caught_up()
        assert users(api) == [f"{name}-0" for name in names]
        assert all(status(api, name)["ready"] for name in names)

        for name in names:
            await api.store.patch(_asking(name, "Teardown"))
        for _ in range(30):
            await caught_up()
        assert users(api) == []
        assert all(status(api, name)["ready"] for name in names)

    beside(story)


def _asking(name: str, desired: str) -> Any:
    key = Key("default", name)
    return Change(kind=kinds.WORKFLOW, key=key, patch={"spec": {"desiredState": desired}})


def test_who_waits_for_an_instance_to_be_ready_hears_of_it() -> None:
    async def story(api: Api) -> None:
        made = await instance(api)
        await storage(api, made, ready=False)
        await workflow(api, "wf", USE, "Setup")
        assert "is not active" in status(api, "wf")["message"]
        await api.change(kinds.NNF_STORAGE, PERS, {"status": {"ready": True}}, status=True)
        assert status(api, "wf")["ready"]

    beside(story)


def test_an_instance_in_use_is_destroyed_once_it_is_not() -> None:
    """12-destroy-in-use: Error, and not the end."""

    async def story(api: Api) -> None:
        await workflow(api, "user", USE, "PostRun")
        await storage(api, await instance(api, "user-0", state="Active"), finalizers=["controller"])
        await workflow(api, "destroyer", DESTROY, "Teardown")
        assert status(api, "destroyer")["message"] == (
            "DW Directive 0: User error: persistent storage cannot be deleted while in use"
        )
        assert state(api) == "Active"

        await api.store.patch(_asking("user", "Teardown"))
        await caught_up()
        assert status(api, "user")["ready"]
        assert state(api) == "Destroying"
        assert not status(api, "destroyer")["ready"]
        await api.change(kinds.NNF_STORAGE, PERS, {"metadata": {"finalizers": []}})
        await servers_released(api)
        assert api.find(kinds.PERSISTENT_INSTANCE, PERS) is None
        assert status(api, "destroyer")["ready"]

    beside(story)


def test_an_instance_that_was_not_seen_yet_is_not_taken_for_gone() -> None:
    async def story(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        await instance(api, state="Active")
        await workflow(api, "wf", DESTROY, "Teardown")
        async with informed(api):
            await controller.reconcile(Key("default", "wf"))
        assert not status(api, "wf")["ready"]
        assert api.find(kinds.PERSISTENT_INSTANCE, PERS)["spec"]["state"] == "Destroying"

    alone(story, hidden=[kinds.PERSISTENT_INSTANCE])


def test_servers_of_an_instance_that_are_filled_in_late_make_its_storage() -> None:
    """12-filled-late: Servers unfilled are an Error, and Completed once they are filled."""

    async def story(api: Api) -> None:
        told = {"metadata": meta("r0"), "spec": {}, "status": {"status": "Ready"}}
        await api.add(kinds.STORAGE, told)
        made = await instance(api, state="Creating")
        await workflow(api, "wf", CREATE, "Setup")
        reference = {"kind": "Servers", "name": "pers", "namespace": "default"}
        one = need(size=10)
        sets = [
            {
                "label": one.label,
                "allocationStrategy": one.allocation_strategy,
                "minimumCapacity": 10,
                "constraints": {"labels": []},
            }
        ]
        found = api.find(kinds.WORKFLOW, Key("default", "wf"))["metadata"]
        own = {
            labels.WORKFLOW_NAME: "wf",
            labels.WORKFLOW_NAMESPACE: "default",
            labels.WORKFLOW_UID: found["uid"],
        }
        broken_down = await api.add(
            kinds.BREAKDOWN,
            {
                "metadata": meta("wf-0", labels=own),
                "spec": {"directive": CREATE, "userID": 1001},
                "status": {
                    "ready": True,
                    "storage": {
                        "lifetime": "persistent",
                        "reference": reference,
                        "allocationSets": sets,
                    },
                },
            },
        )
        assert status(api, "wf")["status"] == "DriverWait"
        maker = labels.of_owner(kinds.BREAKDOWN, read(broken_down["metadata"], Meta))
        await api.change(kinds.PERSISTENT_INSTANCE, PERS, {"metadata": {"labels": maker}})
        assert status(api, "wf")["status"] == "Error"
        storages = [{"name": "r0", "allocationCount": 1}]
        filled = [{"label": "xfs", "allocationSize": 10, "storage": storages}]
        await api.change(kinds.SERVERS, PERS, {"spec": {"allocationSets": filled}})
        assert api.keys(kinds.NNF_STORAGE) == [KEY]
        (owner,) = api.find(kinds.NNF_STORAGE, PERS)["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]

    beside(story)


def test_an_instance_that_has_expired_is_destroyed() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        past = {labels.EXPIRES: expiry.expiry_text(api.clock.now() - 60)}
        await instance(api, state="Active", annotations=past)
        async with informed(api):
            assert await controller.reconcile(PERS) is None
        assert api.find(kinds.PERSISTENT_INSTANCE, PERS)["spec"]["state"] == "Destroying"

    with_controller(story)


@pytest.mark.parametrize(("left", "again"), [(100.0, 100.0), (9 * HOUR, HOUR)])
def test_an_instance_that_will_expire_is_looked_at_then_or_once_an_hour(
    left: float, again: float
) -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        then = {labels.EXPIRES: expiry.expiry_text(round(api.clock.now() + left))}
        await instance(api, state="Active", annotations=then)
        async with informed(api):
            assert await controller.reconcile(PERS) == pytest.approx(again, abs=5)

    with_controller(story)


def test_users_that_are_seen_are_not_asked_for_and_their_news_wakes_no_instance() -> None:
    async def story(api: Api, controller: PersistentController) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(USE))
        user = Key("default", "wf")
        await instance(api, "wf-0", state="Active")
        async with informed(api):
            await controller.reconcile(PERS)
            assert api.asked == []
            woken: list[Key] = []
            controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
            await api.change(kinds.WORKFLOW, user, {"metadata": {"labels": {"a": "b"}}})
            await api.add(kinds.SERVERS, {"metadata": meta("another"), "spec": {}})
            assert woken == []
            await api.change(kinds.WORKFLOW, user, {"metadata": {"finalizers": []}})
            await api.remove(kinds.WORKFLOW, user)
            assert woken == [PERS]
            assert await controller.reconcile(Key("default", "none")) is None

    with_controller(story)
