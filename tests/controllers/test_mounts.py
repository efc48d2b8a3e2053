"""The mounts of one node: what a ClientMount asks, what the node does, what is said of it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.controllers.machines import Noting
from tests.dws.builders import DELETING, meta
from warren.base.objects import Key
from warren.controllers.mounts import WORKERS, MountReconciler
from warren.dws import commandlines, kinds, labels
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import LUSTRE, InUse, Kept, LustreMount, NodeTrouble, Volume
from warren.dws.persistent.sharing import PRIVATE, NotShared, Sharing
from warren.wlm.jobdirectives import MAX_DIRECTIVES

KEY = Key("n0", "m")
PATHS = ("/mnt/a", "/mnt/b")
MOUNTS = [("mount", "r0", f"v{number}", "xfs", path) for number, path in enumerate(PATHS)]
UNMOUNTS = [("unmount", path, 1001) for path in reversed(PATHS)]


def mount(path: str, number: int, type: str = "xfs", lvm: bool = True) -> dict[str, Any]:
    device = {"type": "lvm"}
    if lvm:
        device |= {"lvm": {"volumeGroup": "r0", "logicalVolume": f"v{number}"}}  # type: ignore[dict-item]
    return {"mountPath": path, "type": type, "userID": 1001, "device": device}


def client_mount(
    desired: str = "mounted",
    mounts: Sequence[Any] | None = None,
    status: Any = None,
    **metadata: Any,
) -> dict[str, Any]:
    two = [mount(path, number) for number, path in enumerate(PATHS)]
    return {
        "metadata": meta("m", "n0", **metadata),
        "spec": {"node": "n0", "desiredState": desired, "mounts": mounts or two},
        **({"status": status} if status else {}),
    }


def said(state: str, ready: bool = True, error: Any = None) -> dict[str, Any]:
    told = [{"state": state, "ready": ready}] * len(PATHS)
    return {"mounts": told, "allReady": ready, "error": error}


Story = Callable[[Api, Noting, MountReconciler], Awaitable[None]]


async def groups(userid: int) -> Collection[int]:
    return {1001: {1003}}[userid]


def with_node(story: Story) -> None:
    async def main(api: Api) -> None:
        machine = Noting()
        for number in range(len(PATHS)):
            await machine.make(
                Volume(
                    rabbit="r0", name=f"v{number}", size=1, file_system="xfs", userid=0, groupid=0
                )
            )
        machine.asked.clear()
        await story(api, machine, MountReconciler(api, api.informers, machine, read_groups=groups))

    alone(main)


def status(api: Api) -> Any:
    found = api.find(kinds.CLIENT_MOUNT, KEY).get("status")
    return found and {"error": None, **found}


@pytest.mark.parametrize(("desired", "asked"), [("mounted", MOUNTS), ("unmounted", UNMOUNTS)])
def test_the_node_does_what_is_desired_and_says_so(
    desired: str, asked: list[tuple[str, ...]]
) -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        await api.add(kinds.CLIENT_MOUNT, client_mount(desired))
        async with informed(api):
            assert await mounts.reconcile(KEY) is None

        assert machine.asked == asked
        assert status(api) == said(desired)
        assert api.written == [("status", kinds.CLIENT_MOUNT, KEY)]

    with_node(story)


@pytest.mark.parametrize("desired", ["mounted", "unmounted"])
def test_it_is_done_again_and_not_said_again(desired: str) -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        await api.add(kinds.CLIENT_MOUNT, client_mount(desired, status=said(desired)))
        async with informed(api):
            await mounts.reconcile(KEY)

        assert len(machine.asked) == len(PATHS)
        assert api.written == []

    with_node(story)


@pytest.mark.parametrize(
    "known",
    [
        said("unmounted"),
        said("mounted", ready=False),
        {"mounts": [{"state": "mounted", "ready": True}], "allReady": True},
        {"mounts": [{"state": "mounted", "ready": i == 0} for i in range(2)], "allReady": True},
        {"mounts": [{"state": each, "ready": True} for each in ("mounted", "unmounted")],
         "allReady": True},
    ],
)  # fmt: skip
def test_what_was_said_of_less_or_of_another_state_is_said_anew(known: Any) -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        await api.add(kinds.CLIENT_MOUNT, client_mount(status=known))
        async with informed(api):
            await mounts.reconcile(KEY)

        assert status(api) == said("mounted")

    with_node(story)


def test_a_bare_device_is_mounted_as_one() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        bare = [mount("/mnt/a", 0, "none"), mount("/mnt/b", 1, "ext4")]
        await api.add(kinds.CLIENT_MOUNT, client_mount(mounts=bare))
        async with informed(api):
            await mounts.reconcile(KEY)

        assert [each[3] for each in machine.asked] == ["raw", "ext4"]

    with_node(story)


def test_what_is_no_volume_is_an_error_that_is_told_and_not_tried_again() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        other = [mount("/mnt/a", 0, lvm=False), mount("/mnt/b", 1)]
        await api.add(kinds.CLIENT_MOUNT, client_mount(mounts=other))
        async with informed(api):
            assert await mounts.reconcile(KEY) is None

        error = status(api)["error"]
        assert error["debugMessage"] == "/mnt/a: the device is not a volume"
        assert error["severity"] == "Fatal"
        assert machine.asked == []

    with_node(story)


@pytest.mark.parametrize("fatal", [True, False])
def test_a_trouble_is_told_once_and_tried_again_unless_it_is_fatal(fatal: bool) -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        machine.troubles[MOUNTS[1]] = NodeTrouble("broke", fatal=fatal)
        await api.add(kinds.CLIENT_MOUNT, client_mount())
        async with informed(api):
            for _ in range(2):
                if fatal:
                    await mounts.reconcile(KEY)
                else:
                    with pytest.raises(NodeTrouble, match="broke"):
                        await mounts.reconcile(KEY)
                await caught_up()

        told = status(api)
        assert (told["allReady"], told["error"]["debugMessage"]) == (False, "broke")
        assert [each["ready"] for each in told["mounts"]] == [False, False]
        assert api.written == [("status", kinds.CLIENT_MOUNT, KEY)]

    with_node(story)


def test_another_trouble_is_told_in_place_of_the_first() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        error = {**NodeTrouble("first", fatal=True).as_error()}
        known = said("mounted", ready=False, error=error)
        machine.troubles[MOUNTS[0]] = NodeTrouble("second", fatal=True)
        await api.add(kinds.CLIENT_MOUNT, client_mount(status=known))
        async with informed(api):
            await mounts.reconcile(KEY)

        assert status(api)["error"]["debugMessage"] == "second"

    with_node(story)


def test_the_same_trouble_is_told_anew_of_another_state() -> None:
    """By the state an NnfAccess knows that a node has answered what it asks for now."""

    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        error = {**NodeTrouble("lost", fatal=True).as_error()}
        known = said("mounted", ready=False, error=error)
        machine.troubles[UNMOUNTS[0]] = NodeTrouble("lost", fatal=True)
        await api.add(kinds.CLIENT_MOUNT, client_mount("unmounted", status=known))
        async with informed(api):
            await mounts.reconcile(KEY)

        assert status(api) == {**said("unmounted", ready=False), "error": error}

    with_node(story)


def test_what_was_mounted_and_cannot_be_mounted_again_is_told() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        machine.troubles[MOUNTS[0]] = NodeTrouble("lost", fatal=True)
        await api.add(kinds.CLIENT_MOUNT, client_mount(status=said("mounted")))
        async with informed(api):
            await mounts.reconcile(KEY)

        told = status(api)
        assert (told["allReady"], told["error"]["debugMessage"]) == (False, "lost")

    with_node(story)


def test_a_trouble_that_is_over_is_taken_back() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        error = {**NodeTrouble("broke").as_error()}
        known = said("mounted", ready=False, error=error)
        await api.add(kinds.CLIENT_MOUNT, client_mount(status=known))
        async with informed(api):
            await mounts.reconcile(KEY)

        assert status(api) == said("mounted")

    with_node(story)


# Deletion


def test_what_is_deleted_is_unmounted_and_then_let_go() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        keeping = [labels.CLIENT_MOUNT_FINALIZER, "another"]
        await api.add(kinds.CLIENT_MOUNT, client_mount(finalizers=keeping, **DELETING))
        async with informed(api):
            assert await mounts.reconcile(KEY) is None

        assert machine.asked == UNMOUNTS
        assert api.find(kinds.CLIENT_MOUNT, KEY)["metadata"]["finalizers"] == ["another"]
        assert api.written == [("patch", kinds.CLIENT_MOUNT, KEY)]

    with_node(story)


@pytest.mark.parametrize("fatal", [True, False])
def test_what_cannot_be_unmounted_is_not_let_go(fatal: bool) -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        machine.troubles[UNMOUNTS[1]] = NodeTrouble("in use", fatal=fatal)
        keeping = [labels.CLIENT_MOUNT_FINALIZER]
        await api.add(kinds.CLIENT_MOUNT, client_mount(finalizers=keeping, **DELETING))
        async with informed(api):
            with pytest.raises(NodeTrouble):
                await mounts.reconcile(KEY)

        found = api.find(kinds.CLIENT_MOUNT, KEY)
        assert found["metadata"]["finalizers"] == keeping
        assert found["status"]["error"]["debugMessage"] == "in use"

    with_node(story)


@pytest.mark.parametrize("deleting", [True, False])
def test_all_that_is_in_use_waits_at_a_time_and_is_looked_at_when_it_is_asked_for(
    deleting: bool,
) -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        machine.troubles[UNMOUNTS[0]] = Kept("kept")
        machine.troubles[UNMOUNTS[1]] = InUse("in use", delay=3)
        metadata = {"finalizers": [labels.CLIENT_MOUNT_FINALIZER], **(DELETING if deleting else {})}
        await api.add(kinds.CLIENT_MOUNT, client_mount("unmounted", **metadata))
        async with informed(api):
            for _ in range(2):
                assert await mounts.reconcile(KEY) == 3
                await caught_up()

        assert machine.asked == 2 * UNMOUNTS
        assert status(api)["error"]["debugMessage"] == "in use"
        assert (
            labels.CLIENT_MOUNT_FINALIZER
            in api.find(kinds.CLIENT_MOUNT, KEY)["metadata"]["finalizers"]
        )

    with_node(story)


def test_what_is_kept_keeps_no_other_mount() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        machine.troubles[UNMOUNTS[0]] = Kept("kept")
        await api.add(kinds.CLIENT_MOUNT, client_mount("unmounted"))
        async with informed(api):
            with pytest.raises(Kept):
                await mounts.reconcile(KEY)

        assert machine.asked == UNMOUNTS

    with_node(story)


def test_what_is_gone_is_nothing_to_do() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        async with informed(api):
            assert await mounts.reconcile(KEY) is None

        assert (machine.asked, api.written) == ([], [])

    with_node(story)


# News


def test_news_of_a_client_mount_wakes_its_node() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        async with running(api, mounts.reconciler.run()):
            await api.add(kinds.CLIENT_MOUNT, client_mount())
            assert status(api) == said("mounted")
            await api.change(kinds.CLIENT_MOUNT, KEY, {"spec": {"desiredState": "unmounted"}})
            assert status(api) == said("unmounted")

    with_node(story)


def test_a_node_that_has_lost_its_mounts_makes_all_of_them_again() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        async with running(api, mounts.reconciler.run()):
            await api.add(kinds.CLIENT_MOUNT, client_mount())
            machine.flash.mounts.clear()
            mounts.mount_again()
            await caught_up()

        assert sorted(path for _, path in machine.flash.mounts) == list(PATHS)

    with_node(story)


# Over a network


def test_a_volume_that_is_reached_over_a_network_is_let_go_of_once_it_is_unmounted() -> None:
    async def story(api: Api, machine: Noting, _: MountReconciler) -> None:
        detached: list[tuple[str, str]] = []
        asked_before: list[int] = []

        async def disconnect_volume(rabbit: str, name: str) -> None:
            detached.append((rabbit, name))
            asked_before.append(len([each for each in machine.asked if each[0] == "unmount"]))
            if len(detached) == 1:
                raise NodeTrouble("nvme0 is not disconnected: it takes its time")

        mounts = MountReconciler(api, api.informers, machine, disconnect_volume)
        await api.add(kinds.CLIENT_MOUNT, client_mount("unmounted"))
        async with informed(api):
            with pytest.raises(NodeTrouble, match="it takes its time"):
                await mounts.reconcile(KEY)
            assert status(api)["allReady"] is False
            await mounts.reconcile(KEY)

        assert detached == [("r0", "v1"), ("r0", "v1"), ("r0", "v0")]
        assert asked_before == [1, 2, 3]
        assert status(api) == said("unmounted")

    with_node(story)


def test_lustre_is_mounted_where_it_stands_among_the_others() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        wide = {"mgsAddresses": "10.0.0.1@tcp", "fileSystemName": "aaaaaaaa"}
        lustre = {
            "mountPath": "/mnt/wide",
            "type": "lustre",
            "userID": 1001,
            "groupID": 1002,
            "device": {"type": "lustre", "lustre": wide},
        }
        both = [lustre, mount(PATHS[0], 0)]
        await api.add(kinds.CLIENT_MOUNT, client_mount(mounts=both))
        async with informed(api):
            assert await mounts.reconcile(KEY) is None

        source = LustreMount(address="10.0.0.1@tcp", name="aaaaaaaa", userid=1001, groupid=1002)
        assert machine.flash.lustre == {("n0", "/mnt/wide"): source}
        assert machine.asked == MOUNTS[:1]
        assert status(api) == said("mounted")

    with_node(story)


class Carrying(Noting):
    """A node that notes which commands it would run around what it mounts and unmounts."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        self._run(profile, {"$MOUNT_PATH": path, "$MGS_NID": "mgs@tcp", "$FS_NAME": "wide"})

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        self._run(profile, {"$MOUNT_PATH": path})

    def _run(self, profile: ProfileCommands, values: dict[str, str]) -> None:
        names = [place.rpartition(".")[2] for place in profile.lines]
        self.ran += [each for name in names for each in profile.vectors(name, values)]


