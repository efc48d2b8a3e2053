"""What a cluster is told of its kinds and of who may do what: `deploy/`.

Some jobs are lived here, good ones and bad ones, and every write of theirs is looked at: no
schema drops a field of it, no role lacks a verb for it, and none has a verb that is not needed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.harness import virtual
from tests.harness.workloads import Workloads
from tests.harness.world import DIRECTIVES, GLOBAL, JOB_KINDS, World, opened
from warren.base import log
from warren.base.clock import SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.conductor.conductor import Conductor
from warren.conductor.workloadmanager import WorkloadManager
from warren.controllers import heartbeats
from warren.controllers.access import AccessController
from warren.controllers.breakdown import BreakdownController
from warren.controllers.events import EventRecorder
from warren.controllers.globalfs import GlobalFileSystemController
from warren.controllers.lustremgts import LustreMgtController
from warren.controllers.persistent import PersistentController
from warren.controllers.ports import PortController
from warren.controllers.rabbits import SystemController
from warren.controllers.shutdowns import ShutdownController
from warren.controllers.storage import StorageController
from warren.controllers.systemstorage import SystemStorageController
from warren.controllers.workflow import WorkflowController
from warren.daemons import roles, users
from warren.daemons.clusterobjects import definitions, manifests
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.node import Copy, NodeTrouble, Progress
from warren.dws.rabbits import links, rabbitstorages
from warren.instance.simulated import TaskBehavior
from warren.kube.client import Client, Listing, WatchEvent
from warren.kube.informer import Informers
from warren.kube.leader import LEASE
from warren.kube.server.builtin import CRD
from warren.kube.server.resources import Resource
from warren.kube.server.schemas import schema
from warren.node.simulated import SimulatedNode

ROOT = Path(__file__).parents[2]
CRDS = ROOT.parent / "shared" / "vectors" / "crds"
real = pytest.mark.skipif(not CRDS.is_dir(), reason=f"the real definitions are not in {CRDS}")

DWS = "dataworkflowservices.github.io"
NNF = "nnf.cray.hpe.com"

Actions = set[tuple[str, str]]
"""Verbs, and what they are for: `("patch", "servers/status")`."""


# Jobs, and what is written for them


@dataclass
class Told:
    """What was seen of the jobs."""

    dropped: set[str] = field(default_factory=set)
    written: list[Object] = field(default_factory=list)
    actions: dict[str, Actions] = field(default_factory=dict)
    """By role."""
    strayed: set[str] = field(default_factory=set)
    """What agents have asked for outside of their node's namespace."""


REPORTERS = ("workflow", "breakdown", "persistent", "storage", "access", "system", "lustre",
             "system storage", "events")  # fmt: skip
AGENTS = ("mounts", "node storage", "rabbit node", "node block storage", "movement", "mgs")


class Overheard:
    """A client of one of the parts; which one it is, its reconciler has said to the log."""

    def __init__(self, inner: Client, told: Told) -> None:
        self._inner = inner
        self._told = told

    def _heard(self, verb: str, kind: Kind, namespace: str, part: str = "") -> None:
        context = log.bound()
        reconciler = context.get("reconciler")
        if kind == kinds.SYSTEM_STATUS and verb not in ("list", "watch"):
            role = "nnf-workload-manager"
        elif kind == LEASE:
            # Of rabbits: by roles of their own, in their own namespace.
            role = "lease of agent" if reconciler is None and verb == "patch" else "leases"
        elif reconciler in REPORTERS:
            role = "warren-controllers"
        elif reconciler == "conductor":
            role = "dws-workload-manager"
        elif reconciler in AGENTS or (namespace and verb in ("list", "watch")):
            # Without a reconciler it is an informer, and only agents' look at one namespace.
            role = "warren-rabbit" if namespace.startswith("rabbit-") else "warren-compute"
        else:
            role = ""
        if reconciler in AGENTS and namespace != str(context["key"]).partition("/")[0]:
            self._told.strayed.add(f"{reconciler}: {verb} {kind} in {namespace or 'all'}")
        self._told.actions.setdefault(role, set()).add((verb, f"{kind.plural}{part}"))

    async def get(self, kind: Kind, key: Key) -> Object:
        self._heard("get", kind, key.namespace)
        return await self._inner.get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        self._heard("list", kind, namespace)
        return await self._inner.list(kind, namespace, labels)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        self._heard("watch", kind, namespace)
        watch = self._inner.watch(kind, since, namespace)
        async with aclosing(watch) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def create(self, kind: Kind, obj: Object) -> Object:
        self._heard("create", kind, key_of(obj).namespace)
        return await self._inner.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        part = "/status" if change.status else ""
        self._heard("patch", change.kind, change.key.namespace, part)
        return await self._inner.patch(change)

    async def delete(self, remove: Remove) -> None:
        self._heard("delete", remove.kind, remove.key.namespace)
        await self._inner.delete(remove)


