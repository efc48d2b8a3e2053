"""Crash points: the process dies after one write, and the next one finishes the work.

`make crash` takes every write of jobs of all kinds, one after the other, and prints how many there
were and what was wrong after which. With `--twice` the next process dies as well, in the middle of
taking up the work.
"""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import orjson

from tests.faults.rest import Rest
from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.seam import Seam
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from tests.kube.clusters import alongside
from tests.system.test_tolerance import Bad
from warren.base.objects import Change, Key, Object, key_of
from warren.controllers.offload import Offload
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, Progress
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload import copyservice
from warren.dws.offload.copyservice import OffloadService
from warren.dws.offload.requests import Refusal
from warren.instance.config import Config
from warren.instance.jobs.manager import InactiveJob
from warren.instance.rabbittable import RabbitTable
from warren.instance.simulated import TaskBehavior
from warren.kube.client import AlreadyExists, NotFound
from warren.kube.informer import Informers
from warren.kube.server.local import LocalClient
from warren.lifecycle.states import Result
from warren.node.behaviour import NO_FAULTS, Behaviour
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError
from warren.wlm.nodes import drain_reasons

RUNNING: Final = "running"
LONGEST: Final = 4 * 3600.0
"""Virtual seconds after which a job that has not ended never will."""

NODES: Final = ("compute-00", "compute-01", "compute-02", "compute-03")


@dataclass(frozen=True, kw_only=True)
class Story:
    """What jobs of one kind are, one after the other, and how each may end."""

    jobs: Sequence[Sequence[str]] = (DIRECTIVES,)
    """The directives of each."""
    ends: Collection[Result] = (Result.COMPLETED,)
    cancelled: str | None = None
    """The state of its Workflow in which the last one is cancelled."""
    tolerance: int = 0
    """How many nodes may be lost: as many cannot mount."""
    status: int = 0
    """The wait status of each task."""
    copies: int = 0
    """How many there are to be in the end, both ways, where it is not cancelled."""
    containers: str | None = None
    """The condition that each batch Job of a container comes to, where there are some."""
    asks: bool = False
    """Whether each asks for a copy while it runs."""


_SEVERAL: Final = [
    "#DW jobdw type=xfs capacity=1GiB name=scratch",
    "#DW jobdw type=ext4 capacity=2GiB name=second",
    f"#DW copy_in source={GLOBAL}/input destination=$DW_JOB_second/",
    f"#DW copy_out source=$DW_JOB_scratch/ destination={GLOBAL}/results",
    f"#DW copy_out source=$DW_JOB_second/ destination={GLOBAL}/others",
]
_PERSISTENT: Final = [
    ["#DW create_persistent type=xfs capacity=1GiB name=pers"],
    ["#DW persistentdw name=pers"],
    ["#DW destroy_persistent name=pers"],
]
_CONTAINER: Final = [
    "#DW jobdw type=xfs capacity=1GiB name=scratch",
    "#DW container name=beside profile=app",
]
_ASKING: Final = [
    "#DW jobdw type=gfs2 capacity=1GiB name=scratch requires=copy-offload",
    f"#DW copy_in source={GLOBAL}/input destination=$DW_JOB_scratch/",
]
_EITHER: Final = (Result.COMPLETED, Result.CANCELED)

STORIES: Final[Mapping[str, Story]] = {
    "plain": Story(jobs=[[]]),
    "copies": Story(copies=8),
    "several directives": Story(jobs=[_SEVERAL], copies=12),
    "persistent": Story(jobs=_PERSISTENT),
    "tolerant with failures": Story(tolerance=1, copies=7),
    "container": Story(jobs=[_CONTAINER], containers="Succeeded"),
    "container that fails": Story(jobs=[_CONTAINER], containers="Failed", ends=(Result.FAILED,)),
    **{
        f"container, cancelled in {where}": Story(
            jobs=[_CONTAINER], containers="Succeeded", cancelled=where, ends=_EITHER
        )
        for where in (State.SETUP, State.PRE_RUN, State.POST_RUN)
    },
    "copies on request": Story(jobs=[_ASKING], asks=True, copies=4),
    **{
        f"copies on request, cancelled in {where}": Story(
            jobs=[_ASKING], asks=True, cancelled=where, ends=_EITHER
        )
        for where in (State.PRE_RUN, State.POST_RUN)
    },
    "failing": Story(status=7 << 8, ends=(Result.FAILED,), copies=8),
    **{
        f"cancelled in {where}": Story(cancelled=where, ends=_EITHER) for where in (*State, RUNNING)
    },
}


