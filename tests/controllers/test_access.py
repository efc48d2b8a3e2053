"""The controllers of NnfAccesses, NnfStorages and DirectiveBreakdowns: what each sees and does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.controllers.alone import (
    WORKFLOW,
    Api,
    Counting,
    alone,
    caught_up,
    informed,
    owned_by,
    running,
)
from tests.dws.builders import JOBDW, RABBITS, configuration, meta, profile, settled, workflow
from warren.base.objects import Key, Kind
from warren.controllers.access import AccessController
from warren.controllers.breakdown import BreakdownController
from warren.controllers.storage import StorageController
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta
from warren.kube.client import Invalid

ACCESS = Key("default", "wf-0-computes")
STORAGE = Key("default", "wf-0")
COMPUTES = {"metadata": meta("wf", labels=WORKFLOW), "data": [{"name": "n0"}, {"name": "n2"}]}


def access(desired: str = "mounted", clients: bool = True) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "desiredState": desired,
        "target": "single",
        "mountPath": "/mnt/nnf/x",
        "storageReference": {"kind": "NnfStorage", "name": "wf-0", "namespace": "default"},
    }
    if clients:
        spec["clientReference"] = {"kind": "Computes", "name": "wf", "namespace": "default"}
    metadata = meta(ACCESS.name, labels=WORKFLOW, finalizers=[labels.ACCESS_FINALIZER])
    return {"metadata": metadata, "spec": spec}


def storage() -> dict[str, Any]:
    nodes = [{"name": "r0", "count": 1}, {"name": "r1", "count": 1}]
    sets = [{"name": "xfs", "capacity": 10, "nodes": nodes}]
    spec = {"fileSystemType": "xfs", "allocationSets": sets}
    metadata = meta(STORAGE.name, labels=WORKFLOW, finalizers=[labels.STORAGE_FINALIZER])
    return {"metadata": metadata, "spec": spec}


def share(rabbit: str, ready: bool = True) -> dict[str, Any]:
    own = owned_by(kinds.NNF_STORAGE, STORAGE.name)
    return {
        "metadata": meta("default-wf-0-xfs-0", rabbit, labels=own),
        "spec": {"count": 1, "capacity": 10, "fileSystemType": "xfs"},
        "status": {"ready": ready},
    }


def system() -> Any:
    return msgspec.to_builtins(configuration(RABBITS))


async def everything(api: Api) -> None:
    """Make all that an NnfAccess needs."""
    await api.add(kinds.SYSTEM_CONFIGURATION, system())
    await api.add(kinds.COMPUTES, COMPUTES)
    await api.add(kinds.NNF_STORAGE, storage())
    for rabbit in RABBITS:
        await api.add(kinds.NNF_NODE_STORAGE, share(rabbit))


# NnfAccess


@pytest.mark.parametrize("last", [kinds.NNF_STORAGE, kinds.NNF_NODE_STORAGE])
def test_storage_that_is_no_workflows_is_mounted_when_it_is_seen(last: Kind) -> None:
    """Persistent storage (dws-spec section 7) is named by accesses, and no label."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        own = labels.of_owner(kinds.NNF_STORAGE, Meta(name="wf-0", namespace="default", uid="u"))
        parts: list[tuple[Kind, Any]] = [(kinds.NNF_STORAGE, storage())]
        parts += [(kinds.NNF_NODE_STORAGE, share(rabbit)) for rabbit in RABBITS]
        parts.sort(key=lambda each: each[0] is last)
        await api.add(kinds.SYSTEM_CONFIGURATION, system())
        await api.add(kinds.COMPUTES, COMPUTES)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            for kind, obj in parts:
                carried = own if kind is kinds.NNF_NODE_STORAGE else {}
                await api.add(kind, {**obj, "metadata": {**obj["metadata"], "labels": carried}})

        assert len(api.keys(kinds.CLIENT_MOUNT)) == 2

    alone(story)


def test_each_compute_mounts_the_allocation_of_its_rabbit_and_then_the_access_is_ready() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            mounts = api.keys(kinds.CLIENT_MOUNT)
            assert mounts == [f"{node}/default-{ACCESS.name}" for node in ("n0", "n2")]
            assert not (api.find(kinds.NNF_ACCESS, ACCESS).get("status") or {}).get("ready")
            for each in mounts:
                key = Key(*each.split("/"))
                done = {"status": settled("mounted")}
                await api.change(kinds.CLIENT_MOUNT, key, done, status=True)

        found = api.find(kinds.NNF_ACCESS, ACCESS)["status"]
        assert (found["state"], found["ready"]) == ("mounted", True)

    alone(story)


SYSTEM_STATUS = Key("default", "default")


async def unmounting(api: Api, **nodes: str) -> None:
    """Have an access that all has unmounted but n2, and say what the SystemStatus says of nodes."""
    await everything(api)
    await api.add(kinds.WORKFLOW, msgspec.to_builtins(workflow("#DW jobdw type=xfs name=x")))
    said = {"metadata": meta("default"), "data": {"nodes": nodes}}
    await api.add(kinds.SYSTEM_STATUS, said)
    await api.add(kinds.NNF_ACCESS, access("unmounted"))
    for node, state in (("n0", "unmounted"), ("n2", "mounted")):
        own = owned_by(kinds.NNF_ACCESS, ACCESS.name)
        spec = {"node": node, "desiredState": "unmounted", "mounts": [MOUNT]}
        metadata = meta(f"default-{ACCESS.name}", node, labels=own)
        mount = {"metadata": metadata, "spec": spec, "status": settled(state)}
        await api.add(kinds.CLIENT_MOUNT, mount)