class Clumsy(SimulatedNode):
    """A node that cannot copy what is called so."""

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        async with aclosing(super().copy(copy)) as copying:  # type: ignore[type-var]
            async for progress in copying:
                yield progress
                if copy.source.endswith("/broken"):
                    raise NodeTrouble(f"{copy.source}: no such file")


Action = Callable[[World, Control], Awaitable[None]]


def ends(*directives: str) -> Action:
    """Return the story of a job that comes to its end, good or bad."""

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes={"dw": "\n".join(directives)})
        await world.ended(control, job)

    return action


async def has_no_room(world: World, control: Control) -> None:
    capacity = {name: flash.capacity for name, flash in world.flash.items()}
    for flash in world.flash.values():
        flash.capacity = 1
    await ends(*DIRECTIVES)(world, control)
    for name, flash in world.flash.items():
        flash.capacity = capacity[name]


async def loses_its_volume(world: World, control: Control) -> None:
    job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
    await world.until(lambda: list(control.api.store.objects_of(kinds.CLIENT_MOUNT)))
    world.flash["rabbit-0"].volumes.clear()
    await world.ended(control, job)


async def is_cancelled(world: World, control: Control) -> None:
    job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
    await world.until(
        lambda: (world.workflow(control).get("status") or {}).get("state") == "PreRun"
    )
    await world.cancel(control, job)
    await world.ended(control, job)


async def is_in_error_and_deleted(world: World, control: Control) -> None:
    """A Workflow of another workload manager, which does not check directives beforehand."""
    spec = {
        "desiredState": "Proposal",
        "dwDirectives": [XFS, COPY_IN.replace("/global", "/nowhere")],
        "jobID": "1",
        "userID": 1,
        "groupID": 1,
        "wlmID": "slurm",
    }
    made = {"metadata": {"name": "slurm-1", "namespace": "default"}, "spec": spec}
    await control.api.store.create(kinds.WORKFLOW, made)
    await world.until(
        lambda: (world.workflow(control).get("status") or {}).get("status") == "Error"
    )
    await control.api.store.delete(Remove(kind=kinds.WORKFLOW, key=key_of(made)))
    await world.until(lambda: not world.workflow(control))


async def loses_a_label(world: World, control: Control) -> None:
    """A rabbit of before raw volumes were offered says so of itself, and its Storage after it."""
    key = Key("rabbit-0", rabbitstorages.NNF_NODE_NAME)
    bare = {"metadata": {"labels": {labels.RAW_VOLUMES: None}}}
    await control.api.store.patch(Change(kind=kinds.NNF_NODE, key=key, patch=bare))
    await world.until(
        lambda: (
            labels.RAW_VOLUMES in control.api.store.get(kinds.NNF_NODE, key)["metadata"]["labels"]
        )
    )


async def outlives_its_job(world: World, control: Control) -> None:
    """Persistent storage, through all of its life."""
    workloads, nodes = Workloads(world), [world.shape.chassis()[0].hosts[0]]
    await workloads.make(control, "maker", "#DW create_persistent type=xfs capacity=1GiB name=pers")
    await workloads.finish(control, "maker", nodes)
    await workloads.make(control, "user", "#DW persistentdw name=pers")
    await workloads.finish(control, "user", nodes)
    await workloads.make(control, "destroyer", "#DW destroy_persistent name=pers")
    await workloads.finish(control, "destroyer")


async def has_volumes_promised(world: World, control: Control) -> None:
    """A global file system that a namespace is to have volumes of."""
    spec = {
        "name": "lus",
        "mgsNids": "10.1.1.1@tcp",
        "mountRoot": "/lus",
        "namespaces": {"default": {"modes": ["ReadWriteMany"]}},
    }
    store, key = control.api.store, Key("default", "lus")
    await store.create(
        kinds.LUSTRE_FILE_SYSTEM,
        {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec},
    )
    await world.until(lambda: store.get(kinds.LUSTRE_FILE_SYSTEM, key).get("status"))
    await store.delete(Remove(kind=kinds.LUSTRE_FILE_SYSTEM, key=key))
    await world.until(
        lambda: all(key_of(each) != key for each in store.objects_of(kinds.LUSTRE_FILE_SYSTEM))
    )


