"""Templates in paths, commands and variables: `out-{{id}}-{{taskid}}`, filled in as flux does.

A name that is not known stays as it was written, braces and all: what follows may know it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.instance.shell.shellinfo import ShellInfo
from warren.rfc import fluid, idset, jobspec

_TAG_PATTERN: Final = re.compile(r"\{\{\s*([a-z0-9_.]+)\s*\}\}")
_OF_JOB: Final[Mapping[str, Callable[[ShellInfo], str]]] = {
    "name": lambda info: jobspec.name(info.jobspec),
    "jobid": lambda info: fluid.f58(info.job),
    "id": lambda info: fluid.f58(info.job),
    "nnodes": lambda info: str(len(info.hosts)),
    "ntasks": lambda info: str(info.task_count),
    "size": lambda info: str(info.task_count),
}
_OF_NODE: Final[Mapping[str, Callable[[ShellInfo], str]]] = {
    "node.id": lambda info: str(info.rank),
    "node.name": lambda info: info.host,
    "nodeid": lambda info: str(info.rank),
    "hostname": lambda info: info.host,
    "node.broker_rank": lambda info: str(info.resources.rank),
    "node.cores": lambda info: idset.encode(info.resources.cores),
    "node.ncores": lambda info: str(len(info.resources.cores)),
    "node.gpus": lambda info: idset.encode(info.resources.gpus),
    "tmpdir": lambda info: info.environment.get("FLUX_JOB_TMPDIR", ""),
}
_OF_TASK: Final = ("taskid", "task.id", "task.rank")
_OF_LOCAL_RANK: Final = ("localid", "task.index", "task.localid")


class EnvExpand(ShellPlugin):
    """Fills in those variables of the environment that are templates (`env-expand`)."""

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        for name, template in shell.info.options.variables.items():
            task.environment[name] = fill_in(template, shell.info, task.index)


def is_shared(template: str) -> bool:
    """Return whether a template is the same text for all tasks of a job."""
    return not any(
        name in (*_OF_NODE, *_OF_TASK, *_OF_LOCAL_RANK) for name in _TAG_PATTERN.findall(template)
    )


def fill_in(template: str, info: ShellInfo, task_index: int = 0) -> str:
    """Fill in a template for a task, which is counted among those of its node."""
    if "{{" not in template:
        return template

    def value(tag: re.Match[str]) -> str:
        found = _value(tag[1], info, task_index)
        return tag[0] if found is None else found

    return _TAG_PATTERN.sub(value, template)


def _value(name: str, info: ShellInfo, task_index: int) -> str | None:
    if name in _OF_TASK:
        return str(info.task_ranks[task_index])
    if name in _OF_LOCAL_RANK:
        return str(task_index)
    for prefix in ("id.", "jobid."):
        spelling = fluid.SPELLINGS.get(name.removeprefix(prefix))
        if name.startswith(prefix) and spelling is not None:
            return spelling(info.job)
    describe = _OF_JOB.get(name) or _OF_NODE.get(name)
    return None if describe is None else describe(info)
