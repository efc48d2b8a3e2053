"""The rabbits of the configuration: made, kept what they say of themselves, and said to be done."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.controllers.alone import Api, Counting, alone, caught_up, informed, running
from tests.dws.builders import RABBITS, meta
from tests.harness.logs import capture_logs
from warren.base.objects import Key, Kind, Object
from warren.controllers import heartbeats
from warren.controllers.rabbits import SystemController
from warren.dws import kinds, labels
from warren.dws.rabbits.rabbitstorages import NNF_NODE_NAME
from warren.kube.client import Forbidden, Unavailable
from warren.kube.leader import LEASE

CONFIGURATION = Key("default", "default")
Story = Callable[[Api, SystemController], Awaitable[None]]


def with_controller(story: Story) -> None:
    async def main(api: Api) -> None:
        await story(api, SystemController(api, api.informers))

    alone(main)


def configuration(rabbits: Mapping[str, Sequence[str]] = RABBITS, **status: Any) -> dict[str, Any]:
    nodes = [
        {"type": "Rabbit", "name": name, "computesAccess": [{"name": each} for each in wired]}
        for name, wired in rabbits.items()
    ]
    found = {"metadata": meta("default"), "spec": {"storageNodes": nodes}}
    return {**found, "status": status} if status else found


def node(rabbit: str, **status: Any) -> dict[str, Any]:
    said = {"status": "Ready", "capacity": 100, **status}
    found = meta(NNF_NODE_NAME, rabbit, labels={labels.RAW_VOLUMES: "true"})
    return {"metadata": found, "spec": {}, "status": said}


def told(api: Api, rabbit: str) -> Any:
    return api.find(kinds.STORAGE, Key("default", rabbit))["status"]


def ready(api: Api) -> bool:
    return bool(
        (api.find(kinds.SYSTEM_CONFIGURATION, CONFIGURATION).get("status") or {}).get("ready")
    )


async def spaces(api: Api) -> None:
    """Make the namespaces of all nodes."""
    for rabbit, computes in RABBITS.items():
        for name in (rabbit, *computes):
            await api.add(kinds.NAMESPACE, {"metadata": {"name": name}})


def homes(api: Api) -> set[str]:
    return {
        obj["metadata"]["name"]
        for obj in api.store.objects_of(kinds.NAMESPACE)
        if not obj["metadata"].get("deletionTimestamp")
    }


def test_each_node_has_a_namespace_of_its_own_before_the_configuration_is_ready() -> None:
    """dws-spec section 6."""

    async def story(api: Api, controller: SystemController) -> None:
        before = homes(api)
        assert not before & {"r0", "r1", "n0", "n1", "n2", "far"}
        found = configuration()
        found["spec"]["externalComputeNodes"] = [{"name": "far"}]
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, found)
            assert ready(api)
            assert homes(api) == before | {"r0", "r1", "n0", "n1", "n2", "far"}
            order = [kind for _, kind, _ in api.written]
            last = len(order) - order[::-1].index(kinds.NAMESPACE)
            assert kinds.SYSTEM_CONFIGURATION not in order[:last]

        (made,) = [
            obj for obj in api.store.objects_of(kinds.NAMESPACE) if obj["metadata"]["name"] == "n2"
        ]
        assert labels.owner_of(made) == ("SystemConfiguration default/default",)

    with_controller(story)


def test_namespaces_that_are_there_are_left_and_one_that_goes_is_made_again() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        await spaces(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            assert [key for _, kind, key in api.written if kind == kinds.NAMESPACE] == []
            assert ready(api)
            await api.add(kinds.NAMESPACE, {"metadata": {"name": "other"}})
            for name in ("n1", "other"):
                await api.remove(kinds.NAMESPACE, Key("", name))
                # It is empty.
                gone: Any = {"spec": {"finalizers": None}}
                await api.change(kinds.NAMESPACE, Key("", name), gone)
        assert [key for _, kind, key in api.written if kind == kinds.NAMESPACE] == [Key("", "n1")]

    with_controller(story)


def test_nodes_that_join_while_it_runs_get_what_nodes_have() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration({"r0": ("n0",)}))
            joined = {"spec": configuration({"r0": ("n0", "n8"), "r9": ("n9",)})["spec"]}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, joined)
            assert {"n8", "r9", "n9"} <= homes(api)
            await api.add(kinds.NNF_NODE, node("r9"))
            assert told(api, "r9")["status"] == "Ready"
            assert [each["name"] for each in told(api, "r9")["access"]["computes"]] == ["n9"]

    with_controller(story)


def test_flash_of_a_rabbit_that_leaves_is_not_given_out_and_its_jobs_keep_theirs() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            await api.add(kinds.STORAGE, {"metadata": meta("r7"), "spec": {}})
            share = {"count": 1, "capacity": 1, "fileSystemType": "xfs", "userID": 1, "groupID": 1}
            await api.add(kinds.NNF_NODE_STORAGE, {"metadata": meta("s", "r1"), "spec": share})
            left = {"spec": configuration({"r0": ("n0", "n1")})["spec"]}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, left)
            # One that is of no configuration is not this one's to remove.
            assert api.keys(kinds.STORAGE) == ["default/r0", "default/r7"]
            assert api.keys(kinds.NNF_NODE_STORAGE) == ["r1/s"]
            assert {"r1", "n2"} <= homes(api)

            back = {"spec": configuration()["spec"]}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, back)
            assert "default/r1" in api.keys(kinds.STORAGE)

    with_controller(story)


def test_each_rabbit_has_a_storage_and_then_the_configuration_is_ready() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())

        assert api.keys(kinds.STORAGE) == ["default/r0", "default/r1"]
        assert told(api, "r0")["status"] == "Starting"
        assert ready(api)
        verbs = [(verb, kind) for verb, kind, _ in api.written]
        assert verbs.count(("status", kinds.SYSTEM_CONFIGURATION)) == 1
        assert verbs[-1] == ("status", kinds.SYSTEM_CONFIGURATION)

    with_controller(story)


def test_a_configuration_without_rabbits_is_ready_at_once() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration({}))

        assert ready(api)
        assert api.keys(kinds.STORAGE) == []

    with_controller(story)


def test_what_a_rabbit_says_shows_in_its_storage_and_in_no_other() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            before = len(api.written)
            await api.add(kinds.NNF_NODE, node("r1"))
            assert {key for _, _, key in api.written[before:]} == {Key("default", "r1")}
            assert (told(api, "r1")["status"], told(api, "r1")["capacity"]) == ("Ready", 100)
            assert [each["name"] for each in told(api, "r1")["access"]["computes"]] == ["n2"]

            await api.change(
                kinds.NNF_NODE, Key("r1", NNF_NODE_NAME), {"status": {"capacity": 50}}, status=True
            )
            assert told(api, "r1")["capacity"] == 50
            assert told(api, "r0")["status"] == "Starting"

    with_controller(story)


def test_what_an_admin_asks_of_a_rabbit_shows() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            await api.add(kinds.NNF_NODE, node("r0"))
            disabled = {"spec": {"state": "Disabled"}}
            await api.change(kinds.STORAGE, Key("default", "r0"), disabled)

        assert told(api, "r0")["status"] == "Disabled"

    with_controller(story)


def test_a_storage_that_is_deleted_is_made_again() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            await api.remove(kinds.STORAGE, Key("default", "r0"))

        assert api.keys(kinds.STORAGE) == ["default/r0", "default/r1"]

    with_controller(story)


def test_rabbits_that_are_added_later_get_their_storages() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration({"r0": ()}))
            await api.change(
                kinds.SYSTEM_CONFIGURATION,
                CONFIGURATION,
                {"spec": configuration({"r0": ("n0",), "r9": ()})["spec"]},
            )
            assert api.keys(kinds.STORAGE) == ["default/r0", "default/r9"]
            await api.add(kinds.NNF_NODE, node("r0"))
            assert [each["name"] for each in told(api, "r0")["access"]["computes"]] == ["n0"]

    with_controller(story)


def test_a_rabbit_that_is_not_in_the_configuration_has_no_storage() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_NODE, node("r0"))
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration({"r0": ()}))
            before = len(api.written)
            await api.add(kinds.NNF_NODE, node("r7"))
            assert len(api.written) == before

        assert api.keys(kinds.STORAGE) == ["default/r0"]

    with_controller(story)


def test_what_has_no_owner_and_a_configuration_that_is_gone_are_nothing_to_do() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with informed(api):
            assert await controller.reconcile(CONFIGURATION) is None
            assert await controller.reconcile(Key("r0", NNF_NODE_NAME)) is None
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            await controller.reconcile(CONFIGURATION)
            assert await controller.reconcile(Key("r7", NNF_NODE_NAME)) is None
            assert await controller.reconcile(Key("", "other")) is None
            await api.remove(kinds.SYSTEM_CONFIGURATION, CONFIGURATION)
            assert await controller.reconcile(CONFIGURATION) is None
            assert await controller.reconcile(Key("r0", NNF_NODE_NAME)) is None
            assert await controller.reconcile(Key("", "r0")) is None

        assert api.written == []

    with_controller(story)


def test_what_happens_to_one_rabbit_costs_no_look_at_the_others() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_NODE, node("r1"))
            await api.change(
                kinds.SYSTEM_CONFIGURATION, CONFIGURATION, {"metadata": {"labels": {}}}
            )
            before = len(passes)
            said = {"status": {"capacity": 50}}
            await api.change(kinds.NNF_NODE, Key("r1", NNF_NODE_NAME), said, status=True)
            # By the news of the rabbit's word, and by that of its Storage.
            assert len(passes) == before + 2
            touched = {"metadata": {"labels": {"a": "b"}}}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, touched)
            assert len(passes) == before + 3

    with_controller(story)


def test_without_a_configuration_any_more_nothing_is_made_or_said() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            await api.remove(kinds.SYSTEM_CONFIGURATION, CONFIGURATION)
            await api.remove(kinds.STORAGE, Key("default", "r0"))
            assert api.keys(kinds.STORAGE) == ["default/r1"]

            # Another one of the same words is another one.
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            assert api.keys(kinds.STORAGE) == ["default/r0", "default/r1"]

    with_controller(story)


def woken(controller: SystemController) -> list[Key]:
    """Note from now on what is to be looked at, and do not look."""
    found: list[Key] = []
    controller.reconciler.add = found.append  # type: ignore[method-assign, assignment]
    return found


def test_one_node_is_looked_at_after_the_other() -> None:
    """What a pass knows of the configuration is no other one before its end."""

    async def story(api: Api, controller: SystemController) -> None:
        begun, gate, create = [], asyncio.Event(), api.create

        async def slow(kind: Kind, obj: Object) -> Object:
            begun.append(obj["metadata"]["name"])
            await gate.wait()
            return await create(kind, obj)

        api.create = slow  # type: ignore[method-assign]
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            assert len({*begun}) == 1
            gate.set()
            await caught_up()
            assert ready(api)

    with_controller(story)


def test_before_there_is_a_configuration_news_are_no_trouble() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        found = woken(controller)
        await spaces(api)
        with capture_logs() as logs:
            async with informed(api):
                await api.add(kinds.STORAGE, {"metadata": meta("r0"), "spec": {}})
                await api.add(kinds.NAMESPACE, {"metadata": {"name": heartbeats.NAMESPACE}})
                released = {"name": "r0", "namespace": heartbeats.NAMESPACE}
                await api.add(LEASE, {"metadata": released, "spec": {"renewTime": "0"}})
                await api.remove(kinds.NAMESPACE, Key("", "n1"))
                gone: Any = {"spec": {"finalizers": None}}
                await api.change(kinds.NAMESPACE, Key("", "n1"), gone)
        assert {*found} == {CONFIGURATION}
        assert logs == []

    with_controller(story)


def test_news_of_what_is_of_no_rabbit_have_none_looked_at() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        await spaces(api)
        for name in ("other", heartbeats.NAMESPACE):
            await api.add(kinds.NAMESPACE, {"metadata": {"name": name}})
        await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
        async with informed(api):
            await controller.reconcile(CONFIGURATION)
            found = woken(controller)
            # Of those that it has, and of others that go: neither is to be made.
            await api.change(kinds.NAMESPACE, Key("", "n1"), {"metadata": {"labels": {"a": "b"}}})
            await api.remove(kinds.NAMESPACE, Key("", "other"))
            other = {"name": "r7", "namespace": heartbeats.NAMESPACE}
            await api.add(LEASE, {"metadata": other, "spec": {"renewTime": "0"}})
            assert found == []
            await api.add(kinds.STORAGE, {"metadata": meta("r7"), "spec": {}})
            assert {*found} == {CONFIGURATION}

    with_controller(story)


def test_the_configuration_is_looked_at_again_when_its_last_node_has_a_namespace() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        await api.add(kinds.SYSTEM_CONFIGURATION, configuration({"r0": ("n0",)}))
        async with informed(api):
            await controller.reconcile(CONFIGURATION)
            found = woken(controller)
            await controller.reconcile(Key("", "n0"))
            assert CONFIGURATION not in found
            await controller.reconcile(Key("", "r0"))
            assert CONFIGURATION in found
            # What has one by now is given none, and what is ready is left alone.
            await api.change(
                kinds.SYSTEM_CONFIGURATION, CONFIGURATION, {"status": {"ready": True}}, status=True
            )
            await controller.reconcile(CONFIGURATION)
            found.clear()
            api.written.clear()
            await controller.reconcile(Key("", "r0"))
            assert (found, api.written) == ([], [])

    with_controller(story)


@pytest.mark.parametrize(("storages", "namespaces"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_a_configuration_is_not_ready_before_its_storages_and_namespaces_are(
    storages: int, namespaces: int
) -> None:
    async def story(api: Api, controller: SystemController) -> None:
        if storages:
            own = {"type": "NVMe", "status": "Starting", "capacity": 0, "rebootRequired": False}
            for rabbit in RABBITS:
                made = {"metadata": meta(rabbit), "spec": {"state": "Enabled"}, "status": own}
                await api.add(kinds.STORAGE, made)
        if namespaces:
            await spaces(api)
        await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
        async with informed(api):
            await controller.reconcile(CONFIGURATION)

        assert ready(api) == bool(storages and namespaces)

    with_controller(story)


def test_what_is_ready_is_not_said_to_be_ready_again() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        await api.add(kinds.SYSTEM_CONFIGURATION, configuration(ready=True))
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_NODE, node("r0"))

        assert kinds.SYSTEM_CONFIGURATION not in {kind for _, kind, _ in api.written}
        assert told(api, "r0")["status"] == "Ready"

    with_controller(story)


# Mistakes


def test_a_wrong_configuration_says_so_and_is_ready_when_it_is_repaired() -> None:
    """dws-spec section 6: status.error."""

    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration({"r0": ("n0",), "r1": ("n0",)}))
            error = api.find(kinds.SYSTEM_CONFIGURATION, CONFIGURATION)["status"]["error"]
            assert error["userMessage"].startswith("n0 is listed more than once")
            assert not ready(api)
            # News of a rabbit do not have it said again.
            before = len(api.written)
            await api.add(kinds.NNF_NODE, node("r0"))
            assert {kind for _, kind, _ in api.written[before:]} == {kinds.STORAGE}

            repaired = {"spec": configuration({"r0": ("n0",), "r1": ("n1",)})["spec"]}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, repaired)
            assert ready(api)

    with_controller(story)


def test_a_configuration_of_another_name_says_that_it_has_no_effect() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            stray = configuration()
            await api.add(kinds.SYSTEM_CONFIGURATION, {**stray, "metadata": meta("other")})

        found = api.find(kinds.SYSTEM_CONFIGURATION, Key("default", "other"))
        assert "has no effect" in found["status"]["error"]["userMessage"]
        assert api.keys(kinds.STORAGE) == []

    with_controller(story)


# Rabbits whose agents are gone


async def lease(api: Api, rabbit: str, holder: str, moment: float = 0.0) -> None:
    """Renew or release the Lease of a rabbit, as its agent or who has seen that one end."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 40, "renewTime": str(moment)}
    await api.change(LEASE, heartbeats.lease_key(rabbit), {"spec": spec})


