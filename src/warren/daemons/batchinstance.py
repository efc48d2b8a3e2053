"""The instance of a batch job, on the job's own resources.

One process of it (`python -m warren.daemons.batchinstance`) is a task on each node of the job. The
first is the instance, runs the script and ends with it; each starts the shells of its own node. It
has no state on disk: a batch job's instance lives as long as the job, and storage is the enclosing
instance's to give.
"""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import replace

from warren.base.clock import SystemClock
from warren.base.errors import WarrenError
from warren.base.processes import die_with_parent
from warren.daemons import logs
from warren.daemons.instance import Instance, InstanceDependencies, assemble
from warren.daemons.rungroup import RunGroup
from warren.daemons.shells import run_shell
from warren.dws import tolerance
from warren.instance.exec.commands import ProcessCommands
from warren.instance.exec.execution import Launcher
from warren.instance.exec.launcher import PerNodeLauncher, RemoteLauncher
from warren.instance.shell import tmpdir
from warren.instance.shell.affinity import NodeCores
from warren.instance.shell.builtin import builtin
from warren.instance.shell.parent import EXEC_SERVICE, ShellParent, StartRequest
from warren.journal import MemoryJournal
from warren.rfc import eventlog, fluid, resource_set, treeobj
from warren.rfc.resource_set import ResourceSet
from warren.rpc import server
from warren.rpc.bus import Bus
from warren.rpc.client import connect
from warren.rpc.message import Handle, RpcError

URI_KEY: Final = "broker.uri"
"""Where in the job's namespace the first process says where its socket is."""

_URI_SCHEME: Final = "local://"
_OWN_PREFIXES: Final = ("FLUX_JOB_", "FLUX_TASK_", "FLUX_KVS_", "PMI_")
"""Prefixes of the variables that are about our own task: jobs inside have others of these names."""

_MARK_VARIABLE: Final = "WARREN_BATCH"
"""The environment variable by whose value the instance's own commands are known."""

_END_SECONDS: Final = 30.0
"""Seconds that the jobs that are left have to end when the script has."""


class BatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a batch job, which is a process of its instance, as its environment tells."""

    enclosing_socket: Path
    """The socket of the instance that the job is of."""
    job_id: fluid.JobId
    rank: int
    size: int
    """How many processes there are, one on each node."""
    kvs_namespace: str
    tmp: Path
    """The directory that the job has on this node while it runs (FLUX_JOB_TMPDIR)."""

    @property
    def barrier_name(self) -> str:
        """The barrier of the job's processes, which breaks where one of them cannot come."""
        return f"{fluid.f58plain(self.job_id)}-broker"

    @property
    def socket(self) -> Path:
        return self.tmp / "local"


def task_of_environment(environment: Mapping[str, str]) -> BatchTask:
    """Read the environment of a task. Raises WarrenError outside of a job."""
    try:
        return BatchTask(
            enclosing_socket=Path(environment["FLUX_URI"].removeprefix(_URI_SCHEME)),
            job_id=fluid.parse(environment["FLUX_JOB_ID"]),
            rank=int(environment["FLUX_TASK_RANK"]),
            size=int(environment["FLUX_JOB_NNODES"]),
            kvs_namespace=environment["FLUX_KVS_NAMESPACE"],
            tmp=Path(environment[tmpdir.VARIABLE]),
        )
    except (KeyError, ValueError) as error:
        raise WarrenError(f"this is for the tasks of batch jobs: {error} is not set") from error


def script_environment(environment: Mapping[str, str], task: BatchTask) -> dict[str, str]:
    """Return the environment of the script: of the job's, what is not about our own task."""
    inherited = {
        name: value for name, value in environment.items() if not name.startswith(_OWN_PREFIXES)
    }
    return {
        **inherited,
        tmpdir.VARIABLE: str(task.tmp),
        "FLUX_URI": f"{_URI_SCHEME}{task.socket}",
        "FLUX_ENCLOSING_ID": fluid.f58(task.job_id),
    }


# The shells of one node


class _BatchShellLife:
    """A shell's life on the node that this process is on already."""

    def __init__(self, socket: Path, tmp: Path, cores: Sequence[int]) -> None:
        self._socket = socket
        self._tmp = tmp
        # The CPUs of this process: the job's own shell has bound it to them.
        self._cores = NodeCores(ids=cores, emulated=False)
        self._parent = os.getpid()

    def prepare(self, start: StartRequest) -> bytes | None:
        return None

    def run_shell(self, start: StartRequest, proven_payload: bytes | None) -> int:
        die_with_parent()
        if os.getppid() != self._parent:
            return 1
        return run_shell(self._socket, builtin(self._tmp, self._cores), start, proven_payload)

    def clean(self, start: StartRequest) -> int | None:
        return tmpdir.remove(self._tmp, start.id, start.rank)

    def left_mounts(self, host: str) -> None:
        return None  # they go with the job that this instance is


def _run_shell_parent(socket: Path, task: BatchTask, resources: ResourceSet) -> None:
    """Run the parent of a node's shells until the instance has gone."""
    life = _BatchShellLife(socket, task.tmp, resources.nodes[task.rank].cores)
    unique_name = f"{socket}:{task.rank}"
    ShellParent(socket, life, unique_name, suffix=f"-{task.rank}", outlives_instance=False).run()


# The first process


