"""What wakes a Workflow's controller, and what is asked of the API itself when it looks again."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, informed, owned_by
from tests.controllers.test_workflow import KEY, child, computes, in_data_in, with_controller
from tests.dws.builders import JOBDW, meta, raw_workflow
from warren.base.objects import Key, Kind
from warren.controllers.storage import StorageController
from warren.controllers.workflow import WorkflowController
from warren.dws import kinds, labels
from warren.dws.containers import ports

USES = "#DW persistentdw name=pers"
INSTANCE = Key("default", "pers")
Story = Callable[[Api, list[Key]], Awaitable[None]]


def watched(story: Story, **options: Any) -> None:
    """Tell a story of a Workflow, and of what its controller is woken for."""

    async def main(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = woken.append  # type: ignore[method-assign, assignment]
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, USES, **options))
            woken.clear()
            await story(api, woken)

    alone(main)


def test_a_mount_in_the_middle_of_its_way_wakes_no_workflow_until_it_is_gone() -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        workflow = api.find(kinds.WORKFLOW, KEY)
        access = Key("default", "wf-0-computes")
        await child(api, kinds.NNF_ACCESS, workflow, access, spec={"desiredState": "mounted"})
        assert woken == []
        await api.remove(kinds.NNF_ACCESS, access)
        assert set(woken) == {KEY}

    watched(story, state="PreRun")


@pytest.mark.parametrize(("ready", "wakes"), [(True, False), (False, True)])
def test_a_workflow_that_is_not_ready_is_woken_for_the_storage_that_it_uses(
    ready: bool, wakes: bool
) -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        spec = {"name": "pers", "fsType": "xfs"}
        await api.add(
            kinds.PERSISTENT_INSTANCE, {"metadata": meta("pers", "default"), "spec": spec}
        )
        assert (KEY in woken) is wakes
        woken.clear()
        carried = {labels.PERSISTENT_NAME: "pers", labels.PERSISTENT_NAMESPACE: "default"}
        await api.add(
            kinds.SERVERS, {"metadata": meta("pers", "default", labels=carried), "spec": {}}
        )
        assert (KEY in woken) is wakes
        woken.clear()
        other = {"name": "other", "fsType": "xfs"}
        await api.add(
            kinds.PERSISTENT_INSTANCE, {"metadata": meta("other", "default"), "spec": other}
        )
        assert woken == []

    watched(story, state="Setup", ready=ready)


@pytest.mark.parametrize(("ready", "wakes"), [(True, False), (False, True)])
def test_a_workflow_that_is_not_ready_is_woken_for_its_ports(ready: bool, wakes: bool) -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        asks = [
            {"requester": {"kind": "Workflow", "name": name, "namespace": "default"}, "count": 1}
            for name in (KEY.name, "gone")
        ]
        manager = meta(ports.MANAGER_KEY.name, ports.MANAGER_KEY.namespace)
        await api.add(kinds.PORT_MANAGER, {"metadata": manager, "spec": {"allocations": asks}})
        assert set(woken) == ({KEY} if wakes else set())

    watched(story, state="Setup", ready=ready)


def test_what_no_directive_asks_for_is_not_asked_for() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        await in_data_in(api, storage=False)
        async with informed(api):
            await controller.reconcile(KEY)
        assert ("list", kinds.NNF_STORAGE) in api.asked
        assert ("list", kinds.BATCH_JOB) not in api.asked
        assert ("list", kinds.CONTAINER_PROFILE) not in api.asked

    with_controller(story)


def test_at_the_end_of_teardown_only_what_that_takes_away_is_asked_for() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        workflow = await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Teardown"))
        await computes(api, workflow)
        async with informed(api):
            await controller.reconcile(KEY)
        assert ("list", kinds.NNF_STORAGE) in api.asked
        assert ("list", kinds.BREAKDOWN) not in api.asked

    with_controller(story)


def test_a_workflow_goes_on_where_the_configuration_of_the_system_is_gone() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        default = Key("default", "default")
        await api.add(
            kinds.SYSTEM_CONFIGURATION, {"metadata": meta("default"), "spec": {"storageNodes": []}}
        )
        await in_data_in(api, storage=True)
        async with informed(api):
            await controller.reconcile(KEY)
            await api.remove(kinds.SYSTEM_CONFIGURATION, default)
            assert await controller.reconcile(KEY) is None

    with_controller(story)


def test_a_workflow_that_is_gone_is_looked_at_for_a_copy_that_it_has_left_alone() -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        workflow = api.find(kinds.WORKFLOW, KEY)
        copy = Key("r0", "wf-0-0")
        for left in (False, True):
            if left:
                await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, USES, state="PreRun"))
                await child(api, kinds.NNF_DATA_MOVEMENT, workflow, copy, spec={})
            unguarded: Any = {"metadata": {"finalizers": []}}
            await api.change(kinds.WORKFLOW, KEY, unguarded)
            woken.clear()
            await api.remove(kinds.WORKFLOW, KEY)
            assert woken == [KEY] * left

    watched(story, state="PreRun")


# NnfStorages

STORAGE = Key("default", "wf-0")
NEWS = {"status": {"ready": True}}
NO_NEWS = {"metadata": {"annotations": {"a": "b"}}}


def of_storage(story: Story) -> None:
    """Tell a story of what the controller of NnfStorages is woken for."""

    async def main(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
            await story(api, woken)

    alone(main)


async def put(api: Api, kind: Kind, status: Any = None, **metadata: Any) -> None:
    """Make a storage, or something of its own that has its name."""
    own = {} if kind == kinds.NNF_STORAGE else owned_by(kinds.NNF_STORAGE, STORAGE.name)
    made = {"metadata": meta(STORAGE.name, labels=own, **metadata), "spec": {}}
    if kind == kinds.NNF_STORAGE:
        made["spec"] = {"fileSystemType": "xfs", "allocationSets": []}
    await api.add(kind, {**made, "status": status} if status else made)


SHARES = [kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE, kinds.LUSTRE_MGT]


@pytest.mark.parametrize("kind", SHARES, ids=str)
def test_a_storage_that_is_gone_is_looked_at_for_what_it_has_left_alone(
    kind: Kind, heard: Sequence[Mapping[str, Any]]
) -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        for left in (False, True):
            await put(api, kinds.NNF_STORAGE)
            if left:
                await put(api, kind)
            woken.clear()
            await api.remove(kinds.NNF_STORAGE, STORAGE)
            assert woken == [STORAGE] * left
        assert [each for each in heard if each["log_level"] == "error"] == []

    of_storage(story)


@pytest.mark.parametrize(
    ("status", "deleting", "wakes"),
    [(None, False, True), (NEWS["status"], False, False), (NEWS["status"], True, True)],
)
def test_servers_of_a_storage_that_is_gone_are_told_of_or_let_go(
    status: Any, deleting: bool, wakes: bool
) -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        await put(api, kinds.NNF_STORAGE)
        await put(api, kinds.SERVERS, status, finalizers=[labels.SERVERS_FINALIZER])
        if deleting:
            await api.remove(kinds.SERVERS, STORAGE)
        woken.clear()
        await api.remove(kinds.NNF_STORAGE, STORAGE)
        assert woken == [STORAGE] * wakes

    of_storage(story)


def test_a_storage_is_woken_by_what_it_says_and_by_nothing_around_it() -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        await put(api, kinds.NNF_STORAGE)
        await put(api, kinds.NNF_NODE_STORAGE)
        woken.clear()
        for kind in (kinds.NNF_STORAGE, kinds.NNF_NODE_STORAGE):
            await api.change(kind, STORAGE, NO_NEWS)
            assert woken == []
            await api.change(kind, STORAGE, NEWS, status=True)
            assert woken == [STORAGE]
            woken.clear()
        # Whatever is left of one that is gone is looked at.
        await api.remove(kinds.NNF_STORAGE, STORAGE)
        woken.clear()
        await api.change(kinds.NNF_NODE_STORAGE, STORAGE, {"metadata": {"annotations": None}})
        assert woken == [STORAGE]

    of_storage(story)


@pytest.mark.parametrize("there", [True, False])
def test_servers_that_say_nothing_wake_a_storage_that_is_there_when_they_come(there: bool) -> None:
    async def story(api: Api, woken: list[Key]) -> None:
        if there:
            await put(api, kinds.NNF_STORAGE)
        woken.clear()
        await put(api, kinds.SERVERS)
        assert woken == [STORAGE] * there
        await api.change(kinds.SERVERS, STORAGE, NO_NEWS)
        assert woken == [STORAGE] * there

    of_storage(story)
