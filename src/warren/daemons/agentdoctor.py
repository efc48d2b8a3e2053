"""Finds and removes what an agent has made on its machine and no object asks for.

Its agent may run meanwhile, or be stopped: what it is about to make has its object before.
"""

import signal
from collections.abc import Iterable, Sequence

from warren.base import processes
from warren.base.errors import UserMistake
from warren.base.objects import Kind
from warren.daemons import agentconfig
from warren.daemons.agentservice import Settings
from warren.daemons.repair import remove_all
from warren.daemons.statedir import lock_holder
from warren.dws import audit, kinds
from warren.dws.audit import Finding, FindingType, NodeInventory
from warren.kube import http, versions
from warren.kube.client import Client
from warren.node.loopdisk import LoopDisk
from warren.node.threads import in_thread

_VERSIONS_TIMEOUT = 10.0
"""Seconds for which a server that refuses all requests is asked for its API versions."""

_WHY_ORPHANED = "its agent has ended"


async def examine(settings: Settings, *, repair: bool) -> tuple[list[Finding], list[str]]:
    """Examine the machine; return what was found, and what could not be given back.

    Raises NodeTrouble where the machine does not say what it has, and UserMistake for a node that
    has had no agent here: of another one no object would be found, and all would be given back.
    """
    name, state_dir = settings.config.node_name, settings.state_dir
    if state_dir.node != name:
        or_node = f", or the node, {state_dir.node}, with --node" if state_dir.node else ""
        raise UserMistake(
            f"{state_dir.path} is not the state directory of an agent of {name}: name it with "
            f"--statedir{or_node}."
        )
    async with http.connect(settings.access, component="doctor") as unversioned:
        client = unversioned.with_versions(
            await versions.choose_when_allowed(
                unversioned, kinds.VERSIONS, seconds=_VERSIONS_TIMEOUT
            )
        )
        doctor = _Doctor(settings, client)
        findings = await doctor.examine()
        return findings, await remove_all(findings, doctor.remove) if repair else []


class _Doctor:
    def __init__(self, settings: Settings, client: Client) -> None:
        self._settings = settings
        self._client = client
        self._name = settings.config.node_name
        self._node = agentconfig.build_node(
            settings.config, settings.state_dir.path, is_rabbit=settings.is_rabbit
        )

    async def examine(self) -> list[Finding]:
        # What is made has its object before, and what is given back has it after: only what is
        # there on both sides of the listing is asked for by none.
        resources_before = await in_thread(self._resources)
        listed_kinds: list[Kind] = [kinds.CLIENT_MOUNT]
        if self._settings.is_rabbit:
            listed_kinds.append(kinds.NNF_NODE_STORAGE)
        objects = {kind: (await self._client.list(kind, self._name)).items for kind in listed_kinds}
        resources = resources_before.intersection(await in_thread(self._resources))
        process_findings = [
            Finding(type=FindingType.PROCESS, where=self._name, name=str(process), why=why)
            for process, why in sorted(resources.processes.items())
        ]
        return [*process_findings, *audit.unrequested_resources(resources, objects)]

    async def remove(self, finding: Finding) -> None:
        match finding.type:
            case FindingType.PROCESS:
                # Still the agent's: another process may have its number by now.
                stray = {int(finding.name)}
                processes.send_signal(lambda: stray & {*self._orphaned_processes()}, signal.SIGKILL)
            case FindingType.MOUNT:
                await self._node.local_node.unmount(finding.name)
            case FindingType.DEVICE:
                disk = self._loop_disk()
                assert disk is not None
                await disk.detach_stray(finding.name)
            case FindingType.VOLUME:
                await self._node.local_node.release(finding.where, finding.name)

    def _resources(self) -> NodeInventory:
        mounts = self._node.mount_namespace.mounts_below_prefix()
        disk = self._loop_disk()
        return NodeInventory(
            volumes=self._on_node(self._node.flash.volumes(self._name) if self._is_rabbit else ()),
            mounts=self._on_node(mounts),
            devices=self._on_node(loop.device for loop in disk.strays()) if disk else frozenset(),
            processes=dict.fromkeys(self._orphaned_processes(), _WHY_ORPHANED),
        )

    @property
    def _is_rabbit(self) -> bool:
        return self._settings.is_rabbit

    def _on_node(self, names: Iterable[str]) -> frozenset[tuple[str, str]]:
        return frozenset((self._name, name) for name in names)

    def _loop_disk(self) -> LoopDisk | None:
        """Return the disk that has loop devices, if this is its rabbit."""
        disk = self._node.disk_of(self._name) if self._is_rabbit and self._node.disk_of else None
        return disk if isinstance(disk, LoopDisk) else None

    def _orphaned_processes(self) -> Sequence[int]:
        """Return the processes of an agent that has ended."""
        try:
            process_mark = self._settings.state_dir.process_mark
        except OSError:  # there never was one
            return []
        agent_pid, own_mount_namespace = (
            lock_holder(self._settings.state_dir.lock),
            self._node.own_mount_namespace,
        )
        # What holds the namespace is to outlive it.
        spared = {
            agent_pid,
            own_mount_namespace.holder if own_mount_namespace is not None else None,
        }
        if agent_pid is not None:
            spared |= {*processes.descendants(agent_pid)}
        return [
            each
            for each in processes.pids_with_variable("=".join(process_mark))
            if each not in spared
        ]
