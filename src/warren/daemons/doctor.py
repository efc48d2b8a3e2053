"""Finds and removes orphans: volumes, mounts, devices, processes and objects without owner."""

import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from warren.base import processes
from warren.base.objects import Kind, Object
from warren.daemons import clustershape
from warren.daemons.down import cluster_processes, leftovers, sweep
from warren.daemons.nodes import Nodes
from warren.daemons.repair import remove_all
from warren.daemons.statedir import StateDir
from warren.dws import audit
from warren.dws.audit import Finding, FindingType, NodeInventory, OverdueVolumes, PendingRemoval
from warren.dws.node import NodeTrouble
from warren.instance.shell import cgroups
from warren.kube import kubeconfig
from warren.kube.client import Client, Conflict, NotFound
from warren.kube.http import connect as connect_to_api
from warren.lifecycle.states import ACTIVE
from warren.node import usage
from warren.node.usage import Process
from warren.rfc import fluid
from warren.rpc.client import connect as connect_to_instance

_MAX_CANDIDATES: Final = 10
"""Processes that are named of those that may keep a volume."""


class Doctor:
    """Examines the running cluster of a state directory."""

    def __init__(self, state_dir: StateDir, client: Client, nodes: Nodes) -> None:
        self._state_dir = state_dir
        self._client = client
        self._nodes = nodes
        self._keepers: dict[str, Process] = {}
        """The processes that were found to keep resources of ended jobs in use, by their ids."""
        self._own_keepers: set[str] = set()
        """Those of them that are processes of the user whose resources they keep."""

    async def examine(self) -> list[Finding]:
        """Return the orphans, and the processes that keep resources in use."""
        # What is made on a node has its object before, and what is given back has it after:
        # only what is there on both sides of the listing can be an orphan.
        resources_before = self._resources()
        objects = await list_examined_objects(self._client)
        active = await self._active_jobs()
        resources = resources_before.intersection(self._resources())
        pending = audit.pending_removal(objects)
        processes_by_resource = await self._using_processes(pending)
        return [
            *self._busy_findings(processes_by_resource, {**pending.mounts, **pending.volumes}),
            *await self._overdue_findings(
                audit.overdue_volumes(objects), resources.volumes, processes_by_resource
            ),
            *audit.orphans(resources, objects, active),
        ]

    async def remove(self, finding: Finding) -> None:
        """Remove one of the orphans, or end a process that keeps something in use."""
        match finding.type:
            case FindingType.PROCESS if finding.name in self._own_keepers:
                usage.send_signal([self._keepers[finding.name]], signal.SIGKILL)
            case FindingType.PROCESS if finding.name in self._keepers:
                # A user may send a descriptor to any process, as to the system's bus.
                process = self._keepers[finding.name]
                raise NodeTrouble(f"{process} is not of the user of what it keeps: end it by hand")
            case FindingType.PROCESS:
                # Still in its job's cgroup: another process may have its number by now.
                stray = {int(finding.name)}
                processes.send_signal(lambda: stray & self._processes().keys(), signal.SIGKILL)
            case FindingType.OBJECT:
                # One that is gone, or another of its name by now, is no orphan any more.
                with suppress(NotFound, Conflict):
                    await self._client.delete(audit.removal(finding))
            case FindingType.MOUNT:
                await self._nodes.local_node(finding.where).unmount(finding.name)
            case FindingType.DEVICE:
                await self._nodes.detach_stray_loop(finding.where, finding.name)
            case FindingType.VOLUME:
                await self._nodes.local_node(finding.where).release(finding.where, finding.name)

    def _resources(self) -> NodeInventory:
        return NodeInventory(
            volumes=frozenset(_split_pair(each, "/") for each in self._nodes.volumes()),
            mounts=frozenset(_split_pair(each, ":") for each in self._nodes.mounts()),
            devices=frozenset(self._nodes.stray_loops()),
            processes=self._processes(),
        )

    async def _using_processes(
        self, pending: PendingRemoval
    ) -> dict[tuple[str, str], list[Process]]:
        """Return the processes that use mounts and volumes which are to go, by node and name."""
        processes_by_resource = {}
        for node, path in sorted(pending.mounts):
            processes_by_resource[node, path] = await self._nodes.processes_using_mount(node, path)
        for rabbit, name in sorted(pending.volumes):
            processes_by_resource[rabbit, name] = await self._nodes.processes_using_volume(
                rabbit, name
            )
        return {
            resource: using_processes
            for resource, using_processes in processes_by_resource.items()
            if using_processes
        }

    async def _overdue_findings(
        self,
        overdue: Sequence[OverdueVolumes],
        volumes: Collection[tuple[str, str]],
        busy: Collection[tuple[str, str]],
    ) -> list[Finding]:
        """Return the volumes that are overdue, and not `busy`: no process is seen to use them."""
        findings = []
        for late in overdue:
            # Of a rabbit's volumes of a job, the first one that is kept has the others wait.
            if any((late.rabbit, name) in busy for name in late.names):
                continue
            user = usage.user_name(late.userid)
            for name in (each for each in late.names if (late.rabbit, each) in volumes):
                suspects = await self._nodes.suspects_of_volume(late.rabbit, name)
                candidates = usage.describe(suspects, _MAX_CANDIDATES) if suspects else ""
                findings.append(audit.overdue_finding(late, name, user, candidates))
        return findings

    def _busy_findings(
        self,
        processes_by_resource: Mapping[tuple[str, str], Sequence[Process]],
        owner_by_resource: Mapping[tuple[str, str], int],
    ) -> list[Finding]:
        """Return the processes that keep something in use."""
        findings = []
        for (where, name), using_processes in processes_by_resource.items():
            for process in using_processes:
                process_id = str(process.pid)
                is_own = process.userid == owner_by_resource[where, name]
                self._keepers[process_id] = process
                if is_own:
                    self._own_keepers.add(process_id)
                findings.append(
                    audit.busy_finding(where, name, process_id, process.command, is_own=is_own)
                )
        return findings

    def _processes(self) -> dict[int, str]:
        """Return the processes in cgroups of jobs, and their jobs.

        Where there are no cgroups, only the parent of the shells can tell what is whose.
        """
        job_by_process = cgroups.job_by_pid(str(self._state_dir.path), owner=self._state_dir.owner)
        return {process: fluid.f58(fluid.JobId(job)) for process, job in job_by_process.items()}

    async def _active_jobs(self) -> set[str]:
        constraint = {"states": [sum(state.bit for state in ACTIVE)]}
        async with connect_to_instance(self._state_dir.socket) as handle:
            reply = await handle.rpc("job-list.list", {"attrs": [], "constraint": constraint})
        return {fluid.f58(each["id"]) for each in reply["jobs"]}


