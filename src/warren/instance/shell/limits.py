"""Shell plugins for resource limits (`rlimit`), CPU affinity and GPU affinity of tasks."""

import os
import resource
from collections.abc import Sequence
from typing import Final

from warren.instance.shell import affinity
from warren.instance.shell.affinity import NodeCores
from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import NOTICE, WARNING, RunningShell, ShellPlugin, TaskStart
from warren.instance.shell.shellinfo import ShellInfo
from warren.rfc import idset

_GPU_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_GPU_ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"


def limit_name(number: int) -> str:
    """Return the name of a limit, as the shell option has it."""
    names = (name for name in dir(resource) if name.startswith("RLIMIT_"))
    found = next((name for name in names if getattr(resource, name) == number), str(number))
    return found.removeprefix("RLIMIT_").lower()


class ResourceLimits(ShellPlugin):
    """Sets soft limits in the new process (shell option `rlimit`)."""

    def __init__(self) -> None:
        self._limits: dict[int, tuple[int, int]] = {}

    async def init(self, shell: RunningShell) -> None:
        for number, soft in shell.info.options.rlimits.items():
            _, hard = resource.getrlimit(number)
            is_above = hard != resource.RLIM_INFINITY and not 0 <= soft <= hard
            if is_above and soft >= 0:
                message = (
                    f"the limit {limit_name(number)}={soft} is above the hard limit here, {hard}"
                )
                await shell.log(WARNING, message)
            self._limits[number] = (hard if is_above else soft, hard)

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if self._limits:
            task.before_exec.append(self._set)

    def _set(self) -> None:
        for number, soft_and_hard in self._limits.items():
            resource.setrlimit(number, soft_and_hard)


class CpuBinding(ShellPlugin):
    """Binds tasks to the job's CPUs: to all of them, or each to its own (`cpu-affinity`)."""

    def __init__(self, node: NodeCores) -> None:
        self._node = node
        self._cpu_sets: Sequence[frozenset[int]] = ()
        """The CPUs of each task of this node; none where they are not bound."""

    async def init(self, shell: RunningShell) -> None:
        option = shell.info.options.cpu_affinity
        # What the shell may use is all that the node has: the machine, or what a batch job was
        # bound to.
        available = sorted(os.sched_getaffinity(0))
        sets = _choose_cpu_sets(shell.info, self._node, available)
        if option.verbose:
            for rank, cpus in zip(shell.info.task_ranks, sets, strict=True):
                binding = f"bound to CPUs {idset.encode(cpus)}" if cpus else "not bound to CPUs"
                await shell.log(
                    NOTICE, f"cpu-affinity: task {rank} on {shell.info.host}: {binding}"
                )
        if not option.dry_run and any(sets):
            self._cpu_sets = sets

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if self._cpu_sets:
            task.cpus = self._cpu_sets[task.index]


def _choose_cpu_sets(
    info: ShellInfo, node: NodeCores, available: Sequence[int]
) -> list[frozenset[int]]:
    """Choose the CPUs of each task of a node; empty sets where they are not bound."""
    option, tasks = info.options.cpu_affinity, len(info.task_ranks)
    if option.kind == "map":
        missing = frozenset().union(*option.sets).difference(available)
        if missing:
            raise CannotRun(
                f"shell option cpu-affinity names CPUs {idset.encode(missing)}, "
                f"and {info.host} has {idset.encode(available)}"
            )
        return [option.sets[index % len(option.sets)] for index in range(tasks)]
    resources = info.resources
    cpus = (
        ()
        if option.kind == "off"
        else affinity.choose_cpus(resources.rank, resources.cores, node, available)
    )
    if not cpus or option.kind == "on":
        return [frozenset(cpus)] * tasks
    # More cores than CPUs: each task has as many of these as of those, as far as there are.
    cpu_by_core = tuple(cpus[index % len(cpus)] for index in range(len(resources.cores)))
    return [frozenset(those) for those in split_units(cpu_by_core, tasks)]


class GpuVisibility(ShellPlugin):
    """Sets which gpus the tasks may see: all of the job's, or each its share (`gpu-affinity`)."""

    async def init(self, shell: RunningShell) -> None:
        if shell.info.options.gpu_affinity == "off" or not shell.info.gpus:
            return
        shell.environment.setdefault(_GPU_ORDER_VARIABLE, "PCI_BUS_ID")
        if shell.info.options.gpu_affinity == "on":
            shell.environment[_GPU_VARIABLE] = _comma_list(shell.info.gpus)

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if shell.info.options.gpu_affinity == "per-task" and shell.info.gpus:
            shares = split_units(shell.info.gpus, len(shell.info.task_ranks))
            task.environment[_GPU_VARIABLE] = _comma_list(shares[task.index])


def split_units(units: tuple[int, ...], tasks: int) -> list[tuple[int, ...]]:
    """Split units over tasks, the first the larger shares; where there are few, tasks share one."""
    if len(units) <= tasks:
        return [(units[task * len(units) // tasks],) for task in range(tasks)]
    sizes = [len(units) // tasks + (task < len(units) % tasks) for task in range(tasks)]
    return [units[sum(sizes[:task]) : sum(sizes[: task + 1])] for task in range(tasks)]


def _comma_list(gpus: tuple[int, ...]) -> str:
    return ",".join(map(str, gpus))