async def loses_a_rabbit(world: World, control: Control) -> None:
    """And a compute node joins, whose namespace nothing has made before."""
    store, key = control.api.store, Key("default", "default")
    spec = store.get(kinds.SYSTEM_CONFIGURATION, key)["spec"]
    *others, last = spec["storageNodes"]
    joined: Object = {"spec": {"storageNodes": others, "externalComputeNodes": [{"name": "far"}]}}
    await store.patch(Change(kind=kinds.SYSTEM_CONFIGURATION, key=key, patch=joined))
    place = Key("default", last["name"])
    await world.until(
        lambda: all(key_of(each) != place for each in store.objects_of(kinds.STORAGE))
    )
    await world.until(
        lambda: any(key_of(each).name == "far" for each in store.objects_of(kinds.NAMESPACE))
    )
    back: Object = {"spec": {**spec, "externalComputeNodes": None}}
    await store.patch(Change(kind=kinds.SYSTEM_CONFIGURATION, key=key, patch=back))
    await world.until(
        lambda: any(key_of(each) == place for each in store.objects_of(kinds.STORAGE))
    )


async def is_the_systems(world: World, control: Control) -> None:
    """System storage, which a rabbit joins."""
    store, key = control.api.store, Key("default", "local")
    first, second = (each.rabbit for each in world.shape.chassis()[:2])
    profile = {"kind": "NnfStorageProfile", "name": "default", "namespace": "nnf-system"}
    spec = {"storageProfile": profile, "capacity": 2**20, "includeRabbits": [first]}
    metadata = {"name": key.name, "namespace": key.namespace}
    await store.create(kinds.SYSTEM_STORAGE, {"metadata": metadata, "spec": spec})

    def ready() -> bool:
        return bool((store.get(kinds.SYSTEM_STORAGE, key).get("status") or {}).get("ready"))

    await world.until(ready)
    more: Object = {"spec": {"includeRabbits": [first, second]}}
    await store.patch(Change(kind=kinds.SYSTEM_STORAGE, key=key, patch=more))
    await world.until(lambda: not ready())
    await world.until(ready)
    await store.delete(Remove(kind=kinds.SYSTEM_STORAGE, key=key))
    await world.until(lambda: not list(store.objects_of(kinds.SYSTEM_STORAGE)))


async def has_an_mgs_configured(world: World, control: Control) -> None:
    """A rabbit with an MGS, which a file system has commands for."""
    store, key = control.api.store, Key("rabbit-0", "mgs")
    asked = {"reference": {"kind": "NnfStorage", "name": "wide"}, "commands": ["lctl set_param x"]}
    spec = {"addresses": ["10.0.0.1@tcp"], "fsNameStart": "aaaaaaaa", "commandList": [asked]}
    metadata = {"name": key.name, "namespace": key.namespace}
    await store.create(kinds.LUSTRE_MGT, {"metadata": metadata, "spec": spec})
    await world.until(
        lambda: (store.get(kinds.LUSTRE_MGT, key).get("status") or {}).get("commandList")
    )
    await store.delete(Remove(kind=kinds.LUSTRE_MGT, key=key))


XFS, COPY_IN, COPY_OUT = DIRECTIVES
EXT4 = "#DW jobdw type=ext4 capacity=2GiB name=other"
RAW = "#DW jobdw type=raw capacity=1GiB name=raw-one"
STORIES: Sequence[Action] = (
    ends(XFS, COPY_IN, COPY_OUT),
    ends(EXT4),  # and its tasks fail: see `played`
    ends(RAW),
    ends(XFS, EXT4, RAW, COPY_IN, COPY_OUT.replace("scratch", "other")),
    ends(XFS, COPY_IN.replace("input", "broken")),
    has_no_room,
    loses_its_volume,
    is_cancelled,
    is_in_error_and_deleted,
    loses_a_label,
    outlives_its_job,
    has_volumes_promised,
    is_the_systems,
    loses_a_rabbit,
    has_an_mgs_configured,
)


def played(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
    return TaskBehavior(status=3 << 8 if "DW_JOB_EXT4" in environment else 0)


async def lived(told: Told) -> None:
    # With disks, of which raw volumes may be had.
    async with opened(ClusterShape(global_file_systems=(GLOBAL,), flash="image"), played) as world:
        world.client = lambda client: Overheard(client, told)  # type: ignore[method-assign]
        world.machine = lambda node, rabbit: Clumsy(node, world.flash[rabbit])

        async def life(control: Control) -> None:
            for story in STORIES:
                async with asyncio.timeout(600):  # of virtual time: without a status nothing ends
                    await story(world, control)

        await world.live(life)


@pytest.fixture(scope="module")
def told() -> Told:
    """Live all stories once, in a store that tells what it drops."""
    seen = Told()
    prune_and_default = Resource.prune_and_default

    def overheard(
        self: Resource,
        version: str,
        obj: Object,
        told: Callable[[list[str]], None],
        old: Object | None = None,
    ) -> Object:
        def hear(unknown: list[str]) -> None:
            seen.dropped.update(f"{self.kind_name}: {path}" for path in unknown)
            told(unknown)

        whole = prune_and_default(self, version, obj, hear, old)
        seen.written.append(whole)
        return whole

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Resource, "prune_and_default", overheard)
        virtual.run(lived(seen))
    return seen