async def said_of(api: Api, **nodes: str) -> None:
    await api.change(kinds.SYSTEM_STATUS, SYSTEM_STATUS, {"data": {"nodes": nodes}})


MOUNT = {"mountPath": "/m", "type": "xfs", "device": {"type": "lvm"}}


def lost(api: Api) -> list[str]:
    """Return what the Workflow and the access say of nodes that are lost."""
    found = [
        (api.find(kind, key)["metadata"].get("annotations") or {}).get(labels.LOST_NODES, "")
        for kind, key in ((kinds.WORKFLOW, Key("default", "wf")), (kinds.NNF_ACCESS, ACCESS))
    ]
    return found if api.find(kinds.NNF_ACCESS, ACCESS)["status"]["ready"] else [*found, "waits"]


def test_a_node_that_is_disabled_for_a_time_is_not_waited_for() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n0="Enabled", n2="Disabled")
        async with running(api, controller.reconciler.run()):
            await asyncio.sleep(25.0)
            assert lost(api) == ["", "", "waits"]
            await asyncio.sleep(10.0)
            assert lost(api) == ["n2", "n2"]

    alone(story)


def test_a_node_that_is_disabled_later_has_its_time_from_then_on() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n2="Enabled")

        async with running(api, controller.reconciler.run()):
            await asyncio.sleep(100.0)
            await said_of(api, n2="Disabled")
            await asyncio.sleep(20.0)
            await said_of(api, n2="Enabled")
            await asyncio.sleep(100.0)
            await said_of(api, n2="Disabled")
            await asyncio.sleep(20.0)
            assert lost(api) == ["", "", "waits"]
            await asyncio.sleep(20.0)
            assert lost(api) == ["n2", "n2"]

    alone(story)


def test_nodes_that_are_disabled_one_after_the_other_are_lost_together() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n2="Disabled")
        other = Key("n0", f"default-{ACCESS.name}")
        await api.change(kinds.CLIENT_MOUNT, other, {"status": settled("mounted")}, status=True)
        async with running(api, controller.reconciler.run()):
            await asyncio.sleep(20.0)
            await said_of(api, n0="Disabled")
            await asyncio.sleep(20.0)
            assert lost(api) == ["", "", "waits"]
            await asyncio.sleep(15.0)
            assert lost(api) == ["n[0,2]", "n[0,2]"]

    alone(story)


def test_a_node_has_its_time_from_when_it_is_asked_to_unmount() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n2="Disabled")
        await api.change(kinds.NNF_ACCESS, ACCESS, {"spec": {"desiredState": "mounted"}})
        async with running(api, controller.reconciler.run()):
            await asyncio.sleep(100.0)
            await api.change(kinds.NNF_ACCESS, ACCESS, {"spec": {"desiredState": "unmounted"}})
            for node, state in (("n0", "unmounted"), ("n2", "mounted")):
                told = {"status": settled(state)}
                key = Key(node, f"default-{ACCESS.name}")
                await api.change(kinds.CLIENT_MOUNT, key, told, status=True)
            await asyncio.sleep(15.0)
            assert lost(api) == ["", "", "waits"]
            await asyncio.sleep(15.0)
            assert lost(api) == ["n2", "n2"]

    alone(story)


def test_an_access_that_goes_loses_no_node() -> None:
    """Its Workflow has no more use for them."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n2="Disabled")
        mine = {"metadata": {"finalizers": [labels.CLIENT_MOUNT_FINALIZER]}}
        await api.change(kinds.CLIENT_MOUNT, Key("n2", f"default-{ACCESS.name}"), mine)
        async with running(api, controller.reconciler.run()):
            await api.remove(kinds.NNF_ACCESS, ACCESS)
            await asyncio.sleep(100.0)
            assert lost(api)[:2] == ["", ""]

    alone(story)


def test_an_access_that_is_made_anew_gives_its_nodes_their_time_once_more() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n2="Disabled")
        guarded = {"metadata": {"finalizers": ["another"]}}
        await api.change(kinds.CLIENT_MOUNT, Key("n2", f"default-{ACCESS.name}"), guarded)
        async with running(api, controller.reconciler.run()):
            await asyncio.sleep(20.0)
            await api.change(kinds.NNF_ACCESS, ACCESS, {"metadata": {"finalizers": []}})
            await api.remove(kinds.NNF_ACCESS, ACCESS)
            await api.add(kinds.NNF_ACCESS, access("unmounted"))
            await asyncio.sleep(15.0)
            assert lost(api) == ["", "", "waits"]
            await asyncio.sleep(20.0)
            assert lost(api) == ["n2", "n2"]

    alone(story)


def test_an_access_whose_workflow_is_gone_waits_and_hears_what_nodes_say() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers, out_of_reach_seconds=30.0)
        await unmounting(api, n2="Disabled")
        await api.change(kinds.WORKFLOW, Key("default", "wf"), {"metadata": {"finalizers": []}})
        await api.remove(kinds.WORKFLOW, Key("default", "wf"))
        async with running(api, controller.reconciler.run()):
            await asyncio.sleep(100.0)
            assert api.find(kinds.NNF_ACCESS, ACCESS)["status"]["ready"] is False
            error = {"debugMessage": "busy", "type": "Internal", "severity": "Major"}
            mounts = [{"state": "unmounted", "ready": False}]
            told = {"status": {"error": error, "mounts": mounts}}
            await api.change(
                kinds.CLIENT_MOUNT, Key("n2", f"default-{ACCESS.name}"), told, status=True
            )
            assert "busy" in api.find(kinds.NNF_ACCESS, ACCESS)["status"]["error"]["debugMessage"]

    alone(story)


def test_what_is_said_of_nodes_wakes_no_access_but_theirs() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await unmounting(api)
        async with running(api, controller.reconciler.run()):
            woken: list[Key] = []
            controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
            for nodes in ({"n1": "Disabled"}, {"n2": "Enabled"}, {"n2": "Disabled"}):
                before = len(woken)
                await said_of(api, **nodes)
                assert woken[before:] == [ACCESS] * (nodes == {"n2": "Disabled"}), nodes

    alone(story)


LATE = {
    "configuration": (kinds.SYSTEM_CONFIGURATION, system),
    "computes": (kinds.COMPUTES, lambda: COMPUTES),
    "storage": (kinds.NNF_STORAGE, storage),
    "a share": (kinds.NNF_NODE_STORAGE, lambda: share("r1")),
}


def test_an_access_in_error_is_looked_at_again_when_the_profile_of_its_storage_is_back() -> None:
    """As that of system storage, which is the site's own."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        pinned = labels.of_profile("mine", "default")
        patch = {"metadata": {"labels": pinned}}
        await api.change(kinds.NNF_STORAGE, Key("default", "wf-0"), patch)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            assert api.find(kinds.NNF_ACCESS, ACCESS)["status"]["error"]
            made = msgspec.to_builtins(profile())
            made["metadata"] = meta("mine", "default")
            await api.add(kinds.NNF_STORAGE_PROFILE, made)
            assert len(api.keys(kinds.CLIENT_MOUNT)) == 2

    alone(story)


