"""Workflows: what a pass sees, when it looks at the API itself, and whose news wakes it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from tests.controllers.alone import WORKFLOW, Api, Counting, alone, caught_up, informed, running
from tests.dws.builders import COPY_IN, JOBDW, meta, raw_workflow
from warren.base.objects import Key, Kind
from warren.controllers.ports import PortController
from warren.controllers.workflow import WorkflowController
from warren.dws import kinds, labels
from warren.dws.containers import ports

KEY = Key("default", "wf")
FIRST = Key("default", "wf-0")
OWNED = (kinds.BREAKDOWN, kinds.SERVERS, kinds.COMPUTES, kinds.NNF_STORAGE_PROFILE)

Story = Callable[[Api, WorkflowController], Awaitable[None]]


def with_controller(story: Story, hidden: Collection[Kind] = ()) -> None:
    async def main(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        await story(api, controller)

    alone(main, hidden=hidden)


def status(api: Api) -> Any:
    return api.find(kinds.WORKFLOW, KEY)["status"]


async def child(
    api: Api, kind: Kind, workflow: Any, key: Key = FIRST, *more: Any, **rest: Any
) -> None:
    """Make something that carries the labels of a Workflow."""
    own = {**WORKFLOW, labels.WORKFLOW_UID: workflow["metadata"]["uid"], **dict(more)}
    finalizers = rest.pop("finalizers", [])
    found = meta(key.name, key.namespace, labels=own, finalizers=finalizers)
    await api.add(kind, {"metadata": found, **rest})


async def computes(api: Api, workflow: Any, *nodes: str) -> None:
    data = [{"name": node} for node in nodes]
    await child(api, kinds.COMPUTES, workflow, KEY, data=data)


def breakdown(ready: bool = True) -> dict[str, Any]:
    need = {
        "label": "xfs",
        "allocationStrategy": "AllocatePerCompute",
        "minimumCapacity": 10,
        "constraints": {"labels": []},
    }
    reference = {"kind": "Servers", "name": "wf-0", "namespace": "default"}
    storage = {"lifetime": "job", "reference": reference, "allocationSets": [need]}
    return {
        "spec": {"directive": JOBDW, "userID": 1001},
        "status": {"ready": ready, "storage": storage},
    }


def servers(*rabbits: str) -> dict[str, Any]:
    storage = [{"name": rabbit, "allocationCount": 1} for rabbit in rabbits]
    return {
        "spec": {"allocationSets": [{"label": "xfs", "allocationSize": 10, "storage": storage}]}
    }


# Proposal


def test_a_workflow_in_error_is_looked_at_again_when_nodes_have_joined() -> None:
    async def story(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        bad = raw_workflow(JOBDW, state="PreRun", status={"status": "Error"})
        good = raw_workflow(JOBDW, state="PreRun", metadata={"name": "good", "uid": "good"})
        await api.add(kinds.WORKFLOW, bad)
        await api.add(kinds.WORKFLOW, good)
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
            nodes: Any = {"metadata": meta("default"), "spec": {"storageNodes": []}}
            await api.add(kinds.SYSTEM_CONFIGURATION, nodes)
        assert set(woken) == {Key("default", "wf")}

    alone(story)


def test_a_workflow_that_is_ready_is_looked_at_when_it_is_asked_for_more() -> None:
    async def story(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
            ready = await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup", ready=True))
            woken.clear()
            await child(api, kinds.SERVERS, ready, **servers("r0"))
            await api.change(kinds.WORKFLOW, KEY, {"status": {"env": {"A": "b"}}})
            await api.remove(kinds.SERVERS, FIRST)
            assert woken == []
            await api.change(kinds.WORKFLOW, KEY, {"spec": {"desiredState": "DataIn"}})
        assert set(woken) == {KEY}

    alone(story)


def test_a_new_workflow_gets_its_computes_its_finalizer_and_a_breakdown() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        async with running(api, controller.reconciler.run()):
            made = raw_workflow(JOBDW, state=None, metadata={"finalizers": []})
            await api.add(kinds.WORKFLOW, made)
            found = api.find(kinds.WORKFLOW, KEY)
            assert found["metadata"]["finalizers"] == [labels.WORKFLOW_FINALIZER]
            assert api.keys(kinds.COMPUTES) == ["default/wf"]
            assert api.keys(kinds.BREAKDOWN) == ["default/wf-0"]
            assert status(api)["state"] == "Proposal"
            assert not status(api)["ready"]

            said = {"status": breakdown()["status"]}
            await api.change(kinds.BREAKDOWN, FIRST, said, status=True)
            assert status(api)["ready"]

    with_controller(story)


def test_a_workflow_is_not_woken_by_its_own_word_that_it_is_ready() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state=None))
            before = len(passes)
            said = {"status": breakdown()["status"]}
            await api.change(kinds.BREAKDOWN, FIRST, said, status=True)
            assert status(api)["ready"]
            assert len(passes) == before + 1

    with_controller(story)


def test_the_time_of_a_change_is_that_of_the_clock() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state=None))

        assert status(api)["desiredStateChange"].startswith("2026-09-21T14:13:")

    with_controller(story)


# What is looked at again


async def in_data_in(api: Api, storage: bool) -> None:
    """Make a Workflow that copies into a storage, which may not be there."""
    lustre = {"metadata": meta("lus"), "spec": {"name": "lus", "mountRoot": "/lus"}}
    await api.add(kinds.LUSTRE_FILE_SYSTEM, lustre)
    workflow = await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, COPY_IN, state="DataIn"))
    await computes(api, workflow, "n0")
    await child(api, kinds.BREAKDOWN, workflow, **breakdown())
    if storage:
        spec = {"fileSystemType": "xfs", "allocationSets": []}
        await child(api, kinds.NNF_STORAGE, workflow, spec=spec, status={"ready": True})


def test_nothing_is_said_to_be_wrong_because_something_was_not_seen_yet() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        await in_data_in(api, storage=True)
        async with informed(api):
            # News of what was not seen may never come: it is looked for again.
            assert await controller.reconcile(KEY) == 5

        assert ("list", kinds.NNF_STORAGE) in api.asked
        assert status(api)["status"] == "DriverWait"
        assert api.keys(kinds.NNF_ACCESS) == ["default/wf-0-servers"]

    with_controller(story, hidden=[kinds.NNF_STORAGE])


def test_what_is_wrong_indeed_is_said_after_another_look_and_once() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        await in_data_in(api, storage=False)
        async with informed(api):
            assert await controller.reconcile(KEY) is None
            looked = len(api.asked)
            assert looked > 0
            assert status(api)["status"] == "TransientCondition"
            await caught_up()
            assert await controller.reconcile(KEY) is None

        assert len(api.asked) == looked

    with_controller(story)


def test_what_goes_well_is_not_asked_for_again() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        await in_data_in(api, storage=True)
        async with informed(api):
            assert await controller.reconcile(KEY) is None

        assert api.asked == []
        assert api.keys(kinds.NNF_ACCESS) == ["default/wf-0-servers"]

    with_controller(story)


async def in_setup(api: Api, *rabbits: str) -> None:
    """Make a Workflow whose storage is to be on some rabbits."""
    workflow = await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
    await computes(api, workflow, "n0")
    await child(api, kinds.BREAKDOWN, workflow, **breakdown())
    await child(api, kinds.SERVERS, workflow, **servers(*rabbits))


async def rabbit(api: Api, name: str, state: str) -> None:
    await api.add(kinds.STORAGE, {"metadata": meta(name), "spec": {}, "status": {"status": state}})


def test_a_rabbit_is_asked_after_itself_before_it_is_blamed() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        await in_setup(api, "r0")
        await rabbit(api, "r0", "Ready")
        async with informed(api):
            await controller.reconcile(KEY)

        assert api.asked.count(("get", kinds.STORAGE)) == 1
        assert api.keys(kinds.NNF_STORAGE) == ["default/wf-0"]
        assert status(api)["status"] == "DriverWait"

    with_controller(story, hidden=[kinds.STORAGE])


@pytest.mark.parametrize("state", ["Failed", None])
def test_a_rabbit_that_is_not_there_indeed_is_blamed(state: str | None) -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        await in_setup(api, "r0")
        if state is not None:
            await rabbit(api, "r0", state)
        async with informed(api):
            await controller.reconcile(KEY)

        assert api.asked.count(("get", kinds.STORAGE)) == 1
        assert api.keys(kinds.NNF_STORAGE) == []
        assert status(api)["status"] in ("Error", "TransientCondition")
        assert "r0" in status(api)["message"]

    with_controller(story)


@pytest.mark.parametrize("offered", [True, False])
def test_who_may_have_bare_devices_is_what_the_rabbits_say(offered: bool) -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        carried = {labels.RAW_VOLUMES: str(offered).lower()}
        told = {"metadata": meta("r0", labels=carried), "spec": {}, "status": {"status": "Ready"}}
        await api.add(kinds.STORAGE, told)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW.replace("xfs", "raw"), state=None))
            assert (status(api)["status"] == "Error") is not offered

    with_controller(story)


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        (['{"xfs":"mkfs.xfs is not installed"}'], "mkfs.xfs is not installed on r0"),
        (['{"xfs":"mkfs.xfs is not installed"}', "{}"], None),
        ([None], None),
    ],
)
def test_what_no_rabbit_makes_is_refused_with_the_reason(
    lacks: list[str | None], told: str | None
) -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        for number, said in enumerate(lacks):
            carried = {} if said is None else {labels.UNSUPPORTED_TYPES: said}
            found = meta(f"r{number}", annotations=carried)
            await api.add(kinds.STORAGE, {"metadata": found, "spec": {}, "status": {}})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state=None))
            found = status(api)
            assert (found["status"] == "Error") is (told is not None)
            assert told is None or (
                f"User error: No rabbit makes file systems of type xfs: {told}." in found["message"]
            )

    with_controller(story)


# Teardown


def test_a_movement_of_another_name_holds_up_no_teardown_whatever_its_labels_say() -> None:
    """A rabbit's agent may change the labels of those of its own."""

    async def story(api: Api, controller: WorkflowController) -> None:
        ends = {"source": {"path": "/a"}, "destination": {"path": "/b"}}
        carried = meta("other-1-0", "r0", labels=WORKFLOW, finalizers=["kept"])
        await api.add(kinds.NNF_DATA_MOVEMENT, {"metadata": carried, "spec": ends})
        await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Teardown"))
        async with running(api, controller.reconciler.run()):
            assert (status(api)["state"], status(api)["ready"]) == ("Teardown", True)

    with_controller(story)


