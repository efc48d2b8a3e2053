"""Lustre through all states, on simulated rabbits that make it (dws-spec section 3.1)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.base.bytesize import GIB
from warren.base.objects import Change, Key, Object, Remove
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.kube.client import NotFound
from warren.kube.server.local import LocalClient

SITE = ClusterShape(rabbits=2, computes_per_rabbit=2, capacity=100 * GIB)
JOBDW = "#DW jobdw type=lustre capacity=10GiB name=wide"
NIDS = {"rabbit-0": "10.0.0.1@tcp", "rabbit-1": "10.0.0.2@tcp"}
COMPUTES = ("compute-00", "compute-01", "compute-02", "compute-03")


@dataclass
class Driver:
    """A workload manager that takes Workflows through their states."""

    world: World
    control: Control
    client: LocalClient

    async def profile(self, name: str, **lustre: Any) -> None:
        metadata = {"name": name, "namespace": kinds.PROFILES_NAMESPACE}
        plain = {"colocateComputes": False}
        options = {each: plain for each in ("mgtOptions", "mdtOptions", "mgtMdtOptions",
                                            "ostOptions")}  # fmt: skip
        data = {"default": False, "pinned": False, "lustreStorage": {**options, **lustre}}
        await self.client.create(kinds.NNF_STORAGE_PROFILE, {"metadata": metadata, "data": data})

    async def begin(self, name: str, directive: str) -> None:
        spec = {"desiredState": "Proposal", "dwDirectives": [directive], "wlmID": "kit", "jobID": 1,
                "userID": 1050, "groupID": 1050, "forceReady": False, "hurry": False}  # fmt: skip
        metadata = {"name": name, "namespace": "default"}
        await self.client.create(kinds.WORKFLOW, {"metadata": metadata, "spec": spec})
        await self.reached(name, "Proposal")

    async def fill(self, servers: str, computes: str, **sets: Sequence[tuple[str, int]]) -> None:
        found = [
            {
                "label": label,
                "allocationSize": 10 * GIB if label == "ost" else 5 * GIB,
                "storage": [{"name": rabbit, "allocationCount": n} for rabbit, n in where],
            }
            for label, where in sets.items()
        ]
        key = Key("default", servers)
        patch: Object = {"spec": {"allocationSets": found}}
        await self.client.patch(Change(kind=kinds.SERVERS, key=key, patch=patch))
        data: Object = {"data": [{"name": name} for name in COMPUTES]}
        await self.client.patch(
            Change(kind=kinds.COMPUTES, key=Key("default", computes), patch=data)
        )

    async def go(self, name: str, *states: str) -> None:
        for state in states:
            patch: Object = {"spec": {"desiredState": state}}
            await self.client.patch(
                Change(kind=kinds.WORKFLOW, key=Key("default", name), patch=patch)
            )
            await self.reached(name, state)

    async def reached(self, name: str, state: str) -> None:
        while True:
            status = (await self.client.get(kinds.WORKFLOW, Key("default", name)))["status"]
            # What was in error is so until it has been looked at again.
            if state != "Teardown":
                assert status.get("status") not in ("Error", "TransientCondition"), status
            if status.get("state") == state and status.get("ready"):
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)

    async def end(self, name: str) -> None:
        await self.go(name, "Teardown")
        await self.client.delete(Remove(kind=kinds.WORKFLOW, key=Key("default", name)))
        while True:
            try:
                await self.client.get(kinds.WORKFLOW, Key("default", name))
            except NotFound:
                return
            await asyncio.sleep(0.1)

    def all(self, kind: Any) -> dict[str, Object]:
        found = self.control.api.store.objects_of(kind)
        return {f"{x['metadata']['namespace']}/{x['metadata']['name']}": x for x in found}

    def targets(self) -> dict[str, tuple[str, int, int, str, str]]:
        """Return what each share is: its targets' kind, first index and number, name and MGS."""
        return {
            key: (
                spec["lustreStorage"]["targetType"],
                spec["lustreStorage"].get("startIndex", 0),
                spec["count"],
                spec["lustreStorage"].get("fileSystemName", ""),
                spec["lustreStorage"]["mgsAddress"],
            )
            for key, each in self.all(kinds.NNF_NODE_STORAGE).items()
            if (spec := each["spec"])
        }

    def nothing_left(self) -> None:
        for kind in (kinds.NNF_STORAGE, kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE,
                     kinds.CLIENT_MOUNT, kinds.NNF_ACCESS, kinds.LUSTRE_MGT):  # fmt: skip
            assert self.all(kind) == {}, kind
        assert all(not (each.volumes or each.lustre) for each in self.world.flash.values())


