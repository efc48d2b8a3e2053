"""What a shell knows of its job: hosts, the tasks of its node, and what they are given. Pure."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final

import msgspec
import orjson

from warren.base.errors import UserMistake
from warren.instance.shell import options as shell_options
from warren.instance.shell.options import NO_OPTIONS, CannotRun, Options
from warren.rfc import jobspec as jobspecs
from warren.rfc import resource_set, signed_request, taskmap
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId
from warren.rfc.resource_set import NodeResources
from warren.rfc.taskmap import Block

MOST_TASKS: Final = 2**16
"""Tasks of one job on one node: more than nodes run, and few enough to be listed."""

_SIGNED_ATTRIBUTES: Final = ("cwd", "environment", "exec", "files", "shell")
"""Attributes that say what is done as the author, and where."""


class ShellInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell on one node of a job knows of the job, as `flux_shell_get_info` has it."""

    job: JobId
    userid: int
    rank: int
    """Of the shell: 0 is the leader."""
    hosts: Sequence[str]
    taskmap: Sequence[Block]
    task_count: int
    """How many tasks the job has."""
    task_ranks: Sequence[int]
    """The ranks of the tasks of this node."""
    jobspec: Mapping[str, Any]
    r: Mapping[str, Any]
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    options: Options = NO_OPTIONS

    @property
    def host(self) -> str:
        return self.hosts[self.rank]

    @property
    def command(self) -> Sequence[str]:
        return self.jobspec["tasks"][0]["command"]  # type: ignore[no-any-return]

    @property
    def resources(self) -> NodeResources:
        """What of this node is the job's."""
        return resource_set.decode_nodes(self.r)[self.rank]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The gpus of this node that are the job's."""
        if not any("gpu" in each["children"] for each in self.r["execution"]["R_lite"]):
            return ()
        return self.resources.gpus

    @property
    def expiration(self) -> float:
        """When the job's time is up; 0 for never."""
        return float(self.r["execution"].get("expiration") or 0.0)