def test_what_is_torn_down_is_looked_for_past_the_informers() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        workflow = await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Teardown"))
        await computes(api, workflow)
        spec = {"fileSystemType": "xfs", "allocationSets": []}
        await child(api, kinds.NNF_STORAGE, workflow, spec=spec, finalizers=["controller"])
        await child(api, kinds.SERVERS, workflow, **servers("r0"))
        async with informed(api):
            assert await controller.reconcile(KEY) == 5
            assert ("get", kinds.STORAGE) not in api.asked
            assert api.find(kinds.NNF_STORAGE, FIRST)["metadata"]["deletionTimestamp"]
            assert not status(api)["ready"]
            await api.change(kinds.NNF_STORAGE, FIRST, {"metadata": {"finalizers": []}})
            assert await controller.reconcile(KEY) is None
            assert status(api)["ready"]

    with_controller(story, hidden=[kinds.NNF_STORAGE])


@pytest.mark.parametrize("hidden", [(), OWNED])
def test_a_workflow_that_is_deleted_takes_along_what_is_its_own(hidden: Collection[Kind]) -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        workflow = await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Teardown", ready=True))
        await computes(api, workflow)
        await child(api, kinds.BREAKDOWN, workflow, **breakdown())
        await child(api, kinds.SERVERS, workflow, **servers("r0"))
        await child(api, kinds.NNF_STORAGE_PROFILE, workflow, data={"pinned": True})
        await api.remove(kinds.WORKFLOW, KEY)
        async with informed(api):
            await controller.reconcile(KEY)
            assert [api.keys(kind) for kind in OWNED] == [[], [], [], []]
            assert api.find(kinds.WORKFLOW, KEY) is not None
            await caught_up()
            await controller.reconcile(KEY)
            assert api.find(kinds.WORKFLOW, KEY) is None

    with_controller(story, hidden=hidden)


