"""Looking for what nothing owns any more, and giving it back."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from warren.base.objects import Remove
from warren.daemons import site as sites
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir
from warren.daemons.sweep import leftovers, sweep
from warren.dws import audit, kinds
from warren.dws.audit import Finding, OnNodes, Sort
from warren.dws.node import NodeTrouble
from warren.instance.shell.processes import marked
from warren.kube import kubeconfig
from warren.kube.client import Client, NotFound
from warren.kube.http import connect as connect_to_api
from warren.lifecycle.states import ACTIVE
from warren.rfc import fluid
from warren.rpc.client import connect as connect_to_instance


class Doctor:
    """Examines the cluster of a state directory, which runs."""

    def __init__(self, state: StateDir, client: Client, nodes: Nodes) -> None:
        self._state = state
        self._client = client
        self._nodes = nodes

    async def examine(self) -> list[Finding]:
        """Give what nothing owns."""
        # What is made on a node has its object before, and what is given back has it after:
        # only what is there on both sides of the listing can be nobody's.
        before = self._look()
        objects = {
            kind: (await self._client.list(kind)).items
            for kind in (kinds.WORKFLOW, *audit.DEPENDENTS)
        }
        active = await self._active()
        return audit.unowned(before.still(self._look()), objects, active)

    async def repair(self, findings: Iterable[Finding]) -> list[str]:
        """Give things back; say what could not be."""
        failures = []
        for finding in findings:
            try:
                await self._give_back(finding)
            except NodeTrouble as trouble:
                failures.append(f"{finding.where}: {trouble}")
        return failures

    async def _give_back(self, finding: Finding) -> None:
        match finding.sort:
            case Sort.PROCESS:
                with suppress(ProcessLookupError):
                    os.kill(int(finding.name), signal.SIGKILL)
            case Sort.OBJECT:
                kind, key = audit.key(finding)
                with suppress(NotFound):
                    await self._client.delete(Remove(kind=kind, key=key))
            case Sort.MOUNT:
                await self._nodes.machine(finding.where).unmount(finding.name)
            case Sort.VOLUME:
                await self._nodes.machine(finding.where).release(finding.where, finding.name)

    def _look(self) -> OnNodes:
        return OnNodes(
            volumes=frozenset(_pair(each, "/") for each in self._nodes.volumes()),
            mounts=frozenset(_pair(each, ":") for each in self._nodes.mounts()),
            processes={
                process: job
                for process in marked(f"FLUX_URI={self._state.uri}")
                if (job := _job_of(process)) is not None
            },
        )

    async def _active(self) -> set[str]:
        active = {"states": [sum(state.bit for state in ACTIVE)]}
        async with connect_to_instance(self._state.socket) as handle:
            listed = await handle.rpc("job-list.list", {"attrs": [], "constraint": active})
        return {fluid.f58(each["id"]) for each in listed["jobs"]}


async def examine_running(state: StateDir, *, repair: bool) -> tuple[list[Finding], list[str]]:
    """Examine a cluster that runs; give what was found, and what could not be given back."""
    site, status = sites.load(state.site), state.status()
    assert site is not None
    assert status is not None
    nodes = Nodes(state, site, isolated=status["isolated"])
    async with connect_to_api(kubeconfig.load(state.kubeconfig)) as client:
        doctor = Doctor(state, client, nodes)
        findings = await doctor.examine()
        failures = await doctor.repair(findings) if repair else []
    return findings, failures


async def examine_stopped(state: StateDir, *, repair: bool) -> tuple[list[str], list[str]]:
    """Examine what a cluster that does not run has left; volumes wait for its next start."""
    found = _without_volumes(state)
    if repair and found:
        await sweep(state)
        return found, _without_volumes(state)
    return found, []


def _without_volumes(state: StateDir) -> list[str]:
    return [
        *(each for each in leftovers(state) if not each.startswith("volume ")),
        *(f"process {process}" for process in marked("=".join(state.mark))),
    ]


def _pair(text: str, separator: str) -> tuple[str, str]:
    node, _, name = text.partition(separator)
    return node, name


def _job_of(process: int) -> str | None:
    with suppress(OSError):
        for entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"FLUX_JOB_ID":
                return value.decode(errors="replace")
    return None