@dataclass(kw_only=True)
class Found:
    """What came of a story that was stopped after a write; nothing wrong in one without one."""

    writes: int = 0
    """How many there were until it was stopped for the first time."""
    after: str = ""
    """The last one of each process that was stopped."""
    looks: int = 0
    """How often something was reconciled while everything was at rest."""
    wrong: list[str] = field(default_factory=list)


class Watched(Bad):
    """A node that notes what must not be asked of it."""

    wrong: list[str]

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        users = [node for (node, _), place in self._flash.mounts.items() if place == (rabbit, name)]
        if users:
            self.wrong.append(f"{rabbit}/{name} is given back while {users} have it mounted")
        await super().release(rabbit, name, profile)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        users = [node for node, _ in self._flash.mounts if node.startswith("compute")]
        if users and not copy.destination.startswith(KEPT):
            self.wrong.append(f"{copy.source} is copied while {users} have it mounted")
        async for each in super().copy(copy):
            yield each


KEPT: Final = f"{GLOBAL}/kept"
"""Where copies go to that jobs have asked for."""


class Applications:
    """What the tasks of jobs do that ask for a copy: each once, and it is to be made."""

    def __init__(self) -> None:
        self.promised: dict[str, str] = {}
        """Where each copy goes to that was promised, by the UID of its Workflow."""
        self._asked = 0

    async def establish(self, control: Control) -> None:
        """Say that there is a service, as it does itself."""
        service = OffloadService(host="here", port=1, certificate="/authority")
        await control.api.store.patch(copyservice.announce(service))
        await asyncio.sleep(1)  # until informers have heard of it

    async def run(self, control: Control) -> None:
        """Ask until cancelled."""
        client = LocalClient(control.api.store)
        asked = Offload(client, Informers(client))
        while True:
            for obj in list(control.api.store.objects_of(kinds.WORKFLOW)):
                workflow = read(obj, Workflow)
                body = self._body(control)
                if workflow.metadata.uid not in self.promised and body is not None:
                    self._asked += 1
                    place = f"{KEPT}-{self._asked}"
                    words = orjson.dumps({**body, "destinationPath": place})
                    with suppress(Refusal, NotFound):
                        await asked.create(workflow, words)
                        self.promised[workflow.metadata.uid] = place
            await asyncio.sleep(0.1)

    def _body(self, control: Control) -> Object | None:
        mounts = [
            each
            for each in control.api.store.objects_of(kinds.CLIENT_MOUNT)
            if each["metadata"]["namespace"] == NODES[0]
        ]
        if not mounts:
            return None
        return {"computeName": NODES[0], "sourcePath": mounts[0]["spec"]["mounts"][0]["mountPath"]}


_APPLICATION: Final[Object] = {
    "metadata": {"name": "app", "namespace": "nnf-system"},
    "data": {
        "spec": {
            "containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 80}]}],
        }
    },
}


class Kubelets:
    """What kubelets do for pods on rabbits: each runs, and comes to its end."""

    def __init__(self, phase: str | None) -> None:
        """`phase` is that of pods that have ended."""
        self._phase = phase
        self.started: set[str] = set()
        """The rabbits on which a container has started."""

    async def establish(self, shape: ClusterShape, control: Control) -> None:
        """Make what an admin makes once: Nodes, a profile, and ports that are free at once."""
        store = control.api.store
        nodes = [{"metadata": {"name": each.rabbit}} for each in shape.chassis()]
        for kind, obj in (
            *((kinds.NODE, each) for each in nodes),
            (kinds.CONTAINER_PROFILE, _APPLICATION),
        ):
            with suppress(AlreadyExists):
                await store.create(kind, obj)
        ports = {"spec": {"ports": ["5000-5009"], "portsCooldownInSeconds": 0}}
        key = Key("default", "default")
        await store.patch(Change(kind=kinds.SYSTEM_CONFIGURATION, key=key, patch=ports))
        await asyncio.sleep(1)  # until informers have heard of it

    async def run(self, control: Control) -> None:
        """Do it until cancelled."""
        while True:
            for pod in list(control.api.store.objects_of(kinds.POD)):
                phase = (pod.get("status") or {}).get("phase")
                if phase == self._phase:
                    continue
                ended: Object = {"phase": self._phase, "conditions": []}
                begun = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                patch = ended if phase == "Running" else begun
                self.started.add(pod["spec"]["nodeName"])
                with suppress(NotFound):
                    change = Change(
                        kind=kinds.POD, key=key_of(pod), patch={"status": patch}, status=True
                    )
                    await control.api.store.patch(change)
            await asyncio.sleep(0.5)

    async def left(self, control: Control) -> list[str]:
        """Return what is left of containers when the garbage collector had its time."""
        await asyncio.sleep(5)
        store = control.api.store
        own = (kinds.BATCH_JOB, kinds.POD, kinds.SERVICE, kinds.CONFIG_MAP, kinds.CONTAINER_PROFILE)
        found = [
            f"{kind.name} {key_of(obj)} is left"
            for kind in own
            for obj in store.objects_of(kind)
            if obj["metadata"]["name"] != "app"
        ]
        (manager,) = store.objects_of(kinds.PORT_MANAGER)
        held = [*manager["spec"]["allocations"], *manager["status"]["allocations"]]
        return [*found, *([f"ports are left: {held}"] if held else [])]