def carrying(desired: str, *names: str) -> dict[str, Any]:
    """Return a mount of a Lustre whose profile has commands of some names."""
    place = "data.lustreStorage.clientOptions.commandlines"
    lines = {f"{place}.{name}": (f"{name} $FS_NAME $MGS_NID $MOUNT_PATH",) for name in names}
    told = commandlines.encode(ProfileCommands(file_system=LUSTRE, lines=lines))
    wide = {"mgsAddresses": "mgs@tcp", "fileSystemName": "wide"}
    device = {"type": "lustre", "lustre": wide}
    one = {"mountPath": "/mnt/wide", "type": "lustre", "userID": 1001, "device": device}
    return client_mount(desired, [one], annotations={labels.COMMANDS: told})


def test_what_is_run_around_an_unmount_may_name_the_file_system_and_its_servers() -> None:
    async def story(api: Api) -> None:
        machine = Carrying()
        mounts = MountReconciler(api, api.informers, machine)
        await api.add(kinds.CLIENT_MOUNT, carrying("unmounted", "computePreUnmount"))
        async with informed(api):
            await mounts.reconcile(KEY)
        assert machine.ran == [["computePreUnmount", "wide", "mgs@tcp", "/mnt/wide"]]

    alone(story)


@pytest.mark.parametrize(("rabbit", "side"), [(True, "rabbit"), (False, "compute")])
def test_of_commands_that_earlier_controllers_wrote_a_node_runs_those_of_its_side(
    rabbit: bool, side: str
) -> None:
    around = ("PreMount", "PostMount", "PreUnmount", "PostUnmount")
    both = [f"{each}{name}" for each in ("rabbit", "compute") for name in around]

    async def story(api: Api) -> None:
        machine = Carrying()
        mounts = MountReconciler(api, api.informers, machine, on_rabbit=rabbit)
        for desired in ("mounted", "unmounted"):
            obj = carrying(desired, "mountCompute", "mountRabbit", *both)
            obj["metadata"]["name"] = desired
            await api.add(kinds.CLIENT_MOUNT, obj)
        async with informed(api):
            for desired in ("mounted", "unmounted"):
                machine.ran.clear()
                await mounts.reconcile(Key("n0", desired))
                wanted = [f"mount{side.capitalize()}", *(f"{side}{name}" for name in around)]
                assert [words[0] for words in machine.ran] == wanted

    alone(story)


