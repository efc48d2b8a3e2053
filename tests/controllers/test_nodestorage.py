"""One rabbit: the volumes that NnfNodeStorages ask for, and the rabbit's own word."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.controllers.machines import CAPACITY, Noting
from tests.dws.builders import STAMP, meta
from warren.base.objects import Key
from warren.controllers.nodestorage import WORKERS, NodeStorageReconciler
from warren.dws import commandlines, kinds, labels
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import InUse, Kept, NodeTrouble, Volume

KEY = Key("r0", "s")
NODE = Key("r0", "nnf-nlc")
STORAGE = kinds.NNF_NODE_STORAGE

Story = Callable[[Api, Noting, NodeStorageReconciler], Awaitable[None]]


def with_rabbit(story: Story) -> None:
    async def main(api: Api) -> None:
        machine = Noting("r0")
        await story(api, machine, NodeStorageReconciler(api, api.informers, machine, "r0"))

    alone(main)


def share(count: int = 2, status: Any = None, **metadata: Any) -> dict[str, Any]:
    spec = {"count": count, "capacity": 10, "fileSystemType": "xfs", "userID": 1, "groupID": 2}
    found = {"metadata": meta("s", "r0", **metadata), "spec": spec}
    return {**found, "status": status} if status else found


def said(ready: bool = True, count: int = 2, error: Any = None) -> dict[str, Any]:
    health = {None: "Healthy", "Major": "Degraded", "Fatal": "Faulted"}[error and error["severity"]]
    each = {"ready": ready, "health": health}
    return {"ready": ready, "health": health, "allocations": [each] * count, "error": error}


def status(api: Api) -> Any:
    found = api.find(STORAGE, KEY).get("status")
    return found and {"error": None, **found}


# Volumes


def test_volumes_are_made_as_they_are_asked_for_and_named_after_the_share() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        uid = (await api.add(STORAGE, share()))["metadata"]["uid"]
        async with informed(api):
            assert await rabbit.reconcile(KEY) is None

        assert machine.flash.volumes == {
            ("r0", f"{uid}-{number}"): Volume(
                rabbit="r0", name=f"{uid}-{number}", size=10, file_system="xfs", userid=1, groupid=2
            )
            for number in range(2)
        }
        assert status(api) == said()
        assert api.written == [("status", STORAGE, KEY)]

    with_rabbit(story)


BLOCK = kinds.NNF_NODE_BLOCK_STORAGE
OWN = [labels.NODE_BLOCK_STORAGE_FINALIZER, labels.NODE_STORAGE_FINALIZER]


def on_flash(**metadata: Any) -> dict[str, Any]:
    found = share(**metadata)
    found["spec"]["blockReference"] = {
        "kind": "NnfNodeBlockStorage",
        "name": "s",
        "namespace": "r0",
    }
    return found


def flash(**metadata: Any) -> dict[str, Any]:
    spec = {"sharedAllocation": True, "allocations": [{"capacity": 24, "access": ["r0"]}]}
    return {"metadata": meta("s", "r0", **{"finalizers": OWN, **metadata}), "spec": spec}


def test_volumes_are_as_large_as_their_flash_and_made_when_that_is_known() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(STORAGE, on_flash())
        async with running(api, rabbit.reconciler.run()):
            assert machine.flash.volumes == {}
            assert api.written == []
            await api.add(BLOCK, flash())

            assert [each.size for each in machine.flash.volumes.values()] == [12, 12]
            # Where the share is ready, its flash is said to be, too.
            assert [each[:2] for each in api.written] == [("status", BLOCK), ("status", STORAGE)]
            told = api.find(BLOCK, KEY)["status"]
            assert told == {"ready": True, "allocations": [{"capacityAllocated": 24}]}

            looked = len(machine.asked)
            spec = {"spec": {"allocations": [{"capacity": 24, "access": ["r0", "n0"]}]}}
            await api.change(BLOCK, KEY, spec)
            assert len(machine.asked) == looked

    with_rabbit(story)


def test_flash_that_is_to_go_makes_no_volumes_and_is_kept_until_they_are_gone() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(STORAGE, on_flash(finalizers=[labels.NODE_STORAGE_FINALIZER, "mine"]))
        await api.add(BLOCK, flash(finalizers=[*OWN, "mine"]))
        await api.remove(BLOCK, KEY)
        async with running(api, rabbit.reconciler.run(), rabbit.block_reconciler.run()):
            assert machine.flash.volumes == {}
            await api.remove(STORAGE, KEY)
            assert api.find(BLOCK, KEY)["metadata"]["finalizers"] == [*OWN, "mine"]
            await api.change(STORAGE, KEY, {"metadata": {"finalizers": []}})

            assert api.find(STORAGE, KEY) is None
            assert api.find(BLOCK, KEY)["metadata"]["finalizers"] == ["mine"]
            written = len(api.written)
            await api.change(BLOCK, KEY, {"metadata": {"labels": {"a": "b"}}})
            assert len(api.written) == written

    with_rabbit(story)


def test_what_is_said_already_is_not_said_again() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(STORAGE, share(status=said()))
        async with informed(api):
            await rabbit.reconcile(KEY)

        assert len(machine.flash.volumes) == 2
        assert api.written == []

    with_rabbit(story)


@pytest.mark.parametrize(
    "known",
    [
        said(False),
        said(True, error=NodeTrouble("broke").as_error()),
        said(False, error=NodeTrouble("broke").as_error()),
    ],
)
def test_a_trouble_that_is_over_is_taken_back(known: Any) -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(STORAGE, share(status=known))
        async with informed(api):
            await rabbit.reconcile(KEY)

        assert status(api) == said()

    with_rabbit(story)


@pytest.mark.parametrize("fatal", [True, False])
def test_a_trouble_is_told_once_and_tried_again_unless_it_is_fatal(fatal: bool) -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        uid = (await api.add(STORAGE, share()))["metadata"]["uid"]
        machine.troubles["make", f"{uid}-0"] = NodeTrouble("broke", fatal=fatal)
        async with informed(api):
            for _ in range(2):
                if fatal:
                    assert await rabbit.reconcile(KEY) is None
                else:
                    with pytest.raises(NodeTrouble, match="broke"):
                        await rabbit.reconcile(KEY)
                await caught_up()

        assert status(api) == said(False, error=machine.troubles["make", f"{uid}-0"].as_error())  # type: ignore[attr-defined]
        assert api.written == [("status", STORAGE, KEY)]

    with_rabbit(story)


@pytest.mark.parametrize("first", [True, False])
def test_of_several_troubles_the_gravest_is_told(first: bool) -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        uid = (await api.add(STORAGE, share()))["metadata"]["uid"]
        grave, light = (0, 1) if first else (1, 0)
        machine.troubles["make", f"{uid}-{grave}"] = NodeTrouble("grave", fatal=True)
        machine.troubles["make", f"{uid}-{light}"] = NodeTrouble("light")
        async with informed(api):
            await rabbit.reconcile(KEY)

        assert status(api)["error"]["debugMessage"] == "grave"

    with_rabbit(story)


def test_another_trouble_is_told_in_place_of_the_first() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        known = said(False, error=NodeTrouble("first").as_error())
        uid = (await api.add(STORAGE, share(status=known)))["metadata"]["uid"]
        machine.troubles["make", f"{uid}-1"] = NodeTrouble("second", fatal=True)
        async with informed(api):
            await rabbit.reconcile(KEY)

        assert status(api)["error"]["debugMessage"] == "second"

    with_rabbit(story)


def test_a_bug_is_no_trouble_of_the_rabbits() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        uid = (await api.add(STORAGE, share()))["metadata"]["uid"]
        machine.troubles["make", f"{uid}-1"] = ZeroDivisionError("a bug")
        async with informed(api):
            with pytest.raises(ZeroDivisionError):
                await rabbit.reconcile(KEY)

        assert api.written == []

    with_rabbit(story)


# Deletion


def test_what_is_deleted_gives_its_flash_back_and_is_then_let_go() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        keeping = [labels.NODE_STORAGE_FINALIZER, "another"]
        made = await api.add(STORAGE, share(finalizers=keeping, deletionTimestamp=STAMP))
        async with informed(api):
            assert await rabbit.reconcile(KEY) is None

        uid = made["metadata"]["uid"]
        assert machine.asked == [("release", "r0", f"{uid}-{number}") for number in range(2)]
        assert api.find(STORAGE, KEY)["metadata"]["finalizers"] == ["another"]

    with_rabbit(story)


@pytest.mark.parametrize("fatal", [True, False])
def test_flash_that_is_not_given_back_is_told_of_and_keeps_its_record(fatal: bool) -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        keeping = [labels.NODE_STORAGE_FINALIZER]
        made = await api.add(
            STORAGE, share(status=said(), finalizers=keeping, deletionTimestamp=STAMP)
        )
        name = f"{made['metadata']['uid']}-1"
        machine.troubles["release", "r0", name] = NodeTrouble("mounted", fatal=fatal)
        async with informed(api):
            with pytest.raises(NodeTrouble, match="mounted"):
                await rabbit.reconcile(KEY)

        found = api.find(STORAGE, KEY)
        assert found["metadata"]["finalizers"] == keeping
        assert found["status"]["error"]["debugMessage"] == "mounted"

    with_rabbit(story)


def test_all_flash_that_is_in_use_waits_at_a_time_and_is_looked_at_when_it_is_asked_for() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        keeping = [labels.NODE_STORAGE_FINALIZER]
        made = await api.add(STORAGE, share(finalizers=keeping, deletionTimestamp=STAMP))
        releases = [("release", "r0", f"{made['metadata']['uid']}-{number}") for number in range(2)]
        machine.troubles = {releases[0]: Kept("kept"), releases[1]: InUse("in use", delay=3)}
        async with informed(api):
            assert await rabbit.reconcile(KEY) == 3
            await caught_up()
            assert status(api)["error"]["debugMessage"] == "in use"
            del machine.troubles[releases[1]]
            with pytest.raises(Kept):
                await rabbit.reconcile(KEY)

        assert machine.asked == 2 * releases
        assert api.find(STORAGE, KEY)["metadata"]["finalizers"] == keeping

    with_rabbit(story)


def test_what_is_gone_is_nothing_to_do() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        async with informed(api):
            assert await rabbit.reconcile(KEY) is None

        assert (machine.asked, api.written) == ([], [])

    with_rabbit(story)


class Slow(Noting):
    """A machine whose volumes are never done."""

    async def make(self, volume: Volume) -> None:
        self._note("make", volume.name)
        try:
            await asyncio.Event().wait()
        finally:
            self.asked.append(("stopped", volume.name))


def test_what_is_deleted_while_it_is_made_is_made_no_further() -> None:
    async def main(api: Api) -> None:
        machine = Slow("r0")
        rabbit = NodeStorageReconciler(api, api.informers, machine, "r0")
        keeping = [labels.NODE_STORAGE_FINALIZER]
        async with running(api, rabbit.reconciler.run()):
            uid = (await api.add(STORAGE, share(1, finalizers=keeping)))["metadata"]["uid"]
            await api.remove(STORAGE, KEY)

            name = f"{uid}-0"
            assert machine.asked == [("make", name), ("stopped", name), ("release", "r0", name)]
            assert api.find(STORAGE, KEY) is None

    alone(main)


def test_a_pass_over_what_is_deleted_meanwhile_comes_to_its_end() -> None:
    async def main(api: Api) -> None:
        rabbit = NodeStorageReconciler(api, api.informers, Slow("r0"), "r0")
        await api.add(STORAGE, share(1, finalizers=["agent"]))
        async with informed(api):
            making = asyncio.ensure_future(rabbit.reconcile(KEY))
            await caught_up()
            await api.remove(STORAGE, KEY)
            assert await making is None
            assert api.written == []

    alone(main)


def test_news_that_is_no_deletion_lets_what_is_made_go_on() -> None:
    async def main(api: Api) -> None:
        machine = Slow("r0")
        rabbit = NodeStorageReconciler(api, api.informers, machine, "r0")
        async with running(api, rabbit.reconciler.run()):
            await api.add(STORAGE, share(1))
            await api.change(STORAGE, KEY, {"metadata": {"labels": {"a": "b"}}})
            assert [each[0] for each in machine.asked] == ["make"]

    alone(main)


def test_an_agent_that_is_stopped_gives_nothing_up() -> None:
    async def main(api: Api) -> None:
        rabbit = NodeStorageReconciler(api, api.informers, Slow("r0"), "r0")
        await api.add(STORAGE, share(1))
        async with informed(api):
            making = asyncio.ensure_future(rabbit.reconcile(KEY))
            await caught_up()
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making

    alone(main)


def test_a_share_that_has_changed_meanwhile_is_looked_at_again() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        async with running(api, rabbit.reconciler.run()):
            await api.add(STORAGE, share())
            await api.change(STORAGE, KEY, {"status": said(False)}, status=True)
            assert status(api) == said()

    with_rabbit(story)


# Many at a time


class Hanging(Noting):
    """A machine on which what one user's profile has run does not end."""

    async def make(self, volume: Volume) -> None:
        if volume.userid == 1:
            await asyncio.sleep(30)
            raise NodeTrouble("hang did not end within 30 s")
        await super().make(volume)