def lived(story: Story, *stops: int, behaviour: Behaviour = NO_FAULTS) -> Found:
    """Live through a story to its end; each process before the last is stopped after a write.

    `behaviour` is that of all nodes.
    """
    found = Found()
    with capture_logs() as logged:
        try:
            virtual.run(_lived(story, stops, found, behaviour))
        except AssertionError as error:
            found.wrong.append(str(error) or repr(error))
        except ExceptionGroup as group:
            found.wrong += map(repr, _leaves(group))
    if not story.tolerance:  # what cannot mount is complained of
        found.wrong += [f"logged: {each['event']}" for each in logged if _is_wrong(each)]
    return found


def _leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for each in group.exceptions:
        if isinstance(each, ExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _is_wrong(entry: Mapping[str, Any]) -> bool:
    return entry["log_level"] in ("error", "critical")


async def _lived(story: Story, stops: Sequence[int], found: Found, behaviour: Behaviour) -> None:
    seams = [Seam(each) for each in stops] or [Seam()]
    tasks: Counter[tuple[str, str]] = Counter()
    kubelets = Kubelets(story.containers)
    applications = Applications()

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        tasks[environment["FLUX_JOB_ID"], environment["FLUX_TASK_RANK"]] += 1
        hosts = {*environment.get("NNF_CONTAINER_HOSTNAMES", "").split(",")} - {""}
        if story.containers is not None and (not hosts or hosts - kubelets.started):
            found.wrong.append(f"a task started before the containers on {hosts or 'any rabbit'}")
        # So long that it asks also where control is away in the meantime.
        return TaskBehavior(status=story.status, seconds=5.0 if story.asks else 1.0)

    async with opened(play=play) as world:
        bad = frozenset(NODES[: story.tolerance])
        facts = {"where": bad, "what": "mount", "refuses": True, "moment": LONGEST}
        kind = type("Some", (Watched,), {**facts, "wrong": found.wrong})
        world.machine = lambda node, rabbit: kind(
            # A copy that is asked for goes on when the tasks have ended.
            node,
            world.flash[rabbit],
            seconds=10.0 if story.asks else 1.0,
            behaviour=behaviour,
        )
        world.config = Config(rabbit=RabbitTable(prerun_timeout=30))
        rest = Rest(found.wrong)
        world.metrics, world.client = rest, rest.client  # type: ignore[method-assign]
        if story.containers is not None:
            world.owner = os.getuid() or 1000  # none runs as root

        async def action(control: Control) -> None:
            async with alongside(rest.run()):
                await live(control)

        async def live(control: Control) -> None:
            if story.asks:
                await applications.establish(control)
                async with alongside(applications.run(control)):
                    await _to_the_end(story, world, control, found)
                return
            if story.containers is None:
                await _to_the_end(story, world, control, found)
                return
            await kubelets.establish(world.shape, control)
            async with alongside(kubelets.run(control)):
                await _to_the_end(story, world, control, found)
            found.wrong += await kubelets.left(control)

        try:
            for seam in seams:
                await world.live(action, seam)
            if stops:
                await world.live(action)
        finally:
            found.writes = len(seams[0].actions)
            found.looks = rest.looks
            found.after = ", then ".join(each.actions[-1] for each in seams if each.actions)
        without = {*world.without_storage} - bad
        found.wrong += [f"{node} started without storage" for node in sorted(without)]
        found.wrong += [f"task {each} ran twice" for each, count in tasks.items() if count > 1]
        made = {copy.destination for copy in world.copies()}
        if story.cancelled is None:
            lost = set(applications.promised.values()) - made
            found.wrong += [f"{place} was promised, and is not copied" for place in sorted(lost)]
            if story.asks and not applications.promised:
                found.wrong.append("no copy was promised")
        copied = {
            (copy.destination, copy.index)
            for copy in world.copies()
            if not copy.destination.startswith(KEPT)
        }
        if story.cancelled is None and len(copied) != story.copies:
            found.wrong.append(f"{len(copied)} of {story.copies} copies were made")


async def _to_the_end(story: Story, world: World, control: Control, found: Found) -> None:
    """Do what a user would: submit each job once, and wait for its end."""
    for number, directives in enumerate(story.jobs):
        job = await _the_job(story, world, control, number, directives)
        last = number == len(story.jobs) - 1
        async with asyncio.TaskGroup() as tasks:
            cancelling = tasks.create_task(_cancel(story, world, control, job, asked=last))
            try:
                ended = await asyncio.wait_for(world.ended(control, job), LONGEST)
            except TimeoutError:
                raise AssertionError(f"it never ends: {world.workflow(control)}") from None
            cancelling.cancel()
        if ended.job.result not in story.ends:
            found.wrong.append(f"job {number} ended as {ended.job.result}: {ended.job.exceptions}")
    left = list(control.api.store.objects_of(kinds.PERSISTENT_INSTANCE))
    if left:
        found.wrong.append(f"persistent storage is left: {left}")
    await world.assert_nothing_left(control)
    status = await control.instance.bus.handle().rpc("resource.status")
    drained = {node: why for node, why in drain_reasons(status).items() if not story.tolerance}
    if drained:
        found.wrong.append(f"nodes are drained in the end: {drained}")


async def _the_job(
    story: Story, world: World, control: Control, number: int, directives: Sequence[str]
) -> JobId:
    known = sorted(each.job.id for each in control.instance.manager.jobs())
    if len(known) > number:
        return known[number]
    attributes: dict[str, Any] = {"dw": "\n".join(directives)} if directives else {}
    if story.tolerance:
        attributes["dw_failure_tolerance"] = story.tolerance
    return await world.submit(control, attributes=attributes)


async def _cancel(story: Story, world: World, control: Control, job: JobId, *, asked: bool) -> None:
    if story.cancelled is None or not asked:
        return

    def is_there() -> bool:
        if isinstance(control.instance.manager.find(job), InactiveJob):
            return True
        if story.cancelled == RUNNING:
            return bool(world.seen)
        return bool((world.workflow(control).get("status") or {}).get("state") == story.cancelled)

    await world.until(is_there)
    with suppress(RpcError):  # it has ended meanwhile
        await world.cancel(control, job)


_APART: Final = 7
"""How many writes later the first stop is in each story than in the one before."""

_SECOND: Final = 23
"""Second stops come after one of so many writes."""

Point = tuple[str, tuple[int, ...]]
"""A story, and after how many of its writes each process is stopped."""


@cache
def whole(name: str) -> Found:
    """Return what came of a story that nothing has stopped."""
    return lived(STORIES[name])


def points(names: Collection[str], every: int, *, twice: bool = False) -> Iterator[Point]:
    """Return crash points of stories: one write of so many, and of each story others."""
    for name in names:
        unstopped = whole(name)
        assert not unstopped.wrong, (name, unstopped.wrong)
        first = 1 + _APART * list(STORIES).index(name) % min(every, unstopped.writes)
        for write in range(first, unstopped.writes + 1, every):
            # The second stop goes through all numbers, as the first one does.
            yield name, (write, 1 + (7 * write) % _SECOND) if twice else (write,)


def crashed(point: Point) -> Found:
    """Return what came of a crash point."""
    name, stops = point
    return lived(STORIES[name], *stops)


def main() -> int:
    """Live through all crash points, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, prog="make crash")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take one write of N")
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds with this in their name")
    parser.add_argument("--twice", action="store_true", help="stop the next process, too")
    options = parser.parse_args()
    names = [name for name in STORIES if options.only in name]
    violations, count, by_story = 0, 0, Counter[str]()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        taken = list(points(names, max(options.every, 1), twice=options.twice))
        for point, found in zip(taken, pool.map(crashed, taken, chunksize=4), strict=True):
            count += 1
            by_story[point[0]] += 1
            for each in found.wrong:
                violations += 1
                stops = " and ".join(map(str, point[1]))
                print(f"{point[0]}, write {stops} ({found.after}): {each}", flush=True)
    for name, of_story in by_story.items():
        print(f"{of_story:6} {name}")
    print(f"{count} crash points, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