class Hanging(Noting):
    """A node that reaches no server of Lustre."""

    async def mount_lustre(self, source: LustreMount, path: str, *others: Any) -> None:
        await asyncio.sleep(120)
        raise NodeTrouble("mount did not end within 120 s")


@pytest.mark.parametrize(
    ("jobs", "user"), [(1, 1001), (5, 1002)], ids=["one job", "one user's jobs"]
)
def test_mounts_of_one_job_that_hang_hold_up_no_other_job_nor_those_of_one_user_another_users(
    jobs: int, user: int
) -> None:
    async def story(api: Api) -> None:
        machine = Hanging()
        for number, _ in enumerate(PATHS):
            kept: dict[str, Any] = {"size": 1, "file_system": "xfs", "userid": 0, "groupid": 0}
            await machine.make(Volume(rabbit="r0", name=f"v{number}", **kept))
        mounts = MountReconciler(api, api.informers, machine, timeout=2000)
        assert mounts.reconciler.workers == WORKERS
        wide = {"mgsAddresses": "mgs@tcp", "fileSystemName": "wide"}
        for number in range(jobs * MAX_DIRECTIVES):
            device = {"type": "lustre", "lustre": wide}
            path = f"/mnt/wide-{number}"
            one = {"mountPath": path, "type": "lustre", "userID": user, "device": device}
            hangs = client_mount(mounts=[one])
            hangs["metadata"] = meta(f"wide-{number}", "n0")
            await api.add(kinds.CLIENT_MOUNT, hangs)
        async with running(api, mounts.reconciler.run()):
            await api.add(kinds.CLIENT_MOUNT, client_mount())
            await asyncio.sleep(60)
            assert status(api) == said("mounted")

    alone(story)