async def shares_of(user: int, count: int, api: Api) -> None:
    for number in range(count):
        made = share(1)
        made["metadata"] = meta(f"u{user}-{number}", "r0")
        made["spec"]["userID"] = user
        await api.add(STORAGE, made)


def is_made(api: Api, name: str) -> bool:
    return bool((api.find(STORAGE, Key("r0", name)).get("status") or {}).get("ready"))


def test_shares_whose_commands_hang_hold_up_no_other_users() -> None:
    async def story(api: Api) -> None:
        rabbit = NodeStorageReconciler(api, api.informers, Hanging("r0"), "r0")
        await shares_of(1, WORKERS - 1, api)
        async with running(api, rabbit.reconciler.run()):
            await shares_of(2, 1, api)
            assert is_made(api, "u2-0")

    alone(story)


def test_however_many_shares_of_a_user_hang_another_users_is_the_next() -> None:
    async def story(api: Api) -> None:
        rabbit = NodeStorageReconciler(api, api.informers, Hanging("r0"), "r0")
        await shares_of(1, 5 * WORKERS, api)
        async with running(api, rabbit.reconciler.run()):
            await shares_of(2, 1, api)
            assert is_made(api, "u2-0")

    alone(story)


def test_the_record_of_flash_that_is_given_back_goes_whatever_hangs() -> None:
    """Its job waits for it in Teardown."""

    async def story(api: Api) -> None:
        rabbit = NodeStorageReconciler(api, api.informers, Hanging("r0"), "r0")
        await shares_of(1, 2 * WORKERS, api)
        async with running(api, rabbit.reconciler.run(), rabbit.block_reconciler.run()):
            await api.add(BLOCK, flash())
            await api.remove(BLOCK, KEY)
            assert api.find(BLOCK, KEY) is None

    alone(story)