def test_no_write_of_any_job_loses_a_field(told: Told) -> None:
    assert told.dropped == set()
    assert {kind.name for kind in JOB_KINDS} <= {obj["kind"] for obj in told.written}


def test_the_jobs_have_met_all_that_statuses_can_say(told: Told) -> None:
    def said(kind: Kind) -> set[str]:
        found = (obj.get("status", {}).get("status") for obj in told.written if of(obj, kind))
        return {each for each in found if each}

    def of(obj: Object, kind: Kind) -> bool:
        return bool(obj["kind"] == kind.name)

    shares = [obj for obj in told.written if of(obj, kinds.NNF_NODE_STORAGE)]
    assert {obj["spec"]["fileSystemType"] for obj in shares} == {"xfs", "ext4", "raw"}
    assert said(kinds.WORKFLOW) == {"DriverWait", "Completed", "TransientCondition", "Error"}
    assert said(kinds.NNF_DATA_MOVEMENT) == {"Success", "Failed"}
    assert {"Fatal", "Major"} <= {
        (obj.get("status", {}).get("error") or {}).get("severity") for obj in told.written
    }


def test_a_field_that_no_schema_has_would_be_missed() -> None:
    async def main() -> None:
        async with opened() as world:

            async def action(control: Control) -> None:
                resource = control.api.store.resource(DWS, "servers")
                assert resource is not None
                dropped: list[str] = []
                obj = {"metadata": {"name": "s"}, "spec": {"size": 1}}
                resource.prune_and_default("v1alpha7", obj, dropped.extend)
                assert dropped == ["spec.size"]

            await world.live(action)

    virtual.run(main())


# Definitions


def test_every_definition_is_in_the_file_of_its_name_and_every_kind_has_one() -> None:
    names = [crd["metadata"]["name"] for crd in definitions()]
    files = sorted((ROOT / "deploy" / "crds").iterdir())

    assert [
        f"{file.stem.partition('_')[2]}.{file.stem.partition('_')[0]}" for file in files
    ] == names
    assert {str(kind) for kind in kinds.ALL} <= set(names)


def test_every_kind_is_served_as_it_is_spoken_of_and_stored_as_it_is_written() -> None:
    """Statement 001.1: NnfContainerProfile is a resource.

    Statement 001.35: and is taken as the container RFC writes it.
    """
    stored = {
        crd["metadata"]["name"]: [
            each["name"] for each in crd["spec"]["versions"] if each["storage"]
        ]
        for crd in definitions()
    }

    assert {str(kind): [kind.version] for kind in kinds.ALL}.items() <= stored.items()
    for crd in definitions():
        served = [each["name"] for each in crd["spec"]["versions"] if each["served"]]
        older = ("v1alpha1",) if crd["spec"]["names"]["kind"] == "NnfContainerProfile" else ()
        assert tuple(served) == kinds.VERSIONS[crd["spec"]["group"]] + older


def test_every_definition_is_taken_by_the_server_with_its_schemas() -> None:
    async def main() -> None:
        async with opened() as world:

            async def action(control: Control) -> None:
                for crd in definitions():
                    spec = crd["spec"]
                    resource = control.api.store.resource(spec["group"], spec["names"]["plural"])
                    assert resource is not None
                    assert list(resource.compiled_schemas) == [
                        each["name"] for each in spec["versions"]
                    ]

            await world.live(action)

    virtual.run(main())