def test_the_root_directory_of_persistent_storage_lets_in_those_that_share_it() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        shared = Sharing(users=frozenset({1002}), groups=frozenset({7}))
        carried = {labels.SHARED_WITH: str(shared)}
        await api.add(kinds.CLIENT_MOUNT, client_mount(annotations=carried))
        async with informed(api):
            await mounts.reconcile(KEY)
        assert machine.flash.shared == {("r0", f"v{number}"): shared for number in range(2)}

    with_node(story)


@pytest.mark.parametrize(
    ("owner", "let_in", "is_mounted"),
    [
        (1001, PRIVATE, True),
        (7, Sharing(users=frozenset({1001})), True),
        (7, Sharing(groups=frozenset({1002})), True),
        (7, Sharing(groups=frozenset({1003})), True),
        (7, Sharing(users=frozenset({1002})), False),
        (7, Sharing(groups=frozenset({1004})), False),
    ],
)
def test_storage_without_room_for_its_list_is_mounted_for_its_owner_and_who_is_let_in(
    owner: int, let_in: Sharing, is_mounted: bool
) -> None:
    """Who is in a group is let in as well where it is not the group of the job."""

    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        trouble = NotShared("no room", owner_userid=owner, let_in=let_in)
        machine.troubles[MOUNTS[0]] = trouble
        both = [{**mount(path, number), "groupID": 1002} for number, path in enumerate(PATHS)]
        await api.add(kinds.CLIENT_MOUNT, client_mount(mounts=both))
        async with informed(api):
            if is_mounted:
                await mounts.reconcile(KEY)
            else:
                with pytest.raises(NotShared):
                    await mounts.reconcile(KEY)
        assert status(api)["allReady"] is is_mounted

    with_node(story)


def test_trouble_is_told_again_of_mounts_that_were_told_otherwise() -> None:
    async def story(api: Api, machine: Noting, mounts: MountReconciler) -> None:
        machine.troubles[MOUNTS[0]] = NodeTrouble("busy", fatal=True)
        await api.add(kinds.CLIENT_MOUNT, client_mount())
        async with running(api, mounts.reconciler.run()):
            found = status(api)
            assert [each["state"] for each in found["mounts"]] == ["mounted"] * 2
            one = {"mounts": [found["mounts"][0], {"state": "unmounted", "ready": True}]}
            await api.change(kinds.CLIENT_MOUNT, KEY, {"status": one}, status=True)
            assert status(api) == found

    with_node(story)