# News


@pytest.mark.parametrize(
    "kind",
    [*OWNED, kinds.NNF_STORAGE, kinds.NNF_ACCESS, kinds.NNF_DATA_MOVEMENT],
)
def test_news_of_what_belongs_to_a_workflow_wakes_it(kind: Kind) -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        async with running(api, controller.reconciler.run()):
            assert passes == []
            own = meta("x", labels=WORKFLOW, finalizers=["a"])
            await api.add(kind, {"metadata": own})
            assert passes
            before = len(passes)
            await api.add(kind, {"metadata": meta("y")})
            assert len(passes) == before

    with_controller(story)


def test_a_copy_goes_from_the_lustre_that_is_mounted_there() -> None:
    async def story(api: Api, controller: WorkflowController) -> None:
        lustre = {"metadata": meta("lus"), "spec": {"name": "lus", "mountRoot": "/lus"}}
        await api.add(kinds.LUSTRE_FILE_SYSTEM, lustre)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, COPY_IN, state=None))
            assert status(api)["status"] != "Error"

    with_controller(story)


# Containers


def test_a_workflow_hears_that_the_ports_are_free_which_it_has_given_back() -> None:
    async def story(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        key = ports.MANAGER_KEY
        requester = {"kind": "Workflow", "name": "wf", "namespace": "default", "uid": "uid-wf"}
        used = {"requester": requester, "ports": [5000], "status": "InUse"}
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Teardown"))
            manager = {"metadata": meta(key.name, key.namespace), "spec": {"allocations": []}}
            await api.add(kinds.PORT_MANAGER, {**manager, "status": {"allocations": [used]}})
            woken.clear()
            free: Any = {"status": {"allocations": []}}
            await api.change(kinds.PORT_MANAGER, key, free, status=True)
        assert woken == [KEY]

    alone(story)


def test_a_workflow_with_a_container_lives_its_whole_life() -> None:
    """With its ports, on a rabbit that is a node of the cluster; the test is the kubelet."""

    async def main(api: Api) -> None:
        controllers = [
            WorkflowController(api, api.informers, api.clock, "/mnt/nnf").reconciler,
            PortController(api, api.informers, api.clock).reconciler,
        ]
        container = {"name": "main", "image": "a", "ports": [{"containerPort": 80}]}
        data = {"spec": {"containers": [container]}}
        profile = {"kind": "NnfContainerProfile", "metadata": meta("foo", "nnf-system")}
        await api.add(kinds.CONTAINER_PROFILE, {**profile, "data": data})
        wired = [{"name": "r0", "type": "Rabbit", "computesAccess": [{"name": "n0", "index": 0}]}]
        spec = {"storageNodes": wired, "ports": [5000], "portsCooldownInSeconds": 0}
        await api.add(kinds.SYSTEM_CONFIGURATION, {"metadata": meta("default"), "spec": spec})
        where = {"kind": "SystemConfiguration", "name": "default", "namespace": "default"}
        managed = {"systemConfiguration": where, "allocations": []}
        key = ports.MANAGER_KEY
        await api.add(
            kinds.PORT_MANAGER, {"metadata": meta(key.name, key.namespace), "spec": managed}
        )
        await api.add(kinds.NODE, {"metadata": {"name": "r0"}})

        async def until(state: str) -> Any:
            await api.change(kinds.WORKFLOW, KEY, {"spec": {"desiredState": state}})
            await caught_up()
            found = status(api)
            assert (found["state"], found["message"]) == (state, found["message"])
            return found

        async with running(api, *(each.run() for each in controllers)):
            made = raw_workflow("#DW container name=beside profile=foo", state=None)
            made["metadata"].pop("uid")
            await api.add(kinds.WORKFLOW, made)
            await caught_up()
            assert status(api)["ready"], status(api)
            assert api.keys(kinds.CONTAINER_PROFILE) == ["default/wf-0", "nnf-system/foo"]
            found = await until("Setup")
            assert found["ready"], found
            assert found["env"]["NNF_CONTAINER_PORTS_main"] == "5000"
            assert (await until("DataIn"))["ready"]
            await api.change(kinds.COMPUTES, KEY, {"data": [{"name": "n0"}]})
            assert "pending container start" in (await until("PreRun"))["message"]
            assert api.keys(kinds.BATCH_JOB) == ["default/wf-r0"]
            job = Key("default", "wf-r0")
            await api.change(kinds.BATCH_JOB, job, {"status": {"ready": 1}}, status=True)
            await caught_up()
            assert status(api)["ready"], status(api)
            assert "pending container finish" in (await until("PostRun"))["message"]
            assert api.find(kinds.BATCH_JOB, job)["spec"]["activeDeadlineSeconds"] >= 300
            done = [{"type": "Complete", "status": "True"}]
            await api.change(kinds.BATCH_JOB, job, {"status": {"conditions": done}}, status=True)
            await caught_up()
            assert status(api)["ready"], status(api)
            assert (await until("DataOut"))["ready"]
            await until("Teardown")
            # Its garbage collector is not here: the pods are gone.
            await api.change(kinds.BATCH_JOB, job, {"metadata": {"finalizers": None}})
            await asyncio.sleep(5)
            assert status(api)["ready"], status(api)
            assert api.keys(kinds.BATCH_JOB) == []
            assert api.find(kinds.PORT_MANAGER, key)["status"]["allocations"] in ([], ())

    alone(main)


def test_containers_that_never_start_fail_their_workflow_without_other_news() -> None:
    async def main(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        container = {"name": "main", "image": "a"}
        data = {"spec": {"containers": [container]}, "preRunTimeoutSeconds": 30}
        wired = [{"name": "r0", "type": "Rabbit", "computesAccess": [{"name": "n0", "index": 0}]}]
        spec = {"storageNodes": wired, "portsCooldownInSeconds": 0}
        await api.add(kinds.SYSTEM_CONFIGURATION, {"metadata": meta("default"), "spec": spec})
        await api.add(kinds.NODE, {"metadata": {"name": "r0"}})
        directive = "#DW container name=beside profile=foo"
        made = raw_workflow(directive, state="DataIn", desired="PreRun", ready=True)
        workflow = await api.add(kinds.WORKFLOW, made)
        await child(api, kinds.CONTAINER_PROFILE, workflow, FIRST, data={**data, "pinned": True})
        await computes(api, workflow, "n0")
        async with running(api, controller.reconciler.run()):
            await caught_up()
            assert "pending container start" in status(api)["message"]
            await asyncio.sleep(31)
            assert "failed to start after 30 seconds" in status(api)["message"]

    alone(main)