# The rabbit's own word


LACKS = '{"lustre":"nothing is simulated of it"}'


def node(carried: str = "true", **told: Any) -> dict[str, Any]:
    return {
        "metadata": meta(
            NODE.name,
            "r0",
            labels={labels.RAW_VOLUMES: carried, "other": "x"},
            annotations={labels.UNSUPPORTED_TYPES: LACKS, "other": "y"},
        ),
        "spec": {"name": "r0"},
        "status": told,
    }


def without_word_of_lacks(**told: Any) -> dict[str, Any]:
    """Return what the agent of a version that said nothing of it has left."""
    found = node(**told)
    del found["metadata"]["annotations"][labels.UNSUPPORTED_TYPES]
    return found


DRIVE = {"id": "0", "capacity": CAPACITY, "serialNumber": "r0-flash", "status": "Ready"}


def test_what_others_say_of_a_rabbits_links_is_left_as_it_is() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        told = [{"hostname": "n0", "status": "Offline"}]
        await api.add(kinds.NNF_NODE, node(status="Offline", servers=told))
        async with running(api, rabbit.nnf_node_reconciler.run()):
            found = api.find(kinds.NNF_NODE, NODE)

        assert found["status"]["status"] == "Ready"
        assert found["status"]["servers"] == told

    with_rabbit(story)