async def two_ready(api: Api) -> None:
    await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
    for rabbit in RABBITS:
        await api.add(kinds.NNF_NODE, node(rabbit))


def statuses(api: Api) -> list[str]:
    return [told(api, rabbit)["status"] for rabbit in ("r0", "r1")]


def test_a_rabbit_is_offline_when_its_lease_is_not_renewed_and_ready_when_it_is_again() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            assert statuses(api) == ["Ready", "Ready"]  # of agents that know of no Lease
            for second in range(0, 70, 10):
                await lease(api, "r0", "r0", second)
                if second < 20:
                    await lease(api, "r1", "r1", second)
                await asyncio.sleep(9.0 if second >= 20 else 8.0)
                expected = "Ready" if second < 50 else "Offline"
                assert statuses(api) == ["Ready", expected], second
            assert "Lease" in told(api, "r1")["message"]
            # Nothing is known of its links, which are not said to be lost with it.
            assert {each["status"] for each in told(api, "r1")["access"]["computes"]} == {"Ready"}

            await lease(api, "r1", "r1", 100)
            assert statuses(api) == ["Ready", "Ready"]
            assert not told(api, "r1").get("message")

    with_controller(story)


def test_a_rabbit_is_offline_at_once_when_its_agent_was_seen_to_end() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            await lease(api, "r0", "r0")
            await heartbeats.release(api, api.clock, "r0")
            await caught_up()
            assert statuses(api) == ["Offline", "Ready"]

            await api.change(kinds.STORAGE, Key("default", "r0"), {"spec": {"state": "Disabled"}})
            assert statuses(api) == ["Disabled", "Ready"]  # what an admin has said comes first
            await api.change(kinds.STORAGE, Key("default", "r0"), {"spec": {"state": "Enabled"}})
            fenced = {"status": {"fenced": True}}
            await api.change(kinds.NNF_NODE, Key("r0", NNF_NODE_NAME), fenced, status=True)
            assert statuses(api) == ["Degraded", "Ready"]

    with_controller(story)