def test_a_profile_that_was_not_seen_yet_is_read() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        pinned = {"metadata": {"labels": labels.of_profile("mine", "default")}}
        await api.change(kinds.NNF_STORAGE, STORAGE, pinned)
        made = msgspec.to_builtins(profile())
        made["metadata"] = meta("mine", "default")
        await api.add(kinds.NNF_STORAGE_PROFILE, made)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            assert len(api.keys(kinds.CLIENT_MOUNT)) == 2

    alone(story, hidden=[kinds.NNF_STORAGE_PROFILE])


def test_rabbits_mount_nothing_for_nodes_that_the_workflow_has_lost() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        on_rabbits = access(clients=False)
        on_rabbits["spec"]["target"] = "all"
        on_rabbits["metadata"]["annotations"] = {labels.LOST_NODES: "n2"}
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, on_rabbits)
            assert api.keys(kinds.CLIENT_MOUNT) == [f"r0/default-{ACCESS.name}"]

    alone(story)


def test_no_job_fails_by_a_mount_of_another_node_that_says_to_be_its_own() -> None:
    """A node's agent may change the labels of its mounts, and of no others."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        error = {"debugMessage": "evil", "type": "Internal", "severity": "Fatal"}
        own = labels.of_owner(kinds.NNF_ACCESS, Meta(name=ACCESS.name, namespace="default"))
        stolen = {
            "metadata": meta("default-wf-9-computes", "n9", labels={**WORKFLOW, **own}),
            "spec": {"node": "n9", "desiredState": "mounted", "mounts": []},
            "status": {"error": error},
        }
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            await api.add(kinds.CLIENT_MOUNT, stolen)
            for node in ("n0", "n2"):
                done = {"status": settled("mounted")}
                key = Key(node, f"default-{ACCESS.name}")
                await api.change(kinds.CLIENT_MOUNT, key, done, status=True)

        found = api.find(kinds.NNF_ACCESS, ACCESS)["status"]
        assert (found["state"], found["ready"], found.get("error")) == ("mounted", True, None)

    alone(story)


@pytest.mark.parametrize("late", LATE)
def test_nothing_is_mounted_until_all_is_seen_and_its_news_wakes_the_access(late: str) -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        for name, (kind, make) in LATE.items():
            if name != late:
                await api.add(kind, make())
        await api.add(kinds.NNF_NODE_STORAGE, share("r0"))
        kind, make = LATE[late]
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            assert api.keys(kinds.CLIENT_MOUNT) == []
            error = api.find(kinds.NNF_ACCESS, ACCESS)["status"]["error"]
            assert "not" in error["debugMessage"]
            await api.add(kind, make())
            assert len(api.keys(kinds.CLIENT_MOUNT)) == 2

    alone(story)


def test_an_access_without_clients_waits_for_them() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access(clients=False))

        assert api.keys(kinds.CLIENT_MOUNT) == []

    alone(story)


def test_news_of_another_job_wakes_no_reader() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        other = {**WORKFLOW, labels.WORKFLOW_NAME: "other"}
        await everything(api)
        await api.add(kinds.NNF_ACCESS, access())
        async with running(api, controller.reconciler.run()):
            before = len(passes)
            await api.add(kinds.COMPUTES, {"metadata": meta("x", labels=other), "data": []})
            await api.add(kinds.COMPUTES, {"metadata": meta("y"), "data": []})
            strange = {"node": "n0", "desiredState": "mounted", "mounts": []}
            await api.add(kinds.CLIENT_MOUNT, {"metadata": meta("z", "n0"), "spec": strange})
            assert len(passes) == before

    alone(story)


def test_an_access_is_not_woken_by_what_it_writes_nor_by_how_a_mount_goes() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        await everything(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            assert lock(api) == f"{ACCESS.name}/default"
            assert len(passes) == 1
            for key in api.keys(kinds.CLIENT_MOUNT):
                guarded = {"metadata": {"finalizers": ["another"]}}
                await api.change(kinds.CLIENT_MOUNT, Key(*key.split("/")), guarded)
                await api.remove(kinds.CLIENT_MOUNT, Key(*key.split("/")))
            assert len(passes) == 1

    alone(story)


@pytest.mark.parametrize("left", ["mounts", "a lock", None])
def test_an_access_that_is_gone_is_looked_at_for_what_it_has_left_alone(left: str | None) -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        unguarded = access()
        unguarded["metadata"]["finalizers"] = []
        await api.add(kinds.NNF_ACCESS, unguarded)
        if left == "mounts":
            metadata = meta(
                f"default-{ACCESS.name}", "n0", labels=owned_by(kinds.NNF_ACCESS, ACCESS.name)
            )
            spec = {"node": "n0", "desiredState": "unmounted", "mounts": [MOUNT]}
            await api.add(kinds.CLIENT_MOUNT, {"metadata": metadata, "spec": spec})
        held = storage()
        if left == "a lock":
            held["metadata"]["annotations"] = {labels.LOCK: f"{ACCESS.name}/default"}
            held["metadata"]["finalizers"].append(f"nnf.cray.hpe.com/{ACCESS.name}")
        else:
            held["metadata"]["annotations"] = {labels.LOCK: f"{OTHER.name}/default"}
            held["metadata"]["finalizers"].append(f"nnf.cray.hpe.com/{OTHER.name}")
            await api.add(kinds.NNF_ACCESS, another())
        await api.add(kinds.NNF_STORAGE, held)
        async with running(api, controller.reconciler.run()):
            before = len(passes)
            await api.remove(kinds.NNF_ACCESS, ACCESS)
            assert (len(passes) > before) is (left is not None)
            assert api.keys(kinds.CLIENT_MOUNT) == []
            assert lock(api) == (None if left == "a lock" else f"{OTHER.name}/default")

    alone(story)


def test_an_access_that_is_deleted_takes_its_mounts_away_first() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            await api.remove(kinds.NNF_ACCESS, ACCESS)
            assert api.find(kinds.NNF_ACCESS, ACCESS) is not None
            for each in api.store.objects_of(kinds.CLIENT_MOUNT):
                assert each["metadata"]["deletionTimestamp"]
                key = Key(each["metadata"]["namespace"], each["metadata"]["name"])
                await api.change(kinds.CLIENT_MOUNT, key, {"metadata": {"finalizers": []}})

        assert api.keys(kinds.CLIENT_MOUNT) == []
        assert api.find(kinds.NNF_ACCESS, ACCESS) is None
        assert api.asked == [("list", kinds.CLIENT_MOUNT), ("get", kinds.NNF_STORAGE)]

    alone(story)


# Servers


def assigned(**metadata: Any) -> dict[str, Any]:
    return {"metadata": meta("wf-0", finalizers=[labels.SERVERS_FINALIZER], **metadata), "spec": {}}


def test_servers_stay_while_there_is_storage_of_which_they_speak() -> None:
    """dws-spec section 0.2: workload managers read in them which flash is taken."""

    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        await api.add(kinds.SERVERS, assigned())
        held = storage()
        held["metadata"]["finalizers"].append("nnf.cray.hpe.com/wf-0-computes")
        held["spec"]["allocationSets"] = []
        await api.add(kinds.NNF_STORAGE, held)
        async with running(api, controller.reconciler.run()):
            await api.remove(kinds.SERVERS, STORAGE)
            await api.remove(kinds.NNF_STORAGE, STORAGE)
            assert api.keys(kinds.SERVERS) == ["default/wf-0"]
            let_go = {"metadata": {"finalizers": [labels.STORAGE_FINALIZER]}}
            await api.change(kinds.NNF_STORAGE, STORAGE, let_go)
            await caught_up()
        assert api.keys(kinds.NNF_STORAGE) == []
        assert api.keys(kinds.SERVERS) == []

    alone(story)


def test_servers_stay_while_their_storage_was_not_seen() -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        await api.add(kinds.SERVERS, assigned(deletionTimestamp="2026-01-31T12:00:00Z"))
        await api.add(kinds.NNF_STORAGE, storage())
        async with informed(api):
            assert await controller.reconcile(STORAGE) is None
        assert api.keys(kinds.SERVERS) == ["default/wf-0"]

    alone(story, hidden=[kinds.NNF_STORAGE])


# The lock (dws-spec section 8)

OTHER = Key("default", "other-0-computes")


def another() -> dict[str, Any]:
    found = access()
    found["metadata"] = {**found["metadata"], "name": OTHER.name, "uid": "uid-other"}
    return found


def lock(api: Api) -> str | None:
    found = api.find(kinds.NNF_STORAGE, STORAGE)["metadata"]
    guards = [each for each in found["finalizers"] if each != labels.STORAGE_FINALIZER]
    name: str | None = found.get("annotations", {}).get(labels.LOCK)
    assert guards == ([] if name is None else [f"nnf.cray.hpe.com/{name.partition('/')[0]}"])
    return name


def mounting(api: Api) -> set[str]:
    return {
        name.partition("/")[2].removeprefix("default-") for name in api.keys(kinds.CLIENT_MOUNT)
    }


def test_the_second_access_waits_until_the_first_has_unmounted_everywhere() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            await api.add(kinds.NNF_ACCESS, another())
            assert lock(api) == f"{ACCESS.name}/default"
            assert mounting(api) == {ACCESS.name}
            error = api.find(kinds.NNF_ACCESS, OTHER)["status"]["error"]
            assert error["severity"] == "Minor"
            assert "one at a time" in error["userMessage"]

            unmounted = {"spec": {"desiredState": "unmounted"}}
            await api.change(kinds.NNF_ACCESS, ACCESS, unmounted)
            first, second = (Key(*each.split("/")) for each in api.keys(kinds.CLIENT_MOUNT))
            done = {"status": settled("unmounted")}
            await api.change(kinds.CLIENT_MOUNT, first, done, status=True)
            assert mounting(api) == {ACCESS.name}
            await api.change(kinds.CLIENT_MOUNT, second, done, status=True)

        assert lock(api) == f"{OTHER.name}/default"
        assert mounting(api) == {ACCESS.name, OTHER.name}
        assert not (api.find(kinds.NNF_ACCESS, OTHER)["status"]).get("error")

    alone(story)


def test_two_that_see_free_storage_at_the_same_time_do_not_both_mount_it() -> None:
    async def story(api: Api) -> None:
        await everything(api)
        await api.store.create(kinds.NNF_ACCESS, access())
        await api.store.create(kinds.NNF_ACCESS, another())
        controller = AccessController(api, api.informers)
        async with running(api, controller.reconciler.run()):
            assert mounting(api) in ({ACCESS.name}, {OTHER.name})

    alone(story)


def test_the_lock_of_an_access_that_is_gone_is_taken_off() -> None:
    """Its finalizer was removed by hand, or the write of the lock came late."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await everything(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            await api.change(kinds.NNF_ACCESS, ACCESS, {"metadata": {"finalizers": []}})
            await api.remove(kinds.NNF_ACCESS, ACCESS)
            # Not before its mounts have gone, which are removed by then.
            assert lock(api) == f"{ACCESS.name}/default"
            for each in api.keys(kinds.CLIENT_MOUNT):
                gone: Any = {"metadata": {"finalizers": []}}
                await api.change(kinds.CLIENT_MOUNT, Key(*each.split("/")), gone)
            assert lock(api) is None

    alone(story)


