"""The controller of NnfSystemStorages: what wakes it, and what it reads past the informers."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.controllers.test_rabbits import configuration
from tests.dws.builders import meta, raw_profile
from warren.base.objects import Key, Kind
from warren.controllers.systemstorage import SystemStorageController
from warren.dws import kinds, labels

LOCAL = Key("default", "local")
PROFILE = {"kind": "NnfStorageProfile", "name": "default", "namespace": "nnf-system"}
Story = Callable[[Api, SystemStorageController], Awaitable[None]]


def with_controller(story: Story, hidden: Collection[Kind] = ()) -> None:
    async def main(api: Api) -> None:
        await story(api, SystemStorageController(api, api.informers))

    alone(main, hidden=hidden)


def wanted(**spec: Any) -> dict[str, Any]:
    return {"metadata": meta("local"), "spec": {"storageProfile": PROFILE, **spec}}


def error(api: Api) -> str:
    found = api.find(kinds.SYSTEM_STORAGE, LOCAL).get("status") or {}
    return str((found.get("error") or {}).get("userMessage", ""))


def test_what_it_lacks_wakes_it_when_it_comes() -> None:
    async def story(api: Api, controller: SystemStorageController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_STORAGE, wanted(excludeDisabledRabbits=True))
            assert "no NnfStorageProfile nnf-system/default" in error(api)
            await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
            assert "SystemConfiguration default/default is not there yet" in error(api)
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            assert "no rabbit is to have it" in error(api)
            ready = {"metadata": meta("r1"), "spec": {}, "status": {"status": "Ready"}}
            await api.add(kinds.STORAGE, ready)
            assert error(api) == ""

        (found,) = api.store.objects_of(kinds.NNF_STORAGE)
        (one,) = found["spec"]["allocationSets"]
        assert one["nodes"] == [{"name": "r1", "count": 1}]

    with_controller(story)


def test_a_name_that_another_has_is_taken_when_it_is_free() -> None:
    async def story(api: Api, controller: SystemStorageController) -> None:
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
        await api.add(kinds.SERVERS, {"metadata": meta("local"), "spec": {}})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_STORAGE, wanted())
            assert "the name is taken" in error(api)
            assert api.keys(kinds.NNF_STORAGE) == []
            await api.remove(kinds.SERVERS, LOCAL)
            assert api.keys(kinds.NNF_STORAGE) == ["default/local"]

    with_controller(story)


def test_news_of_a_rabbit_that_is_not_ready_and_of_other_names_wake_none() -> None:
    async def story(api: Api, controller: SystemStorageController) -> None:
        await api.add(kinds.SYSTEM_STORAGE, wanted())
        async with running(api, controller.reconciler.run()):
            await caught_up()
            woken: list[Key] = []
            controller.reconciler.add = woken.append  # type: ignore[method-assign, assignment]
            offline = {"metadata": meta("r1"), "spec": {}, "status": {"status": "Offline"}}
            await api.add(kinds.STORAGE, offline)
            await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile("other", default=False))
            await api.add(kinds.SERVERS, {"metadata": meta("other"), "spec": {}})
            assert woken == []

    with_controller(story)


def test_what_was_just_made_is_not_forgotten_where_it_was_not_seen() -> None:
    async def story(api: Api, controller: SystemStorageController) -> None:
        found = await api.add(kinds.SYSTEM_STORAGE, _going())
        owner = {
            "dataworkflowservices.github.io/owner.kind": "NnfSystemStorage",
            "dataworkflowservices.github.io/owner.name": "local",
            "dataworkflowservices.github.io/owner.namespace": "default",
            "dataworkflowservices.github.io/owner.uid": found["metadata"]["uid"],
        }
        made = meta("local", labels=owner, finalizers=[labels.STORAGE_FINALIZER])
        spec = {"fileSystemType": "raw", "allocationSets": []}
        await api.add(kinds.NNF_STORAGE, {"metadata": made, "spec": spec})
        async with informed(api):
            assert await controller.reconcile(LOCAL) == 5
            assert api.find(kinds.NNF_STORAGE, LOCAL)["metadata"]["deletionTimestamp"]
            assert api.find(kinds.SYSTEM_STORAGE, LOCAL) is not None

    with_controller(story, hidden=[kinds.NNF_STORAGE])


def test_the_api_is_asked_only_for_what_is_left_of_one_that_goes() -> None:
    async def story(api: Api, controller: SystemStorageController) -> None:
        await api.add(kinds.SYSTEM_STORAGE, wanted())
        async with informed(api):
            assert await controller.reconcile(Key("default", "gone")) is None
            await controller.reconcile(LOCAL)
            assert api.asked == []
            await api.remove(kinds.SYSTEM_STORAGE, LOCAL)
            assert await controller.reconcile(LOCAL) is None
            assert {verb for verb, _ in api.asked} == {"get"}
        assert api.find(kinds.SYSTEM_STORAGE, LOCAL) is None

    with_controller(story)


def _going() -> dict[str, Any]:
    found = wanted()
    found["metadata"] |= {
        "finalizers": [labels.SYSTEM_STORAGE_FINALIZER],
        "deletionTimestamp": "2026-01-31T12:00:00Z",
    }
    return found