async def list_examined_objects(client: Client) -> dict[Kind, list[Object]]:
    """Return what there is of all kinds that are examined."""
    # Owners last, too: of what is made meanwhile, the owner is listed, and is there before the
    # dependents. And first: of what goes meanwhile, the owner goes last.
    owners_before = [(kind, (await client.list(kind)).items) for kind in audit.OWNERS]
    objects = {kind: (await client.list(kind)).items for kind in (*audit.DEPENDENTS, *audit.OWNERS)}
    for kind, items in owners_before:
        listed_uids = {each["metadata"]["uid"] for each in objects[kind]}
        objects[kind] += [each for each in items if each["metadata"]["uid"] not in listed_uids]
    return objects


async def examine_running(state_dir: StateDir, *, repair: bool) -> tuple[list[Finding], list[str]]:
    """Examine a cluster that runs; return what was found, and what could not be given back."""
    shape, status = clustershape.load(state_dir.shape_file), state_dir.status()
    assert shape is not None
    assert status is not None
    nodes = Nodes(state_dir, shape, isolated=status["isolated"])
    async with connect_to_api(kubeconfig.load(state_dir.kubeconfig)) as client:
        doctor = Doctor(state_dir, client, nodes)
        findings = await doctor.examine()
        failures = await remove_all(findings, doctor.remove) if repair else []
    return findings, failures


async def examine_stopped(state_dir: StateDir, *, repair: bool) -> tuple[list[str], list[str]]:
    """Return what a cluster that does not run has left, and what of that could not be removed.

    Volumes are not among it: they wait for the next start.
    """
    left_behind = _leftovers_without_volumes(state_dir)
    if repair and left_behind:
        await sweep(state_dir)
        return left_behind, _leftovers_without_volumes(state_dir)
    return left_behind, []


def _leftovers_without_volumes(state_dir: StateDir) -> list[str]:
    return [
        *(each for each in leftovers(state_dir) if not each.startswith("volume ")),
        *(f"process {process}" for process in cluster_processes(state_dir)),
    ]


def _split_pair(text: str, separator: str) -> tuple[str, str]:
    node, _, name = text.partition(separator)
    return node, name