def read(
    values: Mapping[str, Any], job: JobId, rank: int, proven_payload: bytes | None = None
) -> ShellInfo:
    """Read what a shell is to know from a job's J, jobspec and R. Raises CannotRun.

    `proven_payload` is the payload of J where that was proven; else the instance answers for it.
    """
    try:
        request = signed_request.unwrap(values["J"], mechanisms=signed_request.MECHANISMS)
        signed = orjson.loads(request.payload if proven_payload is None else proven_payload)
        spec = with_signed_parts(orjson.loads(values["jobspec"]), signed)
        r = orjson.loads(values["R"])
        hosts = resource_set.nodelist(r)
        system = jobspecs.system(spec)
        options = shell_options.read(system.get("shell", {}).get("options"))
        per_node = tasks_per_node(spec, r, hosts, options)
        if max(per_node, default=0) > MOST_TASKS:
            raise CannotRun(
                f"{max(per_node)} tasks on one node are too many: a node runs up to {MOST_TASKS}"
            )
        blocks = task_map(per_node, spec, options)
        # The environment is in the signed request alone, and never changes after it.
        signed_system = jobspecs.system(signed)
        environment = {
            **signed_system.get("environment", {}),
            **(signed["tasks"][0].get("attributes") or {}).get("environment", {}),
        }
        return ShellInfo(
            job=job,
            userid=request.userid,
            rank=rank,
            hosts=hosts,
            taskmap=blocks,
            task_count=sum(per_node),
            task_ranks=tuple(taskmap.ranks_of(blocks, rank)),
            jobspec=spec,
            r=r,
            # What is null is to be unset, and nothing else is handed down.
            environment={name: value for name, value in environment.items() if value is not None},
            cwd=signed_system.get("cwd"),
            options=options,
        )
    except (UserMistake, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotRun(f"the job cannot be read: {error}") from error


def with_signed_parts(spec: Mapping[str, Any], signed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the instance's jobspec with all that is the author's alone as it was signed.

    Resources and the other attributes are the instance's to change. Raises CannotRun where
    there are other tasks than those that were signed.
    """
    if len(spec["tasks"]) != len(signed["tasks"]):
        raise CannotRun("the job's tasks are not those that its user has signed")
    tasks = [
        {**task, "command": signed_task["command"]}
        for task, signed_task in zip(spec["tasks"], signed["tasks"], strict=True)
    ]
    system = {
        key: value for key, value in jobspecs.system(spec).items() if key not in _SIGNED_ATTRIBUTES
    }
    system |= {
        key: value for key, value in jobspecs.system(signed).items() if key in _SIGNED_ATTRIBUTES
    }
    return {**spec, "tasks": tasks, "attributes": {**spec["attributes"], "system": system}}


def tasks_per_node(
    spec: Mapping[str, Any], r: Mapping[str, Any], hosts: Sequence[str], options: Options
) -> list[int]:
    """Return the number of tasks of each node. Raises CannotRun, or BadFormat for a bad jobspec."""
    count = spec["tasks"][0]["count"]
    for_each = options.per_resource or shell_options.per_resource(
        count.get("per_resource"), "tasks[0].count.per_resource"
    )
    if for_each is not None:
        type_, number = for_each
        if type_ == "node":
            return [number] * len(hosts)
        return [number * len(node.cores) for node in resource_set.decode_nodes(r)]
    counts = jobspecs.resource_counts(spec)
    slots = r["execution"].get("nslots", counts.slots) if counts.moldable else counts.slots
    tasks = jobspecs.tasks_in_slots(spec, slots)
    if len(hosts) == 1:
        return [tasks]
    return cyclic_counts(tasks, [len(node.cores) for node in resource_set.decode_nodes(r)],
                  counts.cores_per_slot)  # fmt: skip


def cyclic_counts(tasks: int, cores: Sequence[int], cores_per_task: int) -> list[int]:
    """Return the tasks of each node, dealt in turn while it has cores, and then regardless."""
    counts = [0] * len(cores)
    free_slots = [max(number // cores_per_task, 0) for number in cores]
    tasks_left = tasks
    while tasks_left and any(free_slots):
        open_nodes = [node for node, free in enumerate(free_slots) if free]
        # As many rounds at once as the fullest of the open nodes still takes.
        rounds = (
            min(min(free_slots[node] for node in open_nodes), tasks_left // len(open_nodes)) or 1
        )
        for node in open_nodes:
            taken = min(rounds, tasks_left)
            counts[node] += taken
            free_slots[node] -= taken
            tasks_left -= taken
    for node in range(len(cores)):
        counts[node] += tasks_left // len(cores) + (node < tasks_left % len(cores))
    return counts


def task_map(per_node: Sequence[int], spec: Mapping[str, Any], options: Options) -> list[Block]:
    """Number the tasks: by node, in turns, or as the job says. Raises CannotRun."""
    scheme, value = options.taskmap
    distribution = spec["tasks"][0].get("distribution")
    if scheme == "block" and distribution:
        scheme, _, value = str(distribution).partition(":")
    if scheme == "block":
        return [Block(*block) for block in taskmap.encode(per_node)]
    if scheme == "cyclic":
        return cyclic_map(per_node, value)
    if scheme == "manual":
        return _manual_map(per_node, value)
    raise CannotRun(f"taskmap scheme {scheme!r} is not one of block, cyclic, manual")


def cyclic_map(per_node: Sequence[int], value: str) -> list[Block]:
    """Number the tasks in turns of `value` for each node. Raises CannotRun."""
    stride = int(value) if value.isdecimal() else 0 if value else 1
    if stride < 1:
        raise CannotRun(f"taskmap cyclic:{value} has no number of tasks for each turn")
    ranks: list[list[int]] = [[] for _ in per_node]
    rank, size = 0, sum(per_node)
    for node in cycle(range(len(per_node))):
        if rank == size:
            return taskmap.from_ranks(ranks)
        turn = min(stride, per_node[node] - len(ranks[node]))
        ranks[node].extend(range(rank, rank + turn))
        rank += turn
    raise AssertionError  # pragma: no cover - a job has a node


def _manual_map(per_node: Sequence[int], value: str) -> list[Block]:
    try:
        text = value.lstrip()
        blocks = (
            taskmap.decode(orjson.loads(text)) if text[:1] in ("[", "{") else taskmap.from_raw(text)
        )
    except (BadFormat, ValueError) as error:
        raise CannotRun(f"taskmap manual: {error}") from error
    total, nodes = taskmap.task_count(blocks), taskmap.node_count(blocks)
    if total != sum(per_node) or nodes > len(per_node):
        raise CannotRun(
            f"taskmap manual has {total} tasks on {nodes} nodes, "
            f"and the job {sum(per_node)} on {len(per_node)}"
        )
    return blocks