@pytest.mark.parametrize("hidden", [kinds.NNF_ACCESS, kinds.NNF_STORAGE])
def test_a_lock_is_judged_by_what_is_there_and_not_by_what_was_seen(hidden: Kind) -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        held = storage()
        held["metadata"]["finalizers"] = [
            labels.STORAGE_FINALIZER,
            f"nnf.cray.hpe.com/{ACCESS.name}",
        ]
        held["metadata"]["annotations"] = {labels.LOCK: f"{ACCESS.name}/default"}
        await api.add(kinds.NNF_STORAGE, held)
        going = access()
        if hidden is kinds.NNF_STORAGE:
            going["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
        await api.add(kinds.NNF_ACCESS, going)
        async with running(api, controller.reconciler.run()):
            await caught_up()
        # Of an access that was not seen the lock stays; one that goes takes along what was not.
        assert (lock(api) is None) is (hidden is kinds.NNF_STORAGE)

    alone(story, hidden=[hidden])


# Persistent storage, which copies and jobs mount (ADR 065)

COPY = Key("default", "copier-0-servers")


def lasting() -> dict[str, Any]:
    found = storage()
    found["metadata"]["labels"] = {**WORKFLOW, labels.PERSISTENT_NAME: "pers"}
    return found


def copying() -> dict[str, Any]:
    """Return the access by which rabbits mount what is for the nodes of another Workflow."""
    found = access()
    carried = {**WORKFLOW, labels.WORKFLOW_NAME: "copier"}
    found["metadata"] = {**found["metadata"], "name": COPY.name, "uid": "c", "labels": carried}
    found["spec"] = {**found["spec"], "target": "all"}
    found["spec"]["clientReference"] = {"kind": "Computes", "name": "copier"}
    found["spec"]["clientReference"]["namespace"] = "default"
    return found


def of_copier(*nodes: str) -> dict[str, Any]:
    return {"metadata": meta("copier"), "data": [{"name": node} for node in nodes]}


async def outlives(api: Api) -> None:
    await api.add(kinds.SYSTEM_CONFIGURATION, system())
    await api.add(kinds.COMPUTES, COMPUTES)
    await api.add(kinds.NNF_STORAGE, lasting())
    await api.add(kinds.PERSISTENT_INSTANCE, instance())
    for rabbit in RABBITS:
        await api.add(kinds.NNF_NODE_STORAGE, share(rabbit))


def instance(**annotations: str) -> dict[str, Any]:
    spec = {"name": STORAGE.name, "userID": 1001, "dwDirective": "", "state": "Active"}
    return {"metadata": meta(STORAGE.name, annotations=annotations), "spec": spec}


def lists(api: Api) -> list[str | None]:
    """Return with whom the ClientMounts say that storage is shared."""
    found = [api.find(kinds.CLIENT_MOUNT, Key(*each.split("/")))
             for each in api.keys(kinds.CLIENT_MOUNT)]  # fmt: skip
    return [each["metadata"].get("annotations", {}).get(labels.SHARED_WITH) for each in found]


def test_nodes_hear_with_whom_storage_is_shared_while_they_have_it_mounted() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await outlives(api)
        await api.add(kinds.NNF_ACCESS, access())
        async with running(api, controller.reconciler.run()):
            await caught_up()
            for each in api.keys(kinds.CLIENT_MOUNT):
                done = {"status": settled("mounted")}
                await api.change(kinds.CLIENT_MOUNT, Key(*each.split("/")), done, status=True)
            assert lists(api) == ["", ""]
            for text in ("uid:5", "uid:5,gid:6", None):
                shared = {"metadata": {"annotations": {labels.SHARED_WITH: text}}}
                await api.change(kinds.PERSISTENT_INSTANCE, STORAGE, shared)
                assert lists(api) == [text or ""] * 2
                assert api.find(kinds.NNF_ACCESS, ACCESS)["status"]["ready"]
            api.asked.clear()
            used = {"spec": {"consumerReferences": [{"name": "a", "namespace": "default"}]}}
            await api.change(kinds.PERSISTENT_INSTANCE, STORAGE, used)
            assert api.asked == []

    alone(story)


def test_an_instance_that_was_not_seen_yet_is_read() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await outlives(api)
        shared = {"metadata": {"annotations": {labels.IGNORE_UID: "true"}}}
        await api.change(kinds.PERSISTENT_INSTANCE, STORAGE, shared)
        await api.add(kinds.NNF_ACCESS, access())
        async with running(api, controller.reconciler.run()):
            await caught_up()
        assert lists(api) == ["everyone"] * 2

    alone(story, hidden=[(kinds.PERSISTENT_INSTANCE, STORAGE)])


def test_a_copy_waits_for_jobs_on_its_nodes_and_is_woken_when_they_have_unmounted() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await outlives(api)
        await api.add(kinds.COMPUTES, of_copier("n2"))
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            await api.add(kinds.NNF_ACCESS, copying())
            assert mounting(api) == {ACCESS.name}
            error = api.find(kinds.NNF_ACCESS, COPY)["status"]["error"]
            assert str(ACCESS) in error["debugMessage"]

            unmounted = {"spec": {"desiredState": "unmounted"}}
            await api.change(kinds.NNF_ACCESS, ACCESS, unmounted)
            for each in api.keys(kinds.CLIENT_MOUNT):
                done = {"status": settled("unmounted")}
                await api.change(kinds.CLIENT_MOUNT, Key(*each.split("/")), done, status=True)
        assert f"r1/default-{COPY.name}" in api.keys(kinds.CLIENT_MOUNT)
        assert f"r0/default-{COPY.name}" not in api.keys(kinds.CLIENT_MOUNT)

    alone(story)


def test_a_copy_and_a_job_on_other_nodes_do_not_wait_for_each_other() -> None:
    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await outlives(api)
        await api.add(kinds.COMPUTES, of_copier("n2"))
        await api.change(kinds.COMPUTES, Key("default", "wf"), {"data": [{"name": "n0"}]})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, copying())
            await api.add(kinds.NNF_ACCESS, access())
        assert mounting(api) == {ACCESS.name, COPY.name}

    alone(story)