async def run_instance(
    task: BatchTask, resources: ResourceSet, command: Sequence[str], environment: Mapping[str, str]
) -> int:
    """Run the instance, and run the script in it; return its exit code. Raises RpcError."""
    async with connect(task.enclosing_socket) as enclosing:
        instance = _build_instance(task, resources)
        run_group = RunGroup(
            outer_runnables={"kvs": instance.kvs.run},
            runnables={
                **instance.runnables,
                "bus": lambda: server.serve(instance.bus, task.socket),
            },
        )
        ready = asyncio.Event()
        # The script is told to end as we are; we go on until it has, and all that it has started.
        for signum in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(signum, lambda: None)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run_group.run(ready))
            await ready.wait()
            await _drain_nodes_without_storage(task, enclosing, instance)
            await _publish_uri(task, enclosing)
            code = await _run_script(command, environment)
            await _end_jobs(instance.handle)
            running.cancel()
    return code


async def _job_resources(task: BatchTask) -> ResourceSet:
    """Return what the job was given. Raises RpcError."""
    lookup = {"id": task.job_id, "keys": ["R"]}
    async with connect(task.enclosing_socket) as enclosing:
        reply = await enclosing.rpc("job-info.lookup", lookup)
    return resource_set.decode_all(orjson.loads(reply["R"]))


def _build_instance(task: BatchTask, resources: ResourceSet) -> Instance:
    # Jobs inside get no flash, and no expiration: they end with the enclosing job.
    own_resources = replace(
        resource_set.remap(resources), scheduling=None, starttime=0.0, expiration=0.0
    )
    hosts = [node.host for node in own_resources.nodes]

    def launcher(bus: Bus, handle: Handle) -> Launcher:
        nodes = {}
        for rank, host in enumerate(hosts):
            nodes[host] = RemoteLauncher(handle, bus.owner, f"-{rank}")
            bus.register(f"{EXEC_SERVICE}-{rank}", nodes[host].methods())
        return PerNodeLauncher(nodes)

    dependencies = InstanceDependencies(
        clock=SystemClock(),
        kvs_journal=MemoryJournal(),
        launcher=launcher,
        commands=ProcessCommands((_MARK_VARIABLE, secrets.token_hex())),
        owner=os.geteuid(),
    )
    return assemble(resource_set.encode_all(own_resources), dependencies)


async def _drain_nodes_without_storage(
    task: BatchTask, enclosing: Handle, instance: Instance
) -> None:
    """Keep jobs from the nodes whose storage has failed, with which the job goes on (ADR 072)."""
    reply = await enclosing.rpc("job-info.lookup", {"id": task.job_id, "keys": ["eventlog"]})
    notes = [
        each.context.get("note", "")
        for each in eventlog.decode(reply["eventlog"])
        if each.name == "exception" and each.context.get("type") == tolerance.EXCEPTION
    ]
    for node in sorted(frozenset[str]().union(*map(tolerance.node_names, notes))):
        request = {"targets": node, "reason": tolerance.DRAIN_REASON, "mode": "update"}
        with suppress(RpcError):  # it is none of ours
            await instance.handle.rpc("resource.drain", request)


async def _publish_uri(task: BatchTask, enclosing: Handle) -> None:
    """Publish the instance's URI, to the other processes of the job and to users."""
    uri = f"{_URI_SCHEME}{task.socket}"
    operation = {"key": URI_KEY, "flags": 0, "dirent": treeobj.val(uri.encode())}
    request = {"namespace": task.kvs_namespace, "ops": [operation], "rootref": False}
    # Once, however often it is sent; and it waits, where there is no room for it now.
    request.update(writer="broker", sequence=1)
    await enclosing.rpc("kvs.commit", request)
    await enclosing.rpc("job-manager.memo", {"id": task.job_id, "memo": {"uri": uri}})
    await _enter_barrier(task, enclosing)


async def _enter_barrier(task: BatchTask, enclosing: Handle) -> None:
    request = {"name": task.barrier_name, "nprocs": task.size, "who": str(task.rank)}
    await enclosing.rpc("barrier.enter", request)


async def _run_script(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the script, which gets the signals that the job gets; return its exit code."""
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    code = await process.wait()
    return code if code >= 0 else 128 - code


async def _end_jobs(handle: Handle) -> None:
    """End the jobs that the script has left behind."""
    request: dict[str, Any] = {"attrs": ["id"], "constraint": {"states": ["active"]}}
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            for job in (await handle.rpc("job-list.list", request))["jobs"]:
                exception = {"id": job["id"], "type": "cancel", "severity": 0}
                with suppress(RpcError):  # it has ended by itself
                    await handle.rpc(
                        "job-manager.raise", {**exception, "note": "the batch script has ended"}
                    )
            await handle.rpc("job-manager.drain")


# The others


async def _wait_for_socket(task: BatchTask) -> Path:
    """Wait until the first process is there, and return its socket. Raises RpcError."""
    async with connect(task.enclosing_socket) as enclosing:
        await _enter_barrier(task, enclosing)
        request = {"key": URI_KEY, "namespace": task.kvs_namespace}
        uri = treeobj.read_val((await enclosing.rpc("kvs.lookup", request))["val"])
    return Path(uri.decode().removeprefix(_URI_SCHEME))


def main(command: Sequence[str]) -> int:
    """Run one process of a batch job's instance, and return its exit code."""
    task = task_of_environment(os.environ)
    resources = asyncio.run(_job_resources(task))
    if task.rank != 0:
        _run_shell_parent(asyncio.run(_wait_for_socket(task)), task, resources)
        return 0
    # A fork of what has loaded everything, before there are threads.
    if os.fork() == 0:
        die_with_parent()
        _run_shell_parent(task.socket, task, resources)
        os._exit(0)
    return asyncio.run(run_instance(task, resources, command, script_environment(os.environ, task)))


if __name__ == "__main__":
    logs.configure()
    try:
        sys.exit(main(sys.argv[1:]))
    except (WarrenError, OSError) as error:
        print(f"warren: the batch job's instance cannot be: {error}", file=sys.stderr)
        sys.exit(1)