def test_controllers_that_are_started_count_the_time_of_a_lease_anew() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            await lease(api, "r0", "r0")
        await asyncio.sleep(1000.0)
        again = SystemController(api, api.informers)
        async with running(api, again.reconciler.run()):
            await asyncio.sleep(30.0)
            assert statuses(api) == ["Ready", "Ready"]
            await asyncio.sleep(20.0)
            assert statuses(api) == ["Offline", "Ready"]

    with_controller(story)


def test_an_agent_renews_its_lease_through_refusals_and_what_is_gone() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async def renewing() -> None:
            await heartbeats.renew(api, api.clock, "r0")

        agent = asyncio.ensure_future(renewing())
        await asyncio.sleep(5.0)  # there is no Lease yet
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            await asyncio.sleep(5.0)
            assert api.find(LEASE, heartbeats.lease_key("r0"))["spec"]["holderIdentity"] == "r0"
            await api.remove(LEASE, heartbeats.lease_key("r0"))
            for error in (Unavailable("away"), Forbidden("no role")):
                api.refusals[("patch", LEASE)] = error
                await asyncio.sleep(15.0)
                assert not api.refusals
            await asyncio.sleep(100.0)
            assert statuses(api) == ["Ready", "Ready"]
            renewed = [key for verb, kind, key in api.written if (verb, kind) == ("patch", LEASE)]
            assert 10 < len(renewed) < 30

            agent.cancel()
            await asyncio.sleep(45.0)
            assert statuses(api) == ["Offline", "Ready"]

    with_controller(story)