def test_a_global_file_system_is_told_by_what_the_real_definition_requires() -> None:
    """Its storage class has a default, and is not given by users."""
    [version] = our_definitions()["LustreFileSystem"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(spec["required"]) == {"name", "mgsNids", "mountRoot"}
    assert spec["properties"]["storageClassName"]["default"] == "nnf-lustre-fs"


# Beside the real ones

OUR_WORDS = {"ext4", "raw"}
"""What Warren has that NNF has not: file systems."""

SAME = ("default", "format", "minimum", "maximum", "minItems", "minLength", "maxLength", "pattern",
        "nullable", "x-kubernetes-map-type")  # fmt: skip

NOT_OURS = ("NnfContainerProfile",)


@cache
def real_definitions() -> dict[str, dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for file in sorted(CRDS.glob("*.yaml")):
        if not any(f"{name.lower()}s" in file.stem for name in NOT_OURS):
            spec = yaml.load(file.read_text(), Loader=loader)["spec"]
            found[spec["names"]["kind"]] = spec
    return found


def our_definitions() -> dict[str, Mapping[str, Any]]:
    return {crd["spec"]["names"]["kind"]: crd["spec"] for crd in definitions()}


def pairs() -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Return each version that both serve, as theirs and as ours."""
    ours = our_definitions()
    for kind, theirs in real_definitions().items():
        for version in theirs["versions"]:
            if version["served"]:
                (own,) = [one for one in ours[kind]["versions"] if one["name"] == version["name"]]
                yield kind, version, own


def below(place: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(place.get("properties", {}))
    for name, step in (("items", "[]"), ("additionalProperties", "{}")):
        if name in place:
            found[step] = place[name]
    return found


def words(place: Mapping[str, Any]) -> set[str] | None:
    lists = [one["enum"] for one in (place, *place.get("allOf", ())) if "enum" in one]
    return set.intersection(*map(set, lists)) if lists else None


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str, *, newest: bool
) -> Iterator[str]:
    """Tell in what way ours takes less than theirs, or more than it may."""
    integer_or_string = "x-kubernetes-int-or-string"
    for name in ("type", integer_or_string):
        if theirs.get(name) != ours.get(name):
            yield f"{path}: {name} is {theirs.get(name)}, not {ours.get(name)}"
    for name in SAME:
        added = name == "default" and name not in theirs
        if theirs.get(name) != ours.get(name) and not added:
            yield f"{path}: {name} is {theirs.get(name)}, not {ours.get(name)}"
    their_words, our_words = words(theirs), words(ours)
    if their_words is None or our_words is None:
        if their_words != our_words:
            yield f"{path}: the words are {their_words}, not {our_words}"
    elif their_words - our_words or (newest and our_words - their_words - OUR_WORDS):
        yield f"{path}: the words are {their_words}, not {our_words}"
    keeps = ours.get("x-kubernetes-preserve-unknown-fields")
    if not keeps and set(theirs.get("required", ())) != set(ours.get("required", ())):
        yield f"{path}: required are {theirs.get('required')}, not {ours.get('required')}"
    for step, place in below(theirs).items():
        if step in below(ours):
            yield from differences(place, below(ours)[step], f"{path}.{step}", newest=newest)
        elif not keeps:
            yield f"{path}.{step}: is missing"


@real
def test_every_field_of_the_real_definitions_is_there_and_means_the_same() -> None:
    found: list[str] = []
    compared = 0
    for kind, theirs, ours in pairs():
        their_root, our_root = (each["schema"]["openAPIV3Schema"] for each in (theirs, ours))
        own = {
            name: place
            for name, place in their_root["properties"].items()
            if name not in ("apiVersion", "kind", "metadata")
        }
        root = {**their_root, "properties": own}
        found.extend(differences(root, our_root, kind, newest=theirs["storage"]))
        compared += 1

    assert found == []
    assert compared == 2 * 17


@real
def test_names_scopes_columns_and_subresources_are_the_real_ones() -> None:
    ours = our_definitions()
    for kind, theirs in real_definitions().items():
        assert ours[kind]["names"] == theirs["names"]
        assert ours[kind]["scope"] == theirs["scope"]
    for kind, their_version, our_version in pairs():
        names = [set(each.get("subresources") or {}) for each in (their_version, our_version)]
        assert names[0] == names[1], kind
        columns = [
            [{name: value for name, value in one.items() if name != "description"} for one in each]
            for each in (
                their_version.get("additionalPrinterColumns", []),
                our_version.get("additionalPrinterColumns", []),
            )
        ]
        assert all(one in columns[1] for one in columns[0]), kind
        # What we add is for `-o wide`: the rest looks as it does everywhere.
        assert all(one["priority"] for one in columns[1] if one not in columns[0]), kind


@real
def test_what_jobs_write_of_the_real_file_systems_the_real_definitions_take(told: Told) -> None:
    compiled = {
        (kind, theirs["name"]): schema.compile(theirs["schema"]["openAPIV3Schema"])
        for kind, theirs, _ in pairs()
    }
    wrong: set[str] = set()
    for obj in told.written:
        one = compiled.get((obj["kind"], obj["apiVersion"].partition("/")[2]))
        if one is not None and not OUR_WORDS & set(_words(obj)):
            whole, unknown = one.prune(obj)
            wrong.update(f"{obj['kind']}: {path} is unknown" for path in unknown)
            wrong.update(
                f"{obj['kind']}: {each}" for each in one.violations(one.apply_defaults(whole))
            )

    assert wrong == set()


@real
def test_our_rules_and_profile_are_taken_beside_the_real_definitions() -> None:
    compiled = {
        (kind, theirs["name"]): schema.compile(theirs["schema"]["openAPIV3Schema"])
        for kind, theirs, _ in pairs()
    }
    for obj in manifests("rules.yaml"):
        one = compiled[obj["kind"], obj["apiVersion"].partition("/")[2]]
        whole, unknown = one.prune(obj)
        assert (unknown, one.violations(one.apply_defaults(whole))) == ([], [])


def without_ext4(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return yaml.safe_load(yaml.dump(spec).replace("- ext4\n", "- gfs2\n"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("whose", ["ours without ext4", pytest.param("theirs", marks=real)])
def test_what_the_definitions_cannot_say_is_refused_in_proposal_with_that_reason(
    whose: str,
) -> None:
    definition = kinds.BREAKDOWN.name
    spec = (
        real_definitions()[definition]
        if whose == "theirs"
        else without_ext4(our_definitions()[definition])
    )
    told: list[Object] = []

    async def action(world: World, control: Control) -> None:
        key = Key("", str(kinds.BREAKDOWN))
        await control.api.store.patch(
            Change(kind=CRD, key=key, patch={"spec": {"versions": spec["versions"]}})
        )
        job = {
            "desiredState": "Proposal",
            "dwDirectives": [EXT4],
            "jobID": "1",
            "userID": 1,
            "groupID": 1,
            "wlmID": "slurm",
        }
        made = {"metadata": {"name": "slurm-1", "namespace": "default"}, "spec": job}
        await control.api.store.create(kinds.WORKFLOW, made)
        await world.until(
            lambda: (world.workflow(control).get("status") or {}).get("status") == "Error"
        )
        told.append(world.workflow(control)["status"])

    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                async with asyncio.timeout(600):
                    await action(world, control)

            await world.live(life)

    virtual.run(main())
    assert told[0]["message"] == (
        "DW Directive 0: User error: the definitions of this cluster do not allow for type ext4"
    )


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif isinstance(value, str):
        yield value


# Roles


def role(name: str) -> Object:
    (found,) = [
        obj
        for obj in manifests("rbac")
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] == name
    ]
    return found


def granted(name: str) -> Actions:
    return {
        (verb, resource)
        for rule in role(name)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def watching(*looked_at: Kind) -> Actions:
    kinds = [kind for kind in looked_at if kind != LEASE]
    return {(verb, kind.plural) for kind in kinds for verb in ("list", "watch")}


def needed(name: str) -> Actions:
    """Return what a role has beyond single reads, which go with lists, and what guards ask."""
    return {
        (verb, resource)
        for verb, resource in granted(name)
        if verb != "get" and not resource.endswith("/finalizers")
    }


READ = ["get", "list", "watch"]
FILL_IN = ["get", "list", "patch", "update", "watch"]
WORKLOAD_MANAGER = {
    "workflows": ["create", "delete", "get", "list", "patch", "update", "watch"],
    "servers": FILL_IN,
    "computes": FILL_IN,
    "directivebreakdowns": READ,
    "clientmounts": READ,
    "persistentstorageinstances": READ,
    "storages": READ,
    "systemconfigurations": READ,
}
"""The least that a workload manager is given (dws-spec section 14)."""


def test_the_conductor_may_do_what_every_workload_manager_may_and_no_more(told: Told) -> None:
    table = {(verb, resource) for resource, verbs in WORKLOAD_MANAGER.items() for verb in verbs}
    nothing: Any = None
    informers = Informers(nothing)
    Conductor(nothing, informers, cast(WorkloadManager, _Idle()), SystemClock(), 0)

    assert granted("dws-workload-manager") == table
    assert {
        group for rule in role("dws-workload-manager")["rules"] for group in rule["apiGroups"]
    } == {DWS}
    copies = granted("warren-copies-viewer")
    assert copies == {(verb, "nnfdatamovements") for verb in READ}
    tests = {(verb, "nnfstorages") for verb in (*READ, "create", "delete")}
    known = table | copies | tests
    assert told.actions["dws-workload-manager"] | watching(*informers._informers) <= known
    # And it disables rabbits of jobs that are let go before their storage, and tests them: none of
    # these is.
    disables = {("patch", "storages"), ("list", "nnfnodestorages"), *tests}
    assert granted("nnf-workload-manager") == told.actions["nnf-workload-manager"] | disables


def test_the_conductor_reads_what_containers_print_where_workflows_are_and_nowhere_else() -> None:
    (own,) = [
        obj
        for obj in manifests("rbac")
        if obj["kind"] == "Role" and obj["metadata"]["name"] == "warren-container-logs"
    ]

    assert own["metadata"]["namespace"] == kinds.DEFAULT_NAMESPACE
    assert {
        (verb, resource)
        for rule in own["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    } == {("list", "pods"), ("get", "pods/log")}


def test_the_controllers_may_do_what_they_do_and_no_more(told: Told) -> None:
    nothing: Any = None
    informers = Informers(nothing)
    WorkflowController(nothing, informers, SystemClock(), "")
    StorageController(nothing, informers, SystemClock())
    for controller in (
        BreakdownController,
        AccessController,
        SystemController,
        GlobalFileSystemController,
        LustreMgtController,
        SystemStorageController,
        ShutdownController,
    ):
        controller(nothing, informers)
    PersistentController(nothing, informers, SystemClock())
    PortController(nothing, informers, SystemClock())
    EventRecorder(nothing, informers, SystemClock())

    actions = told.actions["warren-controllers"]
    single = {action for action in actions if action[0] == "get"}
    # What was told before is counted: nothing is, here.
    again = {("patch", kinds.EVENT.plural)}
    # None of these jobs has a container.
    containers = {("patch", "nnfportmanagers"), ("patch", "nnfportmanagers/status")}
    containers |= {(verb, "jobs") for verb in ("create", "delete", "patch")}
    containers |= {(verb, "nnfcontainerprofiles") for verb in ("create", "delete")}
    # Nor has any copy a profile.
    containers |= {(verb, "nnfdatamovementprofiles") for verb in ("create", "delete")}
    containers |= {("create", each) for each in ("services", "configmaps")}
    containers |= {("create", "nnfcontainerdata")}
    # And none has a Lustre file system.
    mgts = {(verb, "nnflustremgts") for verb in ("create", "delete", "patch")}
    mgts |= {("patch", "nnflustremgts/status")}
    # And no rabbit is reached over a network.
    wires = {(verb, "nnfnodes") for verb in ("create", "patch")}
    known = actions - single | watching(*informers._informers) | again | containers | mgts | wires
    assert needed("warren-controllers") == known
    assert single <= granted("warren-controllers")
    owners = {
        (verb, resource)
        for verb, resource in granted("warren-controllers")
        if resource.endswith("/finalizers")
    }
    assert owners == {
        ("update", f"{plural}/finalizers") for plural in sorted(_blocking_owners(told.written))
    }


def _blocking_owners(written: list[Object]) -> set[str]:
    """Return the plurals of the kinds that are named as owners whose deletion is to wait."""
    plural = {kind.name: kind.plural for kind in kinds.ALL}
    return {
        plural[owner["kind"]]
        for obj in written
        for owner in obj["metadata"].get("ownerReferences", ())
        if owner.get("blockOwnerDeletion")
    }


@pytest.mark.parametrize("name", [roles.RABBIT_ROLE, roles.COMPUTE_ROLE])
def test_an_agent_may_do_what_it_does_in_its_own_namespace_and_no_more(
    told: Told, name: str
) -> None:
    # No rabbit is reached over a network here: no node tests its link.
    wires = {(verb, "nnfnodes") for verb in ("list", "watch", "patch")}
    more = wires if name == roles.COMPUTE_ROLE else set()
    assert needed(name) == told.actions[name] | more
    assert told.strayed == set()


def test_nodes_and_controllers_change_no_other_object_by_which_links_are_told() -> None:
    for name in (roles.COMPUTE_ROLE, "warren-controllers"):
        changes = [
            rule
            for rule in role(name)["rules"]
            if "nnfnodes" in rule["resources"] and "patch" in rule["verbs"]
        ]
        assert [rule["resourceNames"] for rule in changes] == [[links.NNF_NODE_NAME]]


def test_the_instance_reads_what_jobs_are_judged_by_and_writes_what_owners_share() -> None:
    looked_at = (
        kinds.DIRECTIVE_RULE,
        kinds.LUSTRE_FILE_SYSTEM,
        kinds.NNF_STORAGE_PROFILE,
        kinds.STORAGE,
        kinds.NNF_STORAGE,
        kinds.PERSISTENT_INSTANCE,
        kinds.SERVERS,
        kinds.SYSTEM_CONFIGURATION,
        kinds.CONTAINER_PROFILE,
        kinds.COPY_PROFILE,
        kinds.NODE,
    )

    owners = {("patch", kinds.PERSISTENT_INSTANCE.plural)}  # what they share and destroy
    assert needed("warren-instance") == watching(*looked_at) | owners
    written = {each for each in granted("warren-instance") if each[0] not in READ}
    assert written == owners


def test_each_may_lead_by_its_own_lease_alone() -> None:
    for who in ("controllers", "conductor"):
        (found,) = [
            obj
            for obj in manifests("rbac")
            if obj["kind"] == "Role" and obj["metadata"]["name"] == f"warren-{who}-lease"
        ]
        assert found["metadata"]["namespace"] == "warren-system"
        assert [(each["verbs"], each.get("resourceNames")) for each in found["rules"]] == [
            (["create"], None),
            (["get", "patch"], [f"warren-{who}"]),
        ]


def test_the_controllers_make_leases_and_each_rabbits_agent_renews_its_own_alone(
    told: Told,
) -> None:
    objects = list(roles.objects(ClusterShape(rabbits=2)))
    allowed = {
        obj["metadata"]["name"]: [(each["verbs"], each.get("resourceNames")) for each in found]
        for obj in objects
        if obj["kind"] == "Role" and obj["metadata"]["namespace"] == heartbeats.NAMESPACE
        for found in [obj["rules"]]
    }
    bound = {
        obj["roleRef"]["name"]: obj["subjects"][0]["name"]
        for obj in objects
        if obj["kind"] == "RoleBinding" and obj["metadata"]["namespace"] == heartbeats.NAMESPACE
    }

    assert allowed == {
        "warren-node-leases": [(["create", "delete", "list", "watch"], None)],
        "warren-node-rabbit-0": [(["patch"], ["rabbit-0"])],
        "warren-node-rabbit-1": [(["patch"], ["rabbit-1"])],
    }
    assert bound == {
        "warren-node-leases": users.CONTROLLERS,
        "warren-node-rabbit-0": users.node_user("rabbit-0"),
        "warren-node-rabbit-1": users.node_user("rabbit-1"),
    }
    assert told.actions["lease of agent"] == {("patch", "leases")}
    verbs = ("create", "delete", "list", "watch")
    assert told.actions["leases"] == {(verb, "leases") for verb in verbs}


def test_every_node_has_the_role_of_its_sort_in_its_own_namespace() -> None:
    shape = ClusterShape(rabbits=2, computes_per_rabbit=1)
    bound = [
        (
            obj["metadata"]["namespace"],
            (obj["roleRef"]["name"], obj["subjects"][0]["name"]),
        )
        for obj in roles.objects(shape)
        if obj["kind"] == "RoleBinding" and obj["roleRef"]["kind"] == "ClusterRole"
    ]

    # Pods are where Workflows are: rabbits run them.
    assert [each for space, each in bound if space == kinds.DEFAULT_NAMESPACE] == [
        ("warren-pods", "system:warren:node:rabbit-0"),
        ("warren-pods", "system:warren:node:rabbit-1"),
    ]
    assert {space: each for space, each in bound if space != kinds.DEFAULT_NAMESPACE} == {
        "rabbit-0": ("warren-rabbit", "system:warren:node:rabbit-0"),
        "rabbit-1": ("warren-rabbit", "system:warren:node:rabbit-1"),
        "compute-00": ("warren-compute", "system:warren:node:compute-00"),
        "compute-01": ("warren-compute", "system:warren:node:compute-01"),
    }


def test_every_binding_is_of_a_role_that_there_is_and_every_user_has_one() -> None:
    objects = list(roles.objects(ClusterShape()))
    there = {
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        for obj in objects
    }
    named: set[str] = set()
    for obj in objects:
        if "roleRef" in obj:
            of = obj["roleRef"]
            namespace = obj["metadata"].get("namespace", "") if of["kind"] == "Role" else ""
            assert (of["kind"], namespace, of["name"]) in there
            named.update(subject["name"] for subject in obj["subjects"])

    assert len(there) == len(objects)
    assert {users.CONTROLLERS, users.CONDUCTOR, users.INSTANCE} <= named


def test_roles_are_about_what_is_served() -> None:
    served = {
        (crd["spec"]["group"], f"{crd['spec']['names']['plural']}{part}")
        for crd in definitions()
        for part in ("", "/status", "/finalizers")
        if part != "/status" or "status" in crd["spec"]["versions"][0].get("subresources", {})
    }
    containers = (kinds.BATCH_JOB, kinds.SERVICE, kinds.CONFIG_MAP, kinds.SECRET, kinds.POD)
    builtin = (kinds.NAMESPACE, kinds.EVENT, kinds.NODE, *containers)
    served |= {(kind.group, kind.plural) for kind in builtin} | {("", "pods/status")}
    for obj in manifests("rbac"):
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] != "warren-admin":
            for rule in obj["rules"]:
                (group,) = rule["apiGroups"]
                assert {(group, resource) for resource in rule["resources"]} <= served


class _Idle:
    """Jobs of which there are none."""

    def listen(self, listener: Callable[[int], None]) -> None:
        pass

    def userid(self, job: int) -> int:
        raise LookupError(job)