def test_a_rabbit_announces_itself_and_what_it_has() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        async with running(api, rabbit.nnf_node_reconciler.run()):
            found = api.find(kinds.NNF_NODE, NODE)

        assert found["metadata"]["labels"] == {labels.RAW_VOLUMES: "true"}
        assert found["metadata"]["annotations"] == {labels.UNSUPPORTED_TYPES: LACKS}
        assert found["spec"] == {"name": "r0", "pod": "r0", "state": "Enable"}
        own = {"id": "0", "status": "Ready", "health": "OK"}
        drive = {**own, "capacity": CAPACITY, "serialNumber": "r0-flash"}
        assert found["status"] == {
            "status": "Ready",
            "health": "OK",
            "capacity": CAPACITY,
            "drives": [drive],
            "servers": [{**own, "name": "Rabbit", "hostname": "r0"}],
        }

    with_rabbit(story)


def test_a_rabbit_says_whether_its_nodes_reach_it_over_a_network() -> None:
    async def story(api: Api) -> None:
        for over_network in (True, False):
            rabbit = NodeStorageReconciler(
                api, api.informers, Noting(), "r0", over_network=over_network
            )
            async with running(api, rabbit.nnf_node_reconciler.run()):
                said = api.find(kinds.NNF_NODE, NODE)["metadata"]["annotations"]
                assert said.get(labels.NETWORK) == ("true" if over_network else None)

    alone(story)


