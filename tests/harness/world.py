"""A whole cluster in one event loop, that can be stopped and started again.

What outlives a process is here: journals, flash, shells. A `life` is everything
else, composed anew by the same `compose` that builds the real one.
"""

import asyncio
import errno
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from tests.harness.lines import Line
from tests.harness.seam import Seam, SeamCommands, SeamJournal, SeamLauncher, SeamMachine, Stopped
from tests.harness.virtual import VirtualClock
from warren.base.clock import Clock
from warren.controllers.localnode import LocalNode
from warren.daemons.agentreconcilers import Agent, build_agent
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control, ControlDependencies, build_single_process
from warren.daemons.instance import InstanceDependencies
from warren.dws import kinds
from warren.dws.node import Copy
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.exec.perilog import Commands
from warren.instance.jobs.manager import ActiveJob, InactiveJob
from warren.instance.shell.shell import Shell
from warren.instance.simulated import (
    SimulatedCommands,
    SimulatedLauncher,
    SimulatedSpawner,
    TaskBehavior,
)
from warren.journal import Journal, MemoryJournal
from warren.kube.client import Client
from warren.kube.server.local import LocalClient
from warren.lifecycle.states import State
from warren.node.simulated import SimulatedFlash, SimulatedNode
from warren.rfc import eventlog, jobspec, signed_request
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.client import ReconnectingHandle
from warren.rpc.message import Handle, RpcError
from warren.wlm.embedded.environment import DwsEnvironment

T = TypeVar("T")

GLOBAL = "/global"

_LONGEST = 50_000.0
"""Seconds of virtual time in which what tests wait for is to come."""

JOB_KINDS = (
    kinds.WORKFLOW,
    kinds.COMPUTES,
    kinds.BREAKDOWN,
    kinds.SERVERS,
    kinds.CLIENT_MOUNT,
    kinds.NNF_STORAGE,
    kinds.NNF_NODE_STORAGE,
    kinds.NNF_NODE_BLOCK_STORAGE,
    kinds.NNF_ACCESS,
    kinds.NNF_DATA_MOVEMENT,
)
"""What exists for the sake of a job, and must be gone with it."""

DIRECTIVES = [
    "#DW jobdw type=xfs capacity=1GiB name=scratch",
    f"#DW copy_in source={GLOBAL}/input destination=$DW_JOB_scratch/",
    f"#DW copy_out source=$DW_JOB_scratch/ destination={GLOBAL}/results",
]


@dataclass(frozen=True)
class _Node:
    """A node as its shells see it."""

    name: str
    world: "World"

    def local_path(self, path: str) -> str:
        return self.world.place(self.name, path)

    def is_mounted(self, path: str) -> bool:
        simulated = any((self.name, path) in each.mounts for each in self.world.flash.values())
        return simulated or Path(self.local_path(path)).exists()


class Network:
    """A network between compute nodes and their rabbits, from which nodes may be cut off.

    Whom a rabbit offers its volumes to makes no difference: simulated nodes mount what there is.
    """

    def __init__(self) -> None:
        self.cut: set[str] = set()

    async def export(self, volume: str, nodes: Collection[str]) -> None: ...

    async def withdraw_others(self, volumes: Collection[str]) -> None: ...

    def agent(self, client: Client, clock: Clock, node: str, machine: LocalNode) -> Agent:
        """Build the agent of a node that is on it, in place of the one that is wired."""

        async def asked(rabbit: str) -> str | None:
            return f"{rabbit} port 4420: no answer within 5 s" if node in self.cut else None

        if node.startswith("rabbit"):
            return build_agent(client, clock, node, machine, is_rabbit=True, exports=self)
        return build_agent(client, clock, node, machine, is_rabbit=False, probe=asked)


