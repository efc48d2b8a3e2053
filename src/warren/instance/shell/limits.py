"""What tasks may use: resource limits of the system, and the gpus that are the job's."""

import resource
from typing import Final

from warren.instance.shell.plugins import WARNING, RunningShell, ShellPlugin, TaskStart

GPUS: Final = "CUDA_VISIBLE_DEVICES"


class ResourceLimits(ShellPlugin):
    """Sets soft limits in the new process (shell option `rlimit`)."""

    def __init__(self) -> None:
        self._limits: dict[int, tuple[int, int]] = {}

    async def init(self, shell: RunningShell) -> None:
        for number, wanted in shell.part.options.rlimits.items():
            _, hard = resource.getrlimit(number)
            above = hard != resource.RLIM_INFINITY and not 0 <= wanted <= hard
            if above and wanted >= 0:
                await shell.log(WARNING, f"rlimit {wanted} is above the hard limit {hard}")
            self._limits[number] = (hard if above else wanted, hard)

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if self._limits:
            task.before_exec.append(self._set)

    def _set(self) -> None:
        for number, both in self._limits.items():
            resource.setrlimit(number, both)


class Gpus(ShellPlugin):
    """Says which gpus the tasks may see: all of the job's, or each its share (`gpu-affinity`)."""

    async def init(self, shell: RunningShell) -> None:
        if shell.part.options.gpus == "on" and shell.part.gpus:
            shell.environment[GPUS] = _listed(shell.part.gpus)

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        if shell.part.options.gpus == "per-task" and shell.part.gpus:
            shares = share(shell.part.gpus, len(shell.part.ranks))
            task.environment[GPUS] = _listed(shares[task.index])


def share(gpus: tuple[int, ...], tasks: int) -> list[tuple[int, ...]]:
    """Split gpus over tasks, the first the larger shares; where there are few, tasks share one."""
    if len(gpus) <= tasks:
        return [(gpus[task * len(gpus) // tasks],) for task in range(tasks)]
    sizes = [len(gpus) // tasks + (task < len(gpus) % tasks) for task in range(tasks)]
    return [gpus[sum(sizes[:task]) : sum(sizes[: task + 1])] for task in range(tasks)]


def _listed(gpus: tuple[int, ...]) -> str:
    return ",".join(map(str, gpus))