def test_the_lease_of_a_rabbit_leaves_with_it() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            assert api.keys(LEASE) == ["warren-node-lease/r0", "warren-node-lease/r1"]
            left = {"spec": configuration({"r0": ()})["spec"]}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, left)
            assert api.keys(LEASE) == ["warren-node-lease/r0"]

    with_controller(story)


def test_other_leases_are_not_looked_at() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            other = {"metadata": {"name": "r0", "namespace": "kube-node-lease"}}
            await api.add(LEASE, {**other, "spec": {"holderIdentity": "", "renewTime": "0"}})
            assert statuses(api) == ["Ready", "Ready"]

    with_controller(story)


def test_a_rabbit_is_drained_while_it_is_annotated_and_says_who_has_done_it() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            key = Key("default", "r0")
            note = '{"by":"ann","since":"2026-01-31T12:00:00Z","reason":"bad disk"}'
            carried: Any = {"metadata": {"annotations": {labels.DRAINED: note}}}
            await api.change(kinds.STORAGE, key, carried)
            assert statuses(api) == ["Drained", "Ready"]
            why = "by ann since 2026-01-31T12:00:00Z: bad disk"
            assert told(api, "r0")["message"] == f"Drained {why}"
            # Its agent goes away and comes back: it is drained still.
            await lease(api, "r0", "")
            assert statuses(api) == ["Offline", "Ready"]
            await lease(api, "r0", "r0")
            assert statuses(api) == ["Drained", "Ready"]
            carried = {"metadata": {"annotations": {labels.DRAINED: None}}}
            await api.change(kinds.STORAGE, key, carried)
            assert statuses(api) == ["Ready", "Ready"]

    with_controller(story)


def test_without_a_configuration_nothing_is_done_of_what_there_is(
    heard: Sequence[Mapping[str, Any]],
) -> None:
    async def story(api: Api, controller: SystemController) -> None:
        await api.add(kinds.NAMESPACE, {"metadata": {"name": "r7"}})
        await api.add(kinds.NNF_NODE, node("r7"))
        await api.add(kinds.STORAGE, {"metadata": meta("r7"), "spec": {}})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.NNF_NODE, node("r8"))
            await api.add(kinds.STORAGE, {"metadata": meta("r8"), "spec": {}})
            await api.add(kinds.NAMESPACE, {"metadata": {"name": "r8"}})
            await api.add(LEASE, {"metadata": {"name": "r8", "namespace": heartbeats.NAMESPACE}})
            gone: Any = {"spec": {"finalizers": None}}
            await api.remove(kinds.NAMESPACE, Key("", "r7"))
            await api.change(kinds.NAMESPACE, Key("", "r7"), gone)
            assert await controller.reconcile(Key("", "r8")) is None
        assert api.written == []
        assert [each for each in heard if each["log_level"] == "error"] == []

    with_controller(story)