@pytest.mark.parametrize("hidden", [(), [kinds.CLIENT_MOUNT]])
def test_a_node_waits_for_the_one_that_its_part_was_for_and_still_mounts_it(
    hidden: list[Kind],
) -> None:
    """What was not seen of mounts is read: no news of them would wake the one that waits."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await outlives(api)
        await api.change(kinds.COMPUTES, Key("default", "wf"), {"data": [{"name": "n0"}]})
        await api.add(kinds.COMPUTES, of_copier("n1"))
        other = copying()
        other["spec"]["target"] = "single"
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, access())
            left = msgspec.to_builtins(configuration({"r0": ("n1",), "r1": ("n2",)}))
            await api.change(
                kinds.SYSTEM_CONFIGURATION, kinds.CONFIGURATION_KEY, {"spec": left["spec"]}
            )
            await api.add(kinds.NNF_ACCESS, other)
            assert mounting(api) == {ACCESS.name}
            error = api.find(kinds.NNF_ACCESS, COPY)["status"]["error"]
            assert "n0 is waited for" in error["userMessage"]

            if hidden:
                return
            unmounted = {"spec": {"desiredState": "unmounted"}}
            await api.change(kinds.NNF_ACCESS, ACCESS, unmounted)
            done = {"status": settled("unmounted")}
            mine = Key("n0", f"default-{ACCESS.name}")
            await api.change(kinds.CLIENT_MOUNT, mine, done, status=True)
        assert f"n1/default-{COPY.name}" in api.keys(kinds.CLIENT_MOUNT)

    alone(story, hidden=hidden)


async def copied(api: Api, *parts: tuple[Kind, dict[str, Any]]) -> None:
    """Have a copy hold the storage on the rabbit of n2, and a job on n0 mount it."""
    await outlives(api)
    for kind, obj in parts:
        await api.add(kind, obj)
    held = [labels.STORAGE_FINALIZER, f"nnf.cray.hpe.com/{COPY.name}"]
    await api.change(kinds.NNF_STORAGE, STORAGE, {"metadata": {"finalizers": held}})
    await api.change(kinds.COMPUTES, Key("default", "wf"), {"data": [{"name": "n0"}]})
    controller = AccessController(api, api.informers)
    await api.add(kinds.NNF_ACCESS, access())
    async with running(api, controller.reconciler.run()):
        await caught_up()


@pytest.mark.parametrize(
    "hidden", [(kinds.NNF_ACCESS, COPY), (kinds.COMPUTES, Key("default", "copier"))]
)
def test_what_was_not_seen_of_those_who_hold_it_is_read(hidden: tuple[Kind, Key]) -> None:
    """No news of it would wake the one that waits."""

    async def story(api: Api) -> None:
        await copied(api, (kinds.NNF_ACCESS, copying()), (kinds.COMPUTES, of_copier("n2")))
        assert ("get", hidden[0]) in api.asked
        assert ACCESS.name in mounting(api)

    alone(story, hidden=[hidden])


@pytest.mark.parametrize("type", ["xfs", "gfs2"])
@pytest.mark.parametrize("clients", [True, False])
def test_of_those_who_hold_it_nothing_is_read_that_was_seen_or_has_no_matter(
    type: str, clients: bool
) -> None:
    async def story(api: Api) -> None:
        other = copying()
        if not clients:
            del other["spec"]["clientReference"]
        await outlives(api)
        await api.change(
            kinds.NNF_STORAGE, STORAGE, {"spec": {**lasting()["spec"], "fileSystemType": type}}
        )
        await api.add(kinds.COMPUTES, of_copier("n2"))
        await api.add(kinds.NNF_ACCESS, other)
        controller = AccessController(api, api.informers)
        async with running(api, controller.reconciler.run()):
            assert mounting(api) == {COPY.name}
            api.asked.clear()
            await api.add(kinds.NNF_ACCESS, access())
            assert api.asked == []
            error = api.find(kinds.NNF_ACCESS, ACCESS)["status"].get("error")
            assert (error is not None) is (type == "xfs"), error

    alone(story)


def test_a_copy_whose_nodes_are_not_known_may_be_on_any() -> None:
    async def story(api: Api) -> None:
        await copied(api, (kinds.NNF_ACCESS, copying()))
        assert mounting(api) == set()
        error = api.find(kinds.NNF_ACCESS, ACCESS)["status"]["error"]
        assert str(COPY) in error["debugMessage"]

    alone(story)


def test_a_copy_that_is_gone_may_be_on_any_node_until_its_mounts_are_gone() -> None:
    async def story(api: Api) -> None:
        own = labels.of_owner(kinds.NNF_ACCESS, Meta(name=COPY.name, namespace="default"))
        metadata = meta(f"default-{COPY.name}", "r1", labels=own, finalizers=["another"])
        spec = {"node": "r1", "desiredState": "mounted", "mounts": [MOUNT]}
        await api.add(kinds.CLIENT_MOUNT, {"metadata": metadata, "spec": spec})
        await copied(api)
        assert mounting(api) == {COPY.name}
        error = api.find(kinds.NNF_ACCESS, ACCESS)["status"]["error"]
        assert str(COPY) in error["debugMessage"]

    alone(story)


def test_a_copy_that_is_gone_keeps_no_job_waiting() -> None:
    async def story(api: Api) -> None:
        await copied(api)
        assert mounting(api) == {ACCESS.name}

    alone(story)


def test_rabbits_mount_nothing_for_a_copy_of_what_its_nodes_did_not_have_mounted() -> None:
    """Admins may have changed the SystemConfiguration while the job ran (ADR 053)."""

    async def story(api: Api) -> None:
        controller = AccessController(api, api.informers)
        await outlives(api)
        await api.add(kinds.COMPUTES, of_copier("n0"))
        own = copying()
        own["metadata"] = {**own["metadata"], "name": COPY.name.replace("servers", "computes")}
        own["spec"] = {**own["spec"], "target": "single"}
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_ACCESS, own)
            (mount,) = api.keys(kinds.CLIENT_MOUNT)
            await api.change(
                kinds.NNF_ACCESS,
                Key(COPY.namespace, own["metadata"]["name"]),
                {"spec": {"desiredState": "unmounted"}},
            )
            done = {"status": settled("unmounted")}
            await api.change(kinds.CLIENT_MOUNT, Key(*mount.split("/")), done, status=True)
            swapped = msgspec.to_builtins(configuration({"r0": ("n2",), "r1": ("n0",)}))
            await api.change(
                kinds.SYSTEM_CONFIGURATION, kinds.CONFIGURATION_KEY, {"spec": swapped["spec"]}
            )
            await api.add(kinds.NNF_ACCESS, copying())

        error = api.find(kinds.NNF_ACCESS, COPY)["status"]["error"]
        assert "node n0 has had another allocation of" in error["debugMessage"]
        assert api.keys(kinds.CLIENT_MOUNT) == [mount]

    alone(story)


# NnfStorage and its Servers


def servers(ready: bool = False) -> dict[str, Any]:
    sets = [
        {"label": "xfs", "allocationSize": 10, "storage": [{"name": r, "allocationCount": 1}]}
        for r in ("r0",)
    ]
    sets[0]["storage"] = [{"name": rabbit, "allocationCount": 1} for rabbit in RABBITS]
    found = {"metadata": meta(STORAGE.name, labels=WORKFLOW), "spec": {"allocationSets": sets}}
    return {**found, "status": {"ready": True}} if ready else found


def test_each_rabbit_gets_its_share_and_what_is_ready_is_said_of_storage_and_servers() -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SERVERS, servers())
            named = api.find(kinds.SERVERS, STORAGE)["status"]
            assert sorted(named["allocationSets"][0]["storage"]) == ["r0", "r1"]
            assert not named["ready"]

            await api.add(kinds.NNF_STORAGE, storage())
            shares = api.keys(kinds.NNF_NODE_STORAGE)
            assert shares == [f"{rabbit}/default-wf-0-xfs-0" for rabbit in RABBITS]
            for number, each in enumerate(shares):
                done = {"status": {"ready": True}}
                key = Key(*each.split("/"))
                await api.change(kinds.NNF_NODE_STORAGE, key, done, status=True)
                told = api.find(kinds.SERVERS, STORAGE)["status"]
                assert told["ready"] == (number == 1)
                assert told["allocationSets"][0]["storage"]["r0"]["allocationSize"] == 10

        assert api.find(kinds.NNF_STORAGE, STORAGE)["status"]["ready"]
        assert api.asked == []

    alone(story)


@pytest.mark.parametrize(("pinned", "capacity"), [(True, 7), (False, 10)])
def test_the_padding_of_the_profile_that_is_pinned_is_taken_off(
    pinned: bool, capacity: int
) -> None:
    """ADR 046: the user is told what was asked for, and the flash is as large as was assigned."""

    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        made = storage()
        if pinned:
            made["metadata"]["labels"] = WORKFLOW | labels.of_profile("mine", "default")
        data = {"xfsStorage": {"allocationPadding": "3"}, "pinned": True}
        await api.add(kinds.NNF_STORAGE_PROFILE, {"metadata": meta("mine"), "data": data})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_STORAGE, made)

        key = Key("r0", "default-wf-0-xfs-0")
        assert api.find(kinds.NNF_NODE_STORAGE, key)["spec"]["capacity"] == capacity
        (flash,) = api.find(kinds.NNF_NODE_BLOCK_STORAGE, key)["spec"]["allocations"]
        assert flash["capacity"] == 10

    alone(story)


def test_servers_that_come_late_are_reported_on_when_they_come() -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        for rabbit in RABBITS:
            await api.add(kinds.NNF_NODE_STORAGE, share(rabbit))
        await api.add(kinds.NNF_STORAGE, storage())
        async with running(api, controller.reconciler.run()):
            assert api.find(kinds.NNF_STORAGE, STORAGE)["status"]["ready"]
            await api.add(kinds.SERVERS, servers())

        assert api.find(kinds.SERVERS, STORAGE)["status"]["ready"]

    alone(story)


def test_servers_that_were_ready_are_told_nothing_once_their_storage_is_gone() -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        await api.add(kinds.SERVERS, servers(ready=True))
        async with informed(api):
            await controller.reconcile(STORAGE)

        assert api.written == []

    alone(story)


@pytest.mark.parametrize("there", [True, False])
def test_servers_and_storages_on_their_way_out_are_told_nothing(there: bool) -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        made = servers()
        made["metadata"] |= {"finalizers": ["another"]}
        await api.add(kinds.SERVERS, made)
        if there:
            await api.add(kinds.NNF_STORAGE, storage())
            for rabbit in RABBITS:
                await api.add(kinds.NNF_NODE_STORAGE, share(rabbit))
            await api.remove(kinds.NNF_STORAGE, STORAGE)
        else:
            await api.remove(kinds.SERVERS, STORAGE)
        async with informed(api):
            await controller.reconcile(STORAGE)

        assert [kind for _, kind, _ in api.written if kind == kinds.SERVERS] == []

    alone(story)


def test_a_storage_that_is_deleted_takes_its_shares_away_first() -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_STORAGE, storage())
            await api.remove(kinds.NNF_STORAGE, STORAGE)
            assert api.find(kinds.NNF_STORAGE, STORAGE) is not None
            for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE):
                assert api.find(kinds.NNF_STORAGE, STORAGE) is not None
                assert len(api.keys(kind)) == 2
                for each in api.keys(kind):
                    nothing: dict[str, Any] = {"metadata": {"finalizers": []}}
                    await api.change(kind, Key(*each.split("/")), nothing)

        assert api.keys(kinds.NNF_NODE_STORAGE) == []
        assert api.keys(kinds.NNF_NODE_BLOCK_STORAGE) == []
        assert api.find(kinds.NNF_STORAGE, STORAGE) is None
        # Past the informers once, when nothing was left to be seen.
        assert api.asked == [
            ("list", kinds.NNF_NODE_STORAGE),
            ("list", kinds.NNF_NODE_BLOCK_STORAGE),
        ]

    alone(story)


def test_a_storage_is_not_woken_by_what_it_writes() -> None:
    async def story(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_STORAGE, storage())
            assert len(api.keys(kinds.NNF_NODE_BLOCK_STORAGE)) == 2
            assert len(passes) == 1
            for rabbit in RABBITS:
                told = {"status": {"health": "OK", "ready": True, "capacity": 10}}
                key = Key(rabbit, f"default-{STORAGE.name}-xfs-0")
                await api.change(kinds.NNF_NODE_STORAGE, key, told, status=True)
            assert api.find(kinds.NNF_STORAGE, STORAGE)["status"]["ready"]
            assert len(passes) == 3

    alone(story)


# DirectiveBreakdown

BREAKDOWN = Key("default", "wf-0")


def directive() -> dict[str, Any]:
    return {
        "metadata": meta(BREAKDOWN.name, labels=WORKFLOW),
        "spec": {"directive": JOBDW, "userID": 1},
    }


def profile_in(namespace: str, padding: str = "300MiB") -> Any:
    made = msgspec.to_builtins(profile(allocationPadding=padding))
    made["metadata"]["namespace"] = namespace
    return made


def with_breakdowns(story: Callable[[Api, BreakdownController], Awaitable[None]]) -> None:
    async def main(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await story(api, controller)

    alone(main)


def test_a_directive_is_broken_down_by_the_profiles_of_their_namespace_alone() -> None:
    async def story(api: Api, controller: BreakdownController) -> None:
        await api.add(kinds.NNF_STORAGE_PROFILE, profile_in(kinds.PROFILES_NAMESPACE))
        await api.add(kinds.NNF_STORAGE_PROFILE, profile_in("default", "10GiB"))
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive())

        found = api.find(kinds.BREAKDOWN, BREAKDOWN)["status"]
        assert found["ready"]
        (need,) = found["storage"]["allocationSets"]
        assert need["minimumCapacity"] < 2 * 2**30

    with_breakdowns(story)


def test_what_definitions_of_others_do_not_know_becomes_an_error_of_the_breakdown() -> None:
    async def story(api: Api, controller: BreakdownController) -> None:
        await api.add(kinds.NNF_STORAGE_PROFILE, profile_in(kinds.PROFILES_NAMESPACE))
        api.refusals["patch", kinds.BREAKDOWN] = Invalid("fileSystemType: unknown")
        await api.add(kinds.BREAKDOWN, directive())
        async with informed(api):
            await controller.reconcile(BREAKDOWN)
            await caught_up()
            await controller.reconcile(BREAKDOWN)

        error = api.find(kinds.BREAKDOWN, BREAKDOWN)["status"]["error"]
        assert "fileSystemType: unknown" in error["debugMessage"]

    with_breakdowns(story)


def test_a_breakdown_that_is_gone_is_nothing_to_do() -> None:
    async def story(api: Api, controller: BreakdownController) -> None:
        async with informed(api):
            assert await controller.reconcile(BREAKDOWN) is None
        assert api.written == []

    with_breakdowns(story)