class World:
    """What outlives every process. Use `opened`."""

    def __init__(
        self, shape: ClusterShape, group: asyncio.TaskGroup, play: Callable[..., TaskBehavior]
    ) -> None:
        self.shape = shape
        self.clock: Clock = VirtualClock()
        self.objects: Journal = MemoryJournal()
        self.jobs: Journal = MemoryJournal()
        self.copy_seconds = 1.0
        self.owner = os.getuid()
        """Whose instance it is, and whose jobs they are."""
        self.mount_prefix = "/mnt/nnf"
        self.machine: Callable[[str, str], LocalNode] = self._simulated
        """Gives a node's machine, by the names of the node and of its rabbit."""
        self.flash = {each.rabbit: SimulatedFlash(each.capacity_bytes) for each in shape.chassis()}
        self.seen: dict[str, Mapping[str, str]] = {}
        """What environment each task was started with, by `rank`."""
        self.without_storage: list[str] = []
        """Nodes on which a task was started while the storage it was told of was not there."""
        self.metrics: Any = None
        """Where what is done is counted, if anywhere: what a process has as its `Counted`."""
        self.place: Callable[[str, str], str] = lambda node, path: path
        """Where a node has what jobs know by a path."""
        self._group = group
        self._play = play
        self._bus: Any = None
        self._lost = asyncio.Event()
        self._written = asyncio.Event()
        self.network: Network | None = None
        """By which nodes reach the volumes of their rabbits; None where they are wired to them."""
        self.launcher = SimulatedLauncher(group, self._shell)
        self.commands: Commands = SimulatedCommands(lambda argv, environment: TaskBehavior())
        self.config = Config()

    # A life

    async def live(
        self, action: Callable[[Control], Awaitable[T]], seam: Seam | None = None
    ) -> T | None:
        """Run everything until `action` is done; return its result, None if the seam stopped it."""
        seam = seam or Seam()
        seam.listener = self._wrote
        ports = ControlDependencies(
            objects_journal=SeamJournal("objects", self.objects, seam),
            instance=InstanceDependencies(
                clock=self.clock,
                kvs_journal=SeamJournal("jobs", self.jobs, seam),
                launcher=lambda bus, handle: SeamLauncher(self.launcher, seam),
                commands=SeamCommands(self.commands, seam),
                owner=self.owner,
                config=self.config,
                guest_refusal=lambda userid, munge_socket: None,  # simulated tasks are no processes
            ),
            mount_prefix=self.mount_prefix,
            wrap_client=self.client,
            metrics=self.metrics,
        )
        machines = self._machines(seam)
        built, system = build_single_process(self.shape, ports, machines)
        if self.network is not None:
            for node, machine in machines.items():
                client = self.client(LocalClient(built.api.store))
                system.runnables.update(
                    self.network.agent(client, self.clock, node, machine).runnables
                )
        ready = asyncio.Event()
        result = None
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(system.run(ready))
                await ready.wait()
                self._bus = built.instance.bus
                result = await action(built)
                running.cancel()
        except BaseExceptionGroup as errors:
            stopped, others = errors.split(Stopped)
            if others is not None:
                raise others from None
            if stopped is None:
                raise
        finally:
            self._bus = None
            self._lost.set()
            self._lost = asyncio.Event()
        return result

    def _wrote(self) -> None:
        # Soon, not now: what was written becomes visible right after it.
        asyncio.get_running_loop().call_soon(self._written.set)
        self._written = asyncio.Event()

    def client(self, client: Client) -> Client:
        """Wrap the client of a component. For tests to replace."""
        return client

    def _machines(self, seam: Seam) -> dict[str, SeamMachine]:
        return {
            node: SeamMachine(node, self.machine(node, chassis.rabbit), seam)
            for chassis in self.shape.chassis()
            for node in (chassis.rabbit, *chassis.hosts)
        }

    def _simulated(self, node: str, rabbit: str) -> LocalNode:
        return SimulatedNode(node, self.flash[rabbit], seconds=self.copy_seconds)

    # Shells, which live on when the instance is gone

    def _shell(self, job: JobId, rank: int, host: str) -> Shell:
        serving = Bus(self.owner)
        reconnecting = ReconnectingHandle(lambda: self._connected(serving), serving)
        running = self._group.create_task(reconnecting.run())
        node = _Node(host, self)

        def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
            path = environment.get("DW_JOB_scratch")
            if path is not None and not node.is_mounted(path):
                self.without_storage.append(host)
            return self._played(command, environment)

        shell = Shell(
            handle=reconnecting,
            spawner=SimulatedSpawner(play),
            clock=self.clock,
            plugins=[DwsEnvironment(node)],
            job=job,
            rank=rank,
            uri="local://virtual",
        )
        life = shell.run

        async def run() -> int:
            try:
                return await life()
            finally:
                running.cancel()

        shell.run = run  # type: ignore[method-assign]
        return shell

    def _played(self, command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        self.seen[environment["FLUX_TASK_RANK"]] = environment
        return self._play(command, environment)

    @asynccontextmanager
    async def _connected(self, serving: Bus) -> AsyncIterator[Handle]:
        if self._bus is None:
            raise RpcError(errno.ECONNRESET)
        yield Line(self._bus, self.owner, self._lost, serving)

    async def kill_everything(self) -> None:
        """Kill the shells as well, as when the machine itself goes down."""
        for job in await self.launcher.started_jobs():
            await self.launcher.forget(job)
        for flash in self.flash.values():
            flash.mounts.clear()

    # What users do and see

    async def submit(self, control: Control, **options: Any) -> JobId:
        """Submit a job, as a user would."""
        spec = jobspec.make(**{"command": ["app"], "nodes": 4, "name": "app", **options})
        return await submit(control, spec, self.owner)

    async def cancel(self, control: Control, job: JobId) -> None:
        """Cancel a job, as its user would."""
        request = {"id": job, "type": "cancel", "severity": 0, "note": "enough"}
        await control.instance.bus.handle().rpc("job-manager.raise", request)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something to become true. Looked at after every write, so nothing is missed."""
        # Agents renew their Leases for ever: what does not come is no deadlock.
        async with asyncio.timeout(_LONGEST):
            while not condition():
                await self._written.wait()

    def workflow(self, control: Control) -> Mapping[str, Any]:
        """Return the only Workflow; empty if there is none."""
        return next(iter(control.api.store.objects_of(kinds.WORKFLOW)), {})

    def eventlog(self, control: Control, job: JobId) -> list[Event]:
        """Return a job's events, as they are stored."""
        return eventlog.decode(control.instance.kvs.lookup(keys.job_key(job, "eventlog")).decode())

    def only_job(self, control: Control) -> ActiveJob | InactiveJob | None:
        found = list(control.instance.manager.jobs())
        assert len(found) <= 1
        return found[0] if found else None

    async def ended(self, control: Control, job: JobId) -> InactiveJob:
        """Wait until a job is over and its Workflow is gone."""
        async with asyncio.timeout(_LONGEST):
            while True:
                found = control.instance.manager.find(job)
                workflows = list(control.api.store.objects_of(kinds.WORKFLOW))
                if isinstance(found, InactiveJob) and not workflows:
                    return found
                await asyncio.sleep(0.05)

    def copies(self) -> Iterator[Copy]:
        for flash in self.flash.values():
            yield from flash.copies

    async def assert_nothing_left(self, control: Control) -> None:
        """Nothing that was made for a job is there any more."""
        for kind in JOB_KINDS:
            assert list(control.api.store.objects_of(kind)) == [], kind
        for flash in self.flash.values():
            assert flash.volumes == {}
            assert flash.mounts == {}
        assert dict(await self.launcher.started_jobs()) == {}
        assert control.instance.kvs.namespaces() == ["primary"]
        for each in control.instance.manager.jobs():
            assert each.job.state is State.INACTIVE


async def submit(control: Control, spec: Mapping[str, Any], owner: int | None = None) -> JobId:
    """Submit a jobspec through ingest, as the instance's owner."""
    token = signed_request.wrap(orjson.dumps(spec), os.getuid() if owner is None else owner)
    answer = await control.instance.bus.handle().rpc("job-ingest.submit", {"J": token})
    return JobId(answer["id"])


@asynccontextmanager
async def opened(
    shape: ClusterShape | None = None,
    play: Callable[..., TaskBehavior] = lambda command, environment: TaskBehavior(),
) -> AsyncIterator[World]:
    """Make a world for the length of a block."""
    shape = shape or ClusterShape(global_file_systems=(GLOBAL,))
    async with asyncio.TaskGroup() as group:
        world = World(shape, group, play)
        yield world