def told(story: Callable[[Driver], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(SITE) as world:
            for rabbit, flash in world.flash.items():
                flash.unsupported_types = {}
                flash.lnet_nid = NIDS[rabbit]

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    await asyncio.sleep(2)
                    await story(Driver(world, control, LocalClient(control.api.store)))

            await world.live(life)

    virtual.run(main())


OSTS = [("rabbit-0", 1), ("rabbit-1", 1)]


def test_a_file_system_of_its_own_targets_goes_through_all_states() -> None:
    """dws-spec section 3.1: ost, mdt and mgt, where the profile says no more."""

    async def story(driver: Driver) -> None:
        await driver.profile("apart")
        await driver.begin("wf", f"{JOBDW} profile=apart")
        await driver.fill("wf-0", "wf", ost=OSTS, mdt=[("rabbit-1", 1)], mgt=[("rabbit-0", 1)])
        await driver.go("wf", "Setup")

        nid = NIDS["rabbit-0"]
        assert driver.targets() == {
            "rabbit-0/default-wf-0-mgt-0": ("mgt", 0, 1, "aaaaaaaa", nid),
            "rabbit-1/default-wf-0-mdt-0": ("mdt", 0, 1, "aaaaaaaa", nid),
            "rabbit-0/default-wf-0-ost-0": ("ost", 0, 1, "aaaaaaaa", nid),
            "rabbit-1/default-wf-0-ost-0": ("ost", 1, 1, "aaaaaaaa", nid),
        }
        status = driver.all(kinds.NNF_STORAGE)["default/wf-0"]["status"]
        assert status["ready"]
        assert (status["fileSystemName"], status["mgsAddress"]) == ("aaaaaaaa", nid)
        reference = {"kind": "NnfLustreMGT", "name": "wf-0", "namespace": "rabbit-0"}
        assert status["lustreMgtReference"] == reference

        await driver.go("wf", "DataIn", "PreRun")
        (mount,) = driver.all(kinds.CLIENT_MOUNT)["compute-02/default-wf-0-computes"]["spec"][
            "mounts"
        ]
        assert mount["device"]["lustre"] == {
            "fileSystemName": "aaaaaaaa", "mgsAddresses": nid,
        }  # fmt: skip
        assert (mount["type"], mount["setPermissions"]) == ("lustre", False)
        mounted = {node for each in driver.world.flash.values() for node, _ in each.lustre}
        assert mounted == {*COMPUTES}

        await driver.go("wf", "PostRun", "DataOut")
        await driver.end("wf")
        driver.nothing_left()

    told(story)


def test_the_mgs_is_there_before_anything_that_is_found_by_it_and_goes_after_it() -> None:
    async def story(driver: Driver) -> None:
        await driver.profile("apart", combinedMgtMdt=True)
        await driver.begin("wf", f"{JOBDW} profile=apart")
        seen: list[set[str]] = []

        def watch(flash: Any) -> None:
            made = flash.volumes

            class Watched(dict):  # type: ignore[type-arg]
                def __setitem__(self, key: Any, value: Any) -> None:
                    super().__setitem__(key, value)
                    seen.append({value.target.kind})

                def pop(self, key: Any, *default: Any) -> Any:
                    if key in self:
                        seen.append({f"-{self[key].target.kind}"})
                    return super().pop(key, *default)

            flash.volumes = Watched(made)

        for each in driver.world.flash.values():
            watch(each)
        await driver.fill("wf-0", "wf", ost=OSTS, mgtmdt=[("rabbit-1", 1)])
        await driver.go("wf", "Setup")
        await driver.end("wf")
        assert [*map(min, seen)] == ["mgtmdt", "ost", "ost", "-ost", "-ost", "-mgtmdt"]
        driver.nothing_left()

    told(story)


def test_two_file_systems_on_one_mgt_of_others_have_names_of_their_own() -> None:
    """dws-spec section 10: `externalMgs` by its address, of which an admin's NnfLustreMGT tells."""

    async def story(driver: Driver) -> None:
        await driver.profile("others", mgtOptions={
            "externalMgs": "10.9.9.9@tcp", "colocateComputes": False})  # fmt: skip
        mgt = {
            "metadata": {"name": "external", "namespace": "nnf-system"},
            "spec": {"addresses": ["10.9.9.9@tcp"], "fsNameStart": "bbbbbbbb",
                     "fsNameBlackList": ["bbbbbbbc"]},
        }  # fmt: skip
        await driver.client.create(kinds.LUSTRE_MGT, mgt)
        for name in ("one", "two"):
            await driver.begin(name, f"{JOBDW} profile=others")
            await driver.fill(f"{name}-0", name, ost=OSTS, mdt=[("rabbit-1", 2)])
            await driver.go(name, "Setup")
        found = driver.targets()
        assert found["rabbit-1/default-one-0-mdt-0"] == ("mdt", 0, 2, "bbbbbbbb", "10.9.9.9@tcp")
        assert found["rabbit-1/default-two-0-ost-0"] == ("ost", 1, 1, "bbbbbbbd", "10.9.9.9@tcp")

        await driver.end("one")
        (left,) = driver.all(kinds.LUSTRE_MGT).values()
        assert [each["name"] for each in left["spec"]["claimList"]] == ["two-0"]
        assert [each["fsname"] for each in left["status"]["claimList"]] == ["bbbbbbbd"]
        await driver.end("two")
        await driver.client.delete(Remove(kind=kinds.LUSTRE_MGT, key=Key("nnf-system", "external")))
        driver.nothing_left()

    told(story)


def test_an_mgt_of_a_pool_serves_others_and_cannot_be_destroyed_meanwhile() -> None:
    """dws-spec section 10: `standaloneMgtPoolName`, and `externalMgs: pool:NAME`."""

    async def story(driver: Driver) -> None:
        plain = {"colocateComputes": False}
        await driver.profile("alone", mgtOptions={**plain, "standaloneMgtPoolName": "lake"})
        await driver.profile("pooled", mgtOptions={**plain, "externalMgs": "pool:lake"})
        await driver.begin("maker", "#DW create_persistent type=lustre name=mgs profile=alone")
        await driver.fill("mgs", "maker", mgt=[("rabbit-1", 1)])
        await driver.go("maker", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("maker")
        assert driver.targets() == {
            "rabbit-1/default-mgs-mgt-0": ("mgt", 0, 1, "", NIDS["rabbit-1"]),
        }

        await driver.begin("user", f"{JOBDW} profile=pooled")
        await driver.fill("user-0", "user", ost=OSTS, mdt=[("rabbit-0", 1)])
        await driver.go("user", "Setup")
        found = driver.targets()["rabbit-0/default-user-0-ost-0"]
        assert found == ("ost", 0, 1, "aaaaaaaa", NIDS["rabbit-1"])
        instance = driver.all(kinds.PERSISTENT_INSTANCE)["default/mgs"]
        consumer = {"kind": "NnfStorage", "name": "user-0", "namespace": "default"}
        assert instance["spec"]["consumerReferences"] == [consumer]

        await driver.end("user")
        assert not driver.all(kinds.PERSISTENT_INSTANCE)["default/mgs"]["spec"].get(
            "consumerReferences"
        )
        await driver.begin("ender", "#DW destroy_persistent name=mgs")
        await driver.go("ender", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("ender")
        driver.nothing_left()

    told(story)


COMMANDS = {"preMountCommands": ["lctl set_param -P osc.$FS_NAME-*.checksums=1"]}


def test_a_file_system_has_its_mgs_configured_on_the_rabbit_that_has_it() -> None:
    """dws-spec section 10: `preMountCommands`, of an MGS of a pool and of one of its own."""

    async def story(driver: Driver) -> None:
        plain = {"colocateComputes": False}
        await driver.profile("alone", mgtOptions={
            **plain, **COMMANDS, "standaloneMgtPoolName": "lake"})  # fmt: skip
        await driver.profile("pooled", mgtOptions={
            **plain, **COMMANDS, "externalMgs": "pool:lake"})  # fmt: skip
        await driver.profile("whole", combinedMgtMdt=True, mgtOptions={**plain, **COMMANDS})
        await driver.begin("maker", "#DW create_persistent type=lustre name=mgs profile=alone")
        await driver.fill("mgs", "maker", mgt=[("rabbit-1", 1)])
        await driver.go("maker", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("maker")
        ran = {name: flash.mgs_commands for name, flash in driver.world.flash.items()}
        assert ran == {"rabbit-0": [], "rabbit-1": []}

        await driver.begin("user", f"{JOBDW} profile=pooled")
        await driver.fill("user-0", "user", ost=OSTS, mdt=[("rabbit-0", 1)])
        await driver.go("user", "Setup")
        setting = ["lctl", "set_param", "-P", "osc.aaaaaaaa-*.checksums=1"]
        assert ran == {"rabbit-0": [], "rabbit-1": [setting]}
        told = driver.all(kinds.LUSTRE_MGT)["rabbit-1/mgs"]["status"]["commandList"]
        assert [(each["reference"]["name"], each["ready"]) for each in told] == [("user-0", True)]
        await driver.end("user")
        mgt = driver.all(kinds.LUSTRE_MGT)["rabbit-1/mgs"]
        assert (mgt["spec"]["commandList"], mgt["status"]["commandList"]) == ([], [])

        await driver.begin("own", f"{JOBDW} profile=whole")
        await driver.fill("own-0", "own", ost=OSTS, mgtmdt=[("rabbit-0", 1)])
        await driver.go("own", "Setup")
        assert ran == {"rabbit-0": [setting], "rabbit-1": [setting]}
        await driver.end("own")
        await driver.begin("ender", "#DW destroy_persistent name=mgs")
        await driver.go("ender", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("ender")
        driver.nothing_left()

    told(story)


def test_persistent_lustre_is_made_used_and_destroyed() -> None:
    """dws-spec section 7."""

    async def story(driver: Driver) -> None:
        await driver.profile("whole", combinedMgtMdt=True)
        make = "#DW create_persistent type=lustre name=keep capacity=10GiB profile=whole"
        await driver.begin("maker", make)
        await driver.fill("keep", "maker", ost=OSTS, mgtmdt=[("rabbit-0", 3)])
        await driver.go("maker", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("maker")
        assert {key: each[:3] for key, each in driver.targets().items() if "mdt" in key} == {
            "rabbit-0/default-keep-mgtmdt-0": ("mgtmdt", 0, 1),
            "rabbit-0/default-keep-mgtmdt-1": ("mdt", 1, 2),
        }

        await driver.begin("user", "#DW persistentdw name=keep")
        data: Object = {"data": [{"name": name} for name in COMPUTES]}
        key = Key("default", "user")
        await driver.client.patch(Change(kind=kinds.COMPUTES, key=key, patch=data))
        await driver.go("user", "Setup", "DataIn", "PreRun")
        assert len({node for each in driver.world.flash.values() for node, _ in each.lustre}) == 4
        await driver.go("user", "PostRun", "DataOut")
        await driver.end("user")
        await driver.begin("ender", "#DW destroy_persistent name=keep")
        await driver.go("ender", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("ender")
        driver.nothing_left()

    told(story)


def test_a_storage_that_is_forced_away_leaves_no_mgt_behind() -> None:
    async def story(driver: Driver) -> None:
        await driver.profile("whole", combinedMgtMdt=True)
        await driver.begin("wf", f"{JOBDW} profile=whole")
        await driver.fill("wf-0", "wf", ost=OSTS, mgtmdt=[("rabbit-0", 1)])
        await driver.go("wf", "Setup")
        key = Key("default", "wf-0")
        await driver.client.delete(Remove(kind=kinds.NNF_STORAGE, key=key))
        patch: Object = {"metadata": {"finalizers": []}}
        await driver.client.patch(Change(kind=kinds.NNF_STORAGE, key=key, patch=patch))
        await asyncio.sleep(30)
        await driver.end("wf")
        driver.nothing_left()

    told(story)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("10.9.9.9@tcp", "no NnfLustreMGT resource found for MGS address: 10.9.9.9@tcp"),
        ("pool:lake", "no MGT of pool 'lake' is ready: create one with a profile that has "
                      "standaloneMgtPoolName: lake"),
    ],
)  # fmt: skip
def test_an_mgs_that_is_not_there_is_waited_for_with_the_reason(asked: str, why: str) -> None:
    async def story(driver: Driver) -> None:
        await driver.profile("others", mgtOptions={
            "externalMgs": asked, "colocateComputes": False})  # fmt: skip
        await driver.begin("wf", f"{JOBDW} profile=others")
        await driver.fill("wf-0", "wf", ost=OSTS, mdt=[("rabbit-0", 1)])
        patch: Object = {"spec": {"desiredState": "Setup"}}
        key = Key("default", "wf")
        await driver.client.patch(Change(kind=kinds.WORKFLOW, key=key, patch=patch))
        await asyncio.sleep(5)
        status = driver.all(kinds.WORKFLOW)["default/wf"]["status"]
        assert status["status"] == "TransientCondition"
        assert why in status["message"]
        if not asked.startswith("pool"):
            mgt = {"metadata": {"name": "late", "namespace": "nnf-system"},
                   "spec": {"addresses": [asked]}}  # fmt: skip
            await driver.client.create(kinds.LUSTRE_MGT, mgt)
            await asyncio.sleep(60)
            assert driver.all(kinds.WORKFLOW)["default/wf"]["status"]["ready"]
        await driver.end("wf")

    told(story)


def test_the_commands_of_its_profile_are_told_to_rabbits_and_clients() -> None:
    async def story(driver: Driver) -> None:
        await driver.profile(
            "own",
            combinedMgtMdt=True,
            ostOptions={"colocateComputes": False, "commandlines": {"mkfs": "--ost X $ZVOL_NAME"}},
            clientOptions={"commandlines": {"mountCompute": "-o flock $MGS_NID:/$FS_NAME "
                                                            "$MOUNT_PATH",
                                            "computePreMount": ["lctl x"],
                                            "rabbitPreMount": ["lctl y"]}},
        )  # fmt: skip
        await driver.begin("wf", f"{JOBDW} profile=own")
        await driver.fill("wf-0", "wf", ost=OSTS, mgtmdt=[("rabbit-0", 1)])
        await driver.go("wf", "Setup", "DataIn", "PreRun")
        ost = said(driver.all(kinds.NNF_NODE_STORAGE)["rabbit-1/default-wf-0-ost-0"])
        assert ost["lines"]["data.lustreStorage.ostOptions.commandlines.mkfs"] == [
            "--ost X $ZVOL_NAME"
        ]
        assert ost["lines"]["data.lustreStorage.ostOptions.commandlines.zpoolDestroy"]
        assert ost["variables"]["$NUM_OSTS"] == "2"
        mount = said(driver.all(kinds.CLIENT_MOUNT)["compute-00/default-wf-0-computes"])
        assert mount["lines"]["data.lustreStorage.clientOptions.commandlines.mountCompute"] == [
            "-o flock $MGS_NID:/$FS_NAME $MOUNT_PATH"
        ]
        assert not any("ostOptions" in path for path in mount["lines"])
        assert mount["lines"]["data.lustreStorage.clientOptions.commandlines.computePreMount"]
        assert not any("Rabbit" in path or ".rabbit" in path for path in mount["lines"])
        await driver.go("wf", "PostRun")
        await driver.end("wf")

    told(story)


def said(obj: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(obj["metadata"]["annotations"][labels.COMMANDS])
    return found