@pytest.mark.parametrize(
    ("known", "written"),
    [
        (node(status="Ready", capacity=CAPACITY, drives=[DRIVE]), []),
        (node(status="Ready", capacity=CAPACITY), ["status"]),
        (node(status="Ready", capacity=1), ["status"]),
        (node(status="Offline", capacity=CAPACITY), ["status"]),
        (node("false", status="Ready", capacity=CAPACITY, drives=[DRIVE]), ["patch"]),
        (node("false", status="Ready", capacity=1), ["patch", "status"]),
        (without_word_of_lacks(status="Ready", capacity=CAPACITY, drives=[DRIVE]), ["patch"]),
    ],
)
def test_it_says_anew_what_has_changed_and_nothing_else(
    known: dict[str, Any], written: list[str]
) -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(kinds.NNF_NODE, known)
        async with running(api, rabbit.nnf_node_reconciler.run()):
            found = api.find(kinds.NNF_NODE, NODE)

        assert [verb for verb, _, _ in api.written] == written
        assert found["metadata"]["labels"] == {labels.RAW_VOLUMES: "true", "other": "x"}
        assert found["metadata"]["annotations"] == {labels.UNSUPPORTED_TYPES: LACKS, "other": "y"}
        assert (found["status"]["status"], found["status"]["capacity"]) == ("Ready", CAPACITY)

    with_rabbit(story)


class Breaking(Noting):
    """A rabbit whose flash may break."""

    trouble: NodeTrouble | None = None

    async def capacity(self) -> int:
        if self.trouble is not None:
            raise self.trouble
        return await super().capacity()


def test_a_rabbit_whose_flash_breaks_says_so_with_the_reason_until_it_can_be_used_again() -> None:
    async def main(api: Api) -> None:
        machine = Breaking("r0")
        rabbit = NodeStorageReconciler(api, api.informers, machine, "r0")

        def told() -> tuple[str, str, str | None]:
            found = api.find(kinds.NNF_NODE, NODE)
            status = found["status"]
            reason = (found["metadata"].get("annotations") or {}).get(labels.FAILURE)
            return status["status"], status["drives"][0]["status"], reason

        async with running(api, rabbit.nnf_node_reconciler.run()):
            assert told() == ("Ready", "Ready", None)
            for words in ("/dev/one: Input/output error", "/dev/one does not answer"):
                machine.trouble = NodeTrouble(words)
                await asyncio.sleep(61)
                assert told() == ("Failed", "Failed", words)
            machine.trouble = None
            await asyncio.sleep(61)
            assert told() == ("Ready", "Ready", None)
            api.written.clear()
            await asyncio.sleep(200)
            assert api.written == []

    alone(main)


def test_a_rabbit_that_is_forgotten_announces_itself_again() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        async with running(api, rabbit.nnf_node_reconciler.run()):
            await api.remove(kinds.NNF_NODE, NODE)
            assert api.find(kinds.NNF_NODE, NODE)["status"]["status"] == "Ready"

    with_rabbit(story)


def test_commands_that_cannot_be_read_make_no_volume_and_are_told() -> None:
    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(STORAGE, share(annotations={labels.COMMANDS: "{"}))
        async with informed(api):
            await rabbit.reconcile(KEY)

        assert machine.flash.volumes == {}
        assert "commands that cannot be read" in status(api)["error"]["debugMessage"]
        assert not status(api)["ready"]

    with_rabbit(story)


def test_what_is_for_compute_nodes_is_not_run_on_the_rabbit() -> None:
    places = {
        "data.xfsStorage.userCommands.postActivate": ("rabbit",),
        "data.xfsStorage.blockDeviceCommands.computeCommands.userCommands.postActivate": ("node",),
    }
    said = commandlines.encode(ProfileCommands(file_system="xfs", lines=places))

    async def story(api: Api, machine: Noting, rabbit: NodeStorageReconciler) -> None:
        await api.add(STORAGE, share(1, annotations={labels.COMMANDS: said}))
        async with informed(api):
            await rabbit.reconcile(KEY)
        (volume,) = machine.flash.volumes.values()
        assert volume.commands.vectors("userCommands.postActivate", {}) == [["rabbit"]]

    with_rabbit(story)
